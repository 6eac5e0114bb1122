"""How public services commit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import connections, transaction

P = ParamSpec("P")
T = TypeVar("T")


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
            sync_fully = full and connection.vendor == "sqlite" and not connection.in_atomic_block
            if sync_fully:
                with connection.cursor() as cursor:
                    cursor.execute("PRAGMA synchronous=FULL")
            try:
                with transaction.atomic(using=using, durable=True):
                    return service(*args, **kwargs)
            finally:
                if sync_fully:
                    with connection.cursor() as cursor:
                        cursor.execute("PRAGMA synchronous=NORMAL")

        return wrapper

    return decorate
