"""Children that cannot outlive their parent, not even when it is killed by SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: a child between fork and exec must not load libraries.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_forking = os.getpid()


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill the calling process when the process *parent* dies.

    Survives ``exec``. Elsewhere than on Linux it does nothing: an orderly stop still ends all.
    """
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # It died before the request could count.
        os._exit(1)


def bind_forks() -> None:
    """Make every process that this one forks from now on die with it, and theirs with them.

    They leave the process group too: a signal to the group, as Ctrl-C or a process manager sends
    it, reaches this process alone, and how its forks stop is its own affair.
    """
    os.register_at_fork(before=_remember, after_in_child=_follow)


def _remember() -> None:
    global _forking
    _forking = os.getpid()


def _follow() -> None:
    os.setpgid(0, 0)
    die_with_parent(_forking)
