"""The MCP Gateway: streamable HTTP at ``/gateway/mcp``, stateless, both protocol eras.

The SDK negotiates and speaks the protocol. Around it, this wrapper reads the bounded body, takes
the agent key, watches whether the client is still there, and gives nobody an answer whose key
does not work. A refusal of the key is a problem document; a refusal of one tool is JSON-RPC.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import mcp_types as types
import orjson
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError

from agents.errors import (
    DomainError,
    InternalError,
    MalformedBody,
    MethodNotAllowed,
    NotAcceptable,
    NotPublished,
    Overloaded,
    Suspended,
    Unauthenticated,
)
from agents.gateways.auth import bearer
from agents.gateways.body import ClientGone, read_json
from agents.gateways.calls import CallCut, open_call
from agents.gateways.mcp_approvals import drain
from agents.gateways.mcp_calls import call_tool
from agents.gateways.mcp_codes import internal, refusal
from agents.gateways.mcp_hop import all_rights, require_live
from agents.gateways.mcp_listing import ToolDefinition, tool_definitions
from agents.gateways.refresh import refreshing
from agents.gateways.responses import Message, Receive, Scope, Send, guard

logger = logging.getLogger(__name__)

#: Bytes of a request's body.
MAX_BODY_BYTES = 1 << 20
#: What answers on HTTP, because it is about the key or about us and not about one call.
HTTP_REFUSALS = (Unauthenticated, Suspended, NotPublished, Overloaded)

_EXCHANGE = "mandate.exchange"


class _Exchange:
    """One request: its key, and what became known of the key while it was answered."""

    def __init__(self, key_text: str) -> None:
        self.key_text = key_text
        self.authenticated = False
        self.refusal: DomainError | None = None

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Around a handler that looks at the key itself: every error leaves as the SDK's.

        A refusal that answers on HTTP is kept for the wrapper. Nothing else of an exception may
        reach the SDK, which in one of its eras puts the text on the wire.
        """
        try:
            yield
        except MCPError:
            self.authenticated = True
            raise
        except DomainError as error:
            if isinstance(error, HTTP_REFUSALS):
                self.refusal = error
            self.authenticated = True
            raise refusal(error) from None
        except Exception as error:  # noqa: BLE001 - told by type only
            logger.error("a handler failed: %s", type(error).__name__)  # noqa: TRY400
            self.refusal = InternalError()
            raise internal() from None
        self.authenticated = True


# --- inside the SDK ---------------------------------------------------------------------------


def _exchange(ctx: ServerRequestContext[Any]) -> _Exchange:
    assert ctx.request is not None  # streamable HTTP always has one
    exchange: _Exchange = ctx.request.scope[_EXCHANGE]
    return exchange


async def _list_tools(
    ctx: ServerRequestContext[Any], _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    exchange = _exchange(ctx)
    with exchange.answering():
        rights = await all_rights(exchange.key_text)
        tools = [_shown(definition) for definition in tool_definitions(rights)]
        return types.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")


def _shown(definition: ToolDefinition) -> types.Tool:
    return types.Tool(
        name=definition.name,
        title=definition.title or None,
        description=definition.description,
        input_schema=definition.input_schema,
        annotations=types.ToolAnnotations(read_only_hint=not definition.is_action),
    )


async def _call_tool(
    ctx: ServerRequestContext[Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    exchange = _exchange(ctx)
    with exchange.answering():
        return await call_tool(
            exchange.key_text, params.name, params.arguments or {}, dict(ctx.meta or {})
        )


def _server() -> Server[Any]:
    return Server(
        "mandate",
        version="1",
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
        # Headers that repeat arguments are for proxies; only the body counts here.
        get_tool_input_schema=lambda _name: None,
    )


# --- around the SDK ---------------------------------------------------------------------------

_manager: StreamableHTTPSessionManager | None = None


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """What the gateway needs around :data:`app`: the SDK's manager and the connectors' sessions."""
    global _manager
    manager = StreamableHTTPSessionManager(
        app=_server(), stateless=True, json_response=True, max_request_body_size=MAX_BODY_BYTES * 2
    )
    try:
        async with refreshing(), manager.run():
            _manager = manager
            try:
                yield
            finally:
                _manager = None
    finally:
        await drain()


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    exchange = _Exchange(bearer(scope))
    if scope["method"] != "POST":
        raise MethodNotAllowed(allow="POST")
    message = await read_json(scope, receive, limit=MAX_BODY_BYTES)
    if not isinstance(message, dict):
        raise MalformedBody("Send one JSON-RPC message.")
    answer = _Answer()
    try:
        async with open_call(receive, key_id=None):
            await _speak(scope, exchange, orjson.dumps(message), answer)
    except CallCut:
        raise ClientGone from None
    if exchange.refusal is not None:
        raise exchange.refusal
    if not exchange.authenticated:
        await require_live(exchange.key_text)
    if answer.status == NotAcceptable.status:
        raise NotAcceptable
    for part in answer.messages:
        await send(part)


async def _speak(scope: Scope, exchange: _Exchange, body: bytes, answer: _Answer) -> None:
    """Let the SDK answer the message that was read: one parser decides what was said."""
    if _manager is None:
        msg = "the gateway's lifespan is not running"
        raise RuntimeError(msg)
    pieces: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        if pieces:
            return pieces.pop()
        await asyncio.Event().wait()
        raise ClientGone

    length = (b"content-length", str(len(body)).encode())
    headers = [h for h in scope["headers"] if h[0] not in {b"content-length", b"authorization"}]
    inner = {**scope, "headers": [*headers, length], _EXCHANGE: exchange}
    await _manager.handle_request(inner, replayed, answer.receive)


class _Answer:
    """The SDK's answer, held back until the key is known to work. It is JSON, never a stream."""

    def __init__(self) -> None:
        self.status = 0
        self.messages: list[Message] = []

    async def receive(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message["headers"], _NO_STORE]}
        self.messages.append(message)


_NO_STORE = (b"cache-control", b"no-store")

app = guard(_answer)
