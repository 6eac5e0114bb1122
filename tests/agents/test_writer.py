"""The group-commit writer, on both engines: what waits is committed together, and only then told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, connections, transaction
from django.db.backends.utils import CursorWrapper

from agents.errors import Overloaded, StoreUnavailable
from agents.writer import MAX_GROUP, Writer, get_writer, stop_all
from agents.writer import calls as writer_calls
from tests.conftest import SCRATCH


@pytest.fixture
def writer(engine: str) -> Iterator[Writer]:
    run("CREATE TABLE entry (id integer PRIMARY KEY, note text)")
    writer = Writer(SCRATCH)
    yield writer
    writer.stop()


def run(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Execute on the test's own connection, which sees only what others have committed."""
    with connections[SCRATCH].cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []


def insert(number: int, note: str = "") -> Callable[[CursorWrapper], int]:
    def operation(cursor: CursorWrapper) -> int:
        cursor.execute("INSERT INTO entry (id, note) VALUES (%s, %s)", [number, note])
        return number

    return operation


def stored() -> list[int]:
    return [row[0] for row in run("SELECT id FROM entry ORDER BY id")]


class Gate:
    """An operation that holds the writer inside a group until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, cursor: CursorWrapper) -> None:
        self.entered.set()
        assert self.opened.wait(20)


def hold(writer: Writer) -> Gate:
    gate = Gate()
    writer.post(gate)
    assert gate.entered.wait(20)
    return gate


def commits(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the groups that the writer attempts from now on."""
    sizes: list[int] = []
    attempt = writer._attempt

    def counting(group: list[Any]) -> list[Any]:
        sizes.append(len(group))
        return attempt(group)

    monkeypatch.setattr(writer, "_attempt", counting)
    return sizes


def test_it_works_from_a_thread(writer: Writer) -> None:
    assert writer.run_sync(insert(1)) == 1
    assert stored() == [1]


async def test_it_works_from_an_event_loop(writer: Writer) -> None:
    assert await writer.run(insert(1)) == 1
    assert await asyncio.to_thread(stored) == [1]


def test_a_result_comes_only_after_the_commit(writer: Writer) -> None:
    """Whoever has a result sees its effect from another connection, in 200 concurrent calls."""

    def write_and_look(number: int) -> bool:
        try:
            writer.run_sync(insert(number))
            return bool(run("SELECT id FROM entry WHERE id = %s", number))
        finally:
            connections[SCRATCH].close()

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(write_and_look, range(200)))


def test_nothing_is_told_while_the_group_is_open(writer: Writer) -> None:
    gate = Gate()
    first = hold(writer)
    with ThreadPoolExecutor(2) as pool:
        early = pool.submit(writer.run_sync, insert(1))
        wait_until(lambda: writer.waiting == 1)
        writer.post(gate)
        first.opened.set()
        assert gate.entered.wait(20)  # The insert ran, in the same group.
        assert not early.done()
        assert stored() == []
        gate.opened.set()
        assert early.result(20) == 1
    assert stored() == [1]


def test_calls_that_wait_share_one_commit(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = hold(writer)
    sizes = commits(writer, monkeypatch)
    for number in range(MAX_GROUP + 5):
        writer.post(insert(number))
    gate.opened.set()
    writer.stop()
    assert sizes == [MAX_GROUP, 5]
    assert len(stored()) == MAX_GROUP + 5


def test_one_failing_call_does_not_hurt_the_others(writer: Writer) -> None:
    run("INSERT INTO entry (id) VALUES (2)")

    def half_done(cursor: CursorWrapper) -> None:
        insert(4)(cursor)
        msg = "after its first statement"
        raise LookupError(msg)

    gate = hold(writer)
    with ThreadPoolExecutor(4) as pool:
        before = pool.submit(writer.run_sync, insert(1))
        wait_until(lambda: writer.waiting == 1)
        duplicate = pool.submit(writer.run_sync, insert(2))
        wait_until(lambda: writer.waiting == 2)
        partial = pool.submit(writer.run_sync, half_done)
        wait_until(lambda: writer.waiting == 3)
        after = pool.submit(writer.run_sync, insert(3))
        wait_until(lambda: writer.waiting == 4)
        gate.opened.set()
        assert (before.result(20), after.result(20)) == (1, 3)
        with pytest.raises(IntegrityError):
            duplicate.result(20)
        with pytest.raises(LookupError):
            partial.result(20)
    assert stored() == [1, 2, 3]


@pytest.mark.parametrize("kind", [OperationalError, InterfaceError])
def test_a_database_that_fails_inside_a_call_is_told_as_unavailable(
    writer: Writer, kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def failing(cursor: CursorWrapper) -> None:
        insert(1)(cursor)
        raise kind("CANARY")

    with pytest.raises(StoreUnavailable):
        writer.run_sync(failing)
    assert kind.__name__ in caplog.text
    assert "CANARY" not in caplog.text
    assert stored() == []


def test_a_call_that_fails_alone_leaves_nothing(writer: Writer) -> None:
    def half_done(cursor: CursorWrapper) -> None:
        insert(1)(cursor)
        raise LookupError

    with pytest.raises(LookupError):
        writer.run_sync(half_done)
    assert stored() == []
    assert writer.run_sync(insert(2)) == 2
    assert stored() == [2]


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "in a group"])
def test_an_inner_transaction_that_breaks_hurts_its_call_only(writer: Writer, others: int) -> None:
    """What the ORM does inside ``save()``: it marks the whole transaction as unusable."""

    def broken(cursor: CursorWrapper) -> None:
        with transaction.atomic(using=SCRATCH, savepoint=False):
            insert(9)(cursor)
            raise LookupError

    gate = hold(writer)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(writer.run_sync, insert(number)) for number in range(others)]
        failing = pool.submit(writer.run_sync, broken)
        wait_until(lambda: writer.waiting == others + 1)
        gate.opened.set()
        with pytest.raises(LookupError):
            failing.result(20)
        assert [call.result(20) for call in calls] == list(range(others))
    assert stored() == list(range(others))


def test_a_full_queue_refuses_before_anything_is_queued(engine: str) -> None:
    run("CREATE TABLE entry (id integer PRIMARY KEY, note text)")
    writer = Writer(SCRATCH, limit=3)
    gate = hold(writer)
    with ThreadPoolExecutor(4) as pool:
        accepted = [pool.submit(writer.run_sync, insert(number)) for number in range(3)]
        wait_until(lambda: writer.waiting == 3)
        with pytest.raises(Overloaded):
            writer.run_sync(insert(100))
        writer.post(insert(50))  # A closing is never refused.
        gate.opened.set()
        assert [call.result(20) for call in accepted] == [0, 1, 2]
        assert writer.run_sync(insert(101)) == 101
    writer.stop()
    assert stored() == [0, 1, 2, 50, 101]


def test_the_bound_is_1024_waiting_calls(engine: str) -> None:
    run("CREATE TABLE entry (id integer PRIMARY KEY, note text)")

    async def flood() -> list[int | BaseException]:
        writer = Writer(SCRATCH)
        gate = await asyncio.to_thread(hold, writer)
        calls = [asyncio.ensure_future(writer.run(insert(number))) for number in range(1_030)]
        await asyncio.sleep(0)
        gate.opened.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.to_thread(writer.stop)
        return answers

    answers = asyncio.run(flood())
    assert answers[:1_024] == list(range(1_024))
    assert all(isinstance(answer, Overloaded) for answer in answers[1_024:])
    assert len(answers) == 1_030
    assert len(stored()) == 1_024


def test_stop_runs_what_is_queued_and_refuses_what_comes_later(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    gate = hold(writer)
    with ThreadPoolExecutor(2) as pool:
        queued = pool.submit(writer.run_sync, insert(1))
        wait_until(lambda: writer.waiting == 1)
        writer.post(insert(2))
        stopped = pool.submit(writer.stop, 20)
        wait_until(lambda: writer._stopping)
        with pytest.raises(StoreUnavailable):
            writer.run_sync(insert(3))
        writer.post(insert(4))  # The thread still drains: a closing is taken.
        gate.opened.set()
        assert queued.result(20) == 1
        assert stopped.result(20) is True
    writer.post(insert(5))
    assert stored() == [1, 2, 4]
    assert "after the writer had stopped" in caplog.text
    writer.start()
    assert writer.run_sync(insert(6)) == 6


def test_stop_answers_what_it_could_not_run(writer: Writer) -> None:
    gate = hold(writer)
    with ThreadPoolExecutor(1) as pool:
        queued = pool.submit(writer.run_sync, insert(1))
        wait_until(lambda: writer.waiting == 1)
        assert writer.stop(0.05) is False
        with pytest.raises(StoreUnavailable):
            queued.result(20)
        gate.opened.set()


def test_a_failed_commit_fails_every_waiting_call(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend: Any = type(connections[SCRATCH])
    real = backend._commit
    broken = threading.Event()

    def commit(self: Any) -> None:
        if broken.is_set():
            msg = "the disk is gone"
            raise OperationalError(msg)
        real(self)

    monkeypatch.setattr(backend, "_commit", commit)
    gate = hold(writer)
    broken.set()
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(writer.run_sync, insert(number)) for number in range(3)]
        wait_until(lambda: writer.waiting == 3)
        gate.opened.set()
        for call in calls:
            with pytest.raises(StoreUnavailable):
                call.result(20)
    broken.clear()
    assert stored() == []
    assert writer.run_sync(insert(7)) == 7


def test_an_error_outside_any_group_fails_its_calls_and_not_the_writer(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(group: list[Any]) -> list[Any]:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(writer, "_attempt", broken)
        with pytest.raises(StoreUnavailable):
            writer.run_sync(insert(1))
    assert writer.run_sync(insert(2)) == 2
    assert stored() == [2]


def test_a_posted_failure_is_logged_by_type_only(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(cursor: CursorWrapper) -> None:
        msg = "CANARY-in-an-exception"
        raise ValueError(msg)

    with caplog.at_level(logging.DEBUG):
        writer.post(fail)
        writer.post(insert(1))
        writer.stop()
    assert "ValueError" in caplog.text
    assert "CANARY" not in caplog.text
    assert stored() == [1]


def test_an_operation_cannot_wait_for_its_own_writer(writer: Writer) -> None:
    with pytest.raises(RuntimeError):
        writer.run_sync(lambda cursor: writer.run_sync(insert(1)))


async def test_a_cancelled_task_does_not_break_its_group(writer: Writer) -> None:
    gate = await asyncio.to_thread(hold, writer)
    kept = [asyncio.ensure_future(writer.run(insert(number))) for number in (1, 3)]
    doomed = asyncio.ensure_future(writer.run(insert(2)))
    await asyncio.sleep(0)
    doomed.cancel()
    gate.opened.set()
    assert await asyncio.gather(*kept) == [1, 3]
    with pytest.raises(asyncio.CancelledError):
        await doomed
    # Nobody wanted it any more before it ran, so it did not.
    assert await asyncio.to_thread(stored) == [1, 3]


async def test_what_a_cancelled_task_committed_is_closed(writer: Writer) -> None:
    running, go_on = threading.Event(), threading.Event()

    def opening(cursor: CursorWrapper) -> int:
        running.set()
        assert go_on.wait(20)
        return insert(1, "open")(cursor)

    def closing(number: int) -> Callable[[CursorWrapper], None]:
        def close(cursor: CursorWrapper) -> None:
            cursor.execute("UPDATE entry SET note = 'closed' WHERE id = %s", [number])

        return close

    task = asyncio.ensure_future(writer.run(opening, abandoned=closing))
    assert await asyncio.to_thread(running.wait, 20)
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    await writer.run(insert(2))  # Delivered after the cancelled one, so its closing is queued.
    await writer.run(insert(3))
    notes = await asyncio.to_thread(run, "SELECT note FROM entry WHERE id = 1")
    assert notes == [("closed",)]


async def test_a_cancellation_right_after_the_result_closes_too(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is there, the task is cancelled before it resumes and never sees it."""
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()
    deliver = writer_calls._deliver_here

    def deliver_and_cancel(calls: list[Any]) -> None:
        deliver(calls)
        task.cancel()

    def closing(number: int) -> Callable[[CursorWrapper], None]:
        def close(cursor: CursorWrapper) -> None:
            loop.call_soon_threadsafe(closed.set)

        return close

    monkeypatch.setattr(writer_calls, "_deliver_here", deliver_and_cancel)
    task = asyncio.ensure_future(writer.run(insert(1), abandoned=closing))
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(closed.wait(), 20)


def test_a_closed_loop_does_not_stop_the_writer(writer: Writer) -> None:
    gate = hold(writer)
    seen: list[int] = []

    async def leave() -> None:
        task = asyncio.ensure_future(
            writer.run(insert(1), abandoned=lambda number: lambda cursor: seen.append(number))
        )
        await asyncio.sleep(0)
        leave.task = task  # type: ignore[attr-defined]  # keeps it from being collected

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    wait_until(lambda: writer.waiting == 1)
    loop.close()
    gate.opened.set()
    assert writer.run_sync(insert(2)) == 2
    writer.stop()
    assert stored() == [1, 2]
    assert seen == [1]
    del leave.task  # type: ignore[attr-defined]


def test_batches_of_weight_are_synced_fully(engine: str) -> None:
    """Reservations, claims, mints and revocations survive a power cut; others need not wait."""
    if engine == "postgres":
        assert run("SHOW synchronous_commit") == [("on",)]
        return
    writer = Writer(SCRATCH)

    def level(cursor: CursorWrapper) -> int:
        cursor.execute("PRAGMA synchronous")
        value: int = cursor.fetchone()[0]
        return value

    normal, full = 1, 2
    assert writer.run_sync(level) == normal
    assert writer.run_sync(level, full=True) == full
    assert writer.run_sync(level) == normal
    writer.stop()


def test_the_process_has_one_writer_for_each_database(engine: str) -> None:
    run("CREATE TABLE entry (id integer PRIMARY KEY, note text)")
    assert get_writer(SCRATCH) is get_writer(SCRATCH)
    get_writer(SCRATCH).post(insert(1))
    stop_all()
    assert stored() == [1]
    assert get_writer(SCRATCH).run_sync(insert(2)) == 2


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for another thread's next step; the suite's timeout bounds it."""
    tick = threading.Event()
    while not condition():
        tick.wait(0.002)
