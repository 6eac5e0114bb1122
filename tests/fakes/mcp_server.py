"""A scriptable tool server that speaks real MCP, in both protocol eras, on a real socket.

It runs in a thread of its own, so synchronous and asynchronous tests use it alike, and it counts
what reached it: whoever wants to know whether an action ran asks ``count``, not the product.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.session import ServerSession
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Scope = Any
Receive = Any
Send = Any


@dataclass(frozen=True)
class Text:
    """A plain successful result."""

    text: str


@dataclass(frozen=True)
class Error:
    """A result with ``isError``: the tool ran and failed."""

    text: str


@dataclass(frozen=True)
class Structured:
    """A result with ``structuredContent``, and the same as text."""

    value: dict[str, Any]


@dataclass(frozen=True)
class Giant:
    """A text result of this many bytes."""

    size: int


@dataclass(frozen=True)
class RpcError:
    """A JSON-RPC error instead of a result; any code, the gateway's own too."""

    code: int
    message: str = "refused"
    data: Any = None


@dataclass(frozen=True)
class Slow:
    """Another answer after some seconds."""

    seconds: float
    then: Answer


@dataclass(frozen=True)
class Hang:
    """No answer until ``FakeMCP.release`` or the client goes away."""


Fixed = Text | Error | Structured | Giant | RpcError | Slow | Hang
Answer = Fixed | Callable[[dict[str, Any]], Fixed]


@dataclass
class Call:
    """One ``tools/call`` that reached the server. ``finished`` and ``cancelled`` change later."""

    name: str
    arguments: dict[str, Any]
    meta: dict[str, Any]
    headers: dict[str, str]
    era: Literal["modern", "handshake"]
    finished: bool = False
    #: Only the modern era tells a server that the client of a call went away.
    cancelled: bool = False


def tool(
    name: str,
    properties: Mapping[str, str | dict[str, Any]] | None = None,
    *,
    required: Sequence[str] = (),
    description: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
) -> types.Tool:
    """A tool definition; a property is a JSON type's name or a whole schema."""
    annotations = None
    if read_only is not None or destructive is not None:
        annotations = types.ToolAnnotations(read_only_hint=read_only, destructive_hint=destructive)
    return types.Tool(
        name=name,
        description=f"The tool {name}." if description is None else description,
        input_schema={
            "type": "object",
            "properties": {
                key: {"type": value} if isinstance(value, str) else value
                for key, value in (properties or {}).items()
            },
            "required": list(required),
        },
        annotations=annotations,
    )


@dataclass
class _Script:
    answers: list[Answer] = field(default_factory=list)

    def next(self) -> Answer | None:
        if len(self.answers) > 1:
            return self.answers.pop(0)
        return self.answers[0] if self.answers else None


class FakeMCP:
    """The server; a context manager. Every attribute may be changed while it runs."""

    def __init__(
        self,
        tools: Iterable[types.Tool] = (),
        *,
        key: str | None = None,
        stateless: bool = False,
        json_response: bool = False,
    ) -> None:
        self.calls: list[Call] = []
        self.lists = 0
        #: HTTP requests of any kind, refused ones included.
        self.requests = 0
        #: True answers 503 to everything.
        self.down = False
        #: Answer every request with this status and nothing else.
        self.status = 0
        self._tools = list(tools)
        self._key = key
        self._stateless = stateless
        self._json_response = json_response
        self._scripts: dict[str, _Script] = {}
        self._lock = threading.Lock()
        self._sessions: dict[int, ServerSession] = {}
        self._bus = InMemorySubscriptionBus()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._released = asyncio.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def host_port(self) -> str:
        return f"127.0.0.1:{self.port}"

    # --- what tests set and read ----------------------------------------------------------

    @property
    def total(self) -> int:
        return len(self.calls)

    def count(self, name: str) -> int:
        """How many calls of this tool reached the server, whatever became of them."""
        with self._lock:
            return sum(call.name == name for call in self.calls)

    def answer(self, name: str, answers: Answer | Sequence[Answer]) -> None:
        """Set what a tool answers: one for ever, or a list, one a call, of which the last stays."""
        listed = list(answers) if isinstance(answers, Sequence) else [answers]
        with self._lock:
            self._scripts[name] = _Script(listed)

    def set_tools(self, tools: Iterable[types.Tool]) -> None:
        """Change the list. Nobody is told before ``list_changed``."""
        self._tools = list(tools)

    def require_key(self, key: str | None) -> None:
        self._key = key

    def list_changed(self) -> None:
        """Notify every client: open listen streams (modern), open sessions (handshake)."""
        asyncio.run_coroutine_threadsafe(self._notify(), self._running_loop()).result(timeout=10)

    def release(self) -> None:
        """Let every hanging call end with its arguments as text."""
        self._running_loop().call_soon_threadsafe(self._released.set)

    # --- life -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._application,
                interface="asgi3",
                lifespan="on",
                log_level="error",
                access_log=False,
                ws="none",
                timeout_graceful_shutdown=1,
            )
        )
        ready = threading.Event()
        self._on_ready = ready.set
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="fake-mcp"
        )
        self._thread.start()
        while not ready.wait(0.05):
            if not self._thread.is_alive():
                raise RuntimeError("The fake tool server did not start")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        assert self._thread is not None
        with suppress(RuntimeError):
            self.release()
        self._server.should_exit = True
        self._thread.join(20)
        self._socket.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError("Enter the fake first: with FakeMCP() as fake")
        return self._loop

    async def _notify(self) -> None:
        await self._bus.publish(ToolsListChanged())
        for session in list(self._sessions.values()):
            with suppress(Exception):
                await session.send_tool_list_changed()

    # --- the server -------------------------------------------------------------------------

    async def _application(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        self.requests += 1
        headers = {k.decode("latin-1"): v.decode("latin-1") for k, v in scope["headers"]}
        if self.down or self.status:
            await _plain(send, self.status or 503)
        elif self._key is not None and headers.get("authorization") != f"Bearer {self._key}":
            await _plain(send, 401)
        elif scope["path"] != "/mcp":
            await _plain(send, 404)
        else:
            await self._manager.handle_request(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        self._manager = StreamableHTTPSessionManager(
            app=Server(
                "fake",
                version="1",
                on_list_tools=self._list,
                on_call_tool=self._call,
                on_subscriptions_listen=ListenHandler(self._bus),
            ),
            stateless=self._stateless,
            json_response=self._json_response,
        )
        async with self._manager.run():
            await receive()
            await send({"type": "lifespan.startup.complete"})
            self._on_ready()
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def _list(
        self, ctx: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self.lists += 1
        self._remember(ctx)
        return types.ListToolsResult(tools=list(self._tools))

    async def _call(
        self, ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        self._remember(ctx)
        call = Call(
            name=params.name,
            arguments=dict(params.arguments or {}),
            meta={str(k): v for k, v in (ctx.meta or {}).items()},
            headers=dict(ctx.request.headers) if ctx.request is not None else {},
            era="modern" if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS else "handshake",
        )
        with self._lock:
            self.calls.append(call)
            script = self._scripts.get(params.name)
            answer = script.next() if script else None
        try:
            return await self._perform(answer, call)
        except asyncio.CancelledError:
            call.cancelled = True
            raise
        finally:
            call.finished = True

    async def _perform(self, answer: Answer | None, call: Call) -> types.CallToolResult:
        while True:
            if isinstance(answer, Slow):
                await asyncio.sleep(answer.seconds)
                answer = answer.then
            elif isinstance(answer, Hang):
                await self._released.wait()
                answer = None
            elif callable(answer):
                answer = answer(call.arguments)
            else:
                return _result(answer, call)

    def _remember(self, ctx: ServerRequestContext[Any]) -> None:
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._sessions[id(ctx.session)] = ctx.session


def _result(
    answer: Text | Error | Structured | Giant | RpcError | None, call: Call
) -> types.CallToolResult:
    match answer:
        case RpcError():
            raise MCPError(answer.code, answer.message, answer.data)
        case Structured():
            return _content(json.dumps(answer.value), structured=answer.value)
        case Giant():
            return _content("x" * answer.size)
        case Error():
            return _content(answer.text, is_error=True)
        case Text():
            return _content(answer.text)
        case _:
            return _content(json.dumps(call.arguments, sort_keys=True))


def _content(
    text: str, *, structured: dict[str, Any] | None = None, is_error: bool = False
) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=structured,
        is_error=is_error,
    )


async def _plain(send: Send, status: int) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", b"text/plain"), (b"content-length", b"0")],
        }
    )
    await send({"type": "http.response.body", "body": b""})
