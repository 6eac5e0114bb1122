"""Boots: one row for each server process's life, kept fresh by a heartbeat every second."""

from __future__ import annotations

import datetime as dt
import os
import socket
import uuid

from django.db.backends.utils import CursorWrapper
from django.db.models import Q

from agents import clock, sql
from agents.models import Boot

#: A boot whose heartbeat is older than this, by the database's clock, is dead.
DEAD_AFTER = dt.timedelta(seconds=5)
HEARTBEAT_SECONDS = 1.0
#: An observer whose own heartbeat is older than this was held up itself, and judges nobody.
BLIND_AFTER = dt.timedelta(seconds=2.5)

_observer: uuid.UUID | None = None


def observe_as(boot_id: uuid.UUID | None) -> None:
    """Name this process's own boot, by whose heartbeat it knows whether it may judge others."""
    global _observer
    _observer = boot_id


def start_boot(*, role: str) -> Boot:
    """Record that this process lives. ``MANDATE_PARENT`` ties the children of one ``serve``."""
    return Boot.objects.create(
        heartbeat_at=clock.database_now(),
        pid=os.getpid(),
        host=socket.gethostname()[:120],
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


def dead_boot_ids() -> list[uuid.UUID]:
    """Boots that ended or whose heartbeat is too old.

    A database that was locked for seconds let nobody's heartbeat through, this process's
    included: then only those that ended count.
    """
    now = clock.database_now()
    dead = Q(ended_at__isnull=False)
    if not _is_held_up(now):
        dead |= Q(heartbeat_at__lt=now - DEAD_AFTER)
    return list(Boot.objects.filter(dead).values_list("id", flat=True))


def _is_held_up(now: dt.datetime) -> bool:
    if _observer is None:
        return False
    return Boot.objects.filter(id=_observer, heartbeat_at__lt=now - BLIND_AFTER).exists()
