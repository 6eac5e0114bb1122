"""A run is not its HTTP request: drop, re-attach, repeat, stop, and what a dead process leaves."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
import uuid
from collections.abc import AsyncIterator

import httpx
import pytest

from agents.choices import RunState
from agents.clock import database_now
from agents.gateways.responses import Message
from agents.models import Boot, Membership, Run
from agents.services import identity
from agents.services.boots import start_boot
from agents.services.sweeps import sweep_control
from chat.agui import bearers, streams
from chat.models import SessionEvent
from chat.selectors.log import Entry, all_entries
from chat.services import execution
from chat.services.hub import hub
from chat.services.planning import Attached
from chat.services.terminal import sweep_ends
from tests.chat.desk import (
    Desk,
    approve,
    eventually,
    new_thread,
    parse_stream,
    run_input,
    settle_writes,
)
from tests.fakes.mcp_server import Hang, Slow, Text
from tests.fakes.model_provider import call, calls, cut, failure, hang, text

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

LONG = "one two three four five six seven eight nine ten"
REFUND = {"order": 1042, "amount": 20}


def test_the_stream_has_the_binding_of_the_protocol(desk: Desk) -> None:
    desk.provider.script(text("Hello"))
    answer = desk.member().send("Hi", thread=new_thread())
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.events[0]["protocolVersion"] == "1.0"
    assert "input" not in answer.events[0]
    assert answer.ids == sorted(set(answer.ids))


def test_a_newer_minor_version_and_unknown_members_are_served(desk: Desk) -> None:
    desk.provider.script(text("Hello"))
    body = run_input("Hi", new_thread(), "r", (), None)
    answer = desk.member().post({**body, "protocolVersion": "1.7", "surprise": {"a": 1}})
    assert answer.events[0]["protocolVersion"] == "1.0"
    assert answer.text == "Hello"


def test_text_comes_as_the_model_says_it(desk: Desk) -> None:
    desk.provider.script(text(LONG, chunk=4, pace=0.1))
    stream = desk.member().begin("Count", thread=new_thread(), run="r")
    stream.wait_for("TEXT_MESSAGE_CONTENT", 2)
    assert "RUN_FINISHED" not in [e["type"] for e in stream.events]
    assert stream.finish()[-1]["outcome"] == {"type": "success"}


def test_a_dropped_connection_loses_nothing(desk: Desk) -> None:
    desk.provider.script(text(LONG, chunk=4, pace=0.1))
    front, thread = desk.member(), new_thread()
    stream = front.begin("Count", thread=thread, run="r")
    stream.wait_for("TEXT_MESSAGE_CONTENT", 2)
    stream.drop()
    seen, last = list(stream.events), stream.ids[-1]
    rest = front.http.get(f"/apps/v1/threads/{thread}/runs/r/events?after={last}")
    events, ids = parse_stream(rest.text)
    assert min(ids) > last
    whole = front.attach(thread, "r")
    assert [*seen, *events] == whole.events
    assert whole.text == LONG
    assert Run.objects.get().state == RunState.SUCCEEDED


def test_a_reader_of_another_process_misses_and_repeats_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the owner's memory: only the log."""
    monkeypatch.setattr(hub, "publish", lambda *_: None)
    monkeypatch.setattr(execution.executor, "owns", lambda _: False)
    desk.provider.script(text(LONG, chunk=4, pace=0.02))
    answer = desk.member().send("Count", thread=new_thread())
    assert answer.text == LONG
    assert answer.last["outcome"] == {"type": "success"}


def test_reload_shows_the_same_messages_once(desk: Desk) -> None:
    desk.fake.answer("status", Text("shipped"))
    desk.provider.script(
        calls(call("shop__status", {"order": 1}), say="Let me look."), text("It was **shipped**.")
    )
    front, thread = desk.member(), new_thread()
    front.send("Where is 1?", thread=thread)
    shown = front.thread(thread)
    roles = [m["role"] for m in shown["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant"]
    user, said, result, answer = shown["messages"]
    assert user["content"] == "Where is 1?"
    (tool_call,) = said["toolCalls"]
    assert said["content"] == "Let me look."
    assert tool_call["function"]["name"] == "shop__status"
    assert json.loads(tool_call["function"]["arguments"]) == {"order": 1}
    assert tool_call["state"] == "done"
    assert (result["toolCallId"], result["content"]) == (tool_call["id"], "shipped")
    assert answer["html"] == "<p>It was <strong>shipped</strong>.</p>\n"
    assert shown["run"]["state"] == "succeeded"
    assert shown["title"] == "Where is 1?"


def test_the_next_turn_knows_the_conversation(desk: Desk) -> None:
    desk.provider.script(text("I am well."), text("You said hello."))
    front, thread = desk.member(), new_thread()
    front.send("Hello", thread=thread)
    front.send("What did I say?", thread=thread)
    said = [m["content"] for m in desk.provider.completions[-1].json["messages"]]
    assert said == ["Help with orders.", "Hello", "I am well.", "What did I say?"]


def test_one_run_at_a_time(desk: Desk) -> None:
    desk.provider.script(text(LONG, chunk=2, pace=0.1))
    front, thread = desk.member(), new_thread()
    stream = front.begin("Count", thread=thread, run="r")
    stream.wait_for("TEXT_MESSAGE_CONTENT")
    refused = front.send("And?", thread=thread)
    assert (refused.status, refused.code) == (409, "run_active")
    assert front.http.delete(f"/apps/v1/threads/{thread}").json()["code"] == "run_active"
    stream.finish()


def test_the_same_request_again_attaches_and_another_body_is_refused(desk: Desk) -> None:
    desk.provider.script(text("Hello"), text("never"))
    front = desk.member()
    body = run_input("Hi", new_thread(), "r", (), None)
    first, again = front.post(body), front.post(dict(reversed(body.items())))
    assert first.body == again.body
    changed = {**body, "messages": [{"id": "x", "role": "user", "content": "Other"}]}
    refused = front.post(changed)
    assert (refused.status, refused.code) == (409, "run_id_reused")
    assert len(desk.provider.completions) == 1


def test_stopping_keeps_the_text_and_frees_the_thread(desk: Desk) -> None:
    desk.provider.script(text(LONG, chunk=2, pace=0.1), text("Yes?"))
    front, thread = desk.member(), new_thread()
    stream = front.begin("Count", thread=thread, run="r")
    stream.wait_for("TEXT_MESSAGE_CONTENT", 3)
    started = time.monotonic()
    assert front.cancel(thread, "r").json()["cancelling"] is True
    events = stream.finish()
    assert time.monotonic() - started < 2
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert "result" not in events[-1]
    desk.provider.wait_until_gone()
    message = front.thread(thread)["messages"][-1]
    assert message["stopped"] is True
    assert message["content"] == "".join(e.get("delta", "") for e in events)
    assert front.cancel(thread, "r").json()["cancelling"] is False
    assert front.send("Hello?", thread=thread).text == "Yes?"


def test_stopping_during_a_tool_call_ends_it_upstream(desk: Desk) -> None:
    desk.fake.answer("status", Hang())
    desk.provider.script(calls(call("shop__status", {"order": 1})), text("Fine."))
    front, thread = desk.member(), new_thread()
    stream = front.begin("Look", thread=thread, run="r")
    eventually(lambda: desk.fake.count("status") == 1)
    front.cancel(thread, "r")
    assert stream.finish()[-1]["outcome"] == {"type": "cancelled"}
    eventually(lambda: desk.fake.calls[0].cancelled)
    (said,) = [m for m in front.thread(thread)["messages"] if m.get("toolCalls")]
    assert said["toolCalls"][0]["state"] == "stopped"
    assert front.send("And now?", thread=thread).text == "Fine."
    assert "outcome of this call is unknown" in json.dumps(desk.provider.completions[-1].json)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (failure(500), "provider_error"),
        (failure(429), "provider_rate_limited"),
        (cut(), "provider_error"),
    ],
)
def test_a_failed_answer_is_one_explained_error(desk: Desk, reply: object, code: str) -> None:
    desk.provider.script(reply, text("Better."))  # type: ignore[arg-type]  # the fake's own type
    front, thread = desk.member(), new_thread()
    answer = front.send("Hi", thread=thread)
    assert answer.last["type"] == "RUN_ERROR"
    assert answer.code.startswith(("provider", "model")), answer.code
    assert "Traceback" not in answer.body
    assert answer.last["message"].endswith(".")
    shown = front.thread(thread)
    assert shown["error"]["code"] == answer.code
    assert shown["messages"][-1]["error"]["code"] == answer.code
    assert front.send("Again", thread=thread).text == "Better."


def test_a_message_that_came_to_nothing_may_be_sent_again(desk: Desk) -> None:
    """As a client's retry does it: the same message, another run."""
    desk.provider.script(failure(500), text("Here you are."), text("never"))
    front, thread = desk.member(), new_thread()
    said = [{"id": "u1", "role": "user", "content": "Hi"}]
    assert front.send(thread=thread, messages=said).last["type"] == "RUN_ERROR"
    assert front.send(thread=thread, messages=said).text == "Here you are."
    roles = [m["role"] for m in front.thread(thread)["messages"]]
    assert roles == ["user", "assistant"]
    sent = [m["content"] for m in desk.provider.completions[-1].json["messages"]]
    assert sent == ["Help with orders.", "Hi"]
    refused = front.send(thread=thread, messages=said)
    assert (refused.status, refused.code) == (422, "nothing_to_run")


def test_without_a_runtime_the_run_fails_with_a_code(desk: Desk) -> None:
    async def elsewhere() -> None:
        from agents.gateways import outgoing

        session = outgoing.runtime_session()
        session._base_url = session._base_url.with_port(9)  # type: ignore[union-attr]  # it has one

    async def back() -> None:
        from agents.gateways import outgoing

        await outgoing.runtime_session().close()

    desk.stage.server.run(elsewhere)
    try:
        answer = desk.member().send("Hi", thread=new_thread())
    finally:
        desk.stage.server.run(back)
    assert answer.kinds == ["RUN_STARTED", "RUN_ERROR"]
    assert answer.code == "runtime_unavailable"


def test_unpublishing_ends_the_open_stream_within_two_seconds(desk: Desk) -> None:
    desk.provider.script(text(LONG, chunk=1, pace=0.2))
    front, thread = desk.member(), new_thread()
    stream = front.begin("Count", thread=thread, run="r")
    stream.wait_for("TEXT_MESSAGE_CONTENT")
    desk.unpublish()
    started = time.monotonic()
    events = stream.finish()
    assert time.monotonic() - started < 2
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "unpublished")
    desk.provider.wait_until_gone()
    assert front.attach(thread, "r").events == events


def test_nothing_is_written_behind_the_end(desk: Desk) -> None:
    """The owner that lost its run writes nothing more, whoever told the end."""
    desk.provider.script(text(LONG, chunk=1, pace=0.05))
    front, thread = desk.member(), new_thread()
    stream = front.begin("Count", thread=thread, run="r")
    stream.wait_for("TEXT_MESSAGE_CONTENT")
    Run.objects.update(state=RunState.FAILED, error_code="suspended", ended_at=database_now())
    sweep_ends()
    events = stream.finish()
    assert events[-1]["code"] == "suspended"
    eventually(lambda: not execution.executor._active)
    entries = list(all_entries(desk.world.organization.id, Run.objects.get().session_id))
    assert entries[-1].type == "RUN_ERROR"
    assert [e.type for e in entries].count("RUN_ERROR") == 1
    assert [e.seq for e in entries] == list(range(1, len(entries) + 1))


@pytest.fixture
def dead_boot(transactional_db: None) -> Boot:
    boot = start_boot(role="web")
    Boot.objects.filter(id=boot.id).update(heartbeat_at=database_now() - dt.timedelta(seconds=6))
    return boot


def abandon(desk: Desk, boot: Boot, thread: str) -> Run:
    """A run whose process dies in the middle of an answer."""
    desk.provider.script(hang(after_chunks=3, content=LONG))
    stream = desk.member().begin("Count", thread=thread, run="r")
    stream.wait_for("TEXT_MESSAGE_CONTENT")
    Run.objects.update(boot=boot)
    eventually(lambda: not execution.executor._active)
    stream.drop_now()
    return Run.objects.get()


def test_a_reader_notices_a_dead_process_and_gets_a_coded_end(desk: Desk, dead_boot: Boot) -> None:
    thread = new_thread()
    run = abandon(desk, dead_boot, thread)
    answer = desk.member().attach(thread, "r")
    assert (answer.last["type"], answer.code) == ("RUN_ERROR", "interrupted_by_restart")
    run.refresh_from_db()
    assert (run.state, run.terminal_logged) == (RunState.FAILED, True)
    desk.provider.script(text("Here again."))
    assert desk.member().send("Hello?", thread=thread).text == "Here again."


def test_a_sweep_tells_what_a_crash_left_untold_and_tells_it_once(
    desk: Desk, dead_boot: Boot
) -> None:
    thread = new_thread()
    abandon(desk, dead_boot, thread)
    SessionEvent.objects.filter(type="RUN_ERROR").delete()
    Run.objects.update(state=RunState.RUNNING, terminal_logged=False, boot=dead_boot)
    assert sweep_control().runs_failed == 1
    assert (sweep_ends(), sweep_ends()) == (1, 0)
    Run.objects.update(terminal_logged=False)  # the crash came between the append and the mark
    assert sweep_ends() == 1
    settle_writes()
    assert SessionEvent.objects.filter(type="RUN_ERROR").count() == 1
    shown = desk.member().thread(thread)
    assert shown["error"]["code"] == "interrupted_by_restart"
    assert [m["role"] for m in shown["messages"]] == ["user", "assistant"]


def test_an_interrupt_that_was_not_told_is_told_with_its_approvals(desk: Desk) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)), text("Done."))
    front, thread = desk.member(), new_thread()
    asked = front.send("Refund", thread=thread, run="r")
    SessionEvent.objects.filter(type="RUN_FINISHED").delete()
    Run.objects.update(terminal_logged=False)
    sweep_ends()
    assert front.attach(thread, "r").interrupts == asked.interrupts
    assert front.send(thread=thread, resume=[approve(asked.interrupts[0])]).text == "Done."


def test_others_cannot_attach_or_stop(desk: Desk) -> None:
    desk.provider.script(text("Hello"), text("Hello"))
    front, thread, other = desk.member(), new_thread(), new_thread()
    front.send("Hi", thread=thread, run="r")
    front.send("Hi", thread=other, run="other")
    bob = desk.end_user("bob")
    run_id = str(Run.objects.get(client_run_id="r").id)
    for run in ("r", run_id):
        assert front.attach(thread, run).status == 200
        assert bob.attach(thread, run).status == 404
        assert bob.cancel(thread, run).status_code == 404
        assert front.attach(other, run).status == 404
        assert front.cancel(other, run).status_code == 404
        assert front.attach(str(uuid.uuid4()), run).status == 404
    headers = {"last-event-id": "1"}
    path = f"/apps/v1/threads/{thread}/runs/r/events"
    assert bob.http.get(path, headers=headers).status_code == 404
    assert httpx.get(desk.stage.server.url + path).status_code == 401


@pytest.mark.parametrize("after", ["-1", "x", "1.5", "9" * 30, "\u0661"])
def test_after_is_a_number(desk: Desk, after: str) -> None:
    desk.provider.script(text("Hello"))
    front, thread = desk.member(), new_thread()
    front.send("Hi", thread=thread, run="r")
    refused = front.http.get(f"/apps/v1/threads/{thread}/runs/r/events", params={"after": after})
    assert refused.status_code == 422


def test_a_reader_that_saw_the_end_gets_an_empty_rest(desk: Desk) -> None:
    desk.provider.script(text("Hello"))
    front, thread = desk.member(), new_thread()
    last = front.send("Hi", thread=thread, run="r").ids[-1]
    rest = front.http.get(f"/apps/v1/threads/{thread}/runs/r/events?after={last}")
    assert (rest.status_code, rest.text) == (200, "")


def test_silence_is_filled_with_comments(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_SECONDS", 0.2)
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.1)
    desk.fake.answer("status", Slow(1.0, then=Text("late")))
    desk.provider.script(calls(call("shop__status", {"order": 1})), text("Done."))
    answer = desk.member().send("Look", thread=new_thread())
    assert answer.text == "Done."
    assert answer.body.count(": keep-alive\n\n") >= 2


def test_a_process_that_stops_ends_its_runs_and_says_so(desk: Desk) -> None:
    desk.provider.script(text(LONG, chunk=1, pace=0.2), text("Back again."))
    front, thread = desk.member(), new_thread()
    stream = front.begin("Count", thread=thread, run="r")
    stream.wait_for("TEXT_MESSAGE_CONTENT")
    desk.stage.server.run(execution.executor.shutdown)
    events = stream.finish()
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "interrupted_by_restart")
    desk.provider.wait_until_gone()
    assert front.send("Hello?", thread=thread).text == "Back again."


def test_a_stream_ends_with_its_token_and_the_run_goes_on(desk: Desk) -> None:
    desk.provider.script(hang(after_chunks=3, content=LONG))
    front, thread = desk.member(), new_thread()
    stream = front.begin("Count", thread=thread, run="r")
    stream.wait_for("TEXT_MESSAGE_CONTENT")
    membership = Membership.objects.get(user=desk.world.member_user)
    identity.change_member(actor=desk.world.operator, membership=membership, active=False)
    events = stream.finish()
    assert events[-1]["type"] == "TEXT_MESSAGE_CONTENT"
    assert Run.objects.get().state == RunState.RUNNING
    assert front.attach(thread, "r").status == 401
    desk.unpublish()
    eventually(lambda: not execution.executor._active)


def test_a_client_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "SEND_SECONDS", 0.1)
    monkeypatch.setattr(bearers, "read", _all_live)
    run = Attached(uuid.uuid4(), uuid.uuid4(), uuid.uuid4(), "r")

    async def endless(_run: Attached, _after: int) -> AsyncIterator[list[Entry]]:
        while True:
            yield []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(streams, "follow", endless)

    async def answer() -> None:
        async with asyncio.timeout(5):
            await streams.stream(run, 0, "ct_x", receive, send)

    asyncio.run(answer())


async def _all_live(_selector: object, tokens: list[str]) -> set[str]:
    return set(tokens)
