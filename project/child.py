"""Run a Python program in this one's place, with nothing but the named environment variables.

``python -m project.child --only GATEWAY_URL,RUNTIME_TOKEN -- -m chat.runtime``: variables that are
not set, or empty, are left out. Values never appear on a command line, where other users could
read them, and no process stays between the parent and the program.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

USAGE = "usage: python -m project.child --only NAME,NAME -- PYTHON-ARGUMENTS"


def parse(
    arguments: Sequence[str], environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the new program's arguments and its whole environment; ValueError if malformed."""
    if len(arguments) < 4 or arguments[0] != "--only" or arguments[2] != "--":
        raise ValueError(USAGE)
    names = [name.strip() for name in arguments[1].split(",")]
    kept = {name: environment[name] for name in names if environment.get(name)}
    return [sys.executable, *arguments[3:]], kept


def main() -> None:
    try:
        arguments, environment = parse(sys.argv[1:], os.environ)
    except ValueError as problem:
        sys.exit(str(problem))
    os.execve(arguments[0], arguments, environment)  # noqa: S606 - no shell is the purpose


if __name__ == "__main__":
    main()
