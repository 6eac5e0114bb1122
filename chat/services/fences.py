"""Which of this process's runs it may go on with: one query for all of them, every 200 ms."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from agents.choices import RunState
from agents.models import Run

INTERVAL = 0.2
#: Seconds without an answer of the store after which others may have taken the runs over.
BLIND_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """``lost``: the run was ended by somebody else. ``cancel``: its owner shall stop it."""

    run_id: UUID
    lost: bool = False
    cancel: bool = False


def verdicts(run_ids: Iterable[UUID], boot_id: UUID) -> list[Verdict]:
    """Of these runs, those that may not go on. A child goes down with its parent."""
    wanted = set(run_ids)
    rows = Run.objects.filter(id__in=wanted, boot_id=boot_id, state=RunState.RUNNING)
    found = []
    owned = set()
    for run in rows.select_related("parent").only(
        "id", "cancel_requested", "parent__state", "parent__cancel_requested"
    ):
        owned.add(run.id)
        parent = run.parent
        orphan = parent is not None and (
            parent.state != RunState.RUNNING or parent.cancel_requested
        )
        if run.cancel_requested or orphan:
            found.append(Verdict(run.id, cancel=True))
    found.extend(Verdict(run_id, lost=True) for run_id in wanted - owned)
    return found
