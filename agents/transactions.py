"""How public services commit."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from django.db import connections, transaction

P = ParamSpec("P")
T = TypeVar("T")

_state = threading.local()


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
                with transaction.atomic(using=using, durable=True):
                    return service(*args, **kwargs)
            finally:
                if sync_fully:
                    _synchronous(using, "NORMAL")

        return wrapper

    return decorate


def _synchronous(using: str, level: str) -> None:
    """SQLite's flush behaviour of this connection; it can only change between transactions."""
    with connections[using].cursor() as cursor:
        cursor.execute(f"PRAGMA synchronous={level}")
