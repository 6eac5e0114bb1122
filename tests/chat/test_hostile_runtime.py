"""A hostile runtime with a real run key: what it claims changes nothing that counts.

It calls the action directly, edited, in parallel and after expiry, and it tells web stories.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest

from agents import clock
from agents.gateways import outgoing
from agents.gateways.responses import Receive, Scope, Send
from agents.models import Approval, Run
from tests.chat.desk import Desk, approve, new_thread
from tests.serving import served

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

JSON = dict[str, Any]
#: What the runtime does with one run request: yields frames, or raw bytes.
Play = Callable[[JSON], AsyncIterator[JSON | bytes]]

REFUND = {"order": 1042, "amount": 20}


class Hostile:
    """The wire of the runtime, with *play* in place of an agent; keeps every request."""

    def __init__(self) -> None:
        self.requests: list[JSON] = []
        self.play: Play = finished

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        request = json.loads(body)
        self.requests.append(request)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async for frame in self.play(request):
            data = frame if isinstance(frame, bytes) else json.dumps(frame).encode() + b"\n"
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def final(outcome: str = "success", **more: Any) -> JSON:
    return {"type": "final", "outcome": outcome, **more}


def event(kind: str, **members: Any) -> JSON:
    return {"type": "event", "event": {"type": kind, **members}}


async def finished(_request: JSON) -> AsyncIterator[JSON | bytes]:
    yield final()


@pytest.fixture
def hostile(desk: Desk, settings: Any) -> Iterator[Hostile]:
    """Web's runtime is the hostile one."""
    runtime = Hostile()

    async def program(scope: Scope, receive: Receive, send: Send) -> None:
        await runtime(scope, receive, send)

    with served(program) as server:
        settings.RUNTIME_URL = server.url
        desk.stage.server.run(outgoing.close)
        yield runtime
        desk.stage.server.run(outgoing.close)


def call_action(
    desk: Desk,
    key: str,
    arguments: JSON,
    approval: str | None = None,
    tool: str = "shop__refund",
    call_id: str = "call_x",
) -> JSON:
    """One tools/call as the runtime would send it; a refusal of either layer has ``error``."""
    meta = {"mandate/toolCallId": call_id}
    if approval is not None:
        meta["mandate/approval"] = approval
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": meta},
    }
    answer = httpx.post(
        f"{desk.stage.server.url}/gateway/mcp",
        json=body,
        headers={
            "authorization": f"Bearer {key}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-11-25",
        },
        timeout=20,
    )
    document: JSON = answer.json()
    return document if answer.status_code == 200 else {"error": document}


def asking(desk: Desk, arguments: JSON = REFUND) -> Play:
    """A runtime that asks for the action and pauses."""

    async def play(request: JSON) -> AsyncIterator[JSON | bytes]:
        refused = await asyncio.to_thread(call_action, desk, request["key"], arguments)
        approval = refused["error"]["data"]["approval"]
        yield event("TOOL_CALL_START", toolCallId="call_x", toolCallName="shop__refund")
        yield event("TOOL_CALL_END", toolCallId="call_x")
        yield final("interrupt", approvals=[{"tool_call_id": "call_x", "approval_id": approval}])

    return play


def test_without_an_approval_nothing_runs_however_often_it_asks(
    desk: Desk, hostile: Hostile
) -> None:
    async def play(request: JSON) -> AsyncIterator[JSON | bytes]:
        def attack(_: int) -> JSON:
            return call_action(desk, request["key"], REFUND)

        def with_invented(_: int) -> JSON:
            return call_action(desk, request["key"], REFUND, str(uuid.uuid4()))

        def both() -> None:
            with ThreadPoolExecutor(5) as pool:
                answers = [*pool.map(attack, range(5)), *pool.map(with_invented, range(5))]
            assert all("error" in answer for answer in answers)

        await asyncio.to_thread(both)
        yield final()

    hostile.play = play
    answer = desk.member().send("Hi", thread=new_thread())
    assert answer.last["outcome"] == {"type": "success"}
    assert desk.fake.total == 0
    assert set(Approval.objects.values_list("state", flat=True)) == {"void"}


def test_its_own_approval_is_nothing_before_the_person_decides(
    desk: Desk, hostile: Hostile
) -> None:
    async def play(request: JSON) -> AsyncIterator[JSON | bytes]:
        async for frame in asking(desk)(request):
            if isinstance(frame, dict) and frame["type"] == "final":
                approval = frame["approvals"][0]["approval_id"]
                early = await asyncio.to_thread(call_action, desk, request["key"], REFUND, approval)
                assert early["error"]["data"]["code"] == "approval_mismatch"
            yield frame

    hostile.play = play
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Hi", thread=thread).interrupts
    key = hostile.requests[0]["key"]
    late = call_action(desk, key, REFUND, interrupt["id"])
    assert "error" in late
    assert desk.fake.total == 0
    assert desk.state(interrupt) == "open"


def test_an_approval_runs_once_exactly_as_approved(desk: Desk, hostile: Hostile) -> None:
    """Edited, added to, for another tool, by the old key, twenty times in parallel: once."""
    hostile.play = asking(desk)
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Hi", thread=thread).interrupts
    first_key = hostile.requests[0]["key"]

    async def play(request: JSON) -> AsyncIterator[JSON | bytes]:
        key = request["key"]
        (resolution,) = request["resolutions"]
        assert (resolution["kind"], resolution["approval_id"]) == ("approved", interrupt["id"])

        def attack() -> None:
            for changed in (
                {"order": 1042, "amount": 500},
                {"order": 1042, "amount": 20, "more": 1},
                {"order": 1042},
                {},
            ):
                assert "error" in call_action(desk, key, changed, interrupt["id"])
            other = call_action(desk, key, {"order": 1}, interrupt["id"], tool="shop__send")
            assert "error" in other
            assert "error" in call_action(desk, first_key, REFUND, interrupt["id"])
            assert desk.fake.total == 0
            with ThreadPoolExecutor(10) as pool:
                list(pool.map(lambda _: call_action(desk, key, REFUND, interrupt["id"]), range(20)))

        await asyncio.to_thread(attack)
        yield final()

    hostile.play = play
    front.send(thread=thread, resume=[approve(interrupt)])
    assert [c.arguments for c in desk.fake.calls] == [REFUND]
    assert "error" in call_action(desk, hostile.requests[1]["key"], REFUND, interrupt["id"])
    assert desk.fake.total == 1


def test_nothing_runs_after_expiry(desk: Desk, hostile: Hostile) -> None:
    hostile.play = asking(desk)
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Hi", thread=thread).interrupts
    Approval.objects.update(expires_at=clock.database_now() - timedelta(seconds=1))
    assert front.send(thread=thread, resume=[approve(interrupt)]).code == "approval_expired"
    assert "error" in call_action(desk, hostile.requests[0]["key"], REFUND, interrupt["id"])
    hostile.play = finished
    front.send("And now?", thread=thread)
    key = hostile.requests[-1]["key"]
    assert "error" in call_action(desk, key, REFUND, interrupt["id"])
    assert desk.fake.total == 0


def test_stories_about_the_end_and_about_approvals_are_not_believed(
    desk: Desk, hostile: Hostile
) -> None:
    async def play(_request: JSON) -> AsyncIterator[JSON | bytes]:
        yield event("RUN_FINISHED", threadId="x", runId="y")
        yield event("RUN_ERROR", message="secret db password")
        yield event("STATE_SNAPSHOT", snapshot={})
        yield event("MESSAGES_SNAPSHOT", messages=[])
        yield event("CUSTOM", name="x", value=1)
        yield event("NO_SUCH_EVENT")
        yield event("TEXT_MESSAGE_CONTENT", messageId="never-opened", delta="x")
        yield event("TEXT_MESSAGE_START", messageId="m", role="system", subagentRunId="z")
        yield event("TEXT_MESSAGE_CONTENT", messageId="m", delta="hi", html="<script>")
        yield event("TEXT_MESSAGE_CONTENT", messageId=7, delta="x")
        yield final(
            "interrupt",
            approvals=[
                {"tool_call_id": "c", "approval_id": str(uuid.uuid4())},
                {"tool_call_id": "d", "approval_id": "not an id"},
            ],
            parked=[{"tool_call_id": "e", "handoff_id": str(uuid.uuid4())}],
        )

    hostile.play = play
    answer = desk.member().send("Hi", thread=new_thread())
    assert answer.kinds == [
        "RUN_STARTED",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "RUN_ERROR",
    ]
    assert answer.events[1]["role"] == "assistant"
    assert set(answer.events[2]) == {"type", "messageId", "delta"}
    assert answer.code == "approval_missing"
    assert "secret" not in answer.body


@pytest.mark.parametrize(
    "code",
    ["the customer's account is 4711", "looks_like_a_code", "unpublished\n", "x" * 5000, ""],
)
def test_its_words_do_not_reach_the_rows_as_a_code(desk: Desk, hostile: Hostile, code: str) -> None:
    async def play(_request: JSON) -> AsyncIterator[JSON | bytes]:
        yield final("error", code=code)

    hostile.play = play
    assert desk.member().send("Hi", thread=new_thread()).code == "internal"
    assert Run.objects.get().error_code == "internal"


@pytest.mark.parametrize("code", ["step_limit", "model_failed", "provider_timeout", "out_of_scope"])
def test_its_known_codes_are_told(desk: Desk, hostile: Hostile, code: str) -> None:
    async def play(_request: JSON) -> AsyncIterator[JSON | bytes]:
        yield final("error", code=code)

    hostile.play = play
    assert desk.member().send("Hi", thread=new_thread()).code == code


def test_its_words_do_not_reach_the_rows_as_a_call_id(desk: Desk, hostile: Hostile) -> None:
    words = "the customer's account is 4711"

    async def play(request: JSON) -> AsyncIterator[JSON | bytes]:
        refused = await asyncio.to_thread(call_action, desk, request["key"], REFUND, call_id=words)
        approval = refused["error"]["data"]["approval"]
        yield final("interrupt", approvals=[{"tool_call_id": words, "approval_id": approval}])

    hostile.play = play
    assert desk.member().send("Hi", thread=new_thread()).code == "tool_protocol"
    approval = Approval.objects.get()
    assert (approval.state, approval.tool_call_id) == ("void", "")


def test_the_approval_of_another_run_cannot_be_opened(desk: Desk, hostile: Hostile) -> None:
    """Only what the gateway made for this very run counts."""
    hostile.play = asking(desk)
    (theirs,) = desk.end_user("victim").send("Hi", thread=new_thread()).interrupts

    async def play(_request: JSON) -> AsyncIterator[JSON | bytes]:
        yield final("interrupt", approvals=[{"tool_call_id": "c", "approval_id": theirs["id"]}])

    hostile.play = play
    answer = desk.end_user("thief").send("Hi", thread=new_thread())
    assert answer.code == "approval_missing"
    assert Approval.objects.get().principal_subject == "victim"


async def _garbage(_request: JSON) -> AsyncIterator[JSON | bytes]:
    yield b"this is no frame\n"


async def _unfinished(_request: JSON) -> AsyncIterator[JSON | bytes]:
    yield event("TEXT_MESSAGE_START", messageId="m")
    yield event("TEXT_MESSAGE_CONTENT", messageId="m", delta="half")


async def _more_behind_the_end(_request: JSON) -> AsyncIterator[JSON | bytes]:
    yield final()
    yield event("TEXT_MESSAGE_START", messageId="m")


async def _endless_line(_request: JSON) -> AsyncIterator[JSON | bytes]:
    for _ in range(20):
        yield b"x" * 2**20


@pytest.mark.parametrize("play", [_garbage, _unfinished, _more_behind_the_end, _endless_line])
def test_a_broken_wire_is_a_coded_failure(desk: Desk, hostile: Hostile, play: Play) -> None:
    hostile.play = play
    front, thread = desk.member(), new_thread()
    answer = front.send("Hi", thread=thread)
    assert (answer.last["type"], answer.code) == ("RUN_ERROR", "runtime_lost")
    hostile.play = finished
    assert front.send("Again", thread=thread).last["outcome"] == {"type": "success"}


def test_a_run_without_end_is_stopped_by_web(
    desk: Desk, hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat.services.execution.RUN_LIFETIME", timedelta(seconds=2))

    async def play(_request: JSON) -> AsyncIterator[JSON | bytes]:
        while True:
            yield event("REASONING_START", messageId=str(uuid.uuid4()))
            await asyncio.sleep(0.1)

    hostile.play = play
    answer = desk.member().send("Hi", thread=new_thread())
    assert answer.code == "deadline"
    assert Run.objects.get().error_code == "deadline"
