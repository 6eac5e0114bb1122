"""Decide one approval from outside its stream: the inbox.

The last decision of an interrupted run starts the run that resumes it, by the same steps as a
resume that comes over AG-UI.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from uuid import UUID

from agents.choices import ApprovalState
from agents.errors import NotFound
from agents.models import Approval
from agents.services.runs import Principal
from chat.models import Thread
from chat.selectors.threads import last_run
from chat.selectors.tokens import Caller
from chat.services.approvals import Answer, match_answers, refuse_ended
from chat.services.jobs import plan_branch, role_of
from chat.services.planning import Attached, Plan, Turn
from chat.services.stores import read
from chat.services.turns import carry_out


@dataclass(frozen=True, slots=True)
class Decision:
    """``run`` is what the decision started; None while other approvals of the thread are open."""

    thread_id: UUID
    run: Attached | None


async def decide(principal: Principal, answer: Answer) -> Decision:
    """Record one decision of *principal*; ``answer.interrupt_id`` is the approval's id.

    Raises NotFound for anybody else's approval, ApprovalConflict, ApprovalExpired,
    ArgumentsInvalid, and the refusals of beginning a run: then nothing is decided.
    """
    plan = await read(_plan, principal, answer)
    return Decision(plan.thread_id, await carry_out(plan))


def _plan(principal: Principal, answer: Answer) -> Plan:
    approval = _own(principal, answer.interrupt_id)
    thread = (
        Thread.objects.filter(
            id=approval.thread_id,
            principal_kind=principal.kind,
            principal_issuer=principal.issuer,
            principal_subject=principal.subject,
            deleted_at__isnull=True,
        )
        .select_related("agent", "environment")
        .first()
    )
    if thread is None:
        raise NotFound
    caller = Caller(
        thread.organization_id,
        thread.environment_id,
        thread.environment.slug,
        principal,
        thread.agent_id,
    )
    answers = match_answers(thread.id, principal, [answer])
    refuse_ended(answers)
    role = role_of(thread.agent, thread.environment_id)
    waiting = last_run(thread.id)
    return Plan(
        caller,
        Turn(thread.client_id, f"inbox-{uuid.uuid4()}", "", answers=(answer,)),
        thread.id,
        role,
        answers,
        None if waiting is None else plan_branch(waiting, role),
        one_by_one=True,
    )


def _own(principal: Principal, approval_id: str) -> Approval:
    try:
        wanted = UUID(approval_id)
    except ValueError:
        raise NotFound from None
    approval = (
        Approval.objects.filter(
            id=wanted, principal_issuer=principal.issuer, principal_subject=principal.subject
        )
        .exclude(state=ApprovalState.REQUESTED)
        .first()
    )
    if approval is None:
        raise NotFound
    return approval
