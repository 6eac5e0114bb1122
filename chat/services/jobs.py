"""What a run is made of, from the plan to the task that executes it.

A plan is read first, outside any transaction: definitions are opened and verified there. The
commit begins the whole tree of runs in one transaction; the jobs then carry keys that exist
nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import connections, transaction

from agents.choices import ApprovalState, ParkedState, RunState
from agents.errors import DamagedContent, DomainError, NotPublished
from agents.gateways.mcp_listing import ToolDefinition, tool_definitions
from agents.lifecycle import current_boot_id
from agents.models import Agent, Approval, ParkedCall, Run
from agents.selectors.rights import rights_of_text
from agents.services.approvals import bind_approvals
from agents.services.locks import Slot
from agents.services.runs import PinnedDefinition, Principal, RunStart, StartedRun, begin_run
from definitions.selectors import open_pinned, published

#: Levels of parked calls that are followed; delegation goes three deep.
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A user turn; ``again`` when the log holds it and its run came to nothing."""

    id: str
    text: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class Role:
    """What an agent runs now: its published definition, opened and verified."""

    agent: Agent
    pinned: PinnedDefinition
    instructions: str


def role_of(agent: Agent, environment_id: UUID) -> Role:
    """Read and open what is published. A selector. Raises NotPublished or DamagedContent."""
    live = published(agent.id, environment_id)
    if live is None:
        raise NotPublished
    definition = open_pinned(agent.organization_id, live.pinned)
    return Role(agent, live.pinned, definition.instructions)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A parked call of an interrupted run, and how its child goes on.

    ``branch`` is None when the child cannot go on; ``code`` says why.
    """

    call: ParkedCall
    branch: Branch | None
    code: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """An interrupted run, what its agent runs now, and the children that it waits for."""

    old: Run
    role: Role
    waiting: tuple[Waiting, ...] = ()

    def slots(self) -> Iterator[Slot]:
        """The agents of the whole branch, each with its environment."""
        yield self.old.agent_id, self.old.environment_id
        for waiting in self.waiting:
            if waiting.branch is not None:
                yield from waiting.branch.slots()


def plan_branch(old: Run, role: Role, depth: int = 0) -> Branch:
    """Follow the parked calls of an interrupted run down to those that wait for nobody."""
    calls = ParkedCall.objects.filter(run=old, state=ParkedState.WAITING)
    return Branch(
        old,
        role,
        tuple(
            _plan_waiting(call, depth + 1)
            for call in calls.select_related("child__agent").order_by("created_at")
        ),
    )


def _plan_waiting(call: ParkedCall, depth: int) -> Waiting:
    child = call.child
    if child.state != RunState.INTERRUPTED or depth > MAX_DEPTH:
        return Waiting(call, None, child.error_code or "run_ended")
    try:
        role = role_of(child.agent, child.environment_id)
        return Waiting(call, plan_branch(child, role, depth))
    except DomainError as error:
        return Waiting(call, None, error.code)


@dataclass(frozen=True, slots=True)
class Job:
    """A run that has begun, with everything that its task needs."""

    started: StartedRun
    role: Role
    tools: tuple[ToolDefinition, ...]
    client_thread_id: str
    message: UserMessage | None = None
    resumes: Run | None = None
    children: tuple[WaitingJob, ...] = ()
    #: Title and display name of a thread that this run is the first of.
    title: str = ""
    display_name: str = field(default="", repr=False)

    @property
    def run(self) -> Run:
        return self.started.run

    def whole_tree(self) -> Iterator[Job]:
        yield self
        for child in self.children:
            if child.job is not None:
                yield from child.job.whole_tree()


@dataclass(frozen=True, slots=True)
class WaitingJob:
    call: ParkedCall
    job: Job | None
    code: str = ""


def begin_job(
    start: RunStart,
    role: Role,
    client_thread_id: str,
    *,
    message: UserMessage | None = None,
    title: str = "",
    display_name: str = "",
) -> Job:
    """Begin one run. A step; raises what begin_run raises."""
    started = begin_run(start)
    with connections["default"].cursor() as cursor:
        rights = rights_of_text(cursor, started.key_text, everything=True)
    return Job(
        started,
        role,
        tuple(tool_definitions(rights)),
        client_thread_id,
        message=message,
        resumes=start.resumes,
        title=title,
        display_name=display_name,
    )


def begin_branch(
    branch: Branch,
    *,
    principal: Principal,
    client_thread_id: str,
    client_run_id: str,
    request_digest: str,
    parent: Run | None = None,
    message: UserMessage | None = None,
) -> Job:
    """Begin the run that resumes an interrupted one, and those of the children it waits for.

    A step. Each run is bound to what was approved in the run it resumes, unless another version
    asked for it than the one that runs now: that is void. A child that cannot begin becomes a
    failed call of its parent; only the branch's own refusal is raised.
    """
    old = branch.old
    start = RunStart(
        organization_id=old.organization_id,
        agent_id=old.agent_id,
        environment_id=old.environment_id,
        thread_id=old.thread_id,
        session_id=old.session_id,
        client_run_id=client_run_id,
        request_digest=request_digest,
        boot_id=current_boot_id(),
        principal=principal,
        definition=branch.role.pinned,
        resumes=old,
        parent=parent,
    )
    job = begin_job(start, branch.role, client_thread_id, message=message)
    earlier_runs = _and_what_it_resumed(old)
    Approval.objects.filter(
        run_id__in=earlier_runs, state=ApprovalState.APPROVED, resume_run__isnull=True
    ).exclude(definition_digest=branch.role.pinned.digest).update(
        state=ApprovalState.VOID, void_reason="superseded"
    )
    for earlier in earlier_runs:
        bind_approvals(interrupted_run_id=earlier, resume_run=job.run)
    children = tuple(
        _begin_waiting(waiting, job.run, principal, client_thread_id) for waiting in branch.waiting
    )
    return Job(
        job.started,
        job.role,
        job.tools,
        client_thread_id,
        message=message,
        resumes=old,
        children=children,
    )


def _begin_waiting(
    waiting: Waiting, parent: Run, principal: Principal, client_thread_id: str
) -> WaitingJob:
    if waiting.branch is None:
        return WaitingJob(waiting.call, None, waiting.code)
    try:
        with transaction.atomic():
            job = begin_branch(
                waiting.branch,
                principal=principal,
                client_thread_id=client_thread_id,
                client_run_id=f"resume-{waiting.branch.old.id}",
                request_digest="",
                parent=parent,
            )
    except DamagedContent:
        return WaitingJob(waiting.call, None, DamagedContent.code)
    except DomainError as error:
        return WaitingJob(waiting.call, None, error.code)
    return WaitingJob(waiting.call, job)


def _and_what_it_resumed(run: Run) -> Sequence[UUID]:
    """The run and the interrupted ones before it in the same turn and session."""
    chain, current = [run.id], run.resumes_id
    while current is not None and len(chain) < 100:
        chain.append(current)
        current = Run.objects.values_list("resumes_id", flat=True).get(id=current)
    return chain
