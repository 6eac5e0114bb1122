"""What a control database really holds, as the engine's own catalogue tells it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connections, transaction

ROWS = 500
#: How much of a file is looked at in one piece, and by how much pieces overlap.
FILE_BYTES = 4 * 1024 * 1024
OVERLAP_BYTES = 64 * 1024
#: Writes the named file to standard output.
_COPY = "import shutil, sys; shutil.copyfileobj(open(sys.argv[1], 'rb'), sys.stdout.buffer)"

_POSTGRESQL = """
SELECT n.nspname, c.relname, a.attname
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'm') AND n.nspname <> 'information_schema'
AND n.nspname NOT LIKE 'pg\\_%%'
ORDER BY n.nspname, c.relname, a.attnum
"""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the engine, whoever made it."""

    schema: str
    name: str
    columns: tuple[str, ...]


def tables(alias: str) -> list[Table]:
    """Every table with every column, asked of the engine and not of the models."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(_POSTGRESQL, [])
            columns = cursor.fetchall()
        else:
            cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            columns = []
            for (name,) in cursor.fetchall():
                cursor.execute("SELECT name FROM pragma_table_xinfo(%s)", [name])
                columns += [("", name, column) for (column,) in cursor.fetchall()]
    found: dict[tuple[str, str], list[str]] = {}
    for schema, name, column in columns:
        found.setdefault((schema, name), []).append(column)
    return [Table(schema, name, tuple(names)) for (schema, name), names in found.items()]


def rows(alias: str, table: Table) -> Iterator[tuple[Any, ...]]:
    """All rows of *table*. SQLite gives bytes, whatever type a column claims to have."""
    connection = connections[alias]
    is_postgresql = connection.vendor == "postgresql"
    names = [_quoted(column) for column in table.columns]
    columns = ", ".join(n if is_postgresql else f"CAST({n} AS BLOB)" for n in names)
    source = ".".join(_quoted(part) for part in (table.schema, table.name) if part)
    # A transaction keeps PostgreSQL's cursor open; SQLite's would lock all writers out.
    hold = transaction.atomic(using=alias) if is_postgresql else nullcontext()
    with hold, connection.chunked_cursor() as cursor:
        cursor.execute(f"SELECT {columns} FROM {source}")  # noqa: S608 - quoted, of the catalogue
        while chunk := cursor.fetchmany(ROWS):
            yield from chunk


def large_objects(alias: str) -> Iterator[bytes]:
    """PostgreSQL's large objects that this user may read; SQLite has none."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT oid FROM pg_catalog.pg_largeobject_metadata")
        for (oid,) in cursor.fetchall():
            cursor.execute("SELECT lo_get(%s)", [oid])
            yield bytes(cursor.fetchone()[0])


def files(alias: str) -> list[Path]:
    """SQLite's file and its write-ahead log: both still hold what was deleted."""
    connection = connections[alias]
    if connection.vendor != "sqlite":
        return []
    name = str(connection.settings_dict["NAME"])
    candidates = [Path(name + suffix) for suffix in ("", "-wal", "-journal")]
    return [path for path in candidates if path.is_file()]


def file_pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file in overlapping pieces.

    Another process reads it: closing a database's file here would drop every lock that this
    process's own connections hold on it, and other processes would then tidy up under them
    (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    """
    reader = subprocess.Popen(  # noqa: S603 - our own interpreter, and a path we found ourselves
        [sys.executable, "-c", _COPY, str(path)], stdout=subprocess.PIPE
    )
    with reader:
        assert reader.stdout is not None
        tail = b""
        while block := reader.stdout.read(FILE_BYTES):
            yield tail + block
            tail = (tail + block)[-OVERLAP_BYTES:]
    if reader.returncode:
        msg = f"{path} could not be read"
        raise OSError(msg)


def _quoted(name: str) -> str:
    # Django leaves names alone that look quoted already; the catalogue's are all bare.
    return '"' + name.replace('"', '""') + '"'
