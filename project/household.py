"""The processes of one machine under one parent: started together, stopped together."""

from __future__ import annotations

import http.client
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from honcho.manager import Manager
from honcho.printer import Printer
from honcho.process import Popen, Process

from project.parent import die_with_parent

POLL_SECONDS: Final = 0.1
#: After this long without an answer the household says whom it waits for, and again each time.
PATIENCE_SECONDS: Final = 20


@dataclass(frozen=True)
class Member:
    """One line of the Procfile with its whole environment, and how to see that it works."""

    name: str
    command: str
    environment: Mapping[str, str]
    is_ready: Callable[[], bool]


class _Child(Process):  # type: ignore[misc]
    """A process behind a small fork of the parent that passes its output on. Both die with it."""

    def __init__(self, command: str, **options: Any) -> None:
        super().__init__(command, **options)
        self._parent = os.getpid()

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:  # noqa: FBT001, FBT002 - the library's signature
        die_with_parent(self._parent)
        self._child_ctor = partial(Popen, preexec_fn=partial(die_with_parent, os.getpid()))
        super().run(events, ignore_signals)


class Household(Manager):  # type: ignore[misc]
    """Runs the members until a signal comes or one of them ends."""

    def __init__(self, members: Sequence[Member], *, when_ready: Callable[[], None]) -> None:
        super().__init__(Printer(sys.stdout))
        self._process_ctor = _Child
        self._members = members
        self._when_ready = when_ready
        self._over = threading.Event()
        #: Names and exit codes of those that ended by themselves. Empty after a signal.
        self.fallen: dict[str, int] = {}
        for member in members:
            self.add_process(member.name, member.command, env=dict(member.environment))

    def _start(self) -> None:
        super()._start()
        # Only now: a fork with a second thread running may inherit a lock that nobody frees.
        threading.Thread(target=self._watch, name="readiness", daemon=True).start()

    def terminate(self) -> None:
        if not self._terminating:
            self.fallen = {
                name: state["returncode"]
                for name, state in self._processes.items()
                if state.get("returncode") is not None
            }
            self._over.set()
        super().terminate()

    def _killall(self, force: bool = False) -> None:  # noqa: FBT001, FBT002 - the library's signature
        """Ask each member itself: its own children are its to stop. By force: the whole group."""
        for state in self._processes.values():
            if "returncode" in state or "pid" not in state:
                continue
            if force:
                self._procmgr.kill(state["pid"])
            else:
                _signal(state["pid"], signal.SIGTERM)

    def _watch(self) -> None:
        waiting = list(self._members)
        rounds = 0
        while not self._over.wait(POLL_SECONDS):
            waiting = [member for member in waiting if not member.is_ready()]
            if not waiting:
                self._when_ready()
                return
            rounds += 1
            if rounds % int(PATIENCE_SECONDS / POLL_SECONDS) == 0:
                names = ", ".join(member.name for member in waiting)
                self._system_print(f"still waiting for: {names}\n")


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def answers(url: str) -> bool:
    """Whether an HTTP server answers there without failing."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=2)
    try:
        connection.request("GET", parts.path, headers={"Connection": "close"})
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def lives(pid_file: Path) -> bool:
    """Whether the file names a process that exists."""
    try:
        os.kill(int(pid_file.read_text(encoding="ascii")), 0)
    except (OSError, ValueError):
        return False
    return True
