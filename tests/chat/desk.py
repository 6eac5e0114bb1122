"""A whole product in miniature: the web program on a port, a real runtime process behind it, a
published agent, a scripted model and a counting tool server. Tests speak to it as front ends do.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from ag_ui.core import Event
from pydantic import TypeAdapter

from agents.choices import Classification
from agents.gateways import mcp_gateway
from agents.gateways.refresh import refresh_now
from agents.gateways.responses import App, Receive, Scope, Send
from agents.models import Agent, Approval, Run, Tool, VirtualModel
from agents.services import grants, resources
from agents.services.tools import review_tool
from agents.writer import get_writer
from chat.agui import routes
from chat.services.tokens import mint_end_user_token, mint_member_token
from definitions.models import Draft
from definitions.services import drafts, publishing
from tests.fakes.mcp_server import FakeMCP
from tests.fakes.model_provider import FakeProvider
from tests.processes import RUNTIME_TOKEN, free_port
from tests.serving import Served
from tests.world import World

JSON = dict[str, Any]
EVENT: TypeAdapter[Any] = TypeAdapter(Event)


class Stage:
    """One server for all tests, whose program the running test puts on; and one runtime."""

    def __init__(self) -> None:
        self.program: App | None = None

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            assert self.program is not None
            await self.program(scope, receive, send)

        self.server = Served(serve)
        self.runtime_url = f"http://127.0.0.1:{free_port()}"
        self._runtime: subprocess.Popen[bytes] | None = None
        self._log = Path(tempfile.mkdtemp(prefix="mandate-runtime-")) / "log"

    def start(self) -> None:
        self.server.start()
        with self._log.open("wb") as log:
            self._runtime = subprocess.Popen(
                [sys.executable, "-m", "chat.runtime"],
                env={
                    "PATH": os.environ["PATH"],
                    "RUNTIME_PORT": self.runtime_url.rpartition(":")[2],
                    "RUNTIME_URL": self.runtime_url,
                    "GATEWAY_URL": self.server.url,
                    "RUNTIME_TOKEN": RUNTIME_TOKEN,
                },
                stdout=log,
                stderr=log,
            )

    def await_runtime(self) -> None:
        deadline = time.monotonic() + 30
        while True:
            assert self._runtime is not None
            assert self._runtime.poll() is None, self._log.read_text()
            try:
                httpx.get(f"{self.runtime_url}/health", timeout=1)
            except httpx.TransportError:
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        self.server.stop()
        if self._runtime is not None:
            self._runtime.terminate()
            self._runtime.wait(10)

    @contextmanager
    def playing(self, program: App) -> Iterator[None]:
        """*program* on the port, inside the lifespans of the data plane's parts."""
        self.program = program
        up: Future[None] = Future()
        down: Future[asyncio.Event] = Future()

        async def live() -> None:
            stop = asyncio.Event()
            async with mcp_gateway.lifespan(), routes.lifespan():
                down.set_result(stop)
                up.set_result(None)
                await stop.wait()

        assert self.server._loop is not None
        living = asyncio.run_coroutine_threadsafe(live(), self.server._loop)
        up.result(10)
        try:
            yield
        finally:
            self.server._loop.call_soon_threadsafe(down.result(1).set)
            living.result(10)
            self.program = None


@dataclass
class Answer:
    """A whole stream: its events, checked one by one against the protocol's own types."""

    status: int
    headers: httpx.Headers
    body: str
    events: list[JSON] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def last(self) -> JSON:
        return self.events[-1]

    @property
    def text(self) -> str:
        return "".join(e["delta"] for e in self.events if e["type"] == "TEXT_MESSAGE_CONTENT")

    @property
    def interrupts(self) -> list[JSON]:
        assert self.last["outcome"]["type"] == "interrupt", self.last
        found: list[JSON] = self.last["outcome"]["interrupts"]
        return found

    @property
    def problem(self) -> JSON:
        document: JSON = json.loads(self.body)
        assert self.headers["content-type"] == "application/problem+json", self.body
        assert document["status"] == self.status
        return document

    @property
    def code(self) -> str:
        """The stable code: of the problem, or of the stream's RUN_ERROR."""
        code: str = self.problem["code"] if self.status != 200 else self.last["code"]
        return code


def parse_stream(body: str) -> tuple[list[JSON], list[int]]:
    """The events and ids of a stream; raises for anything that is not AG-UI."""
    assert "\r" not in body
    events, ids = [], []
    for block in body.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        named = dict(line.split(": ", 1) for line in lines)
        event = json.loads(named["data"])
        EVENT.validate_python(event)
        assert None not in event.values()
        events.append(event)
        ids.append(int(named["id"]))
    return events, ids


class Front:
    """A front end with one chat token."""

    def __init__(self, desk: Desk, token: str) -> None:
        self.desk = desk
        self.http = httpx.Client(
            base_url=desk.stage.server.url,
            headers={"authorization": f"Bearer {token}"},
            timeout=30,
        )

    def post(self, body: Any, *, agent: str = "order-desk") -> Answer:
        response = self.http.post(f"/apps/v1/agents/{agent}", json=body)
        return self._answer(response)

    def send(
        self,
        text: str | None = None,
        *,
        thread: str,
        run: str | None = None,
        resume: Sequence[JSON] = (),
        agent: str = "order-desk",
        messages: Sequence[JSON] | None = None,
    ) -> Answer:
        """One user turn, or answers to interrupts, or both; the whole stream."""
        return self.post(run_input(text, thread, run, resume, messages), agent=agent)

    def attach(self, thread: str, run: str, after: int = 0) -> Answer:
        path = f"/apps/v1/threads/{thread}/runs/{run}/events?after={after}"
        return self._answer(self.http.get(path))

    def thread(self, thread: str) -> JSON:
        response = self.http.get(f"/apps/v1/threads/{thread}")
        assert response.status_code == 200, response.text
        document: JSON = response.json()
        return document

    def cancel(self, thread: str, run: str) -> httpx.Response:
        return self.http.post(f"/apps/v1/threads/{thread}/runs/{run}/cancel", json={})

    def _answer(self, response: httpx.Response) -> Answer:
        answer = Answer(response.status_code, response.headers, response.text)
        if response.status_code == 200:
            answer.events, answer.ids = parse_stream(answer.body)
            assert_lifecycle(answer.events)
        return answer

    def begin(self, text: str, *, thread: str, run: str) -> Streaming:
        """Start a turn and read its stream in the background."""
        return Streaming(self, run_input(text, thread, run, (), None))


class Streaming:
    """A stream that is read while the test goes on."""

    def __init__(self, front: Front, body: JSON) -> None:
        self.events: list[JSON] = []
        self.ids: list[int] = []
        self.response: httpx.Response | None = None
        self._front = front
        self._body = body
        self._stop = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        path = "/apps/v1/agents/order-desk"
        try:
            self._read_stream(path)
        except (httpx.HTTPError, httpx.StreamError):
            if not self._stop:
                raise

    def _read_stream(self, path: str) -> None:
        with self._front.http.stream("POST", path, json=self._body) as response:
            self.response = response
            block = ""
            for piece in response.iter_text():
                block += piece
                *whole, block = block.split("\n\n")
                for one in whole:
                    events, ids = parse_stream(one + "\n\n")
                    self.events += events
                    self.ids += ids
                if self._stop:
                    return

    def wait_for(self, kind: str, count: int = 1, seconds: float = 10) -> None:
        eventually(lambda: [e["type"] for e in self.events].count(kind) >= count, seconds)

    def drop(self) -> None:
        """Go away at the next piece that comes."""
        self._stop = True
        self._thread.join(10)

    def drop_now(self) -> None:
        """Go away although nothing comes."""
        self._stop = True
        if self.response is not None:
            self.response.close()

    def finish(self) -> list[JSON]:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.events


def assert_lifecycle(events: list[JSON]) -> None:
    """One run: a start, balanced items, one terminal event at the end."""
    kinds = [event["type"] for event in events]
    assert kinds[-1] in {"RUN_FINISHED", "RUN_ERROR"}, kinds
    assert sum(kind in {"RUN_FINISHED", "RUN_ERROR"} for kind in kinds) == 1
    opened: set[tuple[str, str]] = set()
    for event in events:
        name, _, phase = event["type"].rpartition("_")
        item = event.get("toolCallId" if name == "TOOL_CALL" else "messageId", "")
        if phase == "START":
            assert (name, item) not in opened
            opened.add((name, item))
        elif phase == "END":
            opened.remove((name, item))
        elif phase in {"CONTENT", "ARGS"}:
            assert (name, item) in opened
    if kinds[-1] == "RUN_FINISHED":
        assert not opened


def run_input(
    text: str | None,
    thread: str,
    run: str | None,
    resume: Sequence[JSON],
    messages: Sequence[JSON] | None,
) -> JSON:
    said = [{"id": str(uuid.uuid4()), "role": "user", "content": text}] if text is not None else []
    body: JSON = {
        "protocolVersion": "1.0",
        "threadId": thread,
        "runId": run or str(uuid.uuid4()),
        "messages": [*(messages or []), *said],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
    }
    if resume:
        body["resume"] = list(resume)
    return body


def approve(interrupt: JSON, edited: JSON | None = None) -> JSON:
    payload: JSON = {"approved": True}
    if edited is not None:
        payload["editedArgs"] = edited
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


def deny(interrupt: JSON, reason: str = "") -> JSON:
    payload: JSON = {"approved": False}
    if reason:
        payload["reason"] = reason
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


def cancel(interrupt: JSON) -> JSON:
    return {"interruptId": interrupt["id"], "status": "cancelled"}


@dataclass
class Desk:
    """A world with a published agent that has ``shop__status`` (read) and ``shop__refund``."""

    stage: Stage
    world: World
    provider: FakeProvider
    fake: FakeMCP
    tools: dict[str, Tool]

    def publish(
        self,
        agent: Agent | None = None,
        instructions: str = "Help with orders.",
        tools: Sequence[Tool] | None = None,
    ) -> None:
        """Write and publish a definition, with everything in it granted."""
        agent = agent or self.world.agent
        chosen = list(self.tools.values()) if tools is None else list(tools)
        granted: list[VirtualModel | Tool] = [self.world.model, *chosen]
        for resource in granted:
            grants.grant(
                actor=self.world.manager,
                agent=agent,
                environment=self.world.production,
                resource=resource,
            )
        draft = drafts.save_draft(
            actor=self.world.manager,
            agent=agent,
            digest_seen=Draft.objects.get(agent=agent).digest,
            instructions=instructions,
            virtual_model=self.world.model,
            tools=chosen,
        )
        publishing.publish_draft(
            actor=self.world.manager,
            agent=agent,
            environment=self.world.production,
            draft_digest=draft.digest,
            rationale="For the tests.",
        )

    def unpublish(self) -> None:
        publishing.unpublish(
            actor=self.world.manager,
            agent=self.world.agent,
            environment=self.world.production,
            rationale="Stop it.",
        )

    def member(self) -> Front:
        minted = mint_member_token(actor=self.world.member, environment="production")
        return Front(self, minted.text)

    def end_user(self, subject: str = "customer-1") -> Front:
        minted = mint_end_user_token(key_text=self.world.key_text, subject=subject, ttl_seconds=600)
        return Front(self, minted.text)

    def last_run(self) -> Run:
        return Run.objects.order_by("-created_at")[0]

    def state(self, interrupt: JSON) -> str:
        settle_writes()
        return Approval.objects.values_list("state", flat=True).get(id=UUID(interrupt["id"]))


def make_desk(stage: Stage, world: World, provider: FakeProvider, fake: FakeMCP) -> Desk:
    connector = resources.create_connector(
        actor=world.operator,
        organization=world.organization,
        name="Shop",
        slug="shop",
        url=fake.url,
    )
    refresh_now(connector)
    tools = {}
    for tool in Tool.objects.filter(connector=connector):
        read = tool.annotations.get("readOnlyHint") is True
        tools[tool.name] = review_tool(
            actor=world.operator,
            tool=tool,
            digest_seen=tool.digest,
            classification=Classification.READ if read else Classification.ACTION,
        )
    desk = Desk(stage, world, provider, fake, tools)
    desk.publish()
    return desk


def settle_writes() -> None:
    """Wait until what is queued is written."""
    get_writer().run_sync(lambda cursor: cursor.execute("SELECT 1"))


def eventually(check: Callable[[], Any], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def new_thread() -> str:
    return str(uuid.uuid4())
