"""The writer beside other processes, and when they or the server die."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from django.db import connections
from django.db.backends.utils import CursorWrapper
from pytest_django import DjangoDbBlocker

from agents import lifecycle
from agents.errors import StoreUnavailable
from agents.writer import Writer, get_writer
from tests import postgres
from tests.agents.test_writer import hold, insert, run, stored, wait_until
from tests.conftest import SCRATCH, scratch_database

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def address(
    request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    with scratch_database(request.param, tmp_path) as address, django_db_blocker.unblock():
        run("CREATE TABLE entry (id integer PRIMARY KEY, note text)")
        run("CREATE TABLE total (id integer PRIMARY KEY, n integer)")
        run("INSERT INTO total VALUES (1, 0), (2, 0)")
        yield address


def child(mode: str, address: str, first: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.agents.writer_child",
         mode, address, str(first)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_two_processes_write_without_losing_or_locking(address: str) -> None:
    processes = [child("count", address, first) for first in (0, 1_000)]
    for process in processes:
        _, errors = process.communicate(timeout=90)
        assert process.returncode == 0, errors
        assert "locked" not in errors
        assert "not committed" not in errors
    assert run("SELECT count(*) FROM entry") == [(400,)]
    assert run("SELECT n FROM total WHERE id = 1") == [(400,)]


def test_what_was_told_survives_kill_9(address: str) -> None:
    process = child("tell", address, 0)
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(60)]
    process.kill()
    process.wait()
    told += [int(line) for line in process.stdout.read().splitlines()]
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
    kept = stored()
    assert set(told) <= set(kept)
    assert kept == list(range(len(kept)))  # Nothing half done behind the last one told.
    assert run("SELECT n FROM total WHERE id = 1") == [(len(kept),)]


@pytest.fixture
def server(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[Writer]:
    """A writer on PostgreSQL."""
    with scratch_database("postgres", tmp_path), django_db_blocker.unblock():
        run("CREATE TABLE entry (id integer PRIMARY KEY, note text)")
        run("INSERT INTO entry VALUES (1, ''), (2, '')")
        writer = Writer(SCRATCH)
        yield writer
        writer.stop()


def backend(cursor: CursorWrapper) -> int:
    """The server's process behind this connection."""
    cursor.execute("SELECT pg_backend_pid()")
    pid: int = cursor.fetchone()[0]
    return pid


def hang_up(pid: int) -> None:
    """The server ends one connection."""
    with postgres.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])


@pytest.mark.postgres
def test_a_connection_that_broke_while_idle_is_reopened(server: Writer) -> None:
    hang_up(server.run_sync(backend))
    assert server.run_sync(insert(4)) == 4
    assert stored() == [1, 2, 4]


@pytest.mark.postgres
def test_a_connection_that_breaks_inside_a_group_undoes_and_repeats_it(server: Writer) -> None:
    attempts: list[int] = []

    def interrupted(cursor: CursorWrapper) -> int:
        insert(3)(cursor)
        if not attempts:
            attempts.append(1)
            hang_up(backend(cursor))
        cursor.execute("SELECT 7")
        value: int = cursor.fetchone()[0]
        return value

    assert server.run_sync(interrupted) == 7
    assert stored() == [1, 2, 3]


@pytest.mark.postgres
def test_a_connection_that_keeps_breaking_is_told_and_not_waited_for(server: Writer) -> None:
    def doomed(cursor: CursorWrapper) -> None:
        insert(3)(cursor)
        hang_up(backend(cursor))
        cursor.execute("SELECT 7")

    with pytest.raises(StoreUnavailable):
        server.run_sync(doomed)
    assert server.run_sync(insert(4)) == 4
    assert stored() == [1, 2, 4]


@contextmanager
def locked(number: int) -> Iterator[None]:
    """Somebody else's transaction holds one row and does not end."""
    with postgres.connect(connections[SCRATCH].settings_dict["NAME"]) as other:
        other.autocommit = False
        other.execute("SELECT 1 FROM entry WHERE id = %s FOR UPDATE", [number])
        yield
        other.rollback()


@pytest.mark.postgres
def test_a_lock_that_is_not_given_fails_its_calls_only(server: Writer) -> None:
    """Twenty calls want the locked row: each is told 503, and the others do not wait for all."""

    def patient(cursor: CursorWrapper) -> None:
        cursor.execute("SET LOCAL lock_timeout = '1s'")
        touch(cursor)

    def touch(cursor: CursorWrapper) -> None:
        cursor.execute("UPDATE entry SET note = 'mine' WHERE id = 1")

    with locked(1), ThreadPoolExecutor(30) as pool:
        gate = hold(server)
        stuck = [pool.submit(server.run_sync, op) for op in [patient, *[touch] * 19]]
        free = [pool.submit(server.run_sync, insert(number)) for number in range(10, 15)]
        wait_until(lambda: server.waiting == 25)
        started = time.monotonic()
        gate.opened.set()
        for call in stuck:
            with pytest.raises(StoreUnavailable):
                call.result(30)
        assert [call.result(30) for call in free] == list(range(10, 15))
        assert time.monotonic() - started < 10
    assert stored() == [1, 2, *range(10, 15)]
    assert server.run_sync(insert(3)) == 3


@pytest.mark.postgres
def test_the_heart_beats_while_a_group_of_calls_waits(server: Writer) -> None:
    run("CREATE TABLE agents_boot (id uuid, heartbeat_at timestamptz, ended_at timestamptz)")
    boot_id = uuid4()
    run("INSERT INTO agents_boot (id) VALUES (%s)", boot_id)
    gate = hold(get_writer(SCRATCH))
    started = time.monotonic()
    assert lifecycle._write_beat(boot_id, SCRATCH)
    assert time.monotonic() - started < 10  # The gate would have given up after 20.
    gate.opened.set()
    assert run("SELECT count(heartbeat_at) FROM agents_boot") == [(1,)]


@pytest.mark.postgres
def test_a_cancelled_statement_is_told_as_an_unavailable_store(server: Writer) -> None:
    def slow(cursor: CursorWrapper) -> None:
        cursor.execute("SET LOCAL statement_timeout = 50")
        cursor.execute("SELECT pg_sleep(20)")

    with pytest.raises(StoreUnavailable):
        server.run_sync(slow)
    assert server.run_sync(insert(3)) == 3


@pytest.mark.postgres
def test_a_deadlock_between_two_writers_costs_nobody_an_error(server: Writer) -> None:
    other = Writer(SCRATCH)
    both_hold = threading.Barrier(2)
    tries: list[str] = []

    def crossing(mine: int, theirs: int, name: str) -> str:
        def operation(cursor: CursorWrapper) -> str:
            tries.append(name)
            cursor.execute("UPDATE entry SET note = note || %s WHERE id = %s", [name, mine])
            if tries.count(name) == 1:
                both_hold.wait(20)
            cursor.execute("UPDATE entry SET note = note || %s WHERE id = %s", [name, theirs])
            return name

        return {"a": server, "b": other}[name].run_sync(operation)

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(crossing, 1, 2, "a"), pool.submit(crossing, 2, 1, "b")]
        assert [call.result(30) for call in calls] == ["a", "b"]
    other.stop()
    assert len(tries) >= 3  # One of them lost the race and ran again.
    assert {"".join(sorted(note)) for (note,) in run("SELECT note FROM entry")} == {"ab"}
