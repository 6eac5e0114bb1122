"""A process's boot, its heartbeat and its sweeps."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from agents import lifecycle, vault
from agents.choices import RequestKind, RequestState, RunState
from agents.clock import database_now
from agents.errors import KeyringProblem, StoreUnavailable
from agents.models import Boot, GatewayRequest, Run
from agents.services.boots import dead_boots, end_boot, end_boots_left_behind, start_boot
from agents.services.sweeps import sweep_control
from agents.writer import get_writer
from tests.world import boot as boot  # noqa: PLC0414 - a fixture
from tests.world import make_world

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(lifecycle, "SWEEP_SECONDS", 0.05)


def wait_for(condition: Any, seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def open_request(boot: Boot) -> GatewayRequest:
    return GatewayRequest.objects.create(
        id=uuid4(),
        organization_id=uuid4(),
        boot_id=boot.id,
        kind=RequestKind.MODEL,
        state=RequestState.OPEN,
        opened_at=database_now(),
    )


def running_run(boot: Boot) -> Run:
    world = make_world()
    run = Run(
        organization=world.organization, agent=world.agent, environment=world.production,
        client_run_id="r1", request_digest="0" * 64, boot=boot, definition_digest="1" * 64,
        generation=1, state=RunState.RUNNING, deadline_at=boot.created_at, version_number=3,
    )  # fmt: skip
    run.thread_id = run.session_id = run.root_run_id = run.id
    run.save()
    return run


def test_a_process_outside_a_boot_has_no_id() -> None:
    with pytest.raises(RuntimeError):
        lifecycle.current_boot_id()
    assert lifecycle.heartbeat_age() == float("inf")


def test_a_boot_beats_until_it_ends(quick: None) -> None:
    with lifecycle.booted("worker") as boot_id:
        assert lifecycle.current_boot_id() == boot_id
        boot = Boot.objects.get(id=boot_id)
        assert (boot.role, boot.ended_at) == ("worker", None)
        wait_for(lambda: Boot.objects.get(id=boot_id).heartbeat_at > boot.heartbeat_at)
        assert lifecycle.heartbeat_age() < 2
    ended = Boot.objects.get(id=boot_id)
    assert ended.ended_at is not None
    with pytest.raises(RuntimeError):
        lifecycle.current_boot_id()


def test_a_boot_that_somebody_else_ended_grows_stale(
    quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    with lifecycle.booted() as boot_id:
        wait_for(lambda: lifecycle.heartbeat_age() < 1)
        end_boot(boot_id)
        wait_for(lambda: lifecycle.heartbeat_age() > 0.5)
    assert "was ended by another process" in caplog.text


def test_the_writers_have_ended_when_the_boot_ends() -> None:
    with lifecycle.booted() as boot_id:
        writer = get_writer()
        request = open_request(Boot.objects.get(id=boot_id))
        writer.post(
            lambda _c: GatewayRequest.objects.filter(id=request.id).update(state=RequestState.OK)
        )
    request.refresh_from_db()
    assert request.state == RequestState.OK
    with pytest.raises(StoreUnavailable):
        writer.run_sync(lambda _c: None)


def test_a_process_without_the_needed_keys_does_not_start(
    settings: Any, stored_secrets: None
) -> None:
    make_world()
    settings.KEYRING_JSON = '{"active": "new", "keys": {"new": "' + "A" * 43 + '="}}'
    vault.reset()
    with pytest.raises(KeyringProblem), lifecycle.booted():
        pytest.fail("it started")
    assert not Boot.objects.exists()


def test_sweeps_run_at_the_start_and_again_whatever_one_of_them_does(
    quick: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds: list[str] = []
    dead = start_boot(role="web")
    end_boot(dead.id)
    lost = open_request(dead)

    def broken() -> None:
        rounds.append("broken")
        raise ValueError("SECRET")

    monkeypatch.setattr(lifecycle, "_sweeps", {})
    lifecycle.register_sweep("broken", broken)
    lifecycle.register_sweep("whole", lambda: rounds.append(threading.current_thread().name))

    async def live() -> None:
        async with lifecycle.sweeping():
            assert len(rounds) == 2
            await asyncio.to_thread(wait_for, lambda: len(rounds) >= 6)

    asyncio.run(live())
    lost.refresh_from_db()
    assert (lost.state, lost.code) == (RequestState.LOST, "interrupted_by_restart")
    assert rounds[1].startswith("sweeps")
    assert "ValueError" in caplog.text
    assert "SECRET" not in caplog.text


def test_a_process_that_was_held_up_itself_declares_nobody_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lock of the whole database makes every heartbeat old: that is nobody's death."""
    monkeypatch.setattr(lifecycle, "HEARTBEAT_SECONDS", 600)
    other = start_boot(role="web")
    gone = start_boot(role="web")
    end_boot(gone.id)
    with lifecycle.booted() as boot_id:
        both = Boot.objects.filter(id__in=[other.id, boot_id])
        both.update(heartbeat_at=database_now() - dt.timedelta(seconds=6))
        assert set(dead_boots()) == {gone}
        Boot.objects.filter(id=boot_id).update(heartbeat_at=database_now())
        assert set(dead_boots()) == {gone, other}


def test_what_a_killed_process_of_this_installation_owned_is_lost_at_once(
    boot: Boot,
) -> None:
    """Its heartbeat is fresh; the restarted parent knows better."""
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    facts = {"parent_id": "ours", "pid": finished.pid}
    rows = {}
    changes: dict[str, dict[str, Any]] = {
        "gone": {}, "lives": {"pid": os.getpid()}, "elsewhere": {"host": "another"},
        "not ours": {"parent_id": "theirs"}, "of nobody": {"parent_id": ""},
    }  # fmt: skip
    for name, change in changes.items():
        row = rows[name] = start_boot(role="web")
        Boot.objects.filter(id=row.id).update(**{**facts, **change})
    lost = open_request(rows["gone"])

    assert end_boots_left_behind("ours") == 1
    assert end_boots_left_behind("") == 0
    lifecycle.run_sweeps()

    lost.refresh_from_db()
    assert (lost.state, lost.code) == (RequestState.LOST, "interrupted_by_restart")
    assert set(dead_boots()) == {rows["gone"]}


def test_a_process_that_only_waits_to_be_reaped_is_gone() -> None:
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    wait_for(lambda: b") Z " in Path(f"/proc/{zombie.pid}/stat").read_bytes())
    boot = start_boot(role="web")
    Boot.objects.filter(id=boot.id).update(parent_id="ours", pid=zombie.pid)
    assert end_boots_left_behind("ours") == 1
    zombie.wait()


def test_boots_are_forgotten_a_day_after_their_end_unless_something_names_them(
    boot: Boot,
) -> None:
    kept: list[UUID] = []
    forgotten: list[UUID] = []
    for age, ended in [(23, True), (25, True), (25, False)]:
        row = start_boot(role="web")
        before = database_now() - dt.timedelta(hours=age)
        Boot.objects.filter(id=row.id).update(
            heartbeat_at=before, ended_at=before if ended else None
        )
        (forgotten if age == 25 else kept).append(row.id)
    owner = start_boot(role="web")
    owned = running_run(owner)
    long_ago = database_now() - dt.timedelta(days=9)
    Boot.objects.filter(id=owner.id).update(heartbeat_at=long_ago, ended_at=long_ago)
    lost = open_request(Boot.objects.get(id=forgotten[0]))

    lifecycle.run_sweeps()

    lost.refresh_from_db()
    owned.refresh_from_db()
    assert (lost.state, owned.state) == (RequestState.LOST, "failed")
    left = set(Boot.objects.values_list("id", flat=True))
    assert left == {boot.id, owner.id, *kept}


def test_the_sweeps_do_not_send_the_ids_of_dead_boots() -> None:
    for _ in range(30):
        end_boot(start_boot(role="web").id)
    with CaptureQueriesContext(connections["default"]) as caught:
        sweep_control()
    assert max(query["sql"].count("agents_boot") for query in caught.captured_queries) > 1
    assert max(len(query["sql"]) for query in caught.captured_queries) < 1_500


def test_a_live_boots_calls_are_left_alone(boot: Boot) -> None:
    request = open_request(boot)
    lifecycle.run_sweeps()
    request.refresh_from_db()
    assert request.state == RequestState.OPEN
