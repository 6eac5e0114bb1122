"""What a crash left behind, put right: at start and every 30 seconds, each a conditional update.

Every function may run in several processes at once and any number of times.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from uuid import UUID

from agents import clock
from agents.choices import ApprovalState, RequestState, RunState
from agents.models import AgentKey, Approval, GatewayRequest, Run
from agents.services.approvals import expire_approvals, void_orphans
from agents.services.boots import dead_boots, forget_boots
from agents.services.idempotency import forget_expired
from agents.transactions import durable

INTERRUPTED_BY_RESTART = "interrupted_by_restart"
#: How long past its deadline a live owner may take to end its own run.
DEADLINE_GRACE = dt.timedelta(seconds=30)
#: How long after its run a claimed call may still be under way: its time limit, and some.
EXECUTION_GRACE = dt.timedelta(seconds=90)


@dataclass(frozen=True, slots=True)
class SweepReport:
    """How many rows each sweep changed."""

    runs_failed: int
    requests_lost: int
    approvals_uncertain: int
    approvals_expired: int
    approvals_voided: int
    keys_revoked: int


@durable(full=True)
def sweep_control() -> SweepReport:
    """Fail runs of dead boots and past deadlines, and close what belonged to them."""
    dead = dead_boots()
    now = clock.database_now()
    failed = Run.objects.filter(state=RunState.RUNNING, boot_id__in=dead).update(
        state=RunState.FAILED, error_code=INTERRUPTED_BY_RESTART, ended_at=now
    )
    failed += Run.objects.filter(
        state=RunState.RUNNING, deadline_at__lte=now - DEADLINE_GRACE
    ).update(state=RunState.FAILED, error_code="key_expired", ended_at=now)
    lost = GatewayRequest.objects.filter(state=RequestState.OPEN, boot_id__in=dead).update(
        state=RequestState.LOST, code=INTERRUPTED_BY_RESTART, closed_at=now
    )
    uncertain = Approval.objects.filter(
        state=ApprovalState.EXECUTING, executing_boot_id__in=dead
    ).update(state=ApprovalState.UNCERTAIN)
    # A live process may have lost a claim as well: an unclear commit, a cancelled recording.
    uncertain += Approval.objects.filter(
        state=ApprovalState.EXECUTING, resume_run__ended_at__lte=now - EXECUTION_GRACE
    ).update(state=ApprovalState.UNCERTAIN)
    expired = len(expire_approvals())
    voided = void_orphans()
    voided += (
        Approval.objects.filter(state=ApprovalState.APPROVED, resume_run__isnull=False)
        .exclude(resume_run__state=RunState.RUNNING)
        .update(state=ApprovalState.VOID, void_reason="run_ended")
    )
    revoked = (
        AgentKey.objects.filter(run__isnull=False, revoked_at__isnull=True)
        .exclude(run__state=RunState.RUNNING)
        .update(revoked_at=now, revoked_reason="run_ended")
    )
    forget_expired()
    forget_boots()
    return SweepReport(failed, lost, uncertain, expired, voided, revoked)


def fail_dead_run(run_id: UUID) -> bool:
    """Fail one running run if its boot is dead. For a reader that waits for it."""
    return fail_dead_runs([run_id]) == 1


@durable(full=True)
def fail_dead_runs(run_ids: list[UUID]) -> int:
    """Of these runs, fail those that a dead boot owns; the full sweep closes the rest."""
    return Run.objects.filter(
        id__in=run_ids, state=RunState.RUNNING, boot_id__in=dead_boots()
    ).update(
        state=RunState.FAILED, error_code=INTERRUPTED_BY_RESTART, ended_at=clock.database_now()
    )
