"""How public services commit."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from django.db import OperationalError, connections, transaction

P = ParamSpec("P")
T = TypeVar("T")

_state = threading.local()

#: How often a service is tried that lost a race inside the database: everything was undone.
MAX_ATTEMPTS = 5
#: SQLSTATE of serialization failures and deadlocks.
_LOST_RACES = frozenset({"40001", "40P01"})


@contextmanager
def joined() -> Iterator[None]:
    """Let public services join the transaction that this thread is in.

    For the few callers that own one: Django's admin around its forms, and the demo's seed. The
    caller's commit is then theirs; everybody else gets an error for nesting.
    """
    before = getattr(_state, "joined", False)
    _state.joined = True
    try:
        yield
    finally:
        _state.joined = before


def durable(
    *, full: bool = False, using: str = "default"
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Run a public service in one transaction of its own; nesting one in another is an error.

    A service that the database chose as the victim of a deadlock is run again: a containment must
    never fail because a call was in its way. So services have no effect but their rows.

    ``full=True`` is for what must survive a power cut before it is answered: key mints,
    revocations, claims. SQLite then syncs at this commit; PostgreSQL always does.
    """

    def decorate(service: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(service)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            connection = connections[using]
            if connection.in_atomic_block and getattr(_state, "joined", False):
                with transaction.atomic(using=using):
                    return service(*args, **kwargs)
            sync_fully = full and connection.vendor == "sqlite" and not connection.in_atomic_block
            if sync_fully:
                _synchronous(using, "FULL")
            try:
                return _attempt(using, lambda: service(*args, **kwargs))
            finally:
                if sync_fully:
                    _synchronous(using, "NORMAL")

        return wrapper

    return decorate


def _attempt(using: str, service: Callable[[], T]) -> T:
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            with transaction.atomic(using=using, durable=True):
                return service()
        except OperationalError as error:
            state = getattr(error.__cause__, "sqlstate", None)
            if state not in _LOST_RACES or attempt == MAX_ATTEMPTS:
                raise
            time.sleep(0.01 * attempt)
    raise AssertionError  # the loop returns or raises


def _synchronous(using: str, level: str) -> None:
    """SQLite's flush behaviour of this connection; it can only change between transactions."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"PRAGMA synchronous={level}")
