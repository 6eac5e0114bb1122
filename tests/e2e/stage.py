"""A whole installation on real processes, with a scripted provider and tool server.

The agent ``order-desk`` is published in production with one read tool (``shop__status``) and one
action (``shop__refund``). The fakes' own counters judge what ran.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings

from agents.models import Tool
from agents.services.grants import grant
from agents.services.resources import create_connector
from agents.services.tools import ObservedTool, apply_listing, review_tool
from chat.services.tokens import mint_end_user_token
from definitions.models import Version
from definitions.selectors import draft_of
from definitions.services.drafts import save_draft
from definitions.services.publishing import publish_draft
from tests.fakes.mcp_server import FakeMCP, tool
from tests.fakes.model_provider import FakeProvider
from tests.processes import Server, Servers, running_servers
from tests.world import World, make_world

JSON = dict[str, Any]


@dataclass
class Stage:
    """Everything of one test. Start servers as the test needs them."""

    world: World
    provider: FakeProvider
    mcp: FakeMCP
    servers: Servers
    version: Version
    tools: dict[str, Tool]

    def chat_token(self, subject: str = "customer") -> str:
        return mint_end_user_token(
            key_text=self.world.key_text, subject=subject, ttl_seconds=3600
        ).text

    def publish(self, instructions: str) -> Version:
        draft = save_draft(
            actor=self.world.manager,
            agent=self.world.agent,
            digest_seen=draft_of(self.world.agent).digest,
            instructions=instructions,
            virtual_model=self.world.model,
            tools=list(self.tools.values()),
        )
        return publish_draft(
            actor=self.world.manager,
            agent=self.world.agent,
            environment=self.world.production,
            draft_digest=draft.digest,
            rationale="for the test",
        ).version


@contextmanager
def make_stage(directory: Path, provider: FakeProvider, mcp: FakeMCP) -> Iterator[Stage]:
    allowed = [provider.base_url.split("/")[2], mcp.host_port]
    before = settings.OUTGOING_ALLOWED
    settings.OUTGOING_ALLOWED = [*before, *allowed]
    try:
        world = make_world(provider_url=provider.base_url, open_agent=False)
        tools = _tools(world, mcp)
        with running_servers(directory, *allowed) as servers:
            stage = Stage(world, provider, mcp, servers, None, tools)  # type: ignore[arg-type]
            stage.version = stage.publish("Be brief.")
            yield stage
    finally:
        settings.OUTGOING_ALLOWED = before


def shop_tools() -> list[Any]:
    """What the tool server of the stage offers."""
    return [
        tool("status", {"order": "integer"}, required=["order"], read_only=True),
        tool("refund", {"order": "integer", "amount": "integer"}, required=["order"]),
    ]


def _tools(world: World, mcp: FakeMCP) -> dict[str, Tool]:
    connector = create_connector(
        actor=world.operator,
        organization=world.organization,
        name="Shop",
        slug="shop",
        url=mcp.url,
    )
    listed = [t.model_dump(mode="json", by_alias=True, exclude_none=True) for t in shop_tools()]
    apply_listing(
        connector=connector,
        listing=[
            ObservedTool(
                name=t["name"],
                title=t.get("title", ""),
                description=t["description"],
                input_schema=t["inputSchema"],
                annotations=t.get("annotations", {}),
            )
            for t in listed
        ],
    )
    reviewed = {
        t.name: review_tool(
            actor=world.operator,
            tool=t,
            digest_seen=t.digest,
            classification="read" if t.name == "status" else "action",
        )
        for t in Tool.objects.filter(connector=connector)
    }
    for resource in reviewed.values():
        grant(
            actor=world.manager,
            agent=world.agent,
            environment=world.production,
            resource=resource,
        )
    return reviewed


@dataclass
class Chat:
    """A front end: posts turns to one web process and reads the events."""

    server: Server
    token: str = field(repr=False)
    thread: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token}"}

    def body(self, text: str | None = None, *, run: str | None = None, **more: Any) -> JSON:
        messages = (
            [] if text is None else [{"id": str(uuid.uuid4()), "role": "user", "content": text}]
        )
        return {
            "threadId": self.thread,
            "runId": run or str(uuid.uuid4()),
            "messages": messages,
            "tools": [],
            "context": [],
            "state": {},
            "forwardedProps": {},
            **more,
        }

    @contextmanager
    def stream(self, body: JSON, slug: str = "order-desk") -> Iterator[Iterator[JSON]]:
        """The events of one run as they come; each has its number under ``_id``."""
        with (
            httpx.Client(timeout=30) as client,
            client.stream(
                "POST", f"{self.server.url}/apps/v1/agents/{slug}", json=body, headers=self.headers
            ) as response,
        ):
            if response.status_code != 200:
                response.read()
                raise Refused(response)
            yield events(response)

    def run(self, body: JSON) -> list[JSON]:
        """All events of one run."""
        with self.stream(body) as stream:
            return list(stream)

    def say(self, text: str) -> list[JSON]:
        return self.run(self.body(text))

    def answer(self, *entries: JSON) -> list[JSON]:
        return self.run(self.body(resume=list(entries)))

    def follow(self, run: str, after: int = 0, server: Server | None = None) -> list[JSON]:
        """Re-attach to a run from event *after*, at any web process."""
        url = f"{(server or self.server).url}/apps/v1/threads/{self.thread}/runs/{run}/events"
        with (
            httpx.Client(timeout=30) as client,
            client.stream("GET", url, params={"after": after}, headers=self.headers) as response,
        ):
            if response.status_code != 200:
                response.read()
                raise Refused(response)
            return list(events(response))

    def read(self, server: Server | None = None) -> JSON:
        """The thread as the server tells it."""
        url = f"{(server or self.server).url}/apps/v1/threads/{self.thread}"
        response = httpx.get(url, headers=self.headers, timeout=30)
        response.raise_for_status()
        document: JSON = response.json()
        return document


class Refused(Exception):
    """An HTTP refusal before any stream, with its problem document."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(f"{response.status_code} {response.text[:300]}")
        self.status = response.status_code
        self.code = response.json()["code"]


def events(response: httpx.Response) -> Iterator[JSON]:
    """Parse server-sent events strictly: LF only, one JSON object each."""
    number = 0
    for line in response.iter_lines():
        if line.startswith("id:"):
            number = int(line[3:])
        elif line.startswith("data:"):
            yield {**json.loads(line[5:]), "_id": number}


def text_of(stream: list[JSON]) -> str:
    return "".join(e["delta"] for e in stream if e["type"] == "TEXT_MESSAGE_CONTENT")


def approve(interrupt: JSON, **payload: Any) -> JSON:
    """A resume entry for one interrupt."""
    return {
        "interruptId": interrupt["id"],
        "status": "resolved",
        "payload": {"approved": True, **payload},
    }


def interrupts(stream: list[JSON]) -> list[JSON]:
    """The interrupts of a run that paused."""
    last = stream[-1]
    assert last["type"] == "RUN_FINISHED", last
    assert last["outcome"]["type"] == "interrupt", last
    found: list[JSON] = last["outcome"]["interrupts"]
    return found


@pytest.fixture
def stage(tmp_path: Path, stored_secrets: None) -> Iterator[Stage]:
    """The stage of one test, with its upstreams; servers are started by the test."""
    with (
        FakeProvider() as provider,
        FakeMCP(tools=shop_tools()) as mcp,
        make_stage(tmp_path, provider, mcp) as made,
    ):
        yield made
