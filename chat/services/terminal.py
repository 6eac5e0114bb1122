"""How a run's end is told: composed from control rows, appended once, by whoever comes first.

Appending comes before the mark: a crash in between repeats the append, which then finds the end
told and does nothing. The other order could lose it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from agents.choices import ParkedState, RunState
from agents.errors import DamagedContent
from agents.models import Approval, ParkedCall, Run
from agents.services.containment import LIVE_APPROVALS, void_approvals
from agents.writer import get_writer
from chat.models import Thread
from chat.selectors.interrupts import interrupts_of
from chat.selectors.log import entry_of
from chat.services import log
from chat.services.stores import control, read
from chat.words import in_words

logger = logging.getLogger(__name__)

Event = tuple[str, bytes]


def place_of(run: Run) -> log.Place:
    return log.Place(run.organization_id, run.thread_id, run.session_id, run.id)


def compose(run: Run, client_thread_id: str) -> dict[str, Any]:
    """The terminal event of an ended run."""
    if run.state == RunState.FAILED:
        code = run.error_code or "internal"
        return {"type": "RUN_ERROR", "message": in_words(code), "code": code}
    outcome: dict[str, Any] = {"type": "success"}
    if run.state == RunState.CANCELLED:
        outcome = {"type": "cancelled"}
    elif run.state == RunState.INTERRUPTED:
        interrupts = interrupts_of(run)
        if not interrupts:
            # Nothing that a person could be shown: what it asked for is unreadable.
            code = "content_damaged"
            return {"type": "RUN_ERROR", "message": in_words(code), "code": code}
        outcome = {"type": "interrupt", "interrupts": interrupts}
    event: dict[str, Any] = {
        "type": "RUN_FINISHED",
        "threadId": client_thread_id,
        "runId": run.client_run_id,
        "outcome": outcome,
    }
    if run.input_tokens or run.output_tokens:
        event["usage"] = [
            {
                "inputTokens": run.input_tokens,
                "outputTokens": run.output_tokens,
                "totalTokens": run.input_tokens + run.output_tokens,
            }
        ]
    return event


def _composed(run_id: UUID) -> tuple[Run, Event | None] | None:
    """The run and its terminal event; None for a run that still runs or whose end is told."""
    run = Run.objects.filter(id=run_id).exclude(state=RunState.RUNNING).first()
    if run is None or run.terminal_logged:
        return None
    thread = Thread.objects.filter(id=run.thread_id).first()
    if thread is None or thread.deleted_at is not None:
        return run, None
    event = compose(run, _thread_id_of(run, thread))
    return run, (event["type"], log.encode(event))


def _thread_id_of(run: Run, thread: Thread) -> str:
    """The thread's id as the run's own request spelled it, if that can be read."""
    if thread.client_id != str(thread.id):
        with suppress(DamagedContent):
            started = entry_of(run.organization_id, run.session_id, run.id, "RUN_STARTED")
            if started is not None:
                return str(started.data()["threadId"])
    return thread.client_id


def _settled(run_id: UUID) -> None:
    """The control side of an end: the mark, and nothing below it waits any more. A step."""
    Run.objects.filter(id=run_id, terminal_logged=False).update(terminal_logged=True)


async def settle(run_id: UUID) -> bool:
    """Tell the end of an ended run, unless it is told. Whether it has ended."""
    composed = await read(_composed, run_id)
    if composed is None:
        return await read(_has_ended, run_id)
    run, event = composed
    if run.state != RunState.INTERRUPTED:
        await control(lambda: abandon_children(run_id))
    if event is not None:
        await log.append(place_of(run), [event], "end")
    await control(lambda: _settled(run_id))
    return True


def _has_ended(run_id: UUID) -> bool:
    return Run.objects.filter(id=run_id).exclude(state=RunState.RUNNING).exists()


def abandon_children(run_id: UUID, reason: str = "parent_ended") -> None:
    """Void what waits below an ended run: parked calls and the approvals of their runs. A step."""
    below = [run_id]
    while below:
        ParkedCall.objects.filter(run_id__in=below, state=ParkedState.WAITING).update(
            state=ParkedState.VOID
        )
        below = list(
            Run.objects.filter(parent_id__in=below, state=RunState.INTERRUPTED).values_list(
                "id", flat=True
            )
        )
        if Approval.objects.filter(run_id__in=below, state__in=LIVE_APPROVALS).exists():
            void_approvals(reason, run_id__in=below)


async def settle_session(session_id: UUID) -> None:
    """Tell every untold end in a session, oldest first, so that a new run may begin in it."""
    for run_id in await read(untold_runs, session_id):
        await settle(run_id)


def untold_runs(session_id: UUID) -> list[UUID]:
    """Ended runs of a session whose end is not told yet, oldest first. A selector."""
    runs = Run.objects.filter(session_id=session_id, terminal_logged=False)
    return list(
        runs.exclude(state=RunState.RUNNING).order_by("created_at").values_list("id", flat=True)
    )


def _abandon(run_id: UUID, _cursor: CursorWrapper) -> None:
    abandon_children(run_id)


def _mark(run_id: UUID, _cursor: CursorWrapper) -> None:
    _settled(run_id)


def sweep_ends() -> int:
    """Tell the ends that a crash or a containment left untold. A sweep; runs in a thread.

    An end that cannot be told now stands in the way of no other.
    """
    told = 0
    untold = Run.objects.filter(terminal_logged=False).exclude(state=RunState.RUNNING)
    for run_id in list(untold.order_by("created_at").values_list("id", flat=True)):
        try:
            told += _tell(run_id)
        except Exception as error:  # noqa: BLE001 - the next round tries it again
            logger.warning("the end of run %s was not told: %s", run_id, type(error).__name__)
    return told


def _tell(run_id: UUID) -> bool:
    composed = _composed(run_id)
    if composed is None:
        return False
    run, event = composed
    writer = get_writer("default")
    if run.state != RunState.INTERRUPTED:
        writer.run_sync(partial(_abandon, run_id))
    if event is not None:
        log.append_sync(place_of(run), [event], "end")
    writer.run_sync(partial(_mark, run_id))
    return True
