"""Streams pass through as they come, byte for byte, and end early when they must."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from agents.choices import RequestKind
from agents.errors import Conflict
from agents.gateways import calls, model_gateway, sse
from agents.gateways.model_hop import admit
from agents.gateways.model_request import read_chat
from agents.gateways.request_rows import CallRecord
from agents.models import GatewayRequest
from agents.services import grants, identity, keys, resources
from tests.fakes.model_provider import FakeProvider, Reply, cut, hang, raw, text
from tests.serving import Served, aside
from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

Rows = Callable[[], list[GatewayRequest]]
ASK: dict[str, Any] = {
    "model": "standard", "stream": True, "messages": [{"role": "user", "content": "Hi"}],
}  # fmt: skip
WITH_USAGE = {**ASK, "stream_options": {"include_usage": True}}
CHAT = "/gateway/v1/chat/completions"
EVENTS = "text/event-stream"


@contextlib.contextmanager
def streaming(gateway: Served, world: World, body: dict[str, Any]) -> Iterator[httpx.Response]:
    with httpx.stream(
        "POST", f"{gateway.url}{CHAT}", json=body, headers=world.authorization(), timeout=10
    ) as response:
        yield response


def everything(gateway: Served, world: World, body: dict[str, Any] = ASK) -> bytes:
    with streaming(gateway, world, body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == EVENTS
        return b"".join(response.iter_raw())


def events(body: bytes) -> list[Any]:
    datas = [event.removeprefix(b"data: ") for event in body.split(b"\n\n") if event]
    return [data.decode() if data == b"[DONE]" else json.loads(data) for data in datas]


def wait_for(condition: Callable[[], bool], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


REPLIES = [
    text("An answer in many pieces, with 🙂 and \u2028 in it."),
    text("", reasoning="thinking first"),
    raw(
        b'data: {"choices":[{"delta":{"content":"\xf0\x9f"}}]}\r\n\r\ndata: [DONE]\r\n\r\n', EVENTS
    ),
    raw(b'data: {"choices":[{"delta":{}}],\ndata: "x":1}\n\ndata: [DONE]\n\n', EVENTS),
    raw(b'data: {"choices":[{"usage":1}], "usage":null}\n\ndata: [DONE]', EVENTS),
    raw(b'data: {"choices":[{"logprob":NaN,"text":"\\ud83d"}]}\n\ndata: [DONE]\n\n', EVENTS),
    raw(b'data: {"choices":[{"delta":{"content":"\\"error\\""}}]}\n\ndata:[DONE]\n\n', EVENTS),
]


@pytest.mark.parametrize("reply", REPLIES)
def test_the_bytes_are_the_providers(
    gateway: Served, world: World, provider: FakeProvider, reply: Reply
) -> None:
    provider.script(reply, reply)
    body = {**WITH_USAGE, "model": "gpt-test"}
    direct = httpx.post(f"{provider.base_url}/chat/completions", json=body).content
    assert everything(gateway, world, WITH_USAGE) == direct
    assert b"[DONE]" in direct


def test_comments_and_numbers_of_a_stream_are_not_the_providers(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    chunk = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n'
    noise = b": SECRET\n\n" + b"id: SECRET\n" + chunk + b"retry: 9\n: SECRET\n\n\n\n"
    provider.script(raw(noise + chunk + b"\ndata: [DONE]\n\n", EVENTS))
    passed = sse.KEEP_ALIVE + 2 * (chunk + b"\n") + b"data: [DONE]\n\n"
    assert everything(gateway, world) == passed


def test_usage_that_nobody_asked_for_is_counted_and_left_out(
    gateway: Served, world: World, provider: FakeProvider, rows: Rows
) -> None:
    provider.script(text("Hello."), text("Hello."))
    with_usage = everything(gateway, world, WITH_USAGE)
    without = everything(gateway, world)
    assert provider.requests[1].json["stream_options"] == {"include_usage": True}
    usage_event = next(e for e in with_usage.split(b"\n\n") if b'"usage"' in e)
    assert without == with_usage.replace(usage_event + b"\n\n", b"")
    for row in rows():
        assert (row.state, row.input_tokens, row.output_tokens, row.cost) == ("ok", 11, 7, 25)


def test_other_options_of_the_stream_are_kept(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    everything(gateway, world, {**ASK, "stream_options": {"include_obfuscation": False}})
    assert provider.requests[0].json["stream_options"] == {
        "include_obfuscation": False, "include_usage": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 1e308, "completion_tokens": 1},
        {"prompt_tokens": "11", "completion_tokens": "7"},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": True, "completion_tokens": 1},
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_usage_that_cannot_be_believed_counts_as_absent(
    gateway: Served, world: World, provider: FakeProvider, rows: Rows, usage: Any, stream: bool
) -> None:
    provider.script(text("Hello.", usage=usage))
    httpx.post(
        f"{gateway.url}{CHAT}", json={**ASK, "stream": stream}, headers=world.authorization()
    )
    [row] = rows()
    assert (row.state, row.input_tokens, row.output_tokens, row.cost) == ("ok", None, None, None)


def test_the_first_words_arrive_while_the_provider_still_speaks(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    provider.script(hang(after_chunks=3))
    with streaming(gateway, world, ASK) as response:
        seen = b""
        for piece in response.iter_raw():
            seen += piece
            if seen.count(b"\n\n") == 3:
                break
    assert "half of" in "".join(e["choices"][0]["delta"].get("content", "") for e in events(seen))


def test_a_connection_to_the_provider_is_used_again(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    for _ in range(3):
        everything(gateway, world)
    ports = {request.headers["host"] for request in provider.requests}
    assert ports == {f"127.0.0.1:{provider.port}"}
    assert len(provider.requests) == 3


# --- failures after the start ---------------------------------------------------------------


def failed_stream(gateway: Served, world: World) -> tuple[list[Any], dict[str, Any]]:
    """The events before the error, and the error; nothing may follow it."""
    body = everything(gateway, world)
    assert b"SECRET" not in body
    *before, last = events(body)
    assert "[DONE]" not in before
    error: dict[str, Any] = last["error"]
    return before, error


FAILING = [
    cut(),
    raw(b'data: {"error": {"message": "SECRET provider text", "code": 500}}\n\n', EVENTS),
    raw(b'data: {"object":"error","message":"SECRET","code":500}\n\ndata: [DONE]\n\n', EVENTS),
    raw(b'data: {"choices":[{"error":{"message":"SECRET"}}]}\n\ndata: [DONE]\n\n', EVENTS),
    raw(b'data: {"choices":"SECRET"}\n\ndata: [DONE]\n\n', EVENTS),
    raw(b'data: {"choices":["SECRET"]}\n\ndata: [DONE]\n\n', EVENTS),
    raw(b'data: {"detail":"SECRET"}\n\ndata: [DONE]\n\n', EVENTS),
    raw(b"event: error\ndata: SECRET\n\ndata: [DONE]\n\n", EVENTS),
    raw(b'event: error\ndata: {"choices":[]}\n\ndata: [DONE]\n\n', EVENTS),
    raw(b"data: SECRET\n\ndata: [DONE]\n\n", EVENTS),
    raw(b'data: "SECRET"\n\ndata: [DONE]\n\n', EVENTS),
    raw(b'data:\n\n{"detail":"SECRET"}\n\ndata: [DONE]\n\n', EVENTS),
    raw(b'{"detail":"SECRET"}', EVENTS),
    raw(b'data: {"choices": [{"delta": {}}]}\n\n', EVENTS),
    raw(b"data: " + b"x" * 2_000, EVENTS),
    raw(b"", EVENTS),
]


@pytest.mark.parametrize("reply", FAILING)
def test_a_stream_that_breaks_ends_with_a_coded_error_and_no_done(
    gateway: Served,
    world: World,
    provider: FakeProvider,
    rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reply: Reply,
) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1_000)
    provider.script(reply)
    _, error = failed_stream(gateway, world)
    assert error["code"] == "provider_error"
    assert "SECRET" not in str(error) + caplog.text
    assert [(row.state, row.code) for row in rows()] == [("failed", "provider_error")]


def test_the_stock_client_raises_the_code_of_a_broken_stream(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    provider.script(cut(after_chunks=3))
    client = openai.OpenAI(base_url=f"{gateway.url}/gateway/v1", api_key=world.key_text)
    stream = client.chat.completions.create(**ASK)
    said = [next(stream).choices[0].delta.content or "" for _ in range(3)]
    with pytest.raises(openai.APIError) as caught:
        next(stream)
    assert "".join(said) == "half of "
    assert caught.value.code == "provider_error"


def test_a_stream_over_the_bound_is_cut(
    gateway: Served, world: World, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_gateway, "MAX_ANSWER_BYTES", 2_000)
    provider.script(text("word " * 1_000))
    assert failed_stream(gateway, world)[1]["code"] == "provider_error"


def test_an_endless_line_costs_no_memory(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    provider.script(raw(b"data: " + b"x" * (10 * 2**20), EVENTS))
    assert failed_stream(gateway, world)[1]["code"] == "provider_error"


# --- clients that go ------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_cancels_the_call_upstream(
    gateway: Served, world: World, provider: FakeProvider, rows: Rows, stream: bool
) -> None:
    provider.script(hang(after_chunks=2))
    body = json.dumps({**ASK, "stream": stream}).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {world.key_text}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", gateway.port)) as client:
        client.sendall(head.encode() + body)
        provider.wait_for_requests(1)
    assert provider.wait_until_gone() < 2
    wait_for(lambda: [row.state for row in rows()] == ["cancelled"])
    assert rows()[0].code == "client_gone"


def test_a_client_that_never_reads_is_let_go(
    gateway: Served,
    world: World,
    provider: FakeProvider,
    rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_gateway, "SEND_SECONDS", 0.5)
    provider.script(text("word " * 4_000_000, chunk=500_000))
    body = json.dumps(ASK).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {world.key_text}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        client.connect(("127.0.0.1", gateway.port))
        client.sendall(head.encode() + body)
        wait_for(lambda: [row.state for row in rows()] == ["cancelled"], 10)
        provider.wait_until_gone()


def test_many_clients_that_leave_together_leave_nothing_behind(
    gateway: Served, world: World, provider: FakeProvider, rows: Rows
) -> None:
    provider.default = hang(after_chunks=1)
    body = json.dumps(ASK).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {world.key_text}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with contextlib.ExitStack() as clients:
        for _ in range(50):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", gateway.port)))
            client.sendall(head.encode() + body)
        provider.wait_for_requests(50)
    wait_for(lambda: all(r.gone_after is not None for r in provider.requests))
    wait_for(lambda: [row.state for row in rows()] == ["cancelled"] * 50)
    assert calls.open_calls() == 0


# --- rights that go -------------------------------------------------------------------------


def revoke_the_key(world: World) -> None:
    keys.revoke_key(actor=world.manager, key=world.key)


def revoke_the_grant(world: World) -> None:
    grants.revoke_grant(actor=world.manager, grant=world.model_grant)


def suspend_the_agent(world: World) -> None:
    identity.suspend_agent(actor=world.manager, agent=world.agent, rationale="Stop.")


def disable_the_model(world: World) -> None:
    resources.change_virtual_model(actor=world.operator, model=world.model, enabled=False)


@pytest.mark.parametrize(
    ("take_away", "code"),
    [
        (revoke_the_key, "key_invalid"),
        (revoke_the_grant, "out_of_scope"),
        (suspend_the_agent, "suspended"),
        (disable_the_model, "out_of_scope"),
    ],
)
def test_an_open_stream_ends_within_two_seconds_of_the_commit(
    gateway: Served,
    world: World,
    provider: FakeProvider,
    rows: Rows,
    take_away: Callable[[World], None],
    code: str,
) -> None:
    provider.script(hang(after_chunks=2))
    received: list[bytes] = []

    def read() -> None:
        received.append(everything(gateway, world))

    reader = threading.Thread(target=read)
    reader.start()
    provider.wait_for_requests(1)
    wait_for(lambda: calls.open_calls() == 1)
    take_away(world)
    committed = time.monotonic()
    reader.join(5)
    assert time.monotonic() - committed < 2
    assert provider.wait_until_gone() < 5
    *_, last = events(received[0])
    assert last["error"]["code"] == code
    assert [(row.state, row.code) for row in rows()] == [("failed", code)]


def test_a_call_that_waits_for_its_first_byte_is_cut_too(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    provider.script(hang())
    answers: list[httpx.Response] = []

    def ask() -> None:
        body = {**ASK, "stream": False}
        answers.append(httpx.post(f"{gateway.url}{CHAT}", json=body, headers=world.authorization()))

    asking = threading.Thread(target=ask)
    asking.start()
    provider.wait_for_requests(1)
    revoke_the_key(world)
    asking.join(5)
    assert (answers[0].status_code, answers[0].json()["code"]) == (401, "key_invalid")
    provider.wait_until_gone()


def test_other_calls_go_on_when_one_is_cut(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    other = world.mint_key()
    provider.default = hang(after_chunks=1)

    def open_stream(key: str, into: list[bytes]) -> threading.Thread:
        def read() -> None:
            with (
                contextlib.suppress(httpx.ReadTimeout),
                httpx.stream(
                    "POST",
                    f"{gateway.url}{CHAT}",
                    json=ASK,
                    headers={"authorization": f"Bearer {key}"},
                    timeout=3,
                ) as response,
            ):
                into.extend(response.iter_raw())

        thread = threading.Thread(target=read)
        thread.start()
        return thread

    cut_one: list[bytes] = []
    kept: list[bytes] = []
    readers = [open_stream(world.key_text, cut_one), open_stream(other.text, kept)]
    provider.wait_for_requests(2)
    revoke_the_key(world)
    readers[0].join(3)
    assert b"key_invalid" in b"".join(cut_one)
    readers[1].join(5)
    assert b"error" not in b"".join(kept)


def test_calls_end_when_their_rights_cannot_be_read_for_too_long(
    gateway: Served, world: World, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_claims: Any) -> Any:
        raise OSError

    monkeypatch.setattr(calls, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(calls, "BLIND_SECONDS", 0.3)
    monkeypatch.setattr(calls, "broken_claims", unreadable)
    provider.script(hang(after_chunks=1))
    assert failed_stream(gateway, world)[1]["code"] == "store_unavailable"


async def test_a_call_cancelled_while_its_row_is_committed_leaves_a_closed_row(
    world: World, boot: Any, rows: Rows
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold(*_: Any) -> None:
        entered.set()
        assert leave.wait(10)

    task = asyncio.create_task(
        admit(world.key_text, read_chat(ASK, 10), CallRecord(RequestKind.MODEL), reserve=hold)
    )
    await asyncio.to_thread(entered.wait, 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    leave.set()

    def closed() -> list[GatewayRequest]:
        wait_for(lambda: [row.state for row in rows()] == ["cancelled"])
        return rows()

    [row] = await aside(closed)
    assert row.code == "client_gone"


async def test_a_reservation_that_is_refused_sends_nothing_and_leaves_a_refused_row(
    world: World, boot: Any, rows: Rows
) -> None:
    asked: list[Any] = []

    def reserve(_cursor: Any, key: Any, model: Any, size: int) -> None:
        asked.append((key.id, model.id, size))
        raise Conflict

    record = CallRecord(RequestKind.MODEL)
    with pytest.raises(Conflict):
        await admit(world.key_text, read_chat(ASK, 10), record, reserve=reserve)
    assert asked == [(world.key.id, world.model.id, 10)]
    [row] = await aside(rows)
    assert (row.id, row.state, row.code) == (record.id, "refused", "conflict")
