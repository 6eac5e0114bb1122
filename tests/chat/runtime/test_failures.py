"""Runs that end in an error: one stable code, closed events, and nothing of anybody's text."""

import json
import logging

import aiohttp
import pytest

from chat.runtime.app import RuntimeApp
from chat.runtime.settings import Settings
from chat.runtime.wire import MessageFrame
from tests.chat.runtime.conftest import KEY, TOKEN, Web, brackets_hold, run_request, serving
from tests.chat.runtime.gateway import FakeGateway, ToolReply, result
from tests.fakes.model_provider import (
    Reply,
    call,
    calls,
    cut,
    failure,
    hang,
    rate_limited,
    raw,
    redirect,
    text,
)


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (failure(401, "key_invalid"), "key_invalid"),
        (failure(403, "out_of_scope"), "out_of_scope"),
        (failure(403, "not_published"), "not_published"),
        (failure(413, "input_too_large"), "input_too_large"),
        (failure(502, "provider_error"), "provider_error"),
        (failure(504, "provider_timeout"), "provider_timeout"),
        (failure(503, "overloaded"), "overloaded"),
        (failure(429, "rate limited: SECRET"), "model_failed"),
        (rate_limited(), "rate_limit_exceeded"),
        (raw(b"SECRET", "text/plain", 500), "model_failed"),
        (raw(b"<html>SECRET</html>", "text/html"), "model_failed"),
        (text("", usage=None), "no_output"),
        (text("", finish="length"), "output_limit"),
        (text("x", finish="content_filter"), None),
        (text("", finish="content_filter"), "content_filtered"),
    ],
)
async def test_each_failure_has_its_code_and_is_not_retried(
    web: Web, gateway: FakeGateway, reply: Reply, code: str | None
) -> None:
    gateway.script(reply)

    told = await web.turn("Hi")

    assert told.final.code == code
    assert told.final.outcome == ("error" if code else "success")
    assert len(gateway.completions) == 1
    assert "SECRET" not in str(told.frames)


async def test_a_redirect_is_not_followed(web: Web, gateway: FakeGateway) -> None:
    gateway.script(redirect(f"{gateway.url}/v1/chat/completions").but(status=307))

    told = await web.turn("Hi")

    assert told.final.code == "model_failed"
    assert len(gateway.requests) == 1


async def test_proxies_of_the_environment_are_not_used(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    gateway.script(calls(call("orders__status", {})), text("Done."))
    gateway.on_tool("orders__status", result("shipped"))
    app = RuntimeApp(Settings(gateway_url=gateway.url, token=TOKEN))

    async with serving(app) as url, aiohttp.ClientSession() as session:
        told = await Web(url, session).turn("Hi")

    assert told.final.outcome == "success"
    assert told.results == ["shipped"]


@pytest.mark.parametrize("after_chunks", [1, 3])
async def test_a_cut_answer_closes_its_events_and_leaves_no_message(
    web: Web, gateway: FakeGateway, after_chunks: int
) -> None:
    gateway.script(cut(after_chunks).but(pace=0.02))

    told = await web.turn("Hi")

    assert told.final.code == "model_failed"
    assert brackets_hold(told)
    assert [f.message["kind"] for f in told.frames if isinstance(f, MessageFrame)] == ["request"]


async def test_a_stream_that_ends_without_its_end_is_no_answer(
    web: Web, gateway: FakeGateway
) -> None:
    chunk = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": "half"}, "finish_reason": None}],
    }
    body = f"data: {json.dumps(chunk)}\n\n".encode()
    gateway.script(raw(body, "text/event-stream"))

    told = await web.turn("Hi")

    assert (told.final.outcome, told.final.code) == ("error", "model_failed")
    assert brackets_hold(told)


async def test_an_error_inside_the_stream_keeps_its_code(web: Web, gateway: FakeGateway) -> None:
    error = {"error": {"message": "SECRET", "type": "x", "code": "not_published"}}
    gateway.script(raw(f"data: {json.dumps(error)}\n\n".encode(), "text/event-stream"))

    told = await web.turn("Hi")

    assert told.final.code == "not_published"
    assert "SECRET" not in str(told.frames)


async def test_the_deadline_ends_a_silent_model(web: Web, gateway: FakeGateway) -> None:
    gateway.script(hang(after_chunks=2).but(pace=0.01))

    told = await web.turn("Hi", deadline_seconds=0.5)

    assert (told.final.outcome, told.final.code) == ("error", "deadline")
    assert brackets_hold(told)
    assert told.kinds[-1] == "TEXT_MESSAGE_END"
    assert gateway.wait_until_gone() < 2


async def test_the_deadline_ends_a_silent_tool_and_cancels_its_call(
    web: Web, gateway: FakeGateway
) -> None:
    gateway.script(calls(call("orders__status", {})))
    gateway.on_tool("orders__status", ToolReply(hang=True))

    told = await web.turn("Hi", deadline_seconds=0.5)

    assert told.final.code == "deadline"
    assert told.results == []
    assert gateway.wait_until_gone() < 2


@pytest.mark.parametrize("history", [[{"kind": "SECRET"}], [{"parts": 1}], [{}]])
async def test_a_history_of_something_else_is_refused(
    web: Web, gateway: FakeGateway, history: list[object]
) -> None:
    told = await web.run(run_request("Hi", history=history))

    assert (told.final.outcome, told.final.code) == ("error", "history_unreadable")
    assert gateway.requests == []
    assert "SECRET" not in str(told.frames)


async def test_an_unreachable_gateway_is_a_failed_model(web: Web, gateway: FakeGateway) -> None:
    gateway.script(Reply(cut_after=0))

    told = await web.turn("Hi")

    assert told.final.code == "model_failed"


async def test_logs_tell_run_and_code_and_nothing_else(
    web: Web, gateway: FakeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="chat.runtime")
    gateway.script(failure(403, "out_of_scope"))

    await web.turn("PROMPT-CANARY", instructions="INSTRUCTION-CANARY")

    own = [r for r in caplog.records if r.name.startswith("chat.runtime")]
    assert [r.getMessage() for r in own] == ["run run-1 error out_of_scope"]
    said = " ".join(r.getMessage() for r in own)
    assert KEY not in said
    assert "CANARY" not in said


async def test_a_failure_of_our_own_is_internal_and_shows_no_text(
    web: Web,
    gateway: FakeGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("SECRET of a bug")

    monkeypatch.setattr("chat.runtime.history.dump", broken)

    told = await web.turn("Hi")

    assert (told.final.outcome, told.final.code) == ("error", "internal")
    assert "SECRET" not in str(told.frames)
