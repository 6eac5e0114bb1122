"""Child runs that a first-party tool starts, and that may wait for a person.

A handler calls :func:`run_child` and returns its text; when the child pauses, the parent's call is
parked, its run ends interrupted, and resuming the thread continues from the innermost child.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from uuid import UUID

from agents.choices import RunState
from agents.errors import KeyDead
from agents.lifecycle import current_boot_id
from agents.models import Agent, ParkedCall, Run, RunInitiator
from agents.services.locks import lock_slots
from agents.services.runs import Principal, RunStart, end_run
from chat.models import Thread
from chat.services.execution import Ending, executor
from chat.services.jobs import Job, Role, UserMessage, begin_job, role_of
from chat.services.relay import result_of
from chat.services.stores import control, read

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChildResult:
    """What the call returns: the child's last message, or why there is none."""

    text: str
    is_error: bool = False
    #: Set when the child waits for a person: the call is parked under this id.
    handoff_id: UUID | None = None


async def run_child(
    *, parent_run_id: UUID, agent_id: UUID, tool_name: str, prompt: str
) -> ChildResult:
    """Run *agent_id* on *prompt* for a running parent, in this process, and wait for its end.

    The child has its own session and key; thread, principal and environment are the parent's. It
    is cancelled when the caller is. Raises KeyDead when the parent does not run any more, and the
    refusals of beginning a run.
    """
    plan = await read(_plan, parent_run_id, agent_id)
    job = await control(lambda: _begin(plan, prompt), full=True, abandoned=_unbegin)
    ending = await _execute(job)
    if ending.state == RunState.INTERRUPTED:
        parked = await control(
            lambda: ParkedCall.objects.create(
                run_id=parent_run_id, child=job.run, tool_name=tool_name[:64]
            )
        )
        return ChildResult("", handoff_id=parked.id)
    text, is_error = result_of(ending)
    return ChildResult(text, is_error)


def _unbegin(job: Job) -> None:
    """End a child whose caller went away while it began; a sweep tells it. A step."""
    end_run(run_id=job.run.id, boot_id=current_boot_id(), state=RunState.CANCELLED)


async def _execute(job: Job) -> Ending:
    launched = asyncio.create_task(_launch(job))
    try:
        return await asyncio.shield(launched)
    except asyncio.CancelledError:
        executor.cancel(job.run.id)
        await asyncio.wait({launched})
        raise


async def _launch(job: Job) -> Ending:
    return await (await executor.launch(job))


@dataclass(frozen=True, slots=True)
class _Plan:
    parent: Run
    principal: Principal
    role: Role
    client_thread_id: str


def _plan(parent_run_id: UUID, agent_id: UUID) -> _Plan:
    parent = Run.objects.get(id=parent_run_id)
    agent = Agent.objects.get(id=agent_id, organization_id=parent.organization_id)
    initiator = RunInitiator.objects.get(run=parent)
    thread = Thread.objects.get(id=parent.thread_id)
    return _Plan(
        parent,
        Principal(initiator.kind, initiator.issuer, initiator.subject),
        role_of(agent, parent.environment_id),
        thread.client_id,
    )


def _begin(plan: _Plan, prompt: str) -> Job:
    parent = plan.parent
    lock_slots(
        (agent_id, parent.environment_id) for agent_id in (parent.agent_id, plan.role.agent.id)
    )
    if not Run.objects.filter(
        id=parent.id, state=RunState.RUNNING, cancel_requested=False
    ).exists():
        raise KeyDead
    run_id, session_id = uuid.uuid4(), uuid.uuid4()
    start = RunStart(
        organization_id=parent.organization_id,
        agent_id=plan.role.agent.id,
        environment_id=parent.environment_id,
        thread_id=parent.thread_id,
        session_id=session_id,
        client_run_id=str(run_id),
        request_digest="",
        boot_id=current_boot_id(),
        principal=plan.principal,
        definition=plan.role.pinned,
        parent=parent,
        run_id=run_id,
    )
    return begin_job(
        start,
        plan.role,
        plan.client_thread_id,
        message=UserMessage(str(uuid.uuid4()), prompt),
    )
