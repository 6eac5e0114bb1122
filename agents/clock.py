"""The database's clock: the only one that lifetimes of keys, approvals and boots are measured on.

An application's clock may be wrong on one of several machines; the database's is the same for
all. SQLite has no clock but its process's own.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections
from django.db.backends.utils import CursorWrapper

_shift = dt.timedelta()


def now(cursor: CursorWrapper) -> dt.datetime:
    """The database's time, aware, UTC. Inside a transaction it still moves on."""
    if cursor.db.vendor != "postgresql":
        return dt.datetime.now(dt.UTC) + _shift
    cursor.execute("SELECT clock_timestamp()")
    row: tuple[dt.datetime] = cursor.fetchone()
    return row[0].astimezone(dt.UTC) + _shift


def database_now(using: str = "default") -> dt.datetime:
    """:func:`now` for code that holds no cursor."""
    with connections[using].cursor() as cursor:
        return now(cursor)


@contextmanager
def shifted(by: dt.timedelta) -> Iterator[None]:
    """Let this process see the database's clock *by* later, for tests of lifetimes."""
    global _shift
    before = _shift
    _shift = before + by
    try:
        yield
    finally:
        _shift = before
