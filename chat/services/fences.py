"""Which of this process's runs it may go on with, and which nobody executes any more.

One thread of its own asks, every 200 ms: readers, edits and slow commits cannot hold it up.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from django.db import connections

from agents.choices import RunState
from agents.lifecycle import OwnThread, current_boot_id
from agents.models import Run
from agents.services.runs import end_run
from chat.services.stores import control
from chat.services.terminal import settle

logger = logging.getLogger(__name__)

T = TypeVar("T")

INTERVAL = 0.2
#: Seconds without an answer of the store after which others may have taken the runs over.
BLIND_SECONDS = 5.0
#: How often runs are looked for that this process began and nobody executes.
STRAY_INTERVAL = 1.0
#: Seconds that such a run is left alone: its start or its end may still be under way.
STRAY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """``lost``: the run was ended by somebody else. ``cancel``: its owner shall stop it."""

    run_id: UUID
    lost: bool = False
    cancel: bool = False


def verdicts(run_ids: Iterable[UUID], boot_id: UUID) -> list[Verdict]:
    """Of these runs, those that may not go on. A child goes down with its parent."""
    wanted = set(run_ids)
    rows = Run.objects.filter(id__in=wanted, boot_id=boot_id, state=RunState.RUNNING)
    found = []
    owned = set()
    for run in rows.select_related("parent").only(
        "id", "cancel_requested", "parent__state", "parent__cancel_requested"
    ):
        owned.add(run.id)
        parent = run.parent
        orphan = parent is not None and (
            parent.state != RunState.RUNNING or parent.cancel_requested
        )
        if run.cancel_requested or orphan:
            found.append(Verdict(run.id, cancel=True))
    found.extend(Verdict(run_id, lost=True) for run_id in wanted - owned)
    return found


def running_runs(boot_id: UUID) -> set[UUID]:
    """The runs that this boot says are running. A selector."""
    rows = Run.objects.filter(boot_id=boot_id, state=RunState.RUNNING)
    return set(rows.values_list("id", flat=True))


class FenceWatch:
    """Asks the store about the runs of a process for as long as it lives.

    *owned* gives the runs that are executed here; *judge* is told a verdict about one of them,
    *blind* that the store has not answered for BLIND_SECONDS.
    """

    def __init__(
        self,
        owned: Callable[[], Collection[UUID]],
        judge: Callable[[Verdict], None],
        blind: Callable[[], None],
    ) -> None:
        self._owned = owned
        self._judge = judge
        self._blind = blind
        self._answered = time.monotonic()
        self._looked = -math.inf
        #: When each run was first seen that runs and is executed by nobody.
        self._strays: dict[UUID, float] = {}

    async def watch(self) -> None:
        """Until it is cancelled."""
        thread = OwnThread("run-fences")
        self._answered = time.monotonic()
        try:
            while True:
                await asyncio.sleep(INTERVAL)
                try:
                    await self._look(thread)
                except Exception as error:  # noqa: BLE001 - the next look may succeed
                    logger.warning("fences were not checked: %s", type(error).__name__)
                    if self._owned() and time.monotonic() - self._answered >= BLIND_SECONDS:
                        self._blind()
        finally:
            with suppress(TimeoutError):
                await _asked(thread, connections.close_all, 1.0)
            thread.close()

    async def _look(self, thread: OwnThread) -> None:
        boot_id, owned = current_boot_id(), list(self._owned())
        if owned:
            for verdict in await _asked(thread, lambda: verdicts(owned, boot_id), BLIND_SECONDS):
                self._judge(verdict)
        if time.monotonic() - self._looked >= STRAY_INTERVAL:
            self._looked = time.monotonic()
            running = await _asked(thread, lambda: running_runs(boot_id), BLIND_SECONDS)
            await self._end_strays(running.difference(self._owned()), boot_id)
        self._answered = time.monotonic()

    async def _end_strays(self, found: set[UUID], boot_id: UUID) -> None:
        """Fail what runs here by its row only: the commit that began or ended it was unclear."""
        now = time.monotonic()
        self._strays = {run_id: self._strays.get(run_id, now) for run_id in found}
        for run_id, since in list(self._strays.items()):
            if now - since < STRAY_SECONDS:
                continue
            logger.error("run %s was executed by nobody", run_id)
            await control(
                lambda run_id=run_id: end_run(  # type: ignore[misc]
                    run_id=run_id,
                    boot_id=boot_id,
                    state=RunState.FAILED,
                    code="store_unavailable",
                )
            )
            await settle(run_id)


async def _asked(thread: OwnThread, question: Callable[[], T], seconds: float) -> T:
    """Ask in *thread*; raises TimeoutError after *seconds*."""
    async with asyncio.timeout(seconds):
        return await thread.run(lambda: _with_connection(question))


def _with_connection(question: Callable[[], T]) -> T:
    try:
        return question()
    except Exception:
        connections.close_all()  # The next question makes a new one.
        raise
