"""Containment: what ends when an agent, or a right of it, is taken away. Nothing is deleted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import F

from agents.choices import ApprovalState, EnvironmentState, KeyKind, ParkedState, RunState
from agents.clock import database_now
from agents.models import AgentEnvironment, AgentKey, Approval, ParkedCall, Run
from agents.services.locks import lock_slots

#: Approvals that a person could still decide or a key still claim.
LIVE_APPROVALS = (ApprovalState.REQUESTED, ApprovalState.OPEN, ApprovalState.APPROVED)


@dataclass(frozen=True, slots=True)
class Containment:
    """What one containment ended, and how long the ending took, in seconds."""

    seconds: float
    keys_revoked: int
    runs_stopped: int
    approvals_voided: int

    def as_data(self) -> dict[str, Any]:
        return {
            "milliseconds": round(self.seconds * 1000),
            "keys_revoked": self.keys_revoked,
            "runs_stopped": self.runs_stopped,
            "approvals_voided": self.approvals_voided,
        }

    def __str__(self) -> str:
        return (
            f"contained in {_duration(self.seconds)}: {_count(self.keys_revoked, 'key')} revoked, "
            f"{_count(self.runs_stopped, 'run')} stopped, "
            f"{_count(self.approvals_voided, 'approval')} voided"
        )


def _duration(seconds: float) -> str:
    """Tenths of a second, or whole milliseconds where those would say 0.0."""
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{max(1, round(seconds * 1000))} ms"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def contain(
    *,
    agent_ids: Sequence[UUID],
    reason: str,
    environment_id: UUID | None = None,
    close: bool = False,
) -> Containment:
    """End managed keys, running runs and live approvals of these agents; raise the generation.

    A step for the caller's transaction. ``environment_id`` narrows it; ``close`` also sets the
    environments to ``contained``. From the commit on no managed key of theirs works; open streams
    are cut by their own processes within two seconds.
    """
    started = time.monotonic()
    slots = AgentEnvironment.objects.filter(agent_id__in=agent_ids)
    where: dict[str, Any] = {"agent_id__in": agent_ids}
    if environment_id is not None:
        slots = slots.filter(environment_id=environment_id)
        where["environment_id"] = environment_id
    changes: dict[str, Any] = {"generation": F("generation") + 1}
    if close:
        changes |= {
            "state": EnvironmentState.CONTAINED,
            "published_version_id": None,
            "published_number": None,
            "published_digest": "",
        }
    lock_slots(slots.values_list("agent_id", "environment_id"))
    slots.update(**changes)
    now = database_now()
    runs = list(Run.objects.filter(**where, state=RunState.RUNNING).values_list("id", flat=True))
    Run.objects.filter(id__in=runs, state=RunState.RUNNING).update(
        state=RunState.FAILED, error_code=reason, ended_at=now
    )
    keys = AgentKey.objects.filter(**where, kind=KeyKind.MANAGED, revoked_at__isnull=True).update(
        revoked_at=now, revoked_reason=reason
    )
    approvals = void_approvals(reason, **where)
    approvals += void_approvals(reason, run_id__in=_asked_below(agent_ids, environment_id))
    ParkedCall.objects.filter(
        state=ParkedState.WAITING, **{f"child__{name}": value for name, value in where.items()}
    ).update(state=ParkedState.VOID)
    return Containment(time.monotonic() - started, keys, len(runs), approvals)


def void_superseded(*, agent_id: UUID, environment_id: UUID, digest: str) -> int:
    """Void what other published versions of an agent wait to do in an environment. A step.

    Drafts under test are not published, so nothing supersedes them.
    """
    others = Approval.objects.filter(
        agent_id=agent_id,
        environment_id=environment_id,
        state__in=LIVE_APPROVALS,
        run__version_id__isnull=False,
    ).exclude(definition_digest=digest)
    return others.update(state=ApprovalState.VOID, void_reason="superseded")


def _asked_below(agent_ids: Sequence[UUID], environment_id: UUID | None) -> list[UUID]:
    """Runs of other agents that ask a person for something on behalf of these agents."""
    asking = Approval.objects.filter(state__in=LIVE_APPROVALS, run__parent__isnull=False)
    if environment_id is not None:
        asking = asking.filter(environment_id=environment_id)
    above = dict(asking.values_list("run_id", "run__parent_id"))
    found: list[UUID] = []
    while above:
        parents = Run.objects.in_bulk(set(above.values()))
        found += [run for run, parent in above.items() if parents[parent].agent_id in agent_ids]
        above = {
            run: grandparent
            for run, parent in above.items()
            if (grandparent := parents[parent].parent_id) is not None and run not in found
        }
    return found


def void_approvals(reason: str, **where: Any) -> int:
    """Void the live approvals that match; a claimed one is left to its call."""
    return Approval.objects.filter(**where, state__in=LIVE_APPROVALS).update(
        state=ApprovalState.VOID, void_reason=reason
    )
