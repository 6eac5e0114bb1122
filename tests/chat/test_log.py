"""The session log: gapless, sealed, one run at a time, one end each."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError

from agents.errors import DamagedContent
from agents.models.sealing import seal_context
from agents.vault import is_sealed
from agents.writer import Writer
from chat.models import SessionEvent
from chat.selectors.log import Entry, all_entries, entries_after, fold
from chat.services import log
from chat.services.hub import MAX_WAITING, Subscription, hub
from chat.services.log import LogClosed, Place, RunLog, append
from chat.services.stores import read, stop_readers

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture(autouse=True)
def _no_readers_left() -> Iterator[None]:
    yield
    stop_readers()


START = ("RUN_STARTED", b'{"type":"RUN_STARTED"}')
END = ("RUN_FINISHED", b'{"type":"RUN_FINISHED"}')


def place() -> Place:
    session = uuid.uuid4()
    return Place(uuid.uuid4(), session, session, uuid.uuid4())


def text(n: int) -> log.Item:
    return "TEXT_MESSAGE_CONTENT", b'{"n":%d}' % n


async def opened(where: Place) -> list[Entry]:
    return await read(lambda: list(all_entries(where.organization_id, where.session_id)))


async def stored(where: Place) -> list[tuple[int, str]]:
    return [(e.seq, e.type) for e in await opened(where)]


async def test_entries_are_numbered_without_a_gap() -> None:
    here = place()
    await append(here, [START], "begin")
    run = RunLog(here)
    for n in range(300):
        run.put(*text(n))
        if n % 50 == 0:
            await asyncio.sleep(0)
    await run.flush()
    await append(here, [END], "end")
    entries = await opened(here)
    assert [e.seq for e in entries] == list(range(1, 303))
    assert [e.data()["n"] for e in entries[1:-1]] == list(range(300))


async def test_payloads_are_sealed_where_they_stand() -> None:
    here, there = place(), place()
    await append(here, [START], "begin")
    await append(there, [START], "begin")
    mine, other = await read(lambda: list(SessionEvent.objects.order_by("created_at")))
    assert is_sealed(mine.payload)
    assert b"RUN_STARTED" not in (mine.payload or b"")
    mine.payload = other.payload
    await read(lambda: mine.save(update_fields=["payload"]))
    with pytest.raises(DamagedContent):
        await read(entries_after, here.organization_id, here.session_id)
    assert seal_context(SessionEvent, "payload", mine.id, here.organization_id).store == "content"


async def test_after_the_end_a_run_writes_nothing() -> None:
    here = place()
    await append(here, [START], "begin")
    await append(here, [END], "end")
    with pytest.raises(LogClosed):
        await append(here, [text(1)])
    run = RunLog(here)
    run.put(*text(1))
    with pytest.raises(LogClosed):
        await run.flush()
    with pytest.raises(LogClosed):
        run.put(*text(2))
    assert await stored(here) == [(1, "RUN_STARTED"), (2, "RUN_FINISHED")]


async def test_the_end_is_told_once_whoever_tells_it() -> None:
    here = place()
    await append(here, [START], "begin")
    told = await asyncio.gather(*(append(here, [END], "end") for _ in range(5)))
    assert sorted(len(entries) for entries in told) == [0, 0, 0, 0, 1]
    later = replace(here, run_id=uuid.uuid4())
    await append(later, [START], "begin")
    assert await append(here, [END], "end") == []


async def test_a_run_begins_only_behind_an_end() -> None:
    here = place()
    await append(here, [START], "begin")
    later = replace(here, run_id=uuid.uuid4())
    with pytest.raises(LogClosed):
        await append(later, [START], "begin")
    with pytest.raises(LogClosed):
        await append(later, [END], "end")
    with pytest.raises(LogClosed):
        await append(later, [text(1)])
    await append(here, [END], "end")
    await append(later, [START], "begin")
    assert [seq for seq, _ in await stored(here)] == [1, 2, 3]


async def test_a_run_that_never_began_is_told_too() -> None:
    here = place()
    await append(here, [END], "end")
    later = replace(here, run_id=uuid.uuid4())
    await append(later, [END], "end")
    assert [seq for seq, _ in await stored(here)] == [1, 2]


async def test_a_number_that_another_process_took_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = place()
    await append(here, [START], "begin")
    failures = [IntegrityError(), IntegrityError()]
    run = Writer.run

    async def unlucky(self: Writer, operation: object, **options: object) -> object:
        if failures:
            raise failures.pop()
        return await run(self, operation, **options)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(Writer, "run", unlucky)
    await append(here, [text(1)])
    assert len(await stored(here)) == 2


async def test_readers_hear_of_it_after_it_is_durable() -> None:
    here = place()
    with hub.subscribe(here.session_id) as inbox:
        await append(here, [START], "begin")
        assert await inbox.wait(0)
        (entry,) = inbox.take(0) or []
        assert (entry.seq, entry.type) == (1, "RUN_STARTED")
        assert await inbox.wait(0.01) is False
    assert here.session_id not in hub._sessions


async def test_a_reader_that_missed_something_asks_the_store() -> None:
    here = place()
    with hub.subscribe(here.session_id) as inbox:
        await append(here, [START], "begin")
        inbox.take(0)
        await append(here, [text(1), text(2)])
        entries = inbox.take(2)
        assert entries is not None
        assert [e.seq for e in entries] == [3]
        await append(here, [text(3)])
        assert inbox.take(1) is None
    slow = Subscription()
    entry = (await append(here, [text(4)]))[0]
    for _ in range(MAX_WAITING + 1):
        slow.offer([entry])
    assert slow.take(0) is None


def test_history_is_the_fold_of_what_the_runtime_sent() -> None:
    frames: list[dict[str, Any]] = [
        {"message": {"n": 1}},
        {"message": {"n": 2}, "replaces": 0},
        {"message": {"n": 3}, "replaces": 1},
        {"message": {"n": 4}, "replaces": 5},
    ]
    assert fold(frames[:1]) == [{"n": 1}]
    assert fold(frames[:3]) == [{"n": 1}, {"n": 3}]
    assert fold(frames) == [{"n": 4}]
