"""What the gateways' tests share: a fake provider, a world that uses it, the gateway on a port."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from agents.gateways import model_gateway
from agents.models import Boot, GatewayRequest
from agents.writer import get_writer
from tests.agents.gateways.mcp_support import (
    CREDENTIAL,
    Bench,
    McpServed,
    gateway_served,
    make_bench,
)
from tests.fakes.mcp_server import FakeMCP, tool
from tests.fakes.model_provider import FakeProvider
from tests.serving import Served, served
from tests.world import World, allow, make_world
from tests.world import boot as boot  # noqa: PLC0414 - a fixture

T = TypeVar("T")


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake


@pytest.fixture
def world(transactional_db: None, settings: Any, provider: FakeProvider) -> World:
    allow(settings, provider.base_url)
    return make_world(provider_url=provider.base_url)


@pytest.fixture
def gateway(world: World, boot: Boot) -> Iterator[Served]:
    """The Model Gateway alone, in this process."""
    with served(model_gateway.app) as server:
        yield server


@pytest.fixture
def rows(world: World) -> Callable[[], list[GatewayRequest]]:
    """The request rows in the order of their opening, once everything queued is written."""

    def read() -> list[GatewayRequest]:
        get_writer().run_sync(lambda cursor: cursor.execute("SELECT 1"))
        return list(GatewayRequest.objects.order_by("opened_at"))

    return read


# --- the MCP Gateway ---------------------------------------------------------------------------


@pytest.fixture
def fake_mcp() -> Iterator[FakeMCP]:
    tools = [
        tool("refund", {"order": "integer"}, required=["order"]),
        tool("status", {"order": "integer"}, read_only=True),
    ]
    with FakeMCP(tools, key=CREDENTIAL) as fake:
        yield fake


@pytest.fixture
def mcp_gateway_served(transactional_db: None, boot: Boot) -> Iterator[McpServed]:
    with gateway_served() as server:
        yield server


@pytest.fixture
def bench(
    transactional_db: None,
    settings: Any,
    fake_mcp: FakeMCP,
    boot: Boot,
    mcp_gateway_served: McpServed,
) -> Bench:
    """A world whose agent may use ``shop__refund`` (action) and ``shop__status`` (read)."""
    allow(settings, fake_mcp.url)
    return make_bench(make_world(), fake_mcp, boot, mcp_gateway_served, read=["status"])


@pytest.fixture
def run() -> Callable[[Coroutine[Any, Any, T]], T]:
    """Run a coroutine on a loop of the test's own."""
    return asyncio.run


@pytest.fixture
def mcp_rows(bench: Bench) -> Callable[[], list[GatewayRequest]]:
    """:func:`rows` for the MCP Gateway's tests."""

    def read() -> list[GatewayRequest]:
        get_writer().run_sync(lambda cursor: cursor.execute("SELECT 1"))
        return list(GatewayRequest.objects.order_by("opened_at"))

    return read
