"""Calls of tools at the MCP Gateway: one stateless POST each, in the protocol's modern era.

The SDK's own client is made for sessions: it lists the tools before it accepts a first result and
runs a task group for each connection. A run's tools are known and the gateway is stateless, so the
SDK's types over a shared HTTP client are enough, and closing the request is the cancellation.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ErrorData,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcp_types.jsonrpc import JSONRPCError, JSONRPCRequest, JSONRPCResponse
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from chat.runtime import codes
from chat.runtime.wire import CODE_APPROVAL_REQUIRED, CODE_PARKED

JSON = dict[str, Any]

#: Seconds that one call may take; the gateway's longest own wait is shorter.
CALL_SECONDS = 150.0
#: Bytes of one answer. The gateway bounds results far below; this only guards our memory.
ANSWER_BYTES = 8 * 2**20

_ANSWER: TypeAdapter[JSONRPCResponse | JSONRPCError] = TypeAdapter(JSONRPCResponse | JSONRPCError)
_CLIENT = {"name": "mandate-runtime", "version": "1"}


@dataclass(frozen=True)
class ToolResult:
    """What the tool answered, as text for the model."""

    text: str
    is_error: bool


class ToolRefused(Exception):
    """The call did not come to a result. ``code`` is stable and all that may be told."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class ApprovalNeeded(Exception):
    """The gateway opened an approval for this call and did not execute it."""

    def __init__(self, approval_id: str) -> None:
        super().__init__("approval needed")
        self.approval_id = approval_id


class CallParked(Exception):
    """The gateway parked the call: its result comes in a later run."""

    def __init__(self, handoff_id: str) -> None:
        super().__init__("call parked")
        self.handoff_id = handoff_id


class ToolProtocolError(codes.RunFailed):
    """The gateway asked to pause without saying for what. The run cannot go on."""

    code = codes.TOOL_PROTOCOL


class ToolClient:
    """Calls tools with a run's key. Shares one HTTP client between all runs."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url

    async def call(self, *, key: str, name: str, arguments: JSON, meta: JSON) -> ToolResult:
        """Call once. Raises one of this module's exceptions for anything but a result."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                status, body = await self._post(key, _request(name, arguments, meta), name)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            raise ToolRefused(codes.TOOL_UNREACHABLE) from None
        except (TimeoutError, httpx2.TimeoutException):
            raise ToolRefused(codes.TOOL_TIMEOUT) from None
        except httpx2.HTTPError:
            raise ToolRefused(codes.TOOL_UNANSWERED) from None
        return _read_answer(status, body)

    async def _post(self, key: str, content: bytes, name: str) -> tuple[int, bytes]:
        headers = {
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": LATEST_MODERN_VERSION,
            "mcp-method": "tools/call",
            "mcp-name": name,
        }
        request = self._http.stream("POST", self._url, content=content, headers=headers)
        async with request as response:
            if "text/event-stream" in response.headers.get("content-type", ""):
                return response.status_code, await _last_message(response)
            return response.status_code, await _bounded_body(response)


def _request(name: str, arguments: JSON, meta: JSON) -> bytes:
    params = {
        "name": name,
        "arguments": arguments,
        "_meta": {
            PROTOCOL_VERSION_META_KEY: LATEST_MODERN_VERSION,
            CLIENT_INFO_META_KEY: _CLIENT,
            CLIENT_CAPABILITIES_META_KEY: {},
            **meta,
        },
    }
    request = JSONRPCRequest(jsonrpc="2.0", id=1, method="tools/call", params=params)
    return to_json(request)


async def _bounded_body(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > ANSWER_BYTES:
            raise ToolRefused(codes.RESULT_TOO_LARGE)
    return bytes(body)


async def _last_message(response: httpx2.Response) -> bytes:
    """The answer among the events of a stream: notifications before it are not for us."""
    async for event in httpx2.EventSource(response, max_event_size=ANSWER_BYTES):
        if '"result"' in event.data or '"error"' in event.data:
            return event.data.encode()
    return b""


def _read_answer(status: int, body: bytes) -> ToolResult:
    try:
        answer = _ANSWER.validate_json(body)
    except ValidationError:
        raise ToolRefused(_problem_code(status, body)) from None
    if isinstance(answer, JSONRPCError):
        raise _refusal(answer.error)
    if answer.result.get("resultType", "complete") != "complete":
        raise ToolRefused(codes.TOOL_ERROR)
    try:
        result = CallToolResult.model_validate(answer.result, by_name=False)
    except ValidationError:
        raise ToolRefused(codes.TOOL_ERROR) from None
    return ToolResult(text=_text(result), is_error=result.is_error)


def _problem_code(status: int, body: bytes) -> str:
    """The code of a problem document, when the gateway refused before JSON-RPC began."""
    try:
        problem = from_json(body)
    except ValueError:
        problem = None
    code = problem.get("code") if isinstance(problem, dict) and status >= 400 else None
    return codes.stable_code(code, codes.TOOL_ERROR)


def _refusal(error: ErrorData) -> Exception:
    data = error.data if isinstance(error.data, dict) else {}
    if error.code == CODE_APPROVAL_REQUIRED:
        approval_id = _id(data.get("approval"))
        return ApprovalNeeded(approval_id) if approval_id else ToolProtocolError()
    if error.code == CODE_PARKED:
        handoff_id = _id(data.get("handoff"))
        return CallParked(handoff_id) if handoff_id else ToolProtocolError()
    return ToolRefused(codes.stable_code(data.get("code"), codes.TOOL_ERROR))


def _id(value: object) -> str:
    """``value`` when it can be an id of the gateway, else an empty string."""
    return value if isinstance(value, str) and len(value) <= 200 else ""


def _text(result: CallToolResult) -> str:
    """The blocks as text. Structured content counts only when no block says it."""
    if not result.content and result.structured_content is not None:
        return to_json(result.structured_content).decode()
    return "\n".join(_block_text(block) for block in result.content)


def _block_text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case EmbeddedResource(resource=TextResourceContents() as resource):
            return resource.text
        case ResourceLink():
            return f"[resource {block.uri}]"
        case _:
            return f"[{block.type}: this model gets text only]"
