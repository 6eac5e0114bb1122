"""The queue's own command, with two additions that ``serve`` and deployments rely on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django_q.management.commands.qcluster import Command as ClusterCommand

from project.parent import bind_forks
from project.processes import WORKER_PID_FILE


class Command(ClusterCommand):  # type: ignore[misc]
    help = "Run the worker."

    def handle(self, *args: Any, **options: Any) -> None:
        # Without this a killed cluster leaves its sentinel and workers taking jobs for ever.
        bind_forks()
        super().handle(*args, **options)
        Path(settings.DATA_DIR, WORKER_PID_FILE).write_text(str(os.getpid()), encoding="ascii")
