"""Approvals: asked by the gateway, decided by the principal, claimed once by one run's key.

All functions are steps of the caller's transaction. Each change of state is one conditional
UPDATE, so that of any number of parallel attempts exactly one wins.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import rfc8785
from django.db.models import Q

from agents import clock
from agents.choices import ApprovalState, RunState, ToolState
from agents.errors import (
    ApprovalConflict,
    ApprovalExpired,
    ApprovalLimit,
    ApprovalMismatch,
    ApprovalUnavailable,
    NotFound,
)
from agents.models import Approval, Run
from agents.policy import Actor, KeyRow, ToolRow
from agents.services.audit import append_audit
from agents.services.runs import Principal

APPROVAL_LIFETIME = dt.timedelta(minutes=15)
#: Approvals that one run may wait for. They are answered all at once when it is resumed.
APPROVALS_PER_RUN = 32

#: The id of a tool call as it may stand in a row: never free text of a model or a runtime.
CALL_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

#: Kinds of blobs in the content store.
ARGUMENTS, OUTCOME, REASON = "arguments", "outcome", "deny_reason"


def canonical_arguments(arguments: Mapping[str, Any]) -> bytes:
    """The bytes that are displayed, digested and executed: RFC 8785 JSON."""
    return rfc8785.dumps(dict(arguments))


def request_approval(
    *, key: KeyRow, tool: ToolRow, arguments_digest: str, tool_call_id: str
) -> UUID:
    """Record that a managed key wants one exact action. Two equal calls are two approvals.

    The arguments' blob is stored before. Raises ApprovalUnavailable for a key without a thread,
    and ApprovalLimit when the run waits for as many as it may. Calls of one run count one after
    another, because each locks the run's row first.
    """
    if key.run_id is None or key.thread_id is None:
        raise ApprovalUnavailable
    locked = Run.objects.select_for_update(of=("self",), no_key=True)
    run = locked.select_related("initiator").get(id=key.run_id)
    require_room(run.id)
    approval = Approval.objects.create(
        organization_id=key.organization_id,
        agent_id=key.agent_id,
        environment_id=key.environment_id,
        run=run,
        thread_id=key.thread_id,
        principal_issuer=run.initiator.issuer,
        principal_subject=run.initiator.subject,
        definition_digest=run.definition_digest,
        tool_id=tool.id,
        tool_digest=tool.digest,
        tool_call_id=tool_call_id if CALL_ID.fullmatch(tool_call_id) else "",
        arguments_digest=arguments_digest,
        decided_digest=arguments_digest,
        expires_at=clock.database_now() + APPROVAL_LIFETIME,
    )
    return approval.id


def require_room(run_id: UUID) -> None:
    """Raise ApprovalLimit when the run waits for as many approvals as it may. A step."""
    waiting = Approval.objects.filter(
        run_id=run_id, state__in=[ApprovalState.REQUESTED, ApprovalState.OPEN]
    )
    if waiting.count() >= APPROVALS_PER_RUN:
        raise ApprovalLimit(limit=APPROVALS_PER_RUN)


Decision = Literal["approve", "deny", "cancel"]


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision as it was recorded."""

    approval: Approval
    decision: Decision
    edited: bool


def decide_approval(
    *,
    approval_id: UUID,
    principal: Principal,
    decision: Decision,
    edited_digest: str = "",
    reason_digest: str = "",
) -> Decided:
    """Record the principal's decision; the first wins.

    Edited arguments were validated against the tool's schema and stored by the caller. Raises
    NotFound for anybody but the principal, ApprovalExpired, or ApprovalConflict, which says by
    whom or what it ended. ``cancel`` is a denial without a reason.
    """
    now = clock.database_now()
    mine = Q(
        id=approval_id,
        principal_issuer=principal.issuer,
        principal_subject=principal.subject,
    )
    changes: dict[str, Any] = {
        "state": ApprovalState.APPROVED if decision == "approve" else ApprovalState.DENIED,
        "decided_at": now,
        "decided_by": str(principal)[:300],
        "reason_digest": reason_digest,
    }
    if edited_digest:
        changes["decided_digest"] = edited_digest
    won = Approval.objects.filter(mine, state=ApprovalState.OPEN, expires_at__gt=now).update(
        **changes
    )
    approval = Approval.objects.filter(mine).first()
    if approval is None or approval.state == ApprovalState.REQUESTED:
        raise NotFound
    if not won:
        raise why_not_decidable(approval, now)
    append_audit(
        actor=Actor(kind="principal", id=str(principal)),
        organization_id=approval.organization_id,
        action="approval.decide",
        target_kind="approval",
        target_id=approval.id,
        agent_id=approval.agent_id,
        environment_id=approval.environment_id,
        before_digest=approval.arguments_digest,
        after_digest=approval.decided_digest,
        decision=decision,
        edited=bool(edited_digest),
        run=approval.run_id,
        tool=approval.tool_id,
    )
    return Decided(approval, decision, bool(edited_digest))


def why_not_decidable(approval: Approval, now: dt.datetime) -> ApprovalConflict | ApprovalExpired:
    """The refusal that says who or what decided."""
    if approval.state == ApprovalState.EXPIRED or (
        approval.state == ApprovalState.OPEN and approval.expires_at <= now
    ):
        return ApprovalExpired("The approval expired before it was decided.")
    words = {
        ApprovalState.VOID: f"It ended without a decision: {approval.void_reason}.",
        ApprovalState.DENIED: f"It was denied by {approval.decided_by}.",
    }
    detail = words.get(ApprovalState(approval.state), f"It was approved by {approval.decided_by}.")
    return ApprovalConflict(detail, state=approval.state, reason=approval.void_reason)


def bind_approvals(*, interrupted_run_id: UUID, resume_run: Run) -> None:
    """Let exactly the resuming run's key claim what was approved in the interrupted run."""
    Approval.objects.filter(
        run_id=interrupted_run_id, state=ApprovalState.APPROVED, resume_run__isnull=True
    ).update(resume_run=resume_run)


@dataclass(frozen=True, slots=True)
class Claim:
    """What a key may now execute, or the outcome that was stored when it already did."""

    approval_id: UUID
    arguments_digest: str
    outcome_digest: str = ""
    outcome_is_error: bool = False


def claim_approval(
    *, approval_id: UUID, key: KeyRow, tool: ToolRow, arguments_digest: str, boot_id: UUID
) -> Claim:
    """Take an approved call for execution, once: ``approved`` becomes ``executing``.

    Needs the key of the run that the approval was bound to, the same tool with the same digest,
    and the digest of exactly the approved arguments. A call that was executed already gives its
    stored outcome. Raises ApprovalMismatch for every other combination, and ApprovalConflict
    while another claim is executing or its outcome is uncertain. Commit it fully before calling.
    """
    wanted = Q(
        id=approval_id,
        resume_run_id=key.run_id,
        agent_id=key.agent_id,
        tool_id=tool.id,
        tool_digest=tool.digest,
        decided_digest=arguments_digest,
    )
    if key.run_id is None or tool.state != ToolState.ACCEPTED:
        raise ApprovalMismatch
    won = Approval.objects.filter(wanted, state=ApprovalState.APPROVED).update(
        state=ApprovalState.EXECUTING, executing_boot_id=boot_id
    )
    approval = Approval.objects.filter(wanted).first()
    if approval is None:
        raise ApprovalMismatch
    if won:
        return Claim(approval.id, approval.decided_digest)
    if approval.state == ApprovalState.EXECUTED:
        return Claim(
            approval.id,
            approval.decided_digest,
            approval.outcome_digest,
            approval.outcome_is_error,
        )
    if approval.state in {ApprovalState.EXECUTING, ApprovalState.UNCERTAIN}:
        raise ApprovalConflict("The call was started; it is never started again.")
    raise ApprovalMismatch


def store_outcome(*, approval_id: UUID, outcome_digest: str, is_error: bool) -> bool:
    """Record that the claimed call returned. The outcome's blob is stored before."""
    return bool(
        Approval.objects.filter(id=approval_id, state=ApprovalState.EXECUTING).update(
            state=ApprovalState.EXECUTED,
            executed_at=clock.database_now(),
            outcome_digest=outcome_digest,
            outcome_is_error=is_error,
        )
    )


def release_claim(*, approval_id: UUID, boot_id: UUID) -> bool:
    """Give a claim back whose call certainly was not sent: the same run's key may claim again."""
    return bool(
        Approval.objects.filter(
            id=approval_id, state=ApprovalState.EXECUTING, executing_boot_id=boot_id
        ).update(state=ApprovalState.APPROVED, executing_boot_id=None)
    )


def mark_uncertain(*, approval_id: UUID) -> bool:
    """Record that a claimed call was sent and nobody can tell what became of it."""
    return bool(
        Approval.objects.filter(id=approval_id, state=ApprovalState.EXECUTING).update(
            state=ApprovalState.UNCERTAIN
        )
    )


def expire_approvals() -> list[UUID]:
    """Expire open approvals whose time is over; return their runs. A sweep's step."""
    now = clock.database_now()
    due = Approval.objects.filter(state=ApprovalState.OPEN, expires_at__lte=now)
    runs = list(due.values_list("run_id", flat=True).distinct())
    due.update(state=ApprovalState.EXPIRED)
    return runs


def void_orphans() -> int:
    """Void live approvals of runs that neither run nor wait. A sweep's step."""
    orphans = Approval.objects.filter(
        state__in=[ApprovalState.REQUESTED, ApprovalState.OPEN]
    ).exclude(run__state__in=[RunState.INTERRUPTED, RunState.RUNNING])
    return orphans.update(state=ApprovalState.VOID, void_reason="run_ended")
