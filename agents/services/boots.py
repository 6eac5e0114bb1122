"""Boots: one row for each server process's life, kept fresh by a heartbeat every second."""

from __future__ import annotations

import datetime as dt
import os
import socket
import uuid
from pathlib import Path

from django.db.backends.utils import CursorWrapper
from django.db.models import Exists, OuterRef, Q, QuerySet

from agents import clock, sql
from agents.choices import ApprovalState, RequestState
from agents.models import Approval, Boot, GatewayRequest, Run

#: A boot whose heartbeat is older than this, by the database's clock, is dead.
DEAD_AFTER = dt.timedelta(seconds=5)
HEARTBEAT_SECONDS = 1.0
#: An observer whose own heartbeat is older than this was held up itself, and judges nobody.
BLIND_AFTER = dt.timedelta(seconds=2.5)

#: How long a dead boot's row is kept for whoever looks into what happened.
KEPT_FOR = dt.timedelta(days=1)
#: Rows forgotten at once: the first round after a long time without any is bounded too.
MOST_FORGOTTEN = 500

_observer: uuid.UUID | None = None


def observe_as(boot_id: uuid.UUID | None) -> None:
    """Name this process's own boot, by whose heartbeat it knows whether it may judge others."""
    global _observer
    _observer = boot_id


def start_boot(*, role: str) -> Boot:
    """Record that this process lives. ``MANDATE_PARENT`` names the installation it serves."""
    return Boot.objects.create(
        heartbeat_at=clock.database_now(),
        pid=os.getpid(),
        host=_host(),
        role=role,
        parent_id=os.environ.get("MANDATE_PARENT", "")[:32],
    )


def beat(cursor: CursorWrapper, boot_id: uuid.UUID) -> bool:
    """Refresh the heartbeat; False when the boot was ended by somebody else."""
    return (
        sql.changed(
            cursor,
            "UPDATE agents_boot SET heartbeat_at = %s WHERE id = %s AND ended_at IS NULL",
            [clock.now(cursor), boot_id],
        )
        == 1
    )


def end_boot(boot_id: uuid.UUID) -> None:
    """Say that this process stopped in good order, so that nobody waits for its heartbeat."""
    Boot.objects.filter(id=boot_id, ended_at__isnull=True).update(ended_at=clock.database_now())


def end_boots_left_behind(parent_id: str) -> int:
    """End the boots of an earlier ``serve`` of this installation whose processes are gone.

    For a ``serve`` that holds the installation's lock and has started nothing yet: what a killed
    one owned is then known to be lost at once, without waiting for a heartbeat to grow old.
    """
    if not parent_id:
        return 0
    left = Boot.objects.filter(
        parent_id=parent_id, host=_host(), ended_at__isnull=True
    ).values_list("id", "pid")
    gone = [boot_id for boot_id, pid in left if _is_gone(pid)]
    return Boot.objects.filter(id__in=gone).update(ended_at=clock.database_now())


def _host() -> str:
    return socket.gethostname()[:120]


def _is_gone(pid: int) -> bool:
    """Whether no process of this number runs; one that only waits to be reaped does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except ProcessLookupError:
        return True
    except OSError:  # Somebody else's process, or a system without /proc.
        return False
    return state.rpartition(")")[2].split()[0] in {"Z", "X"}


def dead_boots() -> QuerySet[Boot]:
    """Boots that ended or whose heartbeat is too old, for use as a subquery.

    A database that was locked for seconds let nobody's heartbeat through, this process's
    included: then only those that ended count.
    """
    now = clock.database_now()
    dead = Q(ended_at__isnull=False)
    if not _is_held_up(now):
        dead |= Q(heartbeat_at__lt=now - DEAD_AFTER)
    return Boot.objects.filter(dead)


def forget_boots() -> int:
    """Delete dead boots after a day, except those that something still names."""
    now = clock.database_now()
    mine = OuterRef("id")
    named = (
        Exists(Run.objects.filter(boot_id=mine))
        | Exists(GatewayRequest.objects.filter(boot_id=mine, state=RequestState.OPEN))
        | Exists(Approval.objects.filter(executing_boot_id=mine, state=ApprovalState.EXECUTING))
    )
    old = dead_boots().filter(heartbeat_at__lt=now - KEPT_FOR).exclude(named)
    ids = list(old.values_list("id", flat=True)[:MOST_FORGOTTEN])
    return Boot.objects.filter(id__in=ids).delete()[0]


def _is_held_up(now: dt.datetime) -> bool:
    if _observer is None:
        return False
    return Boot.objects.filter(id=_observer, heartbeat_at__lt=now - BLIND_AFTER).exists()
