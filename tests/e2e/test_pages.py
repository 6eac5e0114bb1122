"""The pages in a browser: streaming, stopping, re-attaching, deciding; writing an agent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import Visitor
from tests.e2e.proxy import door
from tests.e2e.site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

CHAT = "/chat/order-desk/"


@pytest.fixture
def page(visit: Callable[..., Visitor]) -> Page:
    """A member on an empty conversation."""
    visitor = visit("member")
    visitor.open(CHAT)
    return visitor.page


def say(page: Page, text: str) -> None:
    page.get_by_label("Message to").fill(text)
    page.keyboard.press("Enter")


def answers(page: Page) -> Locator:
    return page.locator(".message-assistant")


def cards(page: Page) -> Locator:
    return page.locator(".approval")


def is_settled(page: Page) -> None:
    """The run is over: Send stands where Stop stood."""
    expect(page.get_by_role("button", name="Send")).to_be_visible()


# --- streaming ------------------------------------------------------------------------------


def test_an_answer_comes_bit_by_bit_and_stays_once(page: Page) -> None:
    say(page, "Count to 150")
    expect(answers(page)).to_contain_text("1, 2, 3")
    assert "150" not in answers(page).inner_text()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(answers(page)).to_contain_text("149, 150.")
    is_settled(page)
    expect(answers(page)).to_have_count(1)
    expect(answers(page).locator(".prose p")).not_to_have_count(0)
    assert re.search(r"/chat/order-desk/[0-9a-f-]{36}/", page.url)


def test_escape_stops_and_keeps_the_text(page: Page) -> None:
    say(page, "Count to 900")
    expect(answers(page)).to_contain_text("1, 2, 3")
    page.keyboard.press("Escape")
    is_settled(page)
    expect(answers(page).get_by_text("stopped")).to_be_visible()
    assert "900" not in answers(page).inner_text()
    page.reload()
    expect(answers(page)).to_contain_text("1, 2, 3")
    expect(answers(page).get_by_text("stopped")).to_be_visible()
    say(page, "Count to 3")
    expect(answers(page).last).to_contain_text("1, 2, 3.")


def test_a_reload_takes_the_stream_up_again(page: Page) -> None:
    say(page, "Count to 250")
    expect(answers(page)).to_contain_text("10, 11")
    page.reload()
    expect(answers(page)).to_contain_text("10, 11")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(answers(page)).to_contain_text("249, 250.")
    is_settled(page)
    text = answers(page).locator(".message-body").inner_text()
    numbers = [int(number) for number in re.findall(r"\d+", text)]
    assert numbers == list(range(1, 251)), "something is missing or told twice"
    expect(page.locator(".message-user")).to_have_count(1)


def test_a_lost_connection_is_taken_up_again(site: Site, page: Page) -> None:
    taken_up: list[str] = []
    page.on("request", lambda r: taken_up.append(r.url) if "/events?" in r.url else None)
    with door(site.port) as entrance:
        page.goto(f"{entrance.url}{CHAT}")
        say(page, "Count to 250")
        expect(answers(page)).to_contain_text("10, 11")
        entrance.slam()
        expect(answers(page)).to_contain_text("249, 250.")
        is_settled(page)
        text = answers(page).locator(".message-body").inner_text()
    assert [int(n) for n in re.findall(r"\d+", text)] == list(range(1, 251))
    assert taken_up
    assert "after=0" not in taken_up[0]


def test_the_next_message_queues_visibly(page: Page) -> None:
    say(page, "Count to 150")
    expect(answers(page)).to_contain_text("1, 2")
    say(page, "Count to 4")
    expect(page.get_by_text("Next: Count to 4")).to_be_visible()
    expect(page.locator(".message-user")).to_have_count(1)
    expect(answers(page)).to_have_count(2)
    expect(answers(page).last).to_contain_text("1, 2, 3, 4.")
    expect(page.get_by_text("Next:")).to_be_hidden()


def test_a_queued_message_can_be_taken_back(page: Page) -> None:
    say(page, "Count to 150")
    expect(answers(page)).to_contain_text("1, 2")
    say(page, "Not this")
    page.get_by_role("button", name="Take back").click()
    expect(page.get_by_label("Message to")).to_have_value("Not this")
    is_settled(page)
    expect(page.locator(".message-user")).to_have_count(1)


def test_markup_of_a_model_is_text_and_loads_nothing(page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    say(page, "Say '<img src=/x onerror=alert(1)> ![spy](http://spy.example/a.png) **bold**'")
    expect(answers(page).locator("strong")).to_have_text("bold")
    assert answers(page).locator("img").count() == 0
    expect(answers(page)).to_contain_text("<img src=/x onerror=alert(1)>")
    assert not [url for url in asked if "spy.example" in url or url.endswith("/x")]


def comes_to_the_end(page: Page) -> None:
    """The view follows what is written, with the next frames at the latest."""
    distance = "box => box.scrollHeight - box.scrollTop - box.clientHeight"
    for _ in range(100):
        if page.locator("[data-slot=scroll]").evaluate(distance) < 4:
            return
        page.wait_for_timeout(30)
    pytest.fail("the end did not come into view")


def test_the_end_stays_in_view_until_the_person_scrolls_up(page: Page) -> None:
    page.set_viewport_size({"width": 400, "height": 500})
    say(page, "Count to 900")
    expect(answers(page)).to_contain_text("300, 301")
    comes_to_the_end(page)
    page.locator("[data-slot=scroll]").hover()
    page.mouse.wheel(0, -200)
    jump = page.get_by_role("button", name="Jump to latest")
    expect(jump).to_be_visible()
    seen = page.locator("[data-slot=scroll]").evaluate("box => box.scrollTop")
    expect(answers(page)).to_contain_text("600, 601")
    assert page.locator("[data-slot=scroll]").evaluate("box => box.scrollTop") == seen
    jump.click()
    page.keyboard.press("Escape")
    is_settled(page)
    comes_to_the_end(page)


def test_what_is_typed_survives_a_reload(page: Page) -> None:
    say(page, "Count to 3")
    is_settled(page)
    box = page.get_by_label("Message to")
    box.fill("Half a thought")
    page.reload()
    expect(box).to_have_value("Half a thought")
    page.get_by_role("link", name="New conversation").click()
    expect(answers(page)).to_have_count(0)
    expect(box).to_have_value("")


# --- decisions ------------------------------------------------------------------------------


def test_deny_with_a_reason(site: Site, page: Page) -> None:
    say(page, "Please refund order 1010")
    cards(page).focus()
    page.keyboard.press("d")
    page.get_by_label("Reason").fill("Too late for that")
    page.get_by_role("button", name="Deny this call").click()
    expect(cards(page)).to_contain_text("You denied this. Reason: Too late for that")
    is_settled(page)
    expect(page.locator(".tool")).to_have_attribute("data-state", "denied")
    assert site.order(1010)["refunded"] == 0
    page.reload()
    expect(page.locator(".tool")).to_have_attribute("data-state", "denied")


@pytest.mark.parametrize("key", ["d", "e"])
def test_no_key_approves_what_the_card_does_not_offer(site: Site, page: Page, key: str) -> None:
    say(page, "Please refund order 1009")
    cards(page).focus()
    page.keyboard.press(key)
    shown = "Deny this call" if key == "d" else "Approve edited call"
    for name in (shown, "Back"):
        cards(page).get_by_role("button", name=name).focus()
        for shortcut in ("a", "A", "Control+a", "Shift+A"):
            page.keyboard.press(shortcut)
    expect(cards(page)).to_have_attribute("data-state", "open")
    expect(cards(page).get_by_role("button", name=shown)).to_be_visible()
    page.goto(f"{site.url}/approvals/")
    cards(page).last.focus()
    page.keyboard.press(key)
    cards(page).last.get_by_role("button", name=shown).focus()
    page.keyboard.press("a")
    expect(cards(page).last).to_have_attribute("data-state", "open")
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    page.keyboard.press("Control+Enter")
    expect(cards(page).last).to_contain_text("You denied this.")
    assert site.order(1009)["refunded"] == 0


@pytest.mark.parametrize("width", [360, 1280])
def test_the_field_stays_in_view_while_it_is_edited(
    site: Site, visit: Callable[..., Visitor], width: int
) -> None:
    visitor = visit("member", width=width)
    visitor.open(CHAT)
    page = visitor.page
    say(page, "Please refund order 1009")
    cards(page).focus()
    page.keyboard.press("e")
    field = page.get_by_label("Arguments as JSON")
    field.fill(json.dumps({"order": 1009, "amount": 2, "reason": "a", "more": [1, 2, 3, 4, 5]}))
    page.keyboard.type(" ")
    expect(cards(page).locator(".diff .added").first).to_be_visible()
    frame = page.locator("[data-slot=scroll]").bounding_box()
    box = field.bounding_box()
    assert frame is not None
    assert box is not None
    assert box["y"] >= frame["y"] - 1
    assert box["y"] + box["height"] <= frame["y"] + frame["height"] + 1
    page.keyboard.press("Escape")
    page.keyboard.press("d")
    page.keyboard.press("Control+Enter")
    is_settled(page)


def test_unset_fields_of_the_tool_can_be_added(site: Site, page: Page) -> None:
    say(page, "Please refund order 1005")
    cards(page).focus()
    page.keyboard.press("e")
    expect(cards(page).locator(".fields")).to_contain_text("number · Amount in EUR")
    page.get_by_role("button", name="Add amount").click()
    page.keyboard.type("1.25")
    expect(page.get_by_role("button", name="Add amount")).to_have_count(0)
    page.keyboard.press("Control+Enter")
    expect(cards(page)).to_contain_text("You approved this with edited arguments.")
    is_settled(page)
    assert site.order(1005)["refunded"] == 1.25
    page.reload()
    expect(page.locator(".tool-record")).to_contain_text("You approved this with edited arguments")


def test_the_losing_window_shows_what_became_of_every_card(site: Site, page: Page) -> None:
    say(page, "Refund orders 1003 and 1002")
    expect(cards(page)).to_have_count(2)
    other = page.context.new_page()
    other.goto(page.url)
    expect(cards(other)).to_have_count(2)
    cards(other).first.focus()
    other.keyboard.press("d")
    other.keyboard.press("Control+Enter")
    expect(cards(other).first).to_contain_text("Your decision: denied")
    cards(page).first.focus()
    page.keyboard.press("a")
    page.keyboard.press("a")
    page.get_by_role("button", name="Submit 2 decisions").click()
    is_settled(page)
    cards(other).last.focus()
    other.keyboard.press("a")
    other.get_by_role("button", name="Submit 2 decisions").click()
    for card in (cards(other).first, cards(other).last):
        expect(card).to_have_attribute("data-state", "settled")
        expect(card).to_contain_text("You already approved this in another window.")
    expect(other.get_by_role("button", name=re.compile("Submit"))).to_be_hidden()
    assert other.evaluate("document.activeElement.className") == "approval"
    assert site.order(1003)["refunded"] == site.order(1003)["amount"]


def test_several_calls_are_decided_one_by_one_and_sent_together(site: Site, page: Page) -> None:
    say(page, "Refund orders 1011 and 1012")
    expect(cards(page)).to_have_count(2)
    expect(page.locator(".rail .count")).to_contain_text("2")
    submit = page.get_by_role("button", name="Submit 2 decisions")
    expect(submit).to_be_disabled()
    cards(page).first.focus()
    page.keyboard.press("a")
    expect(cards(page).first).to_contain_text("Your decision: approved")
    assert site.order(1011)["refunded"] == 0
    page.keyboard.press("d")
    page.keyboard.press("Control+Enter")
    expect(submit).to_be_focused()
    cards(page).first.get_by_role("button", name="Change").click()
    expect(submit).to_be_disabled()
    page.keyboard.press("a")
    submit.click()
    expect(cards(page).first).to_contain_text("You approved this.")
    expect(cards(page).last).to_contain_text("You denied this.")
    is_settled(page)
    assert site.order(1011)["refunded"] == site.order(1011)["amount"]
    assert site.order(1012)["refunded"] == 0


def test_wrong_arguments_are_told_and_nothing_is_lost(site: Site, page: Page) -> None:
    say(page, "Please refund order 1008")
    cards(page).focus()
    page.keyboard.press("e")
    field = page.get_by_label("Arguments as JSON")
    field.fill("{oops")
    expect(page.get_by_text("This is not JSON yet")).to_be_visible()
    field.fill(json.dumps({"order": 1008, "amount": "lots"}))
    page.get_by_role("button", name="Approve edited call").click()
    expect(page.get_by_text("“amount” breaks its rule")).to_be_visible()
    expect(field).to_have_value(json.dumps({"order": 1008, "amount": "lots"}))
    field.press("End")
    page.keyboard.type(" ")
    expect(page.get_by_text("“amount” breaks its rule")).to_be_hidden()
    assert site.order(1008)["refunded"] == 0
    field.fill(json.dumps({"order": 1008, "amount": 2.5}))
    page.get_by_role("button", name="Approve edited call").click()
    is_settled(page)
    expect(page.locator(".tool")).to_have_attribute("data-state", "done")
    assert site.order(1008)["refunded"] == 2.5


def test_another_message_cancels_an_open_decision(site: Site, page: Page) -> None:
    say(page, "Please refund order 1007")
    expect(page.get_by_text("Sending a message cancels it.")).to_be_visible()
    say(page, "Count to 3")
    expect(cards(page)).to_contain_text("You went on with another message. Nothing was done.")
    expect(answers(page).last).to_contain_text("1, 2, 3.")
    assert site.order(1007)["refunded"] == 0


def test_a_second_window_says_who_was_first(site: Site, page: Page) -> None:
    say(page, "Please refund order 1006")
    expect(cards(page)).to_be_visible()
    other = page.context.new_page()
    other.goto(page.url)
    expect(cards(other)).to_be_visible()
    approve(page)
    is_settled(page)
    approve(other)
    expect(cards(other)).to_contain_text("You already approved this in another window.")
    assert site.order(1006)["refunded"] == site.order(1006)["amount"]
    expect(other.locator(".tool")).to_have_attribute("data-state", "done")


def approve(page: Page) -> None:
    cards(page).get_by_role("button", name="Approve", exact=True).click()


def test_the_card_says_that_the_agent_was_unpublished(
    site: Site, page: Page, visit: Callable[..., Visitor]
) -> None:
    say(page, "Please refund order 1004")
    expect(cards(page)).to_be_visible()
    manager = visit("manager").page
    manager.goto(f"{site.url}/agents/order-desk/")
    manager.get_by_role("link", name="Unpublish from production…").click()
    expect(manager.locator("#dialog")).to_contain_text(re.compile("approvals that end.*1", re.S))
    manager.get_by_label("Why").fill("Incident.")
    manager.get_by_role("button", name="Unpublish from production").click()
    expect(manager.get_by_text("1 approval voided")).to_be_visible()
    approve(page)
    expect(cards(page)).to_contain_text("The agent was unpublished, which ended this request.")
    expect(page.locator("#agent-live")).to_have_text("contained")
    assert site.order(1004)["refunded"] == 0
    manager.get_by_role("link", name="Publish…").click()
    manager.get_by_label("Why").fill("It is over.")
    manager.get_by_role("button", name="Publish v1 to production").click()
    expect(manager.get_by_text("v1 is live in production.")).to_be_visible()


def test_a_suspended_agent_says_so_until_it_is_resumed(
    site: Site, page: Page, visit: Callable[..., Visitor]
) -> None:
    say(page, "Please refund order 1001")
    expect(cards(page)).to_be_visible()
    manager = visit("manager").page
    manager.goto(f"{site.url}/agents/order-desk/")
    manager.get_by_role("link", name="Suspend…").click()
    manager.get_by_label("Why").fill("Incident.")
    manager.get_by_role("button", name="Suspend Order desk").click()
    expect(manager.get_by_text(re.compile("Order desk is suspended, contained in"))).to_be_visible()
    say(page, "Are you there?")
    expect(page.locator(".notice-danger")).to_contain_text("This agent is suspended.")
    expect(page.locator("#agent-live")).to_have_text("suspended")
    expect(cards(page)).to_contain_text("The agent was suspended, which ended this request.")
    page.reload()
    expect(page.locator(".notice-danger")).to_contain_text("This agent is suspended.")
    expect(page.get_by_label("Message to")).to_be_disabled()
    assert "token" not in page.locator("main").inner_text()
    manager.get_by_role("link", name="Resume…").click()
    manager.get_by_label("Why").fill("It is over.")
    manager.get_by_role("button", name="Resume Order desk").click()
    expect(manager.get_by_text("Order desk is resumed.")).to_be_visible()
    page.reload()
    expect(page.locator("#agent-live")).to_contain_text("Live v")
    say(page, "Count to 3")
    expect(answers(page).last).to_contain_text("1, 2, 3.")
    assert site.order(1001)["refunded"] == 0


# --- the list of conversations --------------------------------------------------------------


def test_conversations_are_found_renamed_and_erased(page: Page) -> None:
    say(page, "Count to 5 for the zebra")
    expect(answers(page)).to_contain_text("5.")
    is_settled(page)
    row = page.locator(".thread[aria-current]")
    row.hover()
    row.get_by_label("Actions for").click()
    row.get_by_role("button", name="Rename").click()
    page.get_by_label("Name of the conversation").fill("About zebras")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("About zebras")
    page.keyboard.press("Control+k")
    page.keyboard.type("nowhere")
    expect(page.get_by_text("No conversation matches.")).to_be_visible()
    page.get_by_label("Search conversations").fill("zebra")
    expect(page.locator(".thread")).to_have_count(1)
    address = page.url
    row.hover()
    row.get_by_label("Actions for About zebras").click()
    row.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete conversation").click()
    page.wait_for_url(lambda url: url != address)
    page.goto(address)
    expect(page.get_by_text("There is no such conversation, or it is not yours.")).to_be_visible()


def test_a_name_that_is_being_typed_outlives_the_run(page: Page) -> None:
    say(page, "Count to 250")
    expect(answers(page)).to_contain_text("1, 2, 3")
    row = page.locator(".thread[aria-current]")
    row.hover()
    row.get_by_label("Actions for").click()
    row.get_by_role("button", name="Rename").click()
    name = page.get_by_label("Name of the conversation")
    name.fill("Half a na")
    expect(answers(page)).to_contain_text("249, 250.")
    is_settled(page)
    expect(name).to_be_focused()
    page.keyboard.type("me")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("Half a name")


def test_somebody_elses_conversation_is_not_found(
    page: Page, visit: Callable[..., Visitor]
) -> None:
    say(page, "Count to 3")
    is_settled(page)
    other = visit("manager").page
    other.goto(page.url)
    expect(other.get_by_text("There is no such conversation, or it is not yours.")).to_be_visible()
    assert other.locator(".message-user").count() == 0
    expect(other.get_by_label("Message to")).to_be_disabled()


# --- the agent page -------------------------------------------------------------------------


@pytest.fixture
def editor(visit: Callable[..., Visitor]) -> Page:
    """A manager on an agent's page."""
    visitor = visit("manager")
    visitor.open("/agents/shop-guide/")
    return visitor.page


def write(page: Page, line: str) -> None:
    field = page.get_by_label("Instructions", exact=True)
    field.fill(f"{field.input_value()}\n- {line}")


def test_what_is_typed_is_saved_by_itself(editor: Page) -> None:
    write(editor, "Answer in rhymes.")
    expect(editor.get_by_text("unpublished changes")).to_be_visible()
    expect(editor.locator(".editor-saved")).to_contain_text("Saved just now by Max Manager")
    editor.reload()
    expect(editor.get_by_label("Instructions", exact=True)).to_have_value(re.compile("rhymes"))


def test_publish_saves_first_and_keeps_the_reason_over_environments(editor: Page) -> None:
    write(editor, "Never shout.")
    editor.get_by_role("link", name="Publish…").click()
    dialog = editor.locator("#dialog")
    expect(dialog.locator("ins")).to_contain_text("Never shout.")
    editor.get_by_label("Why").fill("Manners.")
    dialog.get_by_label("Environment", exact=True).select_option("staging")
    expect(dialog.get_by_role("button", name=re.compile("to staging"))).to_be_visible()
    expect(editor.get_by_label("Why")).to_have_value("Manners.")
    editor.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_two_editors_conflict_and_lose_nothing(editor: Page) -> None:
    other = editor.context.new_page()
    other.goto(editor.url)
    write(other, "Theirs.")
    expect(other.locator(".editor-saved")).to_contain_text("Saved just now")
    write(editor, "Mine.")
    conflict = editor.get_by_role("alert").filter(has_text="saved this draft after you opened it")
    expect(conflict).to_contain_text("Theirs.")
    expect(conflict).to_contain_text("Mine.")
    expect(editor.get_by_label("Instructions", exact=True)).to_have_value(re.compile("Mine"))
    editor.get_by_role("button", name="Save mine over theirs").click()
    expect(conflict).to_be_hidden()
    editor.reload()
    expect(editor.get_by_label("Instructions", exact=True)).to_have_value(re.compile("Mine"))


# --- every page, every width ----------------------------------------------------------------


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_no_page_is_wider_than_the_window(
    visit: Callable[..., Visitor], width: int, theme: str
) -> None:
    visitor = visit("manager", width=width, theme=theme)
    desk = "/agents/order-desk/"
    more = ("/agents/", "/agents/+new/", desk, f"{desk}suspend/", f"{desk}resume/")
    for path in ("/", *more, "/chat/", CHAT, "/approvals/"):
        visitor.open(path)
        expect(visitor.page.locator("h1").first).to_be_visible()
        wide: Any = visitor.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, path


def test_the_drawers_work_by_keyboard(visit: Callable[..., Visitor]) -> None:
    visitor = visit("member", width=360)
    visitor.open(CHAT)
    page = visitor.page
    opener = page.get_by_role("button", name="Open navigation")
    opener.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="Approvals")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Approvals")).to_be_hidden()
    expect(opener).to_be_focused()
    page.get_by_role("button", name="Conversations").press("Enter")
    expect(page.get_by_role("link", name="New conversation")).to_be_visible()


def test_a_chosen_theme_stays(visit: Callable[..., Visitor]) -> None:
    visitor = visit("member")
    page = visitor.page
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(background) != light
    dark = page.evaluate(background)
    visitor.open("/approvals/")
    assert page.evaluate(background) == dark
    page.get_by_role("button", name="Follow the system").click()
    assert page.evaluate(background) == light
