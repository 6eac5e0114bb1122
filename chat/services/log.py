"""The session log: append-only, sealed, gapless.

A run's entries stand together: it may append while the log's last entry is its own and not a
terminal event. A new run may begin only behind a terminal event. So an owner that lost its run
can write nothing behind the event that told its end, and a terminal event is written once however
many processes try.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import orjson
from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper
from django.utils import timezone

from agents import sql, vault
from agents.models.sealing import seal_context
from agents.writer import get_writer
from chat.models import SessionEvent
from chat.selectors.log import TERMINAL, Entry
from chat.services.hub import hub

#: Bytes that may wait for the store before a run is slowed down.
BUFFER_BYTES = 1 * 2**20
#: Attempts when another process appended at the same moment.
ATTEMPTS = 5

Item = tuple[str, bytes]
Mode = Literal["begin", "continue", "end"]


class LogClosed(Exception):
    """The run may not append any more: its end is told, or the log belongs to another run."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run writes."""

    organization_id: UUID
    thread_id: UUID
    session_id: UUID
    run_id: UUID


def encode(value: Any) -> bytes:
    """A payload as it is stored and sent: compact JSON in UTF-8, without line breaks."""
    return orjson.dumps(value)


async def append(place: Place, items: Sequence[Item], mode: Mode = "continue") -> list[Entry]:
    """Append entries durably and wake this process's readers. Raises LogClosed."""
    operation = _operation(place, items, mode)
    for attempt in range(ATTEMPTS):
        try:
            first = await get_writer("content").run(operation)
            break
        except IntegrityError:  # another process took the same number
            if attempt == ATTEMPTS - 1:
                raise
    entries = _entries(first, place, items)
    hub.publish(place.session_id, entries)
    return entries


def append_sync(place: Place, items: Sequence[Item], mode: Mode = "continue") -> list[Entry]:
    """:func:`append` for threads; readers of this process find it when they look."""
    operation = _operation(place, items, mode)
    for attempt in range(ATTEMPTS):
        try:
            return _entries(get_writer("content").run_sync(operation), place, items)
        except IntegrityError:
            if attempt == ATTEMPTS - 1:
                raise
    return []


def _operation(
    place: Place, items: Sequence[Item], mode: Mode
) -> Callable[[CursorWrapper], int | None]:
    rows = [_Row.seal(place, kind, payload) for kind, payload in items]
    return lambda cursor: _append(cursor, place, rows, mode)


def _entries(first: int | None, place: Place, items: Sequence[Item]) -> list[Entry]:
    if first is None:
        return []
    return [
        Entry(first + n, kind, place.run_id, payload) for n, (kind, payload) in enumerate(items)
    ]


@dataclass(frozen=True, slots=True)
class _Row:
    id: UUID
    type: str
    sealed: bytes

    @classmethod
    def seal(cls, place: Place, kind: str, payload: bytes) -> _Row:
        row_id = uuid.uuid4()
        context = seal_context(SessionEvent, "payload", row_id, place.organization_id)
        return cls(row_id, kind, vault.seal(payload, context))


def _append(cursor: CursorWrapper, place: Place, rows: Sequence[_Row], mode: Mode) -> int | None:
    """The first entry's number, or None when the end was told already."""
    last = sql.one(
        cursor,
        "SELECT seq, type, run_id FROM chat_sessionevent WHERE session_id = %s "
        "ORDER BY seq DESC LIMIT 1",
        [place.session_id],
    )
    mine = last is not None and last[2] is not None and sql.read_uuid(last[2]) == place.run_id
    ended = last is None or last[1] in TERMINAL
    if mode == "end" and _end_is_told(cursor, place):
        return None
    if mode == "continue" and (ended or not mine):
        raise LogClosed
    if mode != "continue" and not ended and not mine:
        raise LogClosed
    first = 1 if last is None else int(last[0]) + 1
    now = timezone.now()
    cursor.executemany(
        "INSERT INTO chat_sessionevent (id, organization_id, thread_id, session_id, run_id, seq,"
        " type, payload, created_at) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        [
            sql.adapt(
                cursor.db,
                [
                    row.id,
                    place.organization_id,
                    place.thread_id,
                    place.session_id,
                    place.run_id,
                    first + n,
                    row.type,
                    row.sealed,
                    now,
                ],
            )
            for n, row in enumerate(rows)
        ],
    )
    return first


def _end_is_told(cursor: CursorWrapper, place: Place) -> bool:
    return (
        sql.one(
            cursor,
            "SELECT seq FROM chat_sessionevent WHERE session_id = %s AND run_id = %s "
            "AND type IN (%s, %s) LIMIT 1",
            [place.session_id, place.run_id, *sorted(TERMINAL)],
        )
        is not None
    )


class RunLog:
    """One run's writing end. Alone, an entry is written at once; while the store is busy, what
    comes meanwhile is written with the next commit."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._waiting: list[Item] = []
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    def put(self, kind: str, payload: bytes) -> None:
        """Queue one entry. Raises what an earlier one met."""
        self._raise_error()
        self._waiting.append((kind, payload))
        self._bytes += len(payload)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())

    async def room(self) -> None:
        """Wait while too much is queued."""
        if self._bytes > BUFFER_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Wait until everything queued is durable. Raises LogClosed, or what the store raised."""
        if self._task is not None:
            await asyncio.shield(self._task)
        self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    async def _drain(self) -> None:
        try:
            while self._waiting:
                items, self._waiting = self._waiting, []
                self._bytes = 0
                await append(self.place, items)
        except Exception as error:  # noqa: BLE001 - whoever puts or flushes next gets it
            self._error = error
