"""What tests of the MCP Gateway share: a reviewed connector, the gateway on a port, real runs."""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from agents import content_store
from agents.choices import Classification, InitiatorKind, ToolState
from agents.gateways import calls, mcp_gateway, outgoing
from agents.gateways.refresh import refresh_now
from agents.models import Approval, Boot, Connector, Grant, Run, Tool
from agents.services import approvals, grants, resources, runs
from agents.services.tools import review_tool
from agents.writer import get_writer
from tests.fakes.mcp_server import FakeMCP
from tests.serving import Served
from tests.world import World, allow

MEMBER = runs.Principal(InitiatorKind.MEMBER, "mandate", "alice")
CREDENTIAL = "tools-credential-canary"


class McpServed(Served):
    """The MCP Gateway alone on a port, inside its own lifespan."""

    def __init__(self) -> None:
        super().__init__(mcp_gateway.app)
        # asyncio does it for sockets it opens itself; without it an answer waits for an ACK.
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with calls.checking(), mcp_gateway.lifespan():
            await self._server.serve(sockets=[self._socket])
        await outgoing.close()

    @property
    def endpoint(self) -> str:
        return f"{self.url}/gateway/mcp"


@contextmanager
def gateway_served() -> Iterator[McpServed]:
    server = McpServed()
    server.start()
    try:
        yield server
    finally:
        server.stop()


def review_all(world: World, connector: Connector, *, read: Sequence[str] = ()) -> dict[str, Tool]:
    """Accept every tool as an operator would; those in *read* as read, the others as action."""
    accepted = {}
    for tool in Tool.objects.filter(connector=connector).exclude(state=ToolState.GONE):
        accepted[tool.name] = review_tool(
            actor=world.operator,
            tool=tool,
            digest_seen=(tool.observed or {}).get("digest", tool.digest),
            classification=Classification.READ if tool.name in read else Classification.ACTION,
        )
    return accepted


@dataclass
class Bench:
    """A world whose agent may use every tool of a fake server."""

    world: World
    fake: FakeMCP
    boot: Boot
    connector: Connector
    tools: dict[str, Tool]
    grants: dict[str, Grant]
    gateway: McpServed
    _runs: list[Run] = field(default_factory=list)

    # --- runs and approvals -----------------------------------------------------------------

    def start_run(self, *, thread: UUID | None = None, resumes: Run | None = None) -> RunKey:
        """A running run of the agent in production, with its managed key."""
        thread_id = thread or uuid.uuid4()
        start = runs.RunStart(
            organization_id=self.world.organization.id,
            agent_id=self.world.agent.id,
            environment_id=self.world.production.id,
            thread_id=thread_id,
            session_id=thread_id,
            client_run_id=str(uuid.uuid4()),
            request_digest="0" * 64,
            boot_id=self.boot.id,
            principal=MEMBER,
            definition=runs.PinnedDefinition(
                digest="0" * 64,
                virtual_model_id=self.world.model.id,
                tool_ids=tuple(tool.id for tool in self.tools.values()),
            ),
            resumes=resumes,
        )
        started = operation(partial(runs.begin_run, start))
        return RunKey(started.run, started.key_text)

    def pause(self, run: Run, *approval_ids: str) -> None:
        """Interrupt the run, so that its approvals open."""
        assert operation(
            lambda: runs.interrupt_run(
                run_id=run.id,
                boot_id=self.boot.id,
                history_digest="",
                approvals=[(UUID(approval), "call") for approval in approval_ids],
                parked=[],
            )
        )

    def decide(
        self, approval_id: str, arguments: dict[str, Any] | None = None, decision: Any = "approve"
    ) -> None:
        """Decide as the principal; *arguments* are the edited ones."""
        edited = ""
        if arguments is not None:
            edited = content_store.put(
                self.world.organization.id,
                approvals.ARGUMENTS,
                approvals.canonical_arguments(arguments),
            )
        operation(
            lambda: approvals.decide_approval(
                approval_id=UUID(approval_id),
                principal=MEMBER,
                decision=decision,
                edited_digest=edited,
            )
        )

    def resume(self, run: Run) -> RunKey:
        """The run that continues a paused one, with its approvals bound to it."""
        started = self.start_run(thread=run.thread_id, resumes=run)
        operation(
            lambda: approvals.bind_approvals(interrupted_run_id=run.id, resume_run=started.run)
        )
        return started

    def approved(
        self, tool: str, arguments: dict[str, Any], edited: dict[str, Any] | None = None
    ) -> tuple[str, RunKey]:
        """An approved call and the key of the run that may execute it."""
        first = self.start_run()
        approval = self.ask(first.key, tool, arguments)
        self.pause(first.run, approval)
        self.decide(approval, edited)
        return approval, self.resume(first.run)

    def ask(self, key: str, tool: str, arguments: dict[str, Any]) -> str:
        """Call an action without an approval; the id of the approval that the gateway opens."""
        refused = self.refused(key, tool, arguments)
        assert refused.code == -32043, refused.data
        approval: str = refused.data["approval"]
        return approval

    # --- calls ------------------------------------------------------------------------------

    def call(
        self,
        key: str,
        tool: str,
        arguments: dict[str, Any],
        approval: str | None = None,
        **options: Any,
    ) -> CallToolResult:
        """Call through the stock client, as a runtime would."""
        return asyncio.run(self.call_async(key, tool, arguments, approval, **options))

    async def call_async(
        self,
        key: str,
        tool: str,
        arguments: dict[str, Any],
        approval: str | None = None,
        *,
        mode: str = "auto",
    ) -> CallToolResult:
        meta: Any = {} if approval is None else {"mandate/approval": approval}
        refused: MCPError | None = None
        async with self.client(key, mode=mode) as session:
            try:
                return await session.call_tool(self.exposed(tool), arguments, meta=meta)
            except MCPError as error:  # Raised inside, it would leave in a group of groups.
                refused = error
        raise refused

    def refused(
        self, key: str, tool: str, arguments: dict[str, Any], *rest: Any, **options: Any
    ) -> MCPError:
        """The error that a call is answered with."""
        try:
            result = self.call(key, tool, arguments, *rest, **options)
        except MCPError as error:
            return error
        raise AssertionError(f"the call was answered: {result}")

    def code(self, *arguments: Any, **options: Any) -> str:
        """The stable code of a refused call."""
        code: str = self.refused(*arguments, **options).data["code"]
        return code

    @staticmethod
    def exposed(tool: str) -> str:
        return tool if "__" in tool else f"shop__{tool}"

    @asynccontextmanager
    async def client(self, key: str, *, mode: str = "auto") -> AsyncIterator[Client]:
        headers = {"authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(headers=headers, timeout=90) as http:
            transport = streamable_http_client(self.gateway.endpoint, http_client=http)
            async with Client(transport, mode=mode, cache=None) as session:
                yield session

    def post(self, body: Any, *, key: str | None = None, **options: Any) -> httpx2.Response:
        """A plain HTTP request of the modern era."""
        headers = {
            "authorization": f"Bearer {key or self.world.key_text}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2025-11-25",
            **options.pop("headers", {}),
        }
        with httpx2.Client(timeout=30) as http:
            if isinstance(body, bytes):
                headers.setdefault("content-type", "application/json")
                return http.post(self.gateway.endpoint, content=body, headers=headers)
            return http.post(self.gateway.endpoint, json=body, headers=headers)

    # --- time -------------------------------------------------------------------------------

    def age_list(self, by: timedelta = timedelta(seconds=61)) -> None:
        """Let the connector's list be older than it is."""
        self.connector.refresh_from_db()
        assert self.connector.last_read_at is not None
        Connector.objects.filter(id=self.connector.id).update(
            last_read_at=self.connector.last_read_at - by,
            read_started_at=self.connector.last_read_at - by,
        )


@dataclass(frozen=True)
class RunKey:
    run: Run
    key: str = field(repr=False)


def operation(step: Callable[[], Any]) -> Any:
    """Run a step in the writer, as the product does."""
    return get_writer().run_sync(lambda _: step(), full=True)


def call_body(tool: str, arguments: dict[str, Any], **meta: Any) -> dict[str, Any]:
    """A tools/call as it stands on the wire."""
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def make_bench(
    world: World, fake: FakeMCP, boot: Boot, gateway: McpServed, **options: Any
) -> Bench:
    """Connect the fake, review and grant all of its tools."""
    connector = resources.create_connector(
        actor=world.operator,
        organization=world.organization,
        name="Shop",
        slug="shop",
        url=fake.url,
        credential=CREDENTIAL,
    )
    refresh_now(connector)
    tools = review_all(world, connector, **options)
    granted = {
        name: grants.grant(
            actor=world.manager, agent=world.agent, environment=world.production, resource=tool
        )
        for name, tool in tools.items()
    }
    return Bench(world, fake, boot, connector, tools, granted, gateway)


def state_of(approval_id: str) -> str:
    return Approval.objects.values_list("state", flat=True).get(id=approval_id)


def eventually(check: Callable[[], Any], seconds: float = 5.0) -> None:
    """Wait until *check* holds, for what the product does behind the answer."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


__all__ = ["CREDENTIAL", "MEMBER", "Bench", "RunKey", "allow", "call_body", "eventually"]
