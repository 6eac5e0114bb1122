"""What one tool server or one broken connection does, the readings of all others go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, connections

from agents.errors import Conflict
from agents.gateways import refresh
from agents.gateways.refresh import Refresher
from agents.models import Connector
from agents.services import resources
from agents.services.connectors import due_connectors
from agents.services.tools import apply_listing
from agents.writer import get_writer
from tests.agents.gateways.mcp_support import CREDENTIAL, Bench

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

T = TypeVar("T")
APPLY = apply_listing


@pytest.fixture
def quick(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps at once, but not those of the gateway, which sleeps by now."""
    monkeypatch.setattr(refresh, "SWEEP_SECONDS", 0.1)
    monkeypatch.setattr(refresh, "AGAIN_SECONDS", 0.0)


@pytest.fixture
def other(bench: Bench) -> Connector:
    """The connector of somebody else, which is due like the hostile one."""
    connector = resources.create_connector(
        actor=bench.world.operator,
        organization=bench.world.organization,
        name="Other",
        slug="zz-other",
        url=bench.fake.url,
        credential=CREDENTIAL,
    )
    forget(bench.connector)
    return connector


def forget(*connectors: Connector) -> None:
    """Let these lists be due."""
    ids = [connector.id for connector in connectors]
    Connector.objects.filter(id__in=ids).update(last_read_at=None, read_started_at=None)


def is_read(connector: Connector) -> bool:
    connector.refresh_from_db()
    return connector.last_read_at is not None


def says(connector: Connector, code: str) -> bool:
    get_writer().run_sync(lambda _: None)
    connector.refresh_from_db()
    return connector.last_error == code


async def apart(step: Callable[[], T]) -> T:
    """Run a step in a thread that keeps no connection."""

    def run() -> T:
        try:
            return step()
        finally:
            connections.close_all()

    return await asyncio.to_thread(run)


async def holds(check: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not await apart(check):
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (IntegrityError("CANARY"), "internal"),
        (OperationalError("CANARY"), "store_unavailable"),
        (InterfaceError("CANARY"), "store_unavailable"),
        (RuntimeError("CANARY"), "internal"),
        (Conflict(), "conflict"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.usefixtures("quick")
def test_a_list_that_cannot_be_folded_hinders_no_other(
    bench: Bench,
    other: Connector,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    code: str,
) -> None:
    hostile = [True]

    def fold(*, connector: Connector, listing: Any) -> Any:
        if hostile and connector.id == bench.connector.id:
            raise error
        return APPLY(connector=connector, listing=listing)

    monkeypatch.setattr(refresh, "apply_listing", fold)

    async def sweep() -> None:
        refresher = Refresher()
        async with refresher.running():
            (sweeper,) = refresher._tasks
            await holds(lambda: says(bench.connector, code))
            await holds(lambda: is_read(other))
            await apart(lambda: forget(other))
            await holds(lambda: is_read(other))
            assert not sweeper.done()
            hostile.clear()
            await holds(lambda: is_read(bench.connector))

    asyncio.run(sweep())
    assert "CANARY" not in caplog.text


@pytest.mark.usefixtures("quick")
def test_the_sweep_goes_on_when_a_round_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(bench.connector)
    due = due_connectors
    failures: list[Exception] = [OperationalError("x"), ValueError("x")]

    def failing(*arguments: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return due(*arguments, **options)

    monkeypatch.setattr(refresh, "due_connectors", failing)

    async def sweep() -> None:
        refresher = Refresher()
        async with refresher.running():
            await holds(lambda: is_read(bench.connector) and not failures)

    asyncio.run(sweep())


def test_a_broken_connection_costs_one_reading(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server does that restarts, or an operator who ends the session."""
    breaks = [True]

    def fold(*, connector: Connector, listing: Any) -> Any:
        if breaks:
            breaks.clear()
            connections["default"].connection.close()
        return APPLY(connector=connector, listing=listing)

    monkeypatch.setattr(refresh, "apply_listing", fold)

    async def three_times() -> list[str]:
        refresher = Refresher()
        codes = []
        async with refresher.running():
            for _ in range(3):
                before = bench.fake.lists
                await refresher._try(bench.connector.id, None)
                assert bench.fake.lists > before
                await get_writer().run(lambda _: None)
                codes.append(await apart(last_error))
        return codes

    def last_error() -> str:
        return Connector.objects.values_list("last_error", flat=True).get(id=bench.connector.id)

    first, *others = asyncio.run(three_times())
    assert first in {"store_unavailable", "internal"}
    assert others == ["", ""]
