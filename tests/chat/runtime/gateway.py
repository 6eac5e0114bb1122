"""Both gateways on one socket, as far as a runtime can see them, with the model and tools scripted."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.fakes.model_provider import FakeProvider, Recorded

JSON = dict[str, Any]


@dataclass(frozen=True)
class ToolReply:
    """How the fake MCP Gateway answers one call."""

    result: JSON | None = None
    error: JSON | None = None
    status: int = 200
    body: bytes | None = None
    hang: bool = False
    drop: bool = False
    delay: float = 0.0
    stream: bool = False


def result(text: str, **changes: Any) -> ToolReply:
    return ToolReply(result={"content": [{"type": "text", "text": text}]}, **changes)


def tool_error(text: str) -> ToolReply:
    return ToolReply(result={"content": [{"type": "text", "text": text}], "isError": True})


def rpc_error(code: int, data: Any = None, message: str = "SECRET gateway text") -> ToolReply:
    return ToolReply(error={"code": code, "message": message, "data": data})


def needs_approval(approval_id: str) -> ToolReply:
    return rpc_error(-32043, {"approval": approval_id})


def parked(handoff_id: str) -> ToolReply:
    return rpc_error(-32042, {"handoff": handoff_id})


@dataclass(frozen=True)
class ToolCall:
    """One ``tools/call`` as it arrived."""

    name: str
    arguments: JSON
    meta: JSON
    recorded: Recorded


class FakeGateway(FakeProvider):
    """Scripts for the model come from :class:`FakeProvider`; ``on_tool`` scripts the tools."""

    def __init__(self) -> None:
        super().__init__()
        self.tool_calls: list[ToolCall] = []
        self._tool_replies: defaultdict[str, deque[ToolReply]] = defaultdict(deque)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def on_tool(self, name: str, *replies: ToolReply) -> None:
        """Queue answers for calls of the tool; the last one is repeated."""
        self._tool_replies[name].extend(replies)

    def forget_tool(self, name: str) -> None:
        """Drop what was scripted for the tool."""
        self._tool_replies[name].clear()

    def calls_of(self, name: str) -> list[ToolCall]:
        return [call for call in self.tool_calls if call.name == name]

    def wait_for_tool_calls(self, count: int, timeout: float = 5.0) -> None:
        self._wait(lambda: len(self.tool_calls) >= count, timeout)

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/gateway/v1/chat/completions", self._complete)
        app.router.add_post("/gateway/mcp", self._call_tool)

    async def _call_tool(self, request: web.Request) -> web.StreamResponse:
        recorded = await self.record(request)
        asked = recorded.json
        assert asked["method"] == "tools/call"
        params = asked["params"]
        call = ToolCall(params["name"], params["arguments"], params["_meta"], recorded)
        self.tool_calls.append(call)
        self._notify()
        queue = self._tool_replies[call.name]
        reply = queue.popleft() if len(queue) > 1 else queue[0]
        try:
            await asyncio.sleep(reply.delay)
            if reply.hang:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.mark_gone(recorded)
            raise
        if reply.drop and request.transport is not None:
            request.transport.abort()
        return _answer(asked["id"], reply)


def _answer(request_id: Any, reply: ToolReply) -> web.Response:
    if reply.body is not None:
        return web.Response(status=reply.status, body=reply.body)
    message: JSON = {"jsonrpc": "2.0", "id": request_id}
    if reply.error is not None:
        message["error"] = reply.error
    else:
        message["result"] = reply.result
    if not reply.stream:
        return web.json_response(message, status=reply.status)
    note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
    body = "".join(f"event: message\ndata: {json.dumps(m)}\n\n" for m in (note, message))
    return web.Response(body=body.encode(), headers={"content-type": "text/event-stream"})
