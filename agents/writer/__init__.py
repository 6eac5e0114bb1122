"""The group-commit writer: one thread and one connection per process and database.

Calls queue up; the thread takes everything that waits, runs it in one transaction with a savepoint
for each call, and delivers results only after the COMMIT. Alone in the queue, a call waits for
nothing; under load, one commit pays for many.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading

from agents.writer.calls import Operation
from agents.writer.group import MAX_ATTEMPTS, MAX_GROUP, MAX_WAITING, Writer

__all__ = [
    "MAX_ATTEMPTS",
    "MAX_GROUP",
    "MAX_WAITING",
    "Operation",
    "Writer",
    "get_writer",
    "stop_all",
]

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_writers: dict[str, Writer] = {}


def get_writer(alias: str = "default") -> Writer:
    """This process's writer of one database; it starts with its first call."""
    writer = _writers.get(alias)
    if writer is None:
        with _lock:
            writer = _writers.setdefault(alias, Writer(alias))
    return writer


def stop_all(timeout: float = 3.0) -> None:
    """Drain and end every writer; the next :func:`get_writer` makes a new one."""
    with _lock:
        writers = list(_writers.values())
        _writers.clear()
    for writer in writers:
        if not writer.stop(timeout):
            logger.warning("the writer of %s did not drain in time", writer.alias)


def _forget_after_fork() -> None:
    # Threads do not survive a fork: a child's first call makes its own writer.
    global _lock
    _lock = threading.Lock()
    _writers.clear()


atexit.register(stop_all)
os.register_at_fork(after_in_child=_forget_after_fork)
