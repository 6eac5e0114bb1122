"""Raw SQL that means the same on both engines.

Django stores UUIDs and times natively on PostgreSQL, and as 32 hex digits and
``YYYY-MM-DD HH:MM:SS.ffffff`` in UTC on SQLite. These adapters keep hand-written statements
compatible with rows that the ORM writes. Placeholders are ``%s`` everywhere.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper


def param_uuid(connection: BaseDatabaseWrapper, value: UUID) -> UUID | str:
    return value if connection.vendor == "postgresql" else value.hex


def param_dt(connection: BaseDatabaseWrapper, value: dt.datetime) -> dt.datetime | str:
    """*value* must be aware. The text sorts as the times do."""
    if value.tzinfo is None:
        msg = "a naive time has no place in the database"
        raise ValueError(msg)
    if connection.vendor == "postgresql":
        return value
    # The same spelling as the ORM's: no fraction when there is none.
    return str(value.astimezone(dt.UTC).replace(tzinfo=None))


def param_json(connection: BaseDatabaseWrapper, value: Any) -> Any:
    """*value* for a JSON column, spelled as the ORM spells it."""
    return connection.ops.adapt_json_value(value, None)


def adapt(connection: BaseDatabaseWrapper, parameters: Iterable[Any]) -> list[Any]:
    """Parameters as the engine takes them. Dicts and lists are JSON."""
    return [_adapted(connection, value) for value in parameters]


def _adapted(connection: BaseDatabaseWrapper, value: Any) -> Any:
    if isinstance(value, UUID):
        return param_uuid(connection, value)
    if isinstance(value, dt.datetime):
        return param_dt(connection, value)
    if isinstance(value, dict | list):
        return param_json(connection, value)
    return value


def read_uuid(value: UUID | str) -> UUID:
    return value if isinstance(value, UUID) else UUID(hex=value)


def read_dt(value: dt.datetime | str) -> dt.datetime:
    """An aware time in UTC."""
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value)
    if value.tzinfo is None:
        return value.replace(tzinfo=dt.UTC)
    return value.astimezone(dt.UTC)


def read_json(value: Any) -> Any:
    """The value of a JSON column; both engines hand it over as text."""
    return json.loads(value) if isinstance(value, str | bytes) else value


def read_bytes(value: bytes | memoryview | None) -> bytes | None:
    return None if value is None else bytes(value)


def read_bool(value: Any) -> bool:
    return bool(value)


def for_share(connection: BaseDatabaseWrapper) -> str:
    """Keeps the rows read as they are until the transaction ends; SQLite's writer is alone."""
    return " FOR SHARE" if connection.vendor == "postgresql" else ""


def execute(cursor: CursorWrapper, statement: str, parameters: Iterable[Any] = ()) -> CursorWrapper:
    """Run one statement with adapted parameters; the cursor then holds its rows."""
    cursor.execute(statement, adapt(cursor.db, parameters))
    return cursor


def changed(cursor: CursorWrapper, statement: str, parameters: Iterable[Any] = ()) -> int:
    """Run a conditional UPDATE, INSERT or DELETE and tell how many rows it won."""
    count: int = execute(cursor, statement, parameters).rowcount
    return count


def one(
    cursor: CursorWrapper, statement: str, parameters: Iterable[Any] = ()
) -> tuple[Any, ...] | None:
    """The first row, or ``None``."""
    row: tuple[Any, ...] | None = execute(cursor, statement, parameters).fetchone()
    return row


def every(
    cursor: CursorWrapper, statement: str, parameters: Iterable[Any] = ()
) -> Sequence[tuple[Any, ...]]:
    """All rows."""
    rows: Sequence[tuple[Any, ...]] = execute(cursor, statement, parameters).fetchall()
    return rows
