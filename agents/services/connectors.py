"""When a connector's tools were read, and who reads them now: one process at a time.

Steps on a cursor, for operations of the writer.
"""

from __future__ import annotations

import datetime as dt
from enum import Enum
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from agents import clock, sql
from agents.models import Connector

#: A reading that is not over after this long was lost, and another may begin.
READING_LOST = dt.timedelta(seconds=20)


class Reading(Enum):
    """What :func:`claim_reading` found."""

    CLAIMED = "claimed"  # the caller reads now, and ends it with a listing or fail_reading
    DONE = "done"  # a reading that began late enough is over
    BUSY = "busy"  # another process reads


def claim_reading(cursor: CursorWrapper, connector_id: UUID, *, since: dt.datetime) -> Reading:
    """Claim the reading of a connector's tools, unless one that began at *since* or later is over.

    One conditional update, so that of any number of processes one reads.
    """
    row = sql.one(
        cursor,
        "SELECT last_read_at, read_started_at FROM agents_connector WHERE id = %s",
        [connector_id],
    )
    if row is None:
        return Reading.DONE
    read, started = (None if value is None else sql.read_dt(value) for value in row)
    now = clock.now(cursor)
    over = started is None or (read is not None and read >= started)
    if over and started is not None and started >= since:
        return Reading.DONE
    if not over and started is not None and started > now - READING_LOST:
        return Reading.BUSY
    won = sql.changed(
        cursor,
        "UPDATE agents_connector SET read_started_at = %s"
        " WHERE id = %s AND read_started_at IS NOT DISTINCT FROM %s",
        [now, connector_id, started],
    )
    return Reading.CLAIMED if won else Reading.BUSY


def fail_reading(cursor: CursorWrapper, connector_id: UUID, code: str) -> None:
    """Give a claim back after a reading that failed, and keep why."""
    sql.execute(
        cursor,
        "UPDATE agents_connector SET read_started_at = last_read_at, last_error = %s WHERE id = %s",
        [code[:60], connector_id],
    )


def is_current(cursor: CursorWrapper, connector_id: UUID, *, within: dt.timedelta) -> bool:
    """Whether the tools were read within this time."""
    row = sql.one(cursor, "SELECT last_read_at FROM agents_connector WHERE id = %s", [connector_id])
    if row is None or row[0] is None:
        return False
    return sql.read_dt(row[0]) >= clock.now(cursor) - within


def due_connectors(cursor: CursorWrapper, *, older_than: dt.timedelta) -> list[UUID]:
    """Enabled connectors with an address whose last reading is older than this."""
    rows = sql.every(
        cursor,
        "SELECT id FROM agents_connector WHERE enabled AND NOT first_party AND url <> ''"
        " AND (last_read_at IS NULL OR last_read_at < %s) ORDER BY id",
        [clock.now(cursor) - older_than],
    )
    return [sql.read_uuid(row[0]) for row in rows]


def enabled_connectors(cursor: CursorWrapper) -> set[UUID]:
    """Connectors that may have a session at all."""
    rows = sql.every(cursor, "SELECT id FROM agents_connector WHERE enabled AND NOT first_party")
    return {sql.read_uuid(row[0]) for row in rows}


def read_connector(_cursor: CursorWrapper, connector_id: UUID) -> Connector | None:
    """The row of an enabled connector with an address, else None."""
    return (
        Connector.objects.filter(id=connector_id, enabled=True, first_party=False)
        .exclude(url="")
        .first()
    )
