"""Check that everything sealed opens and that nothing named is missing."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from agents.services.verification import verify_store

PROGRESS_EVERY = 10_000


class Command(BaseCommand):
    help = "Open every sealed value of both stores; names what is damaged and exits 1 then."

    def handle(self, *args: Any, **options: Any) -> None:
        checked = 0

        def count() -> None:
            nonlocal checked
            checked += 1
            if checked % PROGRESS_EVERY == 0:
                self.stderr.write(f"{checked} values checked")

        problems = 0
        for line in verify_store(count):
            problems += 1
            self.stdout.write(line)
        if problems:
            message = f"{problems} of {checked} values are damaged or missing"
            raise CommandError(message)
        self.stdout.write(f"{checked} values checked, all sound")
