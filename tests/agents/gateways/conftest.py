"""What the gateways' tests share: a fake provider, a world that uses it, the gateway on a port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agents.gateways import model_gateway
from agents.models import Boot, GatewayRequest
from agents.writer import get_writer
from tests.serving import Served, served
from tests.fakes.model_provider import FakeProvider
from tests.world import World, allow, make_world
from tests.world import boot as boot


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
