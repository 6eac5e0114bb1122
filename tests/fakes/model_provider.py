"""A model provider that speaks the real OpenAI wire on a real socket and does what a test scripts.

    with FakeProvider() as provider:
        provider.script(calls(call("orders__refund", {"order": 7})), text("Done."))
        ...  # point a virtual model, or any OpenAI client, at provider.base_url
        assert provider.requests[0].json["model"] == "gpt-test"

It runs in its own thread, so sync, async and subprocess tests use it alike. Replies are taken in the
order they were scripted; when none is left, ``default`` answers. Every request is kept, also the ones
whose client went away (``gone_after`` says when).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pytest
from aiohttp import web

JSON = dict[str, Any]

#: What ``usage`` a reply reports when the script does not say.
USAGE: JSON = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@dataclass(frozen=True)
class Reply:
    """One scripted answer. Build it with the functions below; combine with ``but``."""

    text: str = ""
    tool_calls: tuple[JSON, ...] = ()
    reasoning: str = ""
    #: Characters of text and of arguments in one chunk of the stream; 0 = all in one.
    chunk: int = 4
    usage: JSON | None = field(default_factory=lambda: dict(USAGE))
    finish: str | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    #: Sent as it is, instead of anything that a model would say.
    body: bytes | None = None
    #: Seconds before the first byte, and between two chunks.
    delay: float = 0.0
    pace: float = 0.0
    #: After this many chunks: stay silent until the client goes, or drop the connection.
    hang_after: int | None = None
    cut_after: int | None = None
    #: Say the last user message instead of ``text``.
    echo: bool = False

    def but(self, **changes: Any) -> Reply:
        return replace(self, **changes)


def text(content: str, **changes: Any) -> Reply:
    """Say ``content``, streamed in pieces when the request asks for a stream."""
    return Reply(text=content, **changes)


def call(name: str, arguments: JSON | str, call_id: str = "call_0") -> JSON:
    """A tool call for :func:`calls`. A string of arguments is sent as it is, valid JSON or not."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": raw}}


def calls(*tool_calls: JSON, say: str = "", **changes: Any) -> Reply:
    """Call tools, after saying something if ``say`` is given."""
    return Reply(text=say, tool_calls=tool_calls, **changes)


def failure(
    status: int, code: str = "server_error", message: str = "SECRET provider text"
) -> Reply:
    """An error in the shape of the wire; its message must never reach a client or a log."""
    body = {"error": {"message": message, "type": code, "code": code, "param": None}}
    return Reply(status=status, body=json.dumps(body).encode())


def rate_limited(retry_after: int = 7) -> Reply:
    return failure(429, "rate_limit_exceeded").but(headers=(("retry-after", str(retry_after)),))


def redirect(location: str) -> Reply:
    return Reply(status=302, body=b"", headers=(("location", location),))


def hang(after_chunks: int = 0, content: str = "half of an answer") -> Reply:
    """Say ``after_chunks`` pieces, then nothing until the client goes away."""
    return Reply(text=content, hang_after=after_chunks)


def cut(after_chunks: int = 2, content: str = "half of an answer") -> Reply:
    """Drop the connection in the middle of the stream."""
    return Reply(text=content, cut_after=after_chunks)


def huge(size: int) -> Reply:
    """A successful answer of ``size`` bytes of text in a single chunk."""
    return Reply(text="x" * size, chunk=0)


def raw(body: bytes, content_type: str = "application/json", status: int = 200) -> Reply:
    return Reply(status=status, body=body, headers=(("content-type", content_type),))


def echo() -> Reply:
    return Reply(echo=True)


@dataclass
class Recorded:
    """A request as it arrived. Times are ``time.monotonic()``; header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    arrived: float
    #: When the answer was complete, or None.
    finished: float | None = None
    #: Seconds from arrival until the client closed the connection early, or None.
    gone_after: float | None = None

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class FakeProvider:
    """The server; a context manager. ``base_url`` ends in ``/v1`` as an OpenAI client wants it."""

    def __init__(self, *, models: tuple[str, ...] = ("gpt-test",)) -> None:
        self.models = models
        self.default: Reply = text("Hello from the fake.")
        self.requests: list[Recorded] = []
        self.port = 0
        self._scripted: deque[Reply] = deque()
        self._changed = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="fake-provider", daemon=True)
        self._ready = threading.Event()

    # --- for tests ---------------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def script(self, *replies: Reply) -> None:
        """Queue replies, one for each coming request."""
        self._scripted.extend(replies)

    @property
    def completions(self) -> list[Recorded]:
        return [r for r in self.requests if r.path.endswith("/chat/completions")]

    def wait_for_requests(self, count: int, timeout: float = 5.0) -> None:
        """Block until ``count`` requests have arrived; use ``asyncio.to_thread`` in async tests."""
        self._wait(lambda: len(self.requests) >= count, timeout)

    def wait_until_gone(self, index: int = -1, timeout: float = 5.0) -> float:
        """Block until the client of that request closed early; gives the seconds it stayed."""
        self._wait(lambda: self.requests[index].gone_after is not None, timeout)
        gone_after = self.requests[index].gone_after
        assert gone_after is not None
        return gone_after

    def _wait(self, condition: Any, timeout: float) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, timeout):
                msg = f"the fake provider waited {timeout} s in vain; {len(self.requests)} requests"
                raise AssertionError(msg)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # --- the server ----------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _start(self) -> web.AppRunner:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_get("/v1/models", self._list_models)
        app.router.add_post("/v1/chat/completions", self._complete)
        self.add_routes(app)
        runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    def add_routes(self, app: web.Application) -> None:
        """A hook for fakes that answer more than the model's wire."""

    async def record(self, request: web.Request) -> Recorded:
        recorded = Recorded(
            method=request.method,
            path=request.path,
            headers={name.lower(): value for name, value in request.headers.items()},
            body=await request.read(),
            arrived=time.monotonic(),
        )
        self.requests.append(recorded)
        self._notify()
        return recorded

    def mark_gone(self, recorded: Recorded) -> None:
        recorded.gone_after = time.monotonic() - recorded.arrived
        self._notify()

    async def _list_models(self, request: web.Request) -> web.Response:
        await self.record(request)
        data = [{"id": m, "object": "model", "created": 0, "owned_by": "fake"} for m in self.models]
        return web.json_response({"object": "list", "data": data})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        recorded = await self.record(request)
        reply = self._scripted.popleft() if self._scripted else self.default
        try:
            response = await self._answer(request, recorded, reply)
        except (asyncio.CancelledError, ConnectionResetError):
            self.mark_gone(recorded)
            raise
        recorded.finished = time.monotonic()
        self._notify()
        return response

    async def _answer(
        self, request: web.Request, recorded: Recorded, reply: Reply
    ) -> web.StreamResponse:
        await asyncio.sleep(reply.delay)
        if reply.body is not None:
            headers = {"content-type": "application/json", **dict(reply.headers)}
            return web.Response(status=reply.status, body=reply.body, headers=headers)
        asked = recorded.json
        if reply.echo:
            reply = reply.but(text=_last_user_text(asked))
        if not asked.get("stream"):
            if reply.hang_after is not None:
                await asyncio.Event().wait()
            return web.json_response(_completion(asked, reply), headers=dict(reply.headers))
        return await self._stream(request, asked, reply)

    async def _stream(self, request: web.Request, asked: JSON, reply: Reply) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        response.headers.update(dict(reply.headers))
        await response.prepare(request)
        for sent, chunk in enumerate(_chunks(asked, reply)):
            if reply.cut_after == sent and request.transport is not None:
                request.transport.abort()
                return response
            if reply.hang_after == sent:
                await asyncio.Event().wait()
            await response.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
            if reply.pace:
                await asyncio.sleep(reply.pace)
        await response.write(b"data: [DONE]\n\n")
        return response


def _last_user_text(asked: JSON) -> str:
    content = next(m["content"] for m in reversed(asked["messages"]) if m["role"] == "user")
    return content if isinstance(content, str) else json.dumps(content)


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.tool_calls else "stop")


def _completion(asked: JSON, reply: Reply) -> JSON:
    message: JSON = {"role": "assistant", "content": reply.text or None}
    if reply.tool_calls:
        message["tool_calls"] = list(reply.tool_calls)
    body: JSON = {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": _finish(reply)}],
    }
    if reply.usage is not None:
        body["usage"] = reply.usage
    return body


def _pieces(content: str, size: int) -> Iterator[str]:
    step = size or max(len(content), 1)
    for start in range(0, len(content), step):
        yield content[start : start + step]


def _deltas(reply: Reply) -> Iterator[JSON]:
    yield {"role": "assistant", "content": ""}
    for piece in _pieces(reply.reasoning, reply.chunk):
        yield {"reasoning_content": piece}
    for piece in _pieces(reply.text, reply.chunk):
        yield {"content": piece}
    for index, tool_call in enumerate(reply.tool_calls):
        head = {**tool_call["function"], "arguments": ""}
        yield {"tool_calls": [{**tool_call, "index": index, "function": head}]}
        for piece in _pieces(tool_call["function"]["arguments"], reply.chunk):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _chunks(asked: JSON, reply: Reply) -> Iterator[JSON]:
    frame: JSON = {
        "id": "chatcmpl-fake",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": asked["model"],
    }
    for delta in _deltas(reply):
        yield {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]}
    wants_usage = (asked.get("stream_options") or {}).get("include_usage")
    if wants_usage and reply.usage is not None:
        yield {**frame, "choices": [], "usage": reply.usage}


@pytest.fixture
def fake_provider() -> Iterator[FakeProvider]:
    """A provider for one test; import it where it is used."""
    with FakeProvider() as provider:
        yield provider
