"""An action waits for the person: approve, edit, deny, cancel, over the real wire."""

from __future__ import annotations

import json

import pytest

from tests.chat.desk import Desk, approve, cancel, deny, new_thread
from tests.fakes.mcp_server import Error, Text
from tests.fakes.model_provider import call, calls, text

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

REFUND = {"order": 1042, "amount": 20}


def model_saw(desk: Desk, index: int = -1) -> str:
    """Everything that the model was sent at one request."""
    return json.dumps(desk.provider.completions[index].json["messages"])


def test_it_works(desk: Desk) -> None:
    desk.fake.answer("refund", Text("refunded 1042"))
    desk.provider.script(calls(call("shop__refund", REFUND)), text("It is done."))
    front, thread = desk.member(), new_thread()
    asked = front.send("Refund order 1042", thread=thread)
    (interrupt,) = asked.interrupts
    assert desk.fake.count("refund") == 0
    assert interrupt["reason"] == "tool_call"
    assert interrupt["message"] == "Refund in Shop"
    assert interrupt["metadata"]["arguments"] == REFUND
    assert interrupt["metadata"]["agent"] == "Order desk"
    assert interrupt["metadata"]["path"] == ["Order desk"]
    assert interrupt["metadata"]["classification"] == "action"
    done = front.send(thread=thread, resume=[approve(interrupt)])
    assert done.text == "It is done."
    assert done.last["outcome"] == {"type": "success"}
    assert [c.arguments for c in desk.fake.calls if c.name == "refund"] == [REFUND]
    assert done.kinds.count("TOOL_CALL_RESULT") == 1
    assert "TOOL_CALL_START" not in done.kinds
    assert "refunded 1042" in model_saw(desk)
    assert desk.state(interrupt) == "executed"


def test_edited_arguments_are_what_runs_and_what_the_model_sees(desk: Desk) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)), text("Refunded five."))
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund", thread=thread).interrupts
    edited = {"order": 1042, "amount": 5}
    front.send(thread=thread, resume=[approve(interrupt, edited)])
    assert [c.arguments for c in desk.fake.calls if c.name == "refund"] == [edited]
    assert '\\"amount\\":5' in model_saw(desk).replace(" ", "")
    assert '\\"amount\\":20' not in model_saw(desk).replace(" ", "")
    (shown,) = [m for m in front.thread(thread)["messages"] if m.get("toolCalls")]
    assert json.loads(shown["toolCalls"][0]["function"]["arguments"]) == edited
    assert shown["toolCalls"][0]["edited"] is True


@pytest.mark.parametrize("edited", [{"order": "x", "amount": 5}, {"order": 1}, {"amount": 900}])
def test_an_edit_that_does_not_fit_the_schema_decides_nothing(
    desk: Desk, edited: dict[str, object]
) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)), text("ok"))
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund", thread=thread).interrupts
    refused = front.send(thread=thread, resume=[approve(interrupt, edited)])
    assert (refused.status, refused.code) == (422, "arguments_invalid")
    assert desk.state(interrupt) == "open"
    assert desk.fake.count("refund") == 0
    assert front.send(thread=thread, resume=[approve(interrupt)]).last["outcome"] == {
        "type": "success"
    }


def test_a_denial_with_its_reason_reaches_the_model(desk: Desk) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)), text("I will not."))
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund", thread=thread).interrupts
    done = front.send(thread=thread, resume=[deny(interrupt, "Too much money")])
    assert done.text == "I will not."
    assert desk.fake.count("refund") == 0
    assert "Denied by the user: Too much money" in model_saw(desk)
    (decided,) = front.thread(thread)["approvals"]
    assert (decided["state"], decided["reason"]) == ("denied", "Too much money")


def test_a_new_message_needs_the_open_approval_cancelled(desk: Desk) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)), text("Never mind then."))
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund", thread=thread).interrupts
    refused = front.send("Something else", thread=thread)
    assert (refused.status, refused.code) == (409, "approval_open")
    assert refused.problem["interrupts"] == [interrupt["id"]]
    done = front.send("Something else", thread=thread, resume=[cancel(interrupt)])
    assert done.text == "Never mind then."
    assert desk.fake.count("refund") == 0
    assert "Cancelled by the user." in model_saw(desk)
    assert "Something else" in model_saw(desk)


def test_two_calls_in_one_turn_are_decided_by_id_and_not_by_position(desk: Desk) -> None:
    """Both may even have the same call id and arguments: they are two approvals."""
    other = {"order": 7, "amount": 3}
    desk.provider.script(
        calls(call("shop__refund", REFUND, "call_0"), call("shop__refund", other, "call_0")),
        text("Done."),
    )
    front, thread = desk.member(), new_thread()
    interrupts = front.send("Refund both", thread=thread).interrupts
    by_order = {i["metadata"]["arguments"]["order"]: i for i in interrupts}
    front.send(thread=thread, resume=[approve(by_order[7]), deny(by_order[1042])])
    assert [c.arguments for c in desk.fake.calls if c.name == "refund"] == [other]


def test_free_calls_beside_a_gated_one_run_at_once(desk: Desk) -> None:
    desk.fake.answer("status", Text("shipped yesterday"))
    desk.provider.script(
        calls(call("shop__status", {"order": 1}, "a"), call("shop__refund", REFUND, "b")),
        text("Done."),
    )
    front, thread = desk.member(), new_thread()
    asked = front.send("Look and refund", thread=thread)
    assert desk.fake.count("status") == 1
    assert asked.kinds.count("TOOL_CALL_RESULT") == 1
    front.send(thread=thread, resume=[approve(asked.interrupts[0])])
    assert (desk.fake.count("status"), desk.fake.count("refund")) == (1, 1)
    assert "shipped yesterday" in model_saw(desk)


def test_a_tool_that_fails_is_an_outcome_like_any_other(desk: Desk) -> None:
    desk.fake.answer("refund", Error("no such order"))
    desk.provider.script(calls(call("shop__refund", REFUND)), text("It failed."))
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund", thread=thread).interrupts
    front.send(thread=thread, resume=[approve(interrupt)])
    assert "no such order" in model_saw(desk)
    assert desk.state(interrupt) == "executed"
    (shown,) = [m for m in front.thread(thread)["messages"] if m.get("toolCalls")]
    assert shown["toolCalls"][0]["state"] == "failed"


def test_the_whole_transcript_may_come_back_with_the_resume(desk: Desk) -> None:
    """As the reference client does it: old messages are not a new turn."""
    desk.provider.script(calls(call("shop__refund", REFUND)), text("Done."))
    front, thread = desk.member(), new_thread()
    first = [{"id": "u1", "role": "user", "content": "Refund"}]
    (interrupt,) = front.send(thread=thread, messages=first).interrupts
    done = front.send(thread=thread, messages=first, resume=[approve(interrupt)])
    assert done.text == "Done."
    assert [m["role"] for m in front.thread(thread)["messages"]].count("user") == 1
