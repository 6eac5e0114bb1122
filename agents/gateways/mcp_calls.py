"""One ``tools/call``: admitted, compared with its schema, approved if it acts, executed, recorded.

No step trusts an earlier one across a wait: whenever time has passed (a list was read, a person
was asked), the rights are read again in the same visit that takes the next step.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent

from agents.choices import RequestKind, RequestState
from agents.errors import (
    ConnectorTimeout,
    DomainError,
    OutcomeUncertain,
    ToolUnavailable,
)
from agents.gateways import first_party, refresh
from agents.gateways.body import ClientGone
from agents.gateways.calls import CallCut, open_call
from agents.gateways.first_party import HANDLER_SECONDS, FirstPartyCall, Parked
from agents.gateways.mcp_approvals import ask, execute_approved
from agents.gateways.mcp_arguments import check_arguments
from agents.gateways.mcp_codes import (
    META_APPROVAL,
    META_TOOL_CALL,
    approval_required,
    internal,
    parked,
    refusal,
)
from agents.gateways.mcp_hop import Admission, admit, require_same_rights
from agents.gateways.mcp_outcomes import clean_result
from agents.gateways.mcp_upstream import (
    CallFailed,
    NotExecuted,
    SessionEnded,
    Upstream,
    UpstreamSession,
)
from agents.gateways.request_rows import CallRecord

logger = logging.getLogger(__name__)

JSON = dict[str, Any]


async def call_tool(
    key_text: str, name: str, arguments: JSON, meta: Mapping[str, object]
) -> CallToolResult:
    """Answer one call. Raises MCPError for refusals of this call, DomainError for the key's own."""
    record = CallRecord(RequestKind.TOOL)
    admission = await admit(key_text, name, record, list_within=refresh.IN_USE)
    return await _Call(admission, arguments, meta).run()


class _Call:
    """One admitted call; its row is closed however it ends."""

    def __init__(self, admission: Admission, arguments: JSON, meta: Mapping[str, object]) -> None:
        self._admission = admission
        self._tool = admission.tool
        self._arguments = arguments
        self._approval = meta.get(META_APPROVAL)
        call_id = meta.get(META_TOOL_CALL)
        self._tool_call_id = call_id[:128] if isinstance(call_id, str) else ""
        #: Something may have been sent to the tool server.
        self._sent = False

    async def run(self) -> CallToolResult:
        """Do it, with the rights looked at again every second, and close the row."""
        watched = open_call(
            None,
            key_id=self._admission.key.id,
            tool_name=self._tool.exposed_name,
            resource_id=self._tool.id,
        )
        try:
            async with watched:
                result = await self._proceed()
        except CallCut as cut:
            raise self._cut(cut.error) from None
        except CallFailed as failed:
            raise self._refused(failed.error) from None
        except DomainError as error:
            raise self._refused(error) from None
        except Parked as pause:
            self._close(RequestState.OK, "parked")
            raise parked(pause.handoff_id) from None
        except MCPError as error:
            self._close(RequestState.REFUSED, _code(error))
            raise
        except asyncio.CancelledError:
            self._close(RequestState.CANCELLED, "client_gone")
            raise
        except Exception as error:  # noqa: BLE001 - nothing of it may reach the wire
            logger.error("a tool call failed: %s", type(error).__name__)  # noqa: TRY400
            self._close(RequestState.FAILED, "internal")
            raise internal() from None
        self._close(RequestState.OK)
        return result

    def _close(self, state: RequestState, code: str = "") -> None:
        self._admission.record.close(state, code)

    def _refused(self, error: DomainError) -> MCPError:
        self._close(RequestState.FAILED if self._sent else RequestState.REFUSED, error.code)
        return refusal(error)

    def _cut(self, error: DomainError | ClientGone) -> MCPError:
        """The key or the grant ended meanwhile; what an action did by then nobody can tell."""
        if isinstance(error, ClientGone):
            self._close(RequestState.CANCELLED, "client_gone")
            return internal()
        if self._sent and self._tool.is_action:
            error = OutcomeUncertain()
        return self._refused(error)

    async def _proceed(self) -> CallToolResult:
        if self._tool.first_party:
            await self._check_arguments()
            return await self._handle()
        if not self._tool.is_action:
            session = await self._session()
            await self._check_arguments()
            return clean_result(await self._send(session, self._arguments))
        if self._approval is None:
            await self._check_arguments()
            raise approval_required(await ask(self._admission, self._arguments, self._tool_call_id))
        session = await self._session()
        await self._check_arguments()

        async def execute(approved: JSON) -> CallToolResult:
            return await self._send(session, approved)

        return await execute_approved(self._admission, self._approval, self._arguments, execute)

    async def _check_arguments(self) -> None:
        tool = self._tool
        await check_arguments(self._arguments, schema=tool.input_schema, digest=tool.digest)

    # --- tool servers -----------------------------------------------------------------------

    async def _session(self, *, current: bool | None = None) -> UpstreamSession:
        """The connector's session, behind a list that is recent enough."""
        upstream = Upstream.of_tool(self._tool, self._admission.key)
        session, read = await refresh.active().ready(
            upstream, current=self._admission.current if current is None else current
        )
        if read:
            await require_same_rights(self._admission)
        return session

    async def _send(self, session: UpstreamSession, arguments: JSON) -> CallToolResult:
        self._sent = True
        try:
            result = await self._send_once_known(session, arguments)
        except NotExecuted:
            self._sent = False
            raise
        self._admission.record.first_byte()
        return result

    async def _send_once_known(self, session: UpstreamSession, arguments: JSON) -> CallToolResult:
        try:
            return await session.call(self._tool.name, arguments)
        except SessionEnded:
            # The server has forgotten the session and did not take the call: once more, anew.
            session = await self._session(current=False)
            return await session.call(self._tool.name, arguments)

    # --- our own ----------------------------------------------------------------------------

    async def _handle(self) -> CallToolResult:
        handler = first_party.handler_of(self._tool.name)
        if handler is None:
            raise ToolUnavailable
        self._sent = True
        call = FirstPartyCall(
            key=self._admission.key,
            rights=self._admission.rights,
            arguments=self._arguments,
            tool_call_id=self._tool_call_id,
            request_id=self._admission.record.id,
        )
        try:
            async with asyncio.timeout(HANDLER_SECONDS):
                result = await handler(call)
        except TimeoutError:
            raise ConnectorTimeout from None
        return CallToolResult(
            content=[TextContent(type="text", text=result.text)],
            structured_content=result.structured,
            is_error=result.is_error,
        )


def _code(error: MCPError) -> str:
    """The stable code in an error of ours."""
    data = error.data
    return str(data.get("code", "")) if isinstance(data, dict) else ""
