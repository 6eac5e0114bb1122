"""How code on the event loop reaches the two stores.

Writes go through the group-commit writers; reads run in a small pool of threads that keep their
connections, so that a reader never waits behind a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.db import connections

from agents.writer import Operation, get_writer

P = ParamSpec("P")
T = TypeVar("T")

READERS = 4

_pool: ThreadPoolExecutor | None = None


async def read(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a selector in a reader's thread."""
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(READERS, thread_name_prefix="chat-reader")
    return await asyncio.get_running_loop().run_in_executor(
        _pool, lambda: _reading(lambda: function(*args, **kwargs))
    )


def _reading(function: Callable[[], T]) -> T:
    try:
        return function()
    finally:
        for connection in connections.all(initialized_only=True):
            if connection.vendor == "postgresql" or connection.errors_occurred:
                # The pool keeps the real connection and checks it before the next use.
                connection.close()


async def control(
    step: Callable[[], T],
    *,
    full: bool = False,
    abandoned: Callable[[T], object] | None = None,
) -> T:
    """Run a step in one transaction of the control store; returns once it is durable.

    *abandoned* is a step that undoes the result when the caller was cancelled meanwhile.
    """
    undo = None if abandoned is None else _undoing(abandoned)
    return await get_writer("default").run(lambda _cursor: step(), full=full, abandoned=undo)


def _undoing(abandoned: Callable[[T], object]) -> Callable[[T], Operation[object]]:
    return lambda result: lambda _cursor: abandoned(result)


async def content(step: Callable[[], T]) -> T:
    """Run a step in one transaction of the content store."""
    return await get_writer("content").run(lambda _cursor: step())


def stop_readers() -> None:
    """Close the readers' connections with their threads; the next read makes new ones."""
    global _pool
    pool, _pool = _pool, None
    if pool is None:
        return
    for _ in range(READERS):
        pool.submit(connections.close_all)
    pool.shutdown(wait=True)
