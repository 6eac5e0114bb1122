"""The runs that this process owns: one task each, independent of any HTTP request.

The control row decides how a run ends, by one conditional update; only who wins it tells the end.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from django.db import Error as DatabaseError

from agents.choices import RunState
from agents.errors import DamagedContent, DomainError
from agents.lifecycle import current_boot_id
from agents.models import Run
from agents.services.runs import RUN_LIFETIME, end_run
from agents.services.sweeps import INTERRUPTED_BY_RESTART
from chat.codes import known_code
from chat.errors import RuntimeUnavailable
from chat.runtime.wire import FinalFrame
from chat.services import log
from chat.services.fences import FenceWatch, Verdict
from chat.services.jobs import Job
from chat.services.pausing import are_call_ids, pause
from chat.services.relay import Relay, Reparked
from chat.services.runtime_client import RuntimeLost
from chat.services.starts import tell_start
from chat.services.stores import control, read
from chat.services.terminal import settle

logger = logging.getLogger(__name__)

#: Seconds that open runs get at shutdown.
SHUTDOWN_SECONDS = 3.0
#: Attempts to write an end while the store does not answer, a second apart.
END_ATTEMPTS = 5

Reason = Literal["cancel", "lost", "deadline", "shutdown"]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, for whoever waits in this process; ``text`` is its last message."""

    state: RunState
    code: str = ""
    text: str = ""


class _Active:
    """One run's task."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.reason: Reason | None = None
        self.work: asyncio.Task[FinalFrame] | None = None
        self.ending: asyncio.Task[Ending] | None = None
        self.first_seq: int | None = None

    def stop(self, reason: Reason) -> None:
        """Let the work end; the first reason counts."""
        if self.reason is None:
            self.reason = reason
            if self.work is not None:
                self.work.cancel()


class Executor:
    """Owns runs until they end. One for each process; use :data:`executor`."""

    def __init__(self) -> None:
        self._active: dict[UUID, _Active] = {}
        self._watch: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch over the runs that this process owns, or owned; again and again does nothing."""
        if self._watch is None or self._watch.done():
            watch = FenceWatch(self._active.keys, self._judge, self._go_blind)
            self._watch = asyncio.create_task(watch.watch(), name="run-fences")

    def owns(self, run_id: UUID) -> bool:
        return run_id in self._active

    def first_seq(self, run_id: UUID) -> int | None:
        """The number of the first entry of a run that this process executes, if it knows it."""
        active = self._active.get(run_id)
        return None if active is None else active.first_seq

    async def launch(self, job: Job) -> asyncio.Task[Ending]:
        """Tell the start of a run that has begun, and execute it. Returns its task.

        The runs of *job*'s children begin with it and wait for their turn.
        """
        for each in job.whole_tree():
            self._active[each.run.id] = _Active(each)
        self.start()
        try:
            self._active[job.run.id].first_seq = await tell_start(job)
        except Exception as error:
            logger.error("run %s did not start: %s", job.run.id, type(error).__name__)  # noqa: TRY400
            await self._give_up(job)
            raise
        return self.execute(job)

    def execute(self, job: Job) -> asyncio.Task[Ending]:
        """Execute a run whose start is told, or a child's that is told when its turn comes."""
        active = self._active[job.run.id]
        active.ending = asyncio.create_task(self._run(active), name=f"run-{job.run.id}")
        return active.ending

    def cancel(self, run_id: UUID) -> None:
        """Stop a run of this process at once; others see the flag in its row."""
        active = self._active.get(run_id)
        if active is not None:
            active.stop("cancel")

    async def shutdown(self) -> None:
        """End every run of this process, as a restart would, and tell it."""
        running = [a for a in self._active.values() if a.ending is not None]
        for active in list(self._active.values()):
            active.stop("shutdown")
        endings = [a.ending for a in running if a.ending is not None]
        if endings:
            await asyncio.wait(endings, timeout=SHUTDOWN_SECONDS)
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait({self._watch})
            self._watch = None
        self._active.clear()

    # --- one run ----------------------------------------------------------------------------

    async def _run(self, active: _Active) -> Ending:
        job = active.job
        relay = Relay(job, self)
        try:
            ending = await self._work_and_end(active, relay)
        except Exception as error:  # noqa: BLE001 - a run must end whatever breaks
            logger.error("run %s broke: %s", job.run.id, type(error).__name__)  # noqa: TRY400
            ending = await self._end(job, RunState.FAILED, "internal")
        finally:
            for each in job.whole_tree():
                self._active.pop(each.run.id, None)
        return ending

    async def _work_and_end(self, active: _Active, relay: Relay) -> Ending:
        job = active.job
        left = RUN_LIFETIME.total_seconds() - 1
        active.work = asyncio.create_task(relay.work(left), name=f"work-{job.run.id}")
        if active.reason is not None:
            active.work.cancel()
        done, _ = await asyncio.wait({active.work}, timeout=left)
        if not done:
            active.stop("deadline")
            await asyncio.wait({active.work})
        await self._end_children(job)
        if active.work.cancelled():
            return await self._end_stopped(active, relay)
        error = active.work.exception()
        if error is None:
            return await self._end_finished(job, relay, active.work.result())
        if isinstance(error, log.LogClosed):
            await settle(job.run.id)
            return await read(_ending_of, job.run.id)
        if isinstance(error, Reparked):
            return await self._end_paused(job, relay, FinalFrame(outcome="interrupt"), error)
        await relay.close()
        return await self._end(job, RunState.FAILED, _code_of(error, job))

    async def _end_finished(self, job: Job, relay: Relay, final: FinalFrame) -> Ending:
        await relay.close()
        if final.outcome == "interrupt":
            return await self._end_paused(job, relay, final, None)
        if final.outcome == "success":
            return await self._end(job, RunState.SUCCEEDED, final=final, text=relay.text)
        return await self._end(job, RunState.FAILED, known_code(final.code), final=final)

    async def _end_stopped(self, active: _Active, relay: Relay) -> Ending:
        job, reason = active.job, active.reason
        await relay.close()
        if reason == "lost":  # Unless the store was silent only, somebody else ended it.
            return await self._end(job, RunState.FAILED, "store_unavailable")
        if reason == "deadline":
            return await self._end(job, RunState.FAILED, "deadline")
        if reason == "cancel":
            return await self._end(job, RunState.CANCELLED)
        return await self._end(job, RunState.FAILED, INTERRUPTED_BY_RESTART)

    async def _end_paused(
        self, job: Job, relay: Relay, final: FinalFrame, reparked: Reparked | None
    ) -> Ending:
        """Pause, unless somebody ended or cancelled the run meanwhile, or nothing waits."""
        if not are_call_ids(final):
            return await self._end(job, RunState.FAILED, "tool_protocol", final=final)
        if await pause(job, final, reparked):
            await settle(job.run.id)
            return Ending(RunState.INTERRUPTED)
        ending = await read(_ending_of, job.run.id)
        if ending.state == RunState.RUNNING:
            cancelled = await read(_cancel_requested, job.run.id)
            if cancelled:
                return await self._end(job, RunState.CANCELLED, final=final)
            return await self._end(job, RunState.FAILED, "approval_missing", final=final)
        await settle(job.run.id)
        return ending

    async def _end(
        self,
        job: Job,
        state: RunState,
        code: str = "",
        *,
        final: FinalFrame | None = None,
        text: str = "",
    ) -> Ending:
        """Win the end and tell it; if somebody else won, tell theirs."""
        usage = final.usage if final is not None else None
        for attempt in range(END_ATTEMPTS):
            try:
                won = await control(
                    lambda: end_run(
                        run_id=job.run.id,
                        boot_id=current_boot_id(),
                        state=state,
                        code=code,
                        input_tokens=usage.input_tokens if usage else 0,
                        output_tokens=usage.output_tokens if usage else 0,
                    )
                )
                await settle(job.run.id)
            except (DomainError, log.LogClosed, DatabaseError) as error:
                name = type(error).__name__
                logger.warning("the end of run %s was not written: %s", job.run.id, name)
                if attempt == END_ATTEMPTS - 1:
                    return Ending(RunState.FAILED, "store_unavailable")
                await asyncio.sleep(1)
            else:
                return Ending(state, code, text) if won else await read(_ending_of, job.run.id)
        raise AssertionError  # the loop returns

    async def _end_children(self, job: Job) -> None:
        """Children whose turn never came, or that still run, go down with their parent."""
        for child in job.children:
            if child.job is None:
                continue
            active = self._active.get(child.job.run.id)
            if active is None:
                continue
            active.stop("cancel")
            if active.ending is None:
                self.execute(child.job)
            if active.ending is not None:
                await asyncio.wait({active.ending})

    async def _give_up(self, job: Job) -> None:
        for each in job.whole_tree():
            await self._end(each, RunState.FAILED, "store_unavailable")
            self._active.pop(each.run.id, None)

    # --- fences -----------------------------------------------------------------------------

    def _judge(self, verdict: Verdict) -> None:
        judged = self._active.get(verdict.run_id)
        if judged is not None:
            judged.stop("lost" if verdict.lost else "cancel")

    def _go_blind(self) -> None:
        for active in list(self._active.values()):
            active.stop("lost")


executor = Executor()


def _code_of(error: BaseException, job: Job) -> str:
    if isinstance(error, RuntimeUnavailable | DamagedContent):
        return error.code
    if isinstance(error, RuntimeLost):
        return "runtime_lost"
    if isinstance(error, DomainError):
        return error.code
    logger.error("run %s failed: %s", job.run.id, type(error).__name__, exc_info=error)
    return "internal"


def _ending_of(run_id: UUID) -> Ending:
    run = Run.objects.get(id=run_id)
    return Ending(RunState(run.state), run.error_code)


def _cancel_requested(run_id: UUID) -> bool:
    return Run.objects.filter(id=run_id, cancel_requested=True).exists()
