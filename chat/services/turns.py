"""Start a run: a new user turn, or the decisions that let an interrupted one go on.

Reading and verifying comes first, then content (edits, reasons), then one control transaction
that records the decisions and begins every run. Whoever loses a race changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from agents import content_store
from agents.choices import ApprovalState, RunState
from agents.clock import database_now
from agents.errors import (
    ApprovalOpen,
    DamagedContent,
    NotFound,
    RunActive,
    RunIdReused,
)
from agents.lifecycle import current_boot_id
from agents.models import Agent, Approval, Run
from agents.services.runs import RunStart
from chat.errors import NothingToResume, NothingToRun
from chat.models import Thread
from chat.selectors.interrupts import open_approvals
from chat.selectors.log import user_message_ids
from chat.selectors.threads import last_run, thread_key
from chat.selectors.tokens import Caller
from chat.services.approvals import (
    Answer,
    Checked,
    Stored,
    decide_all,
    match_answers,
    refuse_ended,
    store_blobs,
)
from chat.services.execution import executor
from chat.services.jobs import (
    Branch,
    Job,
    Role,
    UserMessage,
    begin_branch,
    begin_job,
    plan_branch,
    role_of,
)
from chat.services.stores import content, control, read
from chat.services.terminal import abandon_children, settle_session
from chat.services.titles import title_from
from chat.services.tokens import DISPLAY_NAME

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Turn:
    """What a client asks of an agent. ``digest`` identifies the whole request."""

    client_thread_id: str
    client_run_id: str
    digest: str
    message: UserMessage | None = None
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True)
class Attached:
    """A run to follow."""

    organization_id: UUID
    session_id: UUID
    run_id: UUID
    client_run_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What was read and verified; nothing is decided yet."""

    caller: Caller
    turn: Turn
    thread_id: UUID
    role: Role
    answers: Sequence[Checked] = ()
    branch: Branch | None = None
    display_name: str = ""
    #: Record the decisions even if others stay open, and begin only when none does.
    one_by_one: bool = False


async def start_turn(caller: Caller, slug: str, turn: Turn) -> Attached:
    """Begin the run that *turn* asks for, or find the one that the same request began.

    Raises NotFound, RunIdReused, RunActive, ApprovalOpen, NothingToRun, NothingToResume,
    InterruptsUncovered, the refusals of a decision, and those of beginning a run.
    """
    planned = await read(_plan_turn, caller, slug, turn)
    if isinstance(planned, Attached):
        return planned
    attached = await carry_out(planned)
    assert attached is not None  # only decisions one by one may begin nothing
    return attached


async def carry_out(plan: Plan) -> Attached | None:
    """Store, commit and launch, to the end even when the client has gone meanwhile."""
    return await asyncio.shield(asyncio.create_task(_carry_out(plan)))


async def _carry_out(plan: Plan) -> Attached | None:
    stored = await content(lambda: store_blobs(plan.answers)) if plan.answers else []
    await settle_session(plan.thread_id)
    begun = await control(lambda: _commit(plan, stored), full=True)
    if isinstance(begun, Job):
        await executor.launch(begun)
        return attached_to(begun.run)
    return begun


def attached_to(run: Run) -> Attached:
    return Attached(run.organization_id, run.session_id, run.id, run.client_run_id)


# --- reading --------------------------------------------------------------------------------


def _plan_turn(caller: Caller, slug: str, turn: Turn) -> Plan | Attached:
    agent = Agent.objects.filter(organization_id=caller.organization_id, slug=slug).first()
    if agent is None or caller.agent_id not in {None, agent.id}:
        raise NotFound("There is no such agent.")
    thread_id = thread_key(caller.principal, turn.client_thread_id)
    thread = Thread.objects.filter(id=thread_id).first()
    if thread is not None:
        require_own(thread, caller, agent.id)
    same = _same_request(thread_id, turn)
    if same is not None:
        return same
    turn = _without_known_message(caller, thread, turn)
    answers = _known_answers(caller, thread, turn)
    if not answers and turn.message is None:
        raise NothingToRun
    refuse_ended(answers)
    role = role_of(agent, caller.environment_id)
    return Plan(
        caller,
        turn,
        thread_id,
        role,
        answers,
        _branch(thread_id, role) if _resumes(turn, answers) else None,
        _display_name(caller) if thread is None else "",
    )


def require_own(thread: Thread, caller: Caller, agent_id: UUID) -> None:
    """Raise NotFound unless the thread is the caller's, with this agent, and not erased."""
    mine = (
        thread.organization_id == caller.organization_id
        and thread.environment_id == caller.environment_id
        and thread.agent_id == agent_id
        and thread.principal_kind == caller.principal.kind
        and thread.principal_issuer == caller.principal.issuer
        and thread.principal_subject == caller.principal.subject
        and thread.deleted_at is None
    )
    if not mine:
        raise NotFound


def _same_request(session_id: UUID, turn: Turn) -> Attached | None:
    run = Run.objects.filter(session_id=session_id, client_run_id=turn.client_run_id).first()
    if run is None:
        return None
    if run.request_digest != turn.digest:
        raise RunIdReused
    return attached_to(run)


def _without_known_message(caller: Caller, thread: Thread | None, turn: Turn) -> Turn:
    """A client that resumes sends old messages again: what the log holds is not new."""
    if thread is None or turn.message is None:
        return turn
    if turn.message.id in user_message_ids(caller.organization_id, thread.id):
        return replace(turn, message=None)
    return turn


def _known_answers(caller: Caller, thread: Thread | None, turn: Turn) -> Sequence[Checked]:
    if not turn.answers:
        return ()
    if thread is None:
        if turn.message is None:
            raise NothingToResume
        return ()
    try:
        return match_answers(thread.id, caller.principal, turn.answers)
    except NothingToResume:
        if turn.message is None:
            raise
        return ()


def _resumes(turn: Turn, answers: Sequence[Checked]) -> bool:
    """Cancelling everything and saying something new is a new turn, not a resume."""
    return bool(answers) and (
        turn.message is None or any(answer.decision != "cancel" for answer in answers)
    )


def _branch(session_id: UUID, role: Role) -> Branch | None:
    waiting = last_run(session_id)
    if waiting is None or waiting.state != RunState.INTERRUPTED:
        return None  # the commit says which refusal that is
    return plan_branch(waiting, role)


def _display_name(caller: Caller) -> str:
    if not caller.display_name_digest:
        return ""
    try:
        name = content_store.get(caller.organization_id, DISPLAY_NAME, caller.display_name_digest)
    except DamagedContent:
        return ""
    return name.decode()


# --- committing -----------------------------------------------------------------------------


def _commit(plan: Plan, stored: Sequence[Stored]) -> Job | Attached | None:
    """Decide and begin, in the caller's transaction. A step."""
    caller, turn = plan.caller, plan.turn
    same = _same_request(plan.thread_id, turn)
    if same is not None:
        return same
    thread, is_new = _thread(plan)
    if stored:
        decide_all(
            thread_id=thread.id,
            principal=caller.principal,
            answers=stored,
            partly=plan.one_by_one,
        )
        if plan.one_by_one and open_approvals(thread.id).exists():
            return None
    waiting = open_approvals(thread.id)
    if waiting.exists():
        raise ApprovalOpen(interrupts=[str(a.id) for a in waiting])
    thread.active_at = database_now()
    thread.save(update_fields=["active_at"])
    last = last_run(thread.id)
    if _resumes(turn, plan.answers):
        return _resume(plan, last)
    if last is not None and last.state == RunState.INTERRUPTED:
        abandon_children(last.id, "superseded")
        # Approved, but the run that could have carried it out never began.
        Approval.objects.filter(
            thread_id=thread.id, state=ApprovalState.APPROVED, resume_run__isnull=True
        ).update(state=ApprovalState.VOID, void_reason="superseded")
    assert turn.message is not None  # a turn without decisions has a message
    start = RunStart(
        organization_id=caller.organization_id,
        agent_id=plan.role.agent.id,
        environment_id=caller.environment_id,
        thread_id=thread.id,
        session_id=thread.id,
        client_run_id=turn.client_run_id,
        request_digest=turn.digest,
        boot_id=current_boot_id(),
        principal=caller.principal,
        definition=plan.role.pinned,
    )
    return begin_job(
        start,
        plan.role,
        turn.client_thread_id,
        message=turn.message,
        title=title_from(turn.message.text) if is_new else "",
        display_name=plan.display_name if is_new else "",
    )


def _thread(plan: Plan) -> tuple[Thread, bool]:
    caller = plan.caller
    thread, is_new = Thread.objects.get_or_create(
        id=plan.thread_id,
        defaults={
            "organization_id": caller.organization_id,
            "agent_id": plan.role.agent.id,
            "environment_id": caller.environment_id,
            "principal_kind": caller.principal.kind,
            "principal_issuer": caller.principal.issuer,
            "principal_subject": caller.principal.subject,
            "client_id": plan.turn.client_thread_id,
        },
    )
    # Held until the commit, so that an erasure cannot come in between.
    thread = Thread.objects.select_for_update().get(id=thread.id)
    require_own(thread, caller, plan.role.agent.id)
    return thread, is_new


def _resume(plan: Plan, last: Run | None) -> Job:
    if last is not None and last.state == RunState.RUNNING:
        raise RunActive
    if plan.branch is None or last is None or last.id != plan.branch.old.id:
        raise NothingToResume
    return begin_branch(
        plan.branch,
        principal=plan.caller.principal,
        client_thread_id=plan.turn.client_thread_id,
        client_run_id=plan.turn.client_run_id,
        request_digest=plan.turn.digest,
        message=plan.turn.message,
    )
