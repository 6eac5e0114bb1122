"""A runtime in this process on a real socket, its fake gateway, and a client that acts as web."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
import uvicorn

from chat.runtime.app import RuntimeApp
from chat.runtime.settings import Settings
from chat.runtime.wire import (
    EventFrame,
    FinalFrame,
    MessageFrame,
    Resolution,
    RunRequest,
    ToolDefinition,
    decode,
)
from tests.chat.runtime.gateway import FakeGateway

JSON = dict[str, Any]
TOKEN = "runtime-token-of-the-tests"
KEY = "mk_test0001_secretsecretsecret"

ORDERS = ToolDefinition(
    name="orders__status",
    description="State of an order",
    input_schema={"type": "object", "properties": {"order": {"type": "integer"}}},
)
REFUND = ToolDefinition(
    name="orders__refund",
    description="Refund an order",
    input_schema={"type": "object", "properties": {"order": {"type": "integer"}}},
)


def run_request(prompt: str | None = "Hi", **changes: Any) -> RunRequest:
    values: JSON = {
        "run_id": "run-1",
        "thread_id": "thread-1",
        "agent_name": "orders",
        "instructions": "You help with orders.",
        "model": "default-chat",
        "output_limit": 300,
        "key": KEY,
        "tools": [ORDERS, REFUND],
        "history": [],
        "prompt": prompt,
        "deadline_seconds": 20,
        **changes,
    }
    return RunRequest(**values)


@dataclass
class Told:
    """What the runtime told web in one run."""

    frames: list[EventFrame | MessageFrame | FinalFrame]
    #: The history that web holds after the run.
    history: list[JSON] = field(default_factory=list)

    @property
    def events(self) -> list[JSON]:
        return [frame.event for frame in self.frames if isinstance(frame, EventFrame)]

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def text(self) -> str:
        said = [e["delta"] for e in self.events if e["type"] == "TEXT_MESSAGE_CONTENT"]
        return "".join(said)

    @property
    def final(self) -> FinalFrame:
        assert isinstance(self.frames[-1], FinalFrame)
        return self.frames[-1]

    @property
    def results(self) -> list[str]:
        return [e["content"] for e in self.events if e["type"] == "TOOL_CALL_RESULT"]

    @property
    def call_ids(self) -> list[str]:
        return [e["toolCallId"] for e in self.events if e["type"] == "TOOL_CALL_START"]


def fold(history: list[JSON], frames: list[Any]) -> list[JSON]:
    """The history as web keeps it: drop what a message replaces, then append."""
    kept = list(history)
    for frame in frames:
        if isinstance(frame, MessageFrame):
            kept = kept[: len(kept) - frame.replaces]
            kept.append(frame.message)
    return kept


def brackets_hold(told: Told) -> bool:
    """Whether all that was opened was closed, once, one at a time."""
    opened: str | None = None
    for event in told.events:
        kind = event["type"]
        if kind in {"TEXT_MESSAGE_START", "TOOL_CALL_START", "REASONING_START"}:
            assert opened is None, kind
            opened = event.get("messageId") if kind != "TOOL_CALL_START" else event["toolCallId"]
        elif kind in {"TEXT_MESSAGE_END", "TOOL_CALL_END", "REASONING_END"}:
            assert opened == (event.get("messageId") or event.get("toolCallId"))
            opened = None
        elif kind != "TOOL_CALL_RESULT":
            assert opened == (event.get("messageId") or event.get("toolCallId")), kind
    return opened is None


class Web:
    """Speaks to the runtime as web does."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url
        self.session = session

    def post(self, body: bytes, **headers: str) -> Any:
        sent = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", **headers}
        return self.session.post(f"{self.url}/runs", data=body, headers=sent)

    async def run(self, request: RunRequest) -> Told:
        async with self.post(request.model_dump_json().encode()) as response:
            assert response.status == 200
            assert response.content_type == "application/x-ndjson"
            frames = [decode(line) async for line in response.content]
        finals = [frame for frame in frames if isinstance(frame, FinalFrame)]
        assert len(finals) == 1
        told = Told(frames, fold(request.history, frames))
        assert told.final is finals[0]
        return told

    async def turn(self, prompt: str | None, after: Told | None = None, **changes: Any) -> Told:
        history = after.history if after else []
        return await self.run(run_request(prompt, history=history, **changes))

    async def resume(self, after: Told, *resolutions: Resolution, **changes: Any) -> Told:
        return await self.turn(None, after, resolutions=list(resolutions), **changes)


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with FakeGateway() as fake:
        yield fake


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[str]:
    """Serve an ASGI program on a free port of this machine."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on", ws="none")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve([listener]))
    async with asyncio.timeout(20):
        while not server.started:  # noqa: ASYNC110 - the server offers no event to wait for
            await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


@pytest.fixture
async def web(gateway: FakeGateway) -> AsyncIterator[Web]:
    app = RuntimeApp(Settings(gateway_url=gateway.url, token=TOKEN))
    async with serving(app) as url, aiohttp.ClientSession() as session:
        yield Web(url, session)
