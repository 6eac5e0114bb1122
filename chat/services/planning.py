"""Read and verify what a request asks for, before anything is decided or begun.

Everything here is a selector: definitions are opened, edits are checked against schemas, and what
resumes is found, all outside any transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from agents import content_store
from agents.choices import RunState
from agents.errors import DamagedContent, NotFound, RunIdReused
from agents.models import Agent, Run
from agents.services.boots import dead_boots
from agents.services.locks import Slot
from chat.errors import NothingToResume, NothingToRun
from chat.models import Thread
from chat.selectors.log import user_messages
from chat.selectors.threads import last_run, thread_key
from chat.selectors.tokens import Caller
from chat.services.approvals import Answer, Checked, match_answers, refuse_ended
from chat.services.jobs import Branch, Role, UserMessage, plan_branch, role_of
from chat.services.terminal import untold_runs
from chat.services.tokens import DISPLAY_NAME

#: Ends after which the same user message may be sent again, to be answered after all.
UNANSWERED = frozenset({RunState.FAILED, RunState.CANCELLED})


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
    #: Runs of the thread whose end is still to be told, before another may begin.
    untold: Sequence[UUID] = ()

    def slots(self) -> set[Slot]:
        """Every agent that may begin a run, with its environment."""
        own = {(self.role.agent.id, self.caller.environment_id)}
        return own if self.branch is None else own | set(self.branch.slots())


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The thread's run says that it runs, but its process is dead."""

    run_id: UUID


def attached_to(run: Run) -> Attached:
    return Attached(run.organization_id, run.session_id, run.id, run.client_run_id)


def plan_turn(caller: Caller, slug: str, turn: Turn) -> Plan | Attached | LeftBehind:
    """Read and check everything, or say what comes before it."""
    agent = Agent.objects.filter(organization_id=caller.organization_id, slug=slug).first()
    if agent is None or caller.agent_id not in {None, agent.id}:
        raise NotFound("There is no such agent.")
    thread_id = thread_key(caller.principal, turn.client_thread_id)
    thread = Thread.objects.filter(id=thread_id).first()
    if thread is not None:
        require_own(thread, caller, agent.id)
    same = same_request(thread_id, turn)
    if same is not None:
        return same
    left = _left_behind(thread_id)
    if left is not None:
        return left
    turn = _with_new_message(caller, thread, turn)
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
        _branch(thread_id, role) if resumes(turn, answers) else None,
        _display_name(caller) if thread is None else "",
        untold_runs(thread_id),
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


def same_request(session_id: UUID, turn: Turn) -> Attached | None:
    run = Run.objects.filter(session_id=session_id, client_run_id=turn.client_run_id).first()
    if run is None:
        return None
    if run.request_digest != turn.digest:
        raise RunIdReused
    return attached_to(run)


def _left_behind(session_id: UUID) -> LeftBehind | None:
    running = Run.objects.filter(session_id=session_id, state=RunState.RUNNING)
    row = running.values_list("id", "boot_id").first()
    if row is None or not dead_boots().filter(id=row[1]).exists():
        return None
    return LeftBehind(row[0])


def _with_new_message(caller: Caller, thread: Thread | None, turn: Turn) -> Turn:
    """A client that resumes sends old messages again: what the log holds is not new.

    The last one may come again when its run failed or was stopped: it is answered after all.
    """
    if thread is None or turn.message is None:
        return turn
    known = user_messages(caller.organization_id, thread.id)
    if turn.message.id not in known:
        return turn
    last_id, last_text = next(reversed(known.items()))
    last = last_run(thread.id)
    again = turn.message.id == last_id and last is not None and last.state in UNANSWERED
    return replace(turn, message=UserMessage(last_id, last_text, again=True) if again else None)


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


def resumes(turn: Turn, answers: Sequence[Checked]) -> bool:
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
