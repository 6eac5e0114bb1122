"""The queue's own command, with additions that ``serve`` and deployments rely on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections
from django_q.management.commands.qcluster import Command as ClusterCommand

from project.parent import bind_forks
from project.processes import WORKER_PID_FILE


class Command(ClusterCommand):  # type: ignore[misc]
    help = "Run the worker."

    def handle(self, *args: Any, **options: Any) -> None:
        # Without this a killed cluster leaves its sentinel and workers taking jobs for ever.
        bind_forks()
        # A pool does not survive the cluster's forks: they would share its sockets.
        for database in connections.settings.values():
            database["OPTIONS"].pop("pool", None)
        super().handle(*args, **options)
        Path(settings.DATA_DIR, WORKER_PID_FILE).write_text(str(os.getpid()), encoding="ascii")
