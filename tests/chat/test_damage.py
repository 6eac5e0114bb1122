"""Unreadable content fails closed, with a code, and only where it is needed."""

from __future__ import annotations

import pytest
from django.db.models import F

from agents.models import Approval, Blob, Run
from chat.models import SessionEvent, ThreadText
from definitions.models import Draft
from definitions.services import drafts
from tests.chat.desk import Desk, approve, new_thread
from tests.fakes.model_provider import call, calls, text

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

REFUND = {"order": 1042, "amount": 20}


def flip(row: Blob | SessionEvent | ThreadText, column: str) -> None:
    sealed = bytearray(getattr(row, column))
    sealed[-1] ^= 1
    setattr(row, column, bytes(sealed))
    row.save(update_fields=[column])


def test_a_flipped_byte_in_the_instructions_stops_that_agent_alone(desk: Desk) -> None:
    other = drafts.create_agent(
        actor=desk.world.manager, team=desk.world.team, name="Other", slug="other"
    )
    desk.publish(other, "Other words.")
    digest = Draft.objects.get(agent=desk.world.agent).digest
    flip(Blob.objects.get(digest=digest), "sealed")
    front = desk.member()
    refused = front.send("Hi", thread=new_thread())
    assert (refused.status, refused.code) == (409, "content_damaged")
    assert Run.objects.count() == 0
    desk.provider.script(text("Hello"))
    assert front.send("Hi", thread=new_thread(), agent="other").text == "Hello"
    assert front.http.get("/apps/v1/threads").status_code == 200
    assert len(front.http.get("/apps/v1/agents").json()["items"]) == 2


def test_a_damaged_history_is_not_continued(desk: Desk) -> None:
    desk.provider.script(text("Hello"))
    front, thread = desk.member(), new_thread()
    front.send("Hi", thread=thread)
    flip(SessionEvent.objects.filter(type="model/message")[0], "payload")
    answer = front.send("And?", thread=thread)
    assert (answer.last["type"], answer.code) == ("RUN_ERROR", "content_damaged")
    assert len(desk.provider.completions) == 1
    assert front.thread(thread)["messages"][-1]["error"]["code"] == "content_damaged"
    desk.provider.script(text("Hello"))
    assert front.send("Hi", thread=new_thread()).text == "Hello"


def test_a_history_that_was_changed_since_the_pause_runs_nothing(desk: Desk) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)))
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund", thread=thread).interrupts
    last = SessionEvent.objects.filter(type="model/message").order_by("-seq")[0]
    last.delete()
    SessionEvent.objects.filter(seq__gt=last.seq).update(seq=F("seq") - 1)
    answer = front.send(thread=thread, resume=[approve(interrupt)])
    assert answer.code == "content_damaged"
    assert desk.fake.total == 0
    assert Approval.objects.get().state == "void"


def test_a_damaged_title_hides_the_title_only(desk: Desk) -> None:
    desk.provider.script(text("Hello"))
    front, thread = desk.member(), new_thread()
    front.send("Hi", thread=thread)
    flip(ThreadText.objects.get(), "title")
    (item,) = front.http.get("/apps/v1/threads").json()["items"]
    assert item["title"] == ""
    assert front.thread(thread)["messages"][-1]["content"] == "Hello"


def test_damaged_arguments_cannot_be_approved(desk: Desk) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)), text("ok"))
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund", thread=thread).interrupts
    flip(Blob.objects.get(kind="arguments"), "sealed")
    assert front.thread(thread)["interrupts"] == []
    front.send(thread=thread, resume=[approve(interrupt)])
    assert desk.fake.total == 0
