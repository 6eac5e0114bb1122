"""One process's life: its boot row and heartbeat, and the sweeps that it runs for everybody.

Web processes and workers enter :func:`booted`; what they own (runs, open calls) names the boot, so
that others can tell when they are gone.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar
from uuid import UUID

from django.db import connections

from agents import content_store, digests, keyring
from agents.services.boots import HEARTBEAT_SECONDS, beat, end_boot, observe_as, start_boot
from agents.services.sweeps import sweep_control
from agents.writer import get_writer, stop_all

logger = logging.getLogger(__name__)

T = TypeVar("T")

SWEEP_SECONDS = 30.0
#: How often blobs that nobody names are looked for.
BLOB_SWEEP_SECONDS = 3_600.0

_boot_id: UUID | None = None
_last_beat = -math.inf


def current_boot_id() -> UUID:
    """The boot of this process. Raises RuntimeError when it has none."""
    if _boot_id is None:
        msg = "this process has no boot: it must run inside lifecycle.booted()"
        raise RuntimeError(msg)
    return _boot_id


def heartbeat_age() -> float:
    """Seconds since this process's heartbeat was last committed; infinite before the first."""
    return time.monotonic() - _last_beat


@contextmanager
def booted(role: str = "web") -> Iterator[UUID]:
    """Be a boot: write the row, keep it fresh from a thread, drain the writers and end it.

    Enter and leave it outside any transaction and off the event loop. Secrets are warm inside.
    Raises KeyringProblem, having written nothing, when the key ring does not fit the databases.
    """
    global _boot_id, _last_beat
    keyring.check_keyring()
    digests.warm()
    boot_id = start_boot(role=role).id
    _boot_id, _last_beat = boot_id, time.monotonic()
    observe_as(boot_id)
    stopping = threading.Event()
    heart = threading.Thread(target=_beat_until, args=(stopping, boot_id), name="heartbeat")
    heart.daemon = True
    heart.start()
    try:
        yield boot_id
    finally:
        stopping.set()
        heart.join(2 * HEARTBEAT_SECONDS)
        stop_all()  # What was queued belongs to this boot: it is written before the boot ends.
        end_boot(boot_id)
        observe_as(None)
        _boot_id, _last_beat = None, -math.inf


def _write_beat(boot_id: UUID, alias: str = "default") -> bool:
    """A beat behind a group of calls that waits for somebody's lock would come too late.

    SQLite has one lock for everything: there the writer is the only one that never starves.
    """
    connection = connections[alias]
    if connection.vendor == "sqlite":
        return get_writer(alias).run_sync(lambda cursor: beat(cursor, boot_id))
    try:
        with connection.cursor() as cursor:
            return beat(cursor, boot_id)
    except Exception:
        connection.close()
        raise


def _beat_until(stopping: threading.Event, boot_id: UUID) -> None:
    global _last_beat
    while not stopping.wait(HEARTBEAT_SECONDS):
        try:
            alive = _write_beat(boot_id)
        except Exception as error:  # noqa: BLE001 - the next beat may succeed
            logger.warning("the heartbeat was not written: %s", type(error).__name__)
            continue
        if alive:
            _last_beat = time.monotonic()
        else:
            logger.error("boot %s was ended by another process", boot_id)
    connections.close_all()


# --- threads ----------------------------------------------------------------------------------


class OwnThread:
    """One thread with its own database connections, for work that may wait for the database."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, function: Callable[[], T]) -> T:
        """Run *function* there; calls wait for each other."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)

    def close(self) -> None:
        """Give the connections back once the work under way is done. Waits for nothing."""
        self._executor.submit(connections.close_all)
        self._executor.shutdown(wait=False)


# --- sweeps ---------------------------------------------------------------------------------

_sweeps: dict[str, Callable[[], object]] = {}
_next_blob_sweep = -math.inf


def register_sweep(name: str, sweep: Callable[[], object]) -> None:
    """Run *sweep* with every round, after the control store's own. Call it when the app is ready.

    It may run in several processes at once: each of its steps is a conditional update.
    """
    _sweeps[name] = sweep


def run_sweeps() -> None:
    """One round of everything. A sweep that fails is logged, by type, and hinders no other."""
    global _next_blob_sweep
    _sweep("control", sweep_control)
    for name, sweep in list(_sweeps.items()):
        _sweep(name, sweep)
    if time.monotonic() >= _next_blob_sweep:
        _next_blob_sweep = time.monotonic() + BLOB_SWEEP_SECONDS
        _sweep("blobs", content_store.delete_unreferenced)
    connections.close_all()


def _sweep(name: str, sweep: Callable[[], object]) -> None:
    try:
        sweep()
    except Exception as error:  # noqa: BLE001 - the other sweeps and the next round go on
        logger.error("sweep %s failed: %s", name, type(error).__name__)  # noqa: TRY400


@asynccontextmanager
async def sweeping() -> AsyncIterator[None]:
    """Run the sweeps once, then every SWEEP_SECONDS until the block ends, in a thread of theirs."""
    thread = OwnThread("sweeps")
    await thread.run(run_sweeps)
    task = asyncio.create_task(_sweep_for_ever(thread), name="sweeps")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        thread.close()


async def _sweep_for_ever(thread: OwnThread) -> None:
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        await thread.run(run_sweeps)
