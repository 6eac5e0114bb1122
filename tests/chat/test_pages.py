"""Home, chat and the approvals inbox: whose, in which order, and what they never show."""

from __future__ import annotations

import datetime as dt
import html
import json
import re
import uuid
from typing import Any

import pytest
from django.db import transaction
from django.test import Client
from django.utils import timezone

from agents import content_store
from agents.choices import ApprovalState, RunState
from agents.models import Approval, Blob, Membership, Run, User
from agents.selectors.identity import actor_of
from agents.services import identity
from agents.services.approvals import ARGUMENTS, canonical_arguments
from agents.services.boots import start_boot
from agents.services.runs import Principal, RunStart, begin_run
from chat.models import Thread, ThreadText
from chat.pages import member_principal
from chat.services.titles import store_title
from definitions.selectors import published
from definitions.services.publishing import publish_draft, unpublish
from tests.definitions.conftest import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def member(desk: Desk, client: Client) -> Client:
    """A browser of bob, a member; the agent is published in production."""
    draft = desk.write("Be brief. The secret word is narwhal.")
    publish_draft(
        actor=desk.manager,
        agent=desk.agent,
        environment=desk.production,
        draft_digest=draft.digest,
        rationale="go",
    )
    client.force_login(User.objects.get(username="bob"))
    return client


def waiting(
    desk: Desk,
    principal: Principal,
    *arguments: dict[str, Any],
    title: str = "Broken lamp",
    minutes: int = 15,
    asked_before: int = 0,
) -> list[Approval]:
    """A conversation whose run waits for decisions on calls with these arguments."""
    thread = Thread.objects.create(
        organization=desk.organization,
        agent=desk.agent,
        environment=desk.production,
        principal_kind=principal.kind,
        principal_issuer=principal.issuer,
        principal_subject=principal.subject,
        client_id=str(uuid.uuid4()),
    )
    store_title(desk.organization.id, thread.id, title)
    live = published(desk.agent.id, desk.production.id)
    assert live is not None
    start = RunStart(
        organization_id=desk.organization.id,
        agent_id=desk.agent.id,
        environment_id=desk.production.id,
        thread_id=thread.id,
        session_id=thread.id,
        client_run_id=str(uuid.uuid4()),
        request_digest="d" * 64,
        boot_id=start_boot(role="web").id,
        principal=principal,
        definition=live.pinned,
    )
    with transaction.atomic():
        run = begin_run(start).run
    Run.objects.filter(id=run.id).update(state=RunState.INTERRUPTED)
    digests = [
        content_store.put(desk.organization.id, ARGUMENTS, canonical_arguments(one))
        for one in arguments
    ]
    now = timezone.now()
    return [
        Approval.objects.create(
            organization=desk.organization,
            agent=desk.agent,
            environment=desk.production,
            run=run,
            thread_id=thread.id,
            principal_issuer=principal.issuer,
            principal_subject=principal.subject,
            definition_digest=live.pinned.digest,
            tool=desk.action_tool,
            tool_digest=desk.action_tool.digest,
            tool_call_id=f"call_{number}",
            arguments_digest=digest,
            decided_digest=digest,
            state=ApprovalState.OPEN,
            created_at=now - dt.timedelta(minutes=asked_before),
            expires_at=now + dt.timedelta(minutes=minutes),
        )
        for number, digest in enumerate(digests)
    ]


def text_of(answer: Any) -> str:
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.content.decode())


def test_the_inbox_shows_each_call_in_full(desk: Desk, member: Client) -> None:
    waiting(desk, member_principal(desk.member), {"order": 1042, "note": "a <b> & c"})
    page = text_of(member.get("/approvals/"))
    assert "Refund in Orders" in page
    assert "Broken lamp" in page
    assert "<dt>order</dt><dd>1042</dd>" in page
    assert "a &lt;b&gt; &amp; c" in page
    assert "<b>" not in page.split("data-inbox")[1].split("</ul>")[0]
    assert '<span class="count">1<' in page
    assert "1<span" in text_of(member.get("/approvals/count/"))


def test_the_cards_carry_the_interrupt_for_the_script(desk: Desk, member: Client) -> None:
    (approval,) = waiting(desk, member_principal(desk.member), {"order": 1042})
    page = member.get("/approvals/").content.decode()
    attribute = re.search(r'data-interrupt="([^"]*)"', page)
    assert attribute is not None
    interrupt = json.loads(html.unescape(attribute[1]))
    assert interrupt["id"] == str(approval.id)
    assert interrupt["metadata"]["arguments"] == {"order": 1042}


def test_invisible_characters_of_arguments_are_written_out(desk: Desk, member: Client) -> None:
    waiting(desk, member_principal(desk.member), {"to": "kim@example.com\u202emoc.live"})
    page = text_of(member.get("/approvals/"))
    listed = page.split('<dl class="arguments"')[1].split("</dl>")[0]
    assert "\\u202e" in listed
    assert "\u202e" not in listed


def test_the_oldest_is_first_and_a_conversation_stays_together(desk: Desk, member: Client) -> None:
    me = member_principal(desk.member)
    waiting(desk, me, {"n": 3}, title="Newest", asked_before=1)
    waiting(desk, me, {"n": 1}, {"n": 2}, title="Oldest", asked_before=9)
    waiting(desk, me, {"n": 4}, title="Middle", asked_before=5)
    page = text_of(member.get("/approvals/"))
    assert page.index("Oldest") < page.index("Middle") < page.index("Newest")
    assert page.count("data-thread=") == 3
    assert page.count("data-interrupt=") == 4


def test_it_shows_nobody_elses_and_nothing_that_ended(desk: Desk, member: Client) -> None:
    other = member_principal(desk.manager)
    waiting(desk, other, {"order": 1}, title="Of the manager")
    me = member_principal(desk.member)
    waiting(desk, me, {"order": 2}, title="Expired", minutes=-1)
    for state in (ApprovalState.DENIED, ApprovalState.VOID, ApprovalState.REQUESTED):
        (approval,) = waiting(desk, me, {"order": 3}, title=str(state))
        Approval.objects.filter(id=approval.id).update(state=state)
    page = text_of(member.get("/approvals/"))
    assert "Nothing waits for you" in page
    assert "Of the manager" not in page


def test_one_damaged_value_hides_its_card_only(desk: Desk, member: Client) -> None:
    me = member_principal(desk.member)
    damaged, _ = waiting(desk, me, {"order": 1}, {"order": 2})
    Blob.objects.filter(digest=damaged.arguments_digest).delete()
    ThreadText.objects.all().delete()
    page = text_of(member.get("/approvals/"))
    assert page.count("data-interrupt=") == 1
    assert "<dd>2</dd>" in page


def test_the_search_looks_at_titles_and_headlines(desk: Desk, member: Client) -> None:
    me = member_principal(desk.member)
    waiting(desk, me, {"order": 1}, title="Broken lamp")
    waiting(desk, me, {"order": 2}, title="Lost parcel")
    page = text_of(member.get("/approvals/?q=PARCEL"))
    assert "Lost parcel" in page
    assert "Broken lamp" not in page
    assert "No approval matches" in text_of(member.get("/approvals/?q=zebra"))


def test_home_says_what_waits_and_whom_to_chat_with(desk: Desk, member: Client) -> None:
    (approval,) = waiting(desk, member_principal(desk.member), {"order": 1042})
    page = text_of(member.get("/"))
    assert "Refund in Orders" in page
    assert f"/chat/order-desk/{approval.thread_id}/?environment=production" in page
    assert 'href="/chat/order-desk/?environment=production"' in page
    staging = text_of(member.get("/?environment=staging"))
    assert "No agent is published in staging" in staging


def test_the_chat_page_names_what_is_live(desk: Desk, member: Client) -> None:
    page = text_of(member.get("/chat/order-desk/"))
    assert "Live v1" in page
    assert "narwhal" not in page
    unpublish(
        actor=desk.manager, agent=desk.agent, environment=desk.production, rationale="Incident."
    )
    page = text_of(member.get("/chat/order-desk/"))
    assert "contained" in page
    staging = text_of(member.get("/chat/order-desk/?environment=staging"))
    assert "not published" in staging
    assert "contained" not in staging
    assert "order-desk" not in text_of(member.get("/chat/"))
    assert member.get("/chat/nobody/").status_code == 404


def test_a_suspended_agent_is_not_live(desk: Desk, member: Client) -> None:
    for address in ("/chat/order-desk/", "/chat/order-desk/state/"):
        assert 'data-state="live"' in text_of(member.get(address))
    identity.suspend_agent(actor=desk.manager, agent=desk.agent, rationale="Incident.")
    for address in ("/chat/order-desk/", "/chat/order-desk/state/"):
        page = text_of(member.get(address))
        assert 'data-state="suspended"' in page
        assert "Live v1" not in page


def test_members_see_no_manager_pages(desk: Desk, member: Client) -> None:
    page = text_of(member.get("/"))
    assert "/agents/" not in page
    assert member.get("/agents/order-desk/").status_code == 403


def test_pages_answer_get_only(desk: Desk, member: Client) -> None:
    for path in ("/", "/chat/", "/chat/order-desk/", "/approvals/"):
        assert member.post(path).status_code == 405


def test_other_organizations_find_no_agent_and_no_approval(desk: Desk, member: Client) -> None:
    waiting(desk, member_principal(desk.member), {"order": 1})
    stranger = User.objects.get(username="mallory")
    other = Membership.objects.get(user=stranger).organization
    identity.create_environment(
        actor=actor_of(User.objects.get(username="operator")),
        organization=other,
        name="Production",
        slug="production",
    )
    member.force_login(stranger)
    assert member.get("/chat/order-desk/").status_code == 404
    assert "Nothing waits for you" in text_of(member.get("/approvals/"))
