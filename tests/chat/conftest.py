"""The stage of the chat tests: one server and one runtime for the session, a fresh desk each."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from agents.clock import database_now
from agents.models import Boot
from chat.services.stores import stop_readers
from project.web import build
from tests.chat.desk import Desk, Stage, make_desk
from tests.fakes.mcp_server import FakeMCP, tool
from tests.fakes.model_provider import FakeProvider
from tests.processes import RUNTIME_TOKEN
from tests.world import allow, boot, make_world

__all__ = ["boot"]


@pytest.fixture(scope="session")
def stage(django_db_setup: None) -> Iterator[Stage]:
    stage = Stage()
    stage.start()
    yield stage
    stage.stop()


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as fake:
        yield fake


@pytest.fixture
def fake_mcp() -> Iterator[FakeMCP]:
    tools = [
        tool(
            "refund",
            {"order": "integer", "amount": {"type": "number", "maximum": 500}},
            required=["order", "amount"],
        ),
        tool("status", {"order": "integer"}, read_only=True),
    ]
    with FakeMCP(tools) as fake:
        yield fake


@pytest.fixture
def desk(
    stage: Stage,
    transactional_db: None,
    settings: Any,
    boot: Boot,
    provider: FakeProvider,
    fake_mcp: FakeMCP,
) -> Iterator[Desk]:
    """The product at work; its boot never grows old."""
    settings.RUNTIME_URL = stage.runtime_url
    settings.RUNTIME_TOKEN = RUNTIME_TOKEN
    allow(settings, provider.base_url, fake_mcp.url)
    Boot.objects.filter(id=boot.id).update(heartbeat_at=database_now() + dt.timedelta(hours=1))
    world = make_world(provider_url=provider.base_url)
    desk = make_desk(stage, world, provider, fake_mcp)
    stage.await_runtime()
    with stage.playing(build()):
        yield desk
    stop_readers()
