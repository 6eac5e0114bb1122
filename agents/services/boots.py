"""Boots: one row for each server process's life, kept fresh by a heartbeat every second."""

from __future__ import annotations

import datetime as dt
import os
import socket
import uuid

from django.db.backends.utils import CursorWrapper

from agents import clock, sql
from agents.models import Boot

#: A boot whose heartbeat is older than this, by the database's clock, is dead.
DEAD_AFTER = dt.timedelta(seconds=5)
HEARTBEAT_SECONDS = 1.0


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
    """Boots that ended or whose heartbeat is too old."""
    now = clock.database_now()
    rows = Boot.objects.filter(ended_at__isnull=False) | Boot.objects.filter(
        heartbeat_at__lt=now - DEAD_AFTER
    )
    return list(rows.values_list("id", flat=True))
