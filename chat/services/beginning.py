"""Decide and begin, in one control transaction: a loser of any race changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

from agents.choices import ApprovalState, RunState
from agents.clock import database_now
from agents.errors import ApprovalOpen, RunActive
from agents.lifecycle import current_boot_id
from agents.models import Approval, Run
from agents.services.locks import lock_slots
from agents.services.runs import RunStart
from chat.errors import NothingToResume
from chat.models import Thread
from chat.selectors.interrupts import open_approvals
from chat.selectors.threads import last_run
from chat.services.approvals import Stored, decide_all
from chat.services.jobs import Job, begin_branch, begin_job
from chat.services.planning import Attached, Plan, require_own, resumes, same_request
from chat.services.terminal import abandon_children
from chat.services.titles import title_from


def decide_and_begin(plan: Plan, stored: Sequence[Stored]) -> Job | Attached:
    """Decide and begin, in the caller's transaction. A step."""
    caller, turn = plan.caller, plan.turn
    lock_slots(plan.slots())
    thread, is_new = _thread(plan)
    same = same_request(plan.thread_id, turn)
    if same is not None:
        return same
    if stored:
        decide_all(thread_id=thread.id, principal=caller.principal, answers=stored)
    waiting = open_approvals(thread.id)
    if waiting.exists():
        raise ApprovalOpen(interrupts=[str(a.id) for a in waiting])
    thread.active_at = database_now()
    thread.save(update_fields=["active_at"])
    last = last_run(thread.id)
    if resumes(turn, plan.answers):
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
