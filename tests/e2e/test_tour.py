"""The tour of the README, in a browser: publish, chat, approve, roll back, contain."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import Visitor
from tests.e2e.site import Hand, Site
from tests.fakes.mcp_server import FakeMCP, Structured, tool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


class Parcels:
    """Another shop's tool server: other names, other words, other numbers."""

    def __init__(self) -> None:
        self.paid_back = 0
        self.letters: list[dict[str, Any]] = []
        number = {"parcel": {"type": "integer", "description": "The parcel number."}}
        money = {"sum": {"type": "number", "description": "How much money to pay back."}}
        letter = {
            "recipient": {"type": "string", "description": "The email address."},
            "headline": {"type": "string", "description": "The subject."},
            "content": {"type": "string", "description": "What it says."},
        }
        self.server = FakeMCP(
            tools=[
                tool(
                    "parcel_lookup",
                    number,
                    required=["parcel"],
                    read_only=True,
                    description="Show the state of one parcel.",
                ),
                tool(
                    "money_back",
                    number | money,
                    required=["parcel"],
                    description="Refund a parcel: pay the customer back.",
                ),
                tool(
                    "post_letter",
                    letter,
                    required=list(letter),
                    description="Send an email to a customer.",
                ),
            ]
        )
        self.server.answer("parcel_lookup", self.look_up)
        self.server.answer("money_back", self.pay_back)
        self.server.answer("post_letter", self.post)

    def look_up(self, arguments: dict[str, Any]) -> Structured:
        return Structured(
            {"parcel": arguments["parcel"], "state": "sorted", "back": self.paid_back}
        )

    def pay_back(self, arguments: dict[str, Any]) -> Structured:
        self.paid_back += arguments.get("sum", 99)
        return self.look_up(arguments)

    def post(self, arguments: dict[str, Any]) -> Structured:
        self.letters.append(arguments)
        return Structured({"posted": True})


@pytest.fixture(scope="module")
def parcels() -> Iterator[Parcels]:
    made = Parcels()
    with made.server:
        yield made


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, parcels: Parcels) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"), outgoing_allowed=parcels.server.host_port)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@dataclass(frozen=True)
class Tour:
    """One telling of the same story."""

    slug: str
    read_tool: str
    action_tool: str
    email_tool: str
    greeting: str
    ask_state: str
    state: str
    ask_refund: str
    edited: dict[str, Any]
    refunded: Callable[[], float]
    before: float
    ask_email: str
    emails: Callable[[], int]


def original(site: Site) -> Tour:
    return Tour(
        slug="order-desk",
        read_tool="order_status",
        action_tool="refund_order",
        email_tool="send_email",
        greeting='Always begin your answers with "Ahoy".',
        ask_state="What is the state of order 1002?",
        state="shipped",
        ask_refund="Please refund order 1003.",
        edited={"order": 1003, "amount": 5},
        refunded=lambda: float(site.order(1003)["refunded"]),
        before=0,
        ask_email='Send an email to chloe@example.com with the subject "Refund" saying "Sorry!"',
        emails=lambda: len(site.outbox()),
    )


def renamed(site: Site, parcels: Parcels) -> Tour:
    """An operator connects the other server, a manager grants it to another agent."""
    operator, manager = Hand(site, "admin"), Hand(site, "manager")
    where = {"organization": "harbour-books"}
    connector = {"name": "Parcels", "slug": "parcels", "url": parcels.server.url}
    operator.post("/connectors", connector, **where)
    operator.post("/connectors/parcels/actions/refresh", {}, **where)
    for found in operator.get("/tools", connector="parcels", **where)["items"]:
        review = {
            "digest_seen": found["digest"],
            "classification": "read" if found["name"] == "parcel_lookup" else "action",
            "rationale": "Read it.",
        }
        operator.post(f"/tools/{found['id']}/actions/review", review, **where)
        grant = {"environment": "production", "tool": found["exposed_name"]}
        manager.post("/agents/shop-guide/grants", grant)
    return Tour(
        slug="shop-guide",
        read_tool="parcel_lookup",
        action_tool="money_back",
        email_tool="post_letter",
        greeting='Start every reply with "Moin".',
        ask_state="Where is parcel 5077?",
        state="sorted",
        ask_refund="I want my money back for parcel 5077.",
        edited={"parcel": 5077, "sum": 12.5},
        refunded=lambda: float(parcels.paid_back),
        before=0,
        ask_email='Email kim@example.com, subject "Parcel", saying "It is paid back."',
        emails=lambda: len(parcels.letters),
    )


def answers(page: Page) -> Any:
    return page.locator(".message-assistant")


def tool_line(page: Page, name: str) -> Any:
    return page.locator(f".tool[data-tool$='__{name}']")


def say(page: Page, text: str) -> None:
    page.get_by_label("Message to").fill(text)
    page.keyboard.press("Enter")


def publish(page: Page, button: str) -> None:
    page.get_by_label("Why").fill("For the tour.")
    page.get_by_role("button", name=button).click()


def choose_tools(page: Page, prefix: str) -> None:
    """Tick exactly the tools of the connector that is called *prefix*."""
    for group in page.locator(".pick-group").all():
        wanted = group.locator(".pick-head").inner_text() == prefix
        for box in group.get_by_role("checkbox").all():
            box.set_checked(wanted)


@pytest.mark.parametrize("telling", ["original", "renamed"])
def test_the_tour(
    site: Site, parcels: Parcels, visit: Callable[..., Visitor], telling: str
) -> None:
    tour = original(site) if telling == "original" else renamed(site, parcels)
    manager, member = visit("manager").page, visit("member").page

    # The manager changes the instructions and publishes.
    manager.goto(f"{site.url}/agents/{tour.slug}/")
    choose_tools(manager, "Orders" if telling == "original" else "Parcels")
    instructions = manager.get_by_label("Instructions", exact=True)
    instructions.fill(f"{instructions.input_value()}\n- {tour.greeting}\n")
    manager.get_by_role("link", name="Publish…").click()
    expect(manager.locator("#dialog ins").first).to_contain_text(tour.greeting.split()[0])
    publish(manager, "Publish v2 to production")
    expect(manager.get_by_text("v2 is live in production.")).to_be_visible()

    # The member asks for a state: a read runs by itself.
    member.goto(f"{site.url}/chat/{tour.slug}/")
    expect(member.get_by_text("Live v2")).to_be_visible()
    say(member, tour.ask_state)
    expect(answers(member).last).to_contain_text(tour.state)
    expect(answers(member).last).to_contain_text(re.findall(r'"(\w+)"', tour.greeting)[0])
    expect(tool_line(member, tour.read_tool)).to_have_attribute("data-state", "done")

    # The member asks for a refund: an action waits, is edited, and runs as edited.
    say(member, tour.ask_refund)
    card = member.get_by_role("group", name="Approval:")
    expect(card).to_contain_text(tour.action_tool)
    expect(member.locator(".rail .count")).to_contain_text("1")
    assert tour.refunded() == tour.before
    card.focus()
    member.keyboard.press("e")
    member.get_by_label("Arguments as JSON").fill(json.dumps(tour.edited))
    expect(card.locator(".diff .added").first).to_be_visible()
    card.get_by_role("button", name="Approve edited call").click()
    expect(card).to_contain_text("You approved this with edited arguments.")
    expect(tool_line(member, tour.action_tool)).to_have_attribute("data-state", "done")
    expect(answers(member)).to_have_count(2)
    assert tour.refunded() == tour.before + list(tour.edited.values())[-1]
    expect(member.locator(".rail .count")).to_have_count(0)

    # An e-mail, approved from the inbox.
    say(member, tour.ask_email)
    expect(member.locator(".approval[data-state=open]")).to_be_visible()
    sent = tour.emails()
    member.goto(f"{site.url}/approvals/")
    card = member.get_by_role("group", name="Approval:")
    card.get_by_role("button", name="Approve", exact=True).click()
    expect(card).to_contain_text("You approved this.")
    card.get_by_role("link", name="Open the conversation").click()
    expect(tool_line(member, tour.email_tool)).to_have_attribute("data-state", "done")
    assert tour.emails() == sent + 1

    # The old version again, then Unpublish: the open conversation is refused.
    manager.get_by_label("Version 1 actions").click()
    manager.get_by_role("link", name="Publish this version").locator("visible=true").click()
    publish(manager, "Publish v1 to production")
    expect(manager.get_by_text("v1 is live in production.")).to_be_visible()
    manager.get_by_role("link", name="Unpublish from production…").click()
    publish(manager, "Unpublish from production")
    expect(manager.get_by_text(re.compile(r"contained in (\d+\.\d s|\d+ ms): "))).to_be_visible()
    said = answers(member).count()
    say(member, tour.ask_state)
    expect(member.get_by_text("Nothing is published for this agent")).to_be_visible()
    expect(member.get_by_text("not_published")).to_be_visible()
    assert answers(member).count() == said
