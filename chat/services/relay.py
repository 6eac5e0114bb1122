"""One run's work: its children first, then the runtime, whose frames become log entries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson
from django.db import Error as DatabaseError

from agents import content_store
from agents.choices import ParkedState, RunState
from agents.digests import keyed_digest
from agents.errors import DamagedContent, DomainError
from agents.models import ParkedCall
from chat.runtime.wire import (
    EventFrame,
    FinalFrame,
    MessageFrame,
    Resolution,
    RunRequest,
    ToolDefinition,
)
from chat.selectors.log import MODEL_MESSAGE, model_heard_the_user, model_history
from chat.selectors.resolutions import RESULT, STOPPED, resolutions_for, returned
from chat.services import log
from chat.services.events import Brackets
from chat.services.jobs import Job, WaitingJob
from chat.services.runtime_client import RuntimeLost, frames
from chat.services.starts import begin_log
from chat.services.stores import content, control, read
from chat.services.terminal import place_of

if TYPE_CHECKING:
    from chat.services.execution import Ending, Executor


class Reparked(Exception):
    """Children of a resumed run wait for a person again: (parked call, child's run id)."""

    def __init__(self, waiting: Sequence[tuple[ParkedCall, UUID]]) -> None:
        super().__init__(len(waiting))
        self.waiting = waiting


class Relay:
    """Drives one run. :meth:`work` may be cancelled at any time; :meth:`close` then tidies up."""

    def __init__(self, job: Job, executor: Executor) -> None:
        self._job = job
        self._executor = executor
        self._log = log.RunLog(place_of(job.run))
        self._brackets = Brackets()

    @property
    def text(self) -> str:
        """The last assistant message so far."""
        return "".join(self._brackets.last_text)

    async def work(self, seconds: float) -> FinalFrame:
        """Run to the runtime's last word.

        Raises Reparked, RuntimeUnavailable, RuntimeLost, DamagedContent, or LogClosed when the
        run's end was told by somebody else.
        """
        ends = time.monotonic() + seconds
        answers = await self._children()
        history = await read(_history, self._job)
        prompt = await read(_prompt, self._job)
        known = await read(resolutions_for, self._job.run.session_id, self._job.run.id)
        resolutions = {r.tool_call_id: r for r in [*known, *answers]}
        request = self._request(
            history, prompt, list(resolutions.values()), ends - time.monotonic()
        )
        final: FinalFrame | None = None
        async with aclosing(frames(request)) as stream:
            async for batch in stream:
                for frame in batch:
                    if final is not None:
                        raise RuntimeLost
                    if isinstance(frame, FinalFrame):
                        final = frame
                    else:
                        self._put(frame)
                await self._log.room()
        await self._log.flush()
        if final is None:
            raise RuntimeLost
        return final

    def _request(
        self,
        history: list[dict[str, Any]],
        prompt: str | None,
        resolutions: list[Resolution],
        seconds: float,
    ) -> RunRequest:
        job = self._job
        return RunRequest(
            run_id=str(job.run.id),
            thread_id=str(job.run.thread_id),
            agent_name=job.role.agent.name,
            instructions=job.role.instructions,
            model=job.started.model.slug,
            output_limit=job.started.model.output_limit,
            key=job.started.key_text,
            tools=[
                ToolDefinition(
                    name=tool.name, description=tool.description, input_schema=tool.input_schema
                )
                for tool in job.tools
            ],
            history=history,
            prompt=prompt,
            resolutions=resolutions,
            deadline_seconds=max(seconds, 1.0),
        )

    def _put(self, frame: EventFrame | MessageFrame) -> None:
        if isinstance(frame, MessageFrame):
            kept = {"message": frame.message, "replaces": max(frame.replaces, 0)}
            self._log.put(MODEL_MESSAGE, log.encode(kept))
            return
        event = self._brackets.accept(frame.event)
        if event is not None:
            self._log.put(event["type"], log.encode(event))

    async def close(self) -> None:
        """End what is open, so that the terminal event may follow; as far as the log takes it."""
        try:
            for event in self._brackets.close():
                self._log.put(event["type"], log.encode(event))
            await self._log.flush()
        except (log.LogClosed, DomainError, DatabaseError):
            return

    # --- children ---------------------------------------------------------------------------

    async def _children(self) -> list[Resolution]:
        """Resume the children that this run waits for, side by side; their results."""
        if not self._job.children:
            return []
        results = await asyncio.gather(*(self._child(child) for child in self._job.children))
        again = [
            (child.call, child.job.run.id)
            for child, result in zip(self._job.children, results, strict=True)
            if result is None and child.job is not None
        ]
        if again:
            raise Reparked(again)
        return [result for result in results if result is not None]

    async def _child(self, waiting: WaitingJob) -> Resolution | None:
        """The child's result as the parent's call gets it; None when it waits again."""
        call = waiting.call
        if waiting.job is None:
            text, is_error = STOPPED.format(waiting.code.replace("_", " ")), True
        else:
            await begin_log(waiting.job)
            ending = await asyncio.shield(self._executor.execute(waiting.job))
            if ending.state == RunState.INTERRUPTED:
                return None
            text, is_error = result_of(ending)
        await store_result(call, self._job.run.organization_id, text, is_error=is_error)
        return returned(call.tool_call_id, text, is_error=is_error)


def result_of(ending: Ending) -> tuple[str, bool]:
    """What a child's end means to the call that started it: text, and whether it is an error."""
    if ending.state == RunState.SUCCEEDED and ending.text.strip():
        return ending.text, False
    if ending.state == RunState.SUCCEEDED:
        return "The agent finished without an answer.", True
    why = "it was stopped" if ending.state == RunState.CANCELLED else ending.code or "it failed"
    return STOPPED.format(why.replace("_", " ")), True


async def store_result(
    call: ParkedCall, organization_id: UUID, text: str, *, is_error: bool
) -> None:
    """Keep a parked call's result, so that a crash of its parent does not lose it."""
    digest = await content(lambda: content_store.put(organization_id, RESULT, text.encode()))
    await control(
        lambda: ParkedCall.objects.filter(id=call.id, state=ParkedState.WAITING).update(
            state=ParkedState.DONE, outcome_digest=digest, outcome_is_error=is_error
        )
    )


def history_digest(history: list[dict[str, Any]]) -> str:
    """Keyed digest of a model history, whatever the order of its members' names."""
    return keyed_digest(orjson.dumps(history, option=orjson.OPT_SORT_KEYS), "history")


def _prompt(job: Job) -> str | None:
    """The new user turn; None when the history ends with it already."""
    if job.message is None:
        return None
    heard = job.message.again and model_heard_the_user(job.run.session_id)
    return None if heard else job.message.text


def _history(job: Job) -> list[dict[str, Any]]:
    """The history that the run starts from; a resumed run's is compared with its pause."""
    history = model_history(job.run.organization_id, job.run.session_id)
    old = job.resumes
    if old is not None and old.history_digest and old.history_digest != history_digest(history):
        raise DamagedContent
    return history
