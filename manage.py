#!/usr/bin/env python
"""Django's command line for Mandate."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

ENVIRONMENT = Path(__file__).resolve().parent / ".venv"


def use_own_environment() -> None:
    """Start again with the Python of .venv/ when this one lacks Django and that one is there."""
    python = ENVIRONMENT / "bin" / "python"
    started_by_it = Path(sys.prefix).resolve() == ENVIRONMENT.resolve()
    if find_spec("django") is None and not started_by_it and python.exists():
        os.execv(python, [str(python), *sys.argv])  # noqa: S606 - no shell is the purpose


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    use_own_environment()
    main()
