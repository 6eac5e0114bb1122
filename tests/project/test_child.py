"""Programs started with nothing but what they need, and processes that die with their parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from project.child import parse
from project.config import ROOT


def test_it_keeps_only_the_named_variables() -> None:
    arguments, environment = parse(
        ["--only", "A,B,C", "--", "-m", "program"], {"A": "1", "B": "", "SECRET_KEY": "no"}
    )
    assert arguments == [sys.executable, "-m", "program"]
    assert environment == {"A": "1"}


@pytest.mark.parametrize("arguments", [[], ["--only"], ["-m", "x"], ["--only", "A", "-m", "x"]])
def test_it_refuses_a_malformed_command(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match="usage"):
        parse(arguments, {})


def test_the_program_replaces_it_and_sees_nothing_else() -> None:
    program = "import os; print(os.getpid(), open('/proc/self/environ').read().strip(chr(0)))"
    ran = subprocess.Popen(
        [sys.executable, "-m", "project.child", "--only", "A", "--", "-c", program],
        cwd=ROOT,
        env={"A": "1", "B": "2"},
        stdout=subprocess.PIPE,
        text=True,
    )
    output, _ = ran.communicate(timeout=20)
    assert output.split() == [str(ran.pid), "A=1"]


def test_forks_die_with_a_killed_parent_and_so_do_theirs(tmp_path: Path) -> None:
    program = f"""
import os, pathlib, time
from project.parent import bind_forks
bind_forks()
if os.fork() == 0:
    if os.fork() == 0:
        pathlib.Path({str(tmp_path / "grandchild")!r}).write_text(str(os.getpid()))
    time.sleep(60)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    note = tmp_path / "grandchild"
    deadline = time.monotonic() + 20
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    grandchild = int(note.read_text())
    assert runs(grandchild)

    parent.kill()
    parent.wait(10)
    while runs(grandchild) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not runs(grandchild)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False
