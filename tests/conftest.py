"""What every test stands on: no way out, fixed secrets, an empty writer, and both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper as SQLite
from pytest_django import DjangoDbBlocker

from agents import digests, vault, writer
from project.databases import database_from_url
from tests import postgres, socket_guard

socket_guard.install()

#: An extra database alias, for tests of one engine that need no tables of ours.
SCRATCH = "scratch"


@pytest.fixture(autouse=True)
def _no_way_out() -> Iterator[None]:
    """A connection to anywhere else fails the test, even when the code swallows the error."""
    socket_guard.refused.clear()
    yield
    assert not socket_guard.refused, f"connected to {socket_guard.refused}"


@pytest.fixture(autouse=True)
def _fresh_process_state() -> Iterator[None]:
    """Secrets that need no database (see ``stored_secrets``), and no writer left over."""
    vault.reset()
    digests.reset()
    digests._secrets.update({digests.DIGEST: b"d" * 32, digests.PEPPER: b"p" * 32})
    yield
    writer.stop_all()
    digests.reset()
    vault.reset()


@pytest.fixture
def stored_secrets(transactional_db: None) -> None:
    """The installation's secrets from the database, so that other processes share them."""
    digests.reset()
    digests.warm()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(
    request: pytest.FixtureRequest, tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """The test runs once on each engine, on an empty database under the alias ``SCRATCH``."""
    with scratch_database(request.param, tmp_path), django_db_blocker.unblock():
        yield request.param


@contextmanager
def scratch_database(kind: str, directory: Path) -> Iterator[str]:
    """An empty database of *kind* under the alias ``SCRATCH``; yields its address."""
    name = postgres.create_database() if kind == "postgres" else ""
    address = postgres.url(name) if name else f"sqlite:///{directory / 'scratch.sqlite3'}"
    connections.settings[SCRATCH] = {
        **connections.settings["default"],
        **database_from_url(address, directory),
    }
    try:
        yield address
    finally:
        writer.stop_all()
        connections[SCRATCH].close()
        pool = getattr(connections[SCRATCH], "close_pool", None)
        if pool is not None:
            pool()
        del connections[SCRATCH]
        del connections.settings[SCRATCH]
        if name:
            postgres.drop_database(name)


@pytest.fixture(autouse=True, scope="session")
def _flush_lifts_triggers() -> Iterator[None]:
    """Append-only tables refuse DELETE by trigger, so emptying them between tests lifts those.

    PostgreSQL needs nothing: TRUNCATE fires no row trigger.
    """
    operations = SQLite.ops_class
    flush: Callable[..., Any] = operations.execute_sql_flush

    def lifted(self: Any, statements: Any) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            triggers = cursor.fetchall()
            for name, _ in triggers:
                cursor.execute(f'DROP TRIGGER "{name}"')
            try:
                return flush(self, statements)
            finally:
                for _, sql in triggers:
                    cursor.execute(sql)

    patch = pytest.MonkeyPatch()
    patch.setattr(operations, "execute_sql_flush", lifted)
    yield
    patch.undo()
