"""``manage.py doctor``: one line for each thing that must work."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from project.doctor import examine


class Command(BaseCommand):
    help = "Check databases, keys, processes and connectors; exit with 1 when something fails."
    # The checks say themselves what is not migrated.
    requires_migrations_checks = False

    def handle(self, *args: Any, **options: Any) -> None:
        failed = 0
        for finding in examine():
            style = self.style.SUCCESS if finding.ok else self.style.ERROR
            self.stdout.write(style(str(finding)))
            failed += not finding.ok
        if failed:
            self.stdout.write(f"{failed} checks failed.")
            sys.exit(1)
        self.stdout.write("All is well.")
