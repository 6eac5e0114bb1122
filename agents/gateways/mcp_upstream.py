"""Sessions with tool servers, one a connector and process, through the MCP SDK's own client."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from mcp.client.client import Client, ConnectMode
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    ToolListChangedNotification,
)
from mcp_types import Tool as ListedTool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from agents.errors import (
    ConnectorAuth,
    ConnectorError,
    ConnectorTimeout,
    ConnectorUnreachable,
    DomainError,
    ResultTooLarge,
)
from agents.gateways import outgoing
from agents.gateways.mcp_transport import Trace, TracingTransport, traced
from agents.models import Connector
from agents.policy import KeyRow, ToolRow

logger = logging.getLogger(__name__)

#: Seconds that one call may take.
CALL_SECONDS = 60.0
#: Bytes of one answer on the wire, envelope included.
RESULT_LIMIT = 1 << 20
#: Seconds to open a session, and to read a whole list of tools.
OPEN_SECONDS = 10.0
LIST_SECONDS = 15.0
#: Bounds of one list. Tools beyond are refused where it is folded into the rows.
LIST_BYTES = 8 << 20
LIST_PAGES = 50
LIST_TOOLS = 600
#: A stream of notifications may be silent for a day; the periodic reading does not need it.
SILENCE_SECONDS = 86_400.0
#: Seconds before a lost stream of notifications is asked for again.
LISTEN_AGAIN_SECONDS = 30.0
CLOSE_SECONDS = 2.0

#: A server's word on the credential.
REFUSED_CREDENTIAL = frozenset({401, 403})
#: HTTP answers of a server that looked no further than the request's envelope. After any other
#: (a redirect, a timeout, a proxy's or a server's own failure) the call may have been executed.
TURNED_AWAY = frozenset({401, 403, 404, 405, 406, 413, 415, 429})

#: Probe for the modern era and fall back to the handshake.
MODE: ConnectMode = "auto"
_INFO = Implementation(name="mandate", version="1")
_ANSWER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
    CallToolResult | InputRequiredResult
)


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where a connector's server is and what opens it. Another address is another upstream."""

    connector_id: UUID
    organization_id: UUID
    url: str
    sealed: bytes | None = field(repr=False)

    @classmethod
    def of_tool(cls, tool: ToolRow, key: KeyRow) -> Upstream:
        return cls(tool.connector_id, key.organization_id, tool.url, tool.credential)

    @classmethod
    def of_connector(cls, connector: Connector) -> Upstream:
        sealed = None if connector.credential is None else bytes(connector.credential)
        return cls(connector.id, connector.organization_id, connector.url, sealed)

    def headers(self) -> dict[str, str]:
        """Raises DamagedContent when the credential does not open."""
        if self.sealed is None:
            return {}
        row = Connector(
            id=self.connector_id, organization_id=self.organization_id, credential=self.sealed
        )
        return {"authorization": f"Bearer {row.open_value('credential')}"}


class CallFailed(Exception):
    """A call that brought no result. The server's own words are not in it."""

    def __init__(self, error: DomainError) -> None:
        super().__init__(error.code)
        self.error = error


class NotExecuted(CallFailed):
    """The server certainly did not take the call: nothing left, or it turned the request away."""


class SessionEnded(NotExecuted):
    """The server no longer knows this session; the call belongs into a new one."""


class Answered(CallFailed):
    """The server took the call and answered; the answer is an error or unusable."""


class Unknown(CallFailed):
    """The call left, and nobody can tell what became of it."""


class UpstreamSession:
    """One open session. Any number of calls run in it side by side."""

    def __init__(self, upstream: Upstream, on_changed: Callable[[Upstream], object]) -> None:
        self.upstream = upstream
        self.alive = False
        #: The SDK learns from a list which arguments it has to repeat in headers.
        self.listed = False
        self._on_changed = on_changed
        self._client: Client | None = None
        self._transport: TracingTransport | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        if self._client is None:
            msg = "the session is not open"
            raise RuntimeError(msg)
        return self._client

    async def open(self) -> None:
        """Connect and negotiate. Raises ConnectorUnreachable, DestinationRefused, DamagedContent.

        A task of its own holds the session, because the SDK's scopes may not change tasks.
        """
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(opened))
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await asyncio.shield(opened)
        except TimeoutError:
            self._task.cancel()
            raise ConnectorUnreachable from None
        except asyncio.CancelledError:
            self._task.cancel()
            raise

    async def close(self) -> None:
        """Say goodbye within two seconds, then drop the connection."""
        self.alive = False
        self._closing.set()
        if self._task is not None:
            done, _ = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
            if not done:
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)

    async def _hold(self, opened: asyncio.Future[None]) -> None:
        try:
            await self._hold_open(opened)
        except Exception as error:  # noqa: BLE001 - the SDK raises groups of anything
            cause = _own_refusal(error) or self._closed_door()
            if not opened.done():
                opened.set_exception(cause)
                opened.exception()  # Nobody may be waiting any more.
            else:
                logger.info("a connector's session ended: %s", type(error).__name__)
        finally:
            self.alive = False
            if not opened.done():
                opened.set_exception(ConnectorUnreachable())
                opened.exception()

    def _closed_door(self) -> DomainError:
        """Why no session came about: the SDK does not tell, the last answer's status does."""
        refused = self._transport is not None and self._transport.status in REFUSED_CREDENTIAL
        return ConnectorAuth() if refused else ConnectorUnreachable()

    async def _hold_open(self, opened: asyncio.Future[None]) -> None:
        http = outgoing.httpx2_client(
            headers=self.upstream.headers(),
            timeout=CALL_SECONDS,
            read_timeout=SILENCE_SECONDS,
            wrap=self._watched,
        )
        transport = streamable_http_client(
            self.upstream.url, http_client=http, max_sse_event_size=RESULT_LIMIT
        )
        client = Client(
            transport, cache=None, client_info=_INFO, message_handler=self._hear, mode=MODE
        )
        async with http, client:
            self._client = client
            self.alive = True
            opened.set_result(None)
            listening = asyncio.create_task(self._listen(client))
            try:
                await self._closing.wait()
            finally:
                listening.cancel()
                await asyncio.wait({listening})

    def _watched(self, inner: Any) -> TracingTransport:
        self._transport = TracingTransport(inner)
        return self._transport

    # --- notifications ----------------------------------------------------------------------

    async def _hear(self, message: object) -> None:
        """What sessions of the handshake era are told without asking."""
        if isinstance(message, ToolListChangedNotification):
            self._on_changed(self.upstream)

    async def _listen(self, client: Client) -> None:
        """Ask a server of the modern era for notifications, again and again."""
        capability = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        if capability is None or not capability.list_changed:
            return
        while True:
            with suppress(MCPError, RuntimeError, ValueError, TimeoutError), traced(None):
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self._on_changed(self.upstream)
            await asyncio.sleep(LISTEN_AGAIN_SECONDS)

    # --- calls ------------------------------------------------------------------------------

    async def call(self, name: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool once. Raises one of the kinds of CallFailed. Cancelling cancels it there."""
        with traced(RESULT_LIMIT) as trace:
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    result = await self.client.session.send_request(
                        CallToolRequest(
                            params=CallToolRequestParams(name=name, arguments=arguments)
                        ),
                        _ANSWER,
                    )
            except TimeoutError:
                if trace.unsent:
                    raise NotExecuted(ConnectorUnreachable()) from None
                raise Unknown(ConnectorTimeout()) from None
            except MCPError as error:
                raise self._failure(trace, error) from None
            except (ValueError, RuntimeError):  # An answer against the protocol.
                raise Unknown(ConnectorError()) from None
        if isinstance(result, InputRequiredResult):
            raise Answered(ConnectorError())
        return result

    def _failure(self, trace: Trace, error: MCPError) -> CallFailed:
        """What a JSON-RPC error means. Its code and text are the server's, and stay here."""
        if not trace.started:
            self.alive = False
            return SessionEnded(ConnectorUnreachable())
        if trace.oversize and 200 <= trace.status < 300:
            return Answered(ResultTooLarge())
        if trace.unsent:
            return NotExecuted(ConnectorUnreachable())
        if trace.answered and error.code != CONNECTION_CLOSED:
            return Answered(ConnectorError())
        return self._turned_away(trace)

    def _turned_away(self, trace: Trace) -> CallFailed:
        """What it means that no JSON-RPC answer came, by the HTTP status."""
        if trace.broken or trace.status not in TURNED_AWAY:
            return Unknown(ConnectorError())
        if trace.status == 404 and self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self.alive = False
            return SessionEnded(ConnectorError())
        refused = trace.status in REFUSED_CREDENTIAL
        return NotExecuted(ConnectorAuth() if refused else ConnectorError())

    async def list_tools(self) -> list[ListedTool]:
        """The whole list, page by page. Raises one of the kinds of CallFailed."""
        try:
            async with asyncio.timeout(LIST_SECONDS):
                return await self._list_tools()
        except TimeoutError:
            raise Unknown(ConnectorTimeout()) from None
        except (ValueError, RuntimeError):
            raise Answered(ConnectorError()) from None

    async def _list_tools(self) -> list[ListedTool]:
        tools: list[ListedTool] = []
        cursor: str | None = None
        for _ in range(LIST_PAGES):
            with traced(LIST_BYTES) as trace:
                try:
                    page = await self.client.session.list_tools(
                        params=PaginatedRequestParams(cursor=cursor)
                    )
                except MCPError as error:
                    raise self._failure(trace, error) from None
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None or len(tools) > LIST_TOOLS:
                self.listed = True
                return tools
        raise Answered(ConnectorError())  # A list that never ends.


def _own_refusal(error: BaseException) -> DomainError | None:
    """The refusal of ours inside the SDK's groups, if there is one."""
    if isinstance(error, DomainError):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_own_refusal, error.exceptions)), None)
    return None


class UpstreamPool:
    """This process's sessions, at most one a connector."""

    def __init__(self, on_changed: Callable[[Upstream], object]) -> None:
        self._on_changed = on_changed
        self._sessions: dict[UUID, UpstreamSession] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def live(self, upstream: Upstream) -> UpstreamSession | None:
        """The open session with exactly this address and credential."""
        session = self._sessions.get(upstream.connector_id)
        if session is None or not session.alive or session.upstream != upstream:
            return None
        return session

    def connector_ids(self) -> set[UUID]:
        return set(self._sessions)

    async def open(self, upstream: Upstream) -> UpstreamSession:
        """Open a session in the place of the one that is there."""
        self.drop(upstream.connector_id)
        session = UpstreamSession(upstream, self._on_changed)
        await session.open()
        self.drop(upstream.connector_id)
        self._sessions[upstream.connector_id] = session
        return session

    def drop(self, connector_id: UUID) -> None:
        """Close a connector's session behind the caller's back; its open calls fail."""
        session = self._sessions.pop(connector_id, None)
        if session is not None:
            task = asyncio.create_task(session.close())
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        for connector_id in list(self._sessions):
            self.drop(connector_id)
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=2 * CLOSE_SECONDS)
