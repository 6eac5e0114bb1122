"""Check that the control store holds no content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.services.scanning import scan_control


class Command(BaseCommand):
    help = (
        "Search every table, column and file of the control database, encodings included, for "
        "canaries and for any 32-character piece of content; exits 1 on a find."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--canary",
            action="append",
            default=[],
            metavar="TEXT",
            help="a text that must stand nowhere in the control store; may be repeated",
        )
        parser.add_argument(
            "--also",
            action="append",
            default=[],
            type=Path,
            metavar="FILE",
            help="search this file too, for example a log; may be repeated",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        missing = [str(path) for path in options["also"] if not path.is_file()]
        if missing:
            message = f"no such file: {', '.join(missing)}"
            raise CommandError(message)
        verbose = options["verbosity"] > 1
        findings = scan_control(
            canaries=options["canary"],
            also=options["also"],
            progress=self.stderr.write if verbose else lambda place: None,
        )
        for finding in findings:
            self.stdout.write(str(finding))
        if findings:
            message = f"content in the control store: {len(findings)} places"
            raise CommandError(message)
        self.stdout.write("no content in the control store")
