"""``manage.py serve`` as a person runs it: real processes, real signals."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from project.config import ROOT, Config
from project.demo import addresses
from project.processes import members
from tests import postgres
from tests.processes import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

START_SECONDS = 90


@dataclass
class Serve:
    """One installation in its own directory, on its own ports."""

    directory: Path
    port: int
    runtime_port: int
    model_port: int
    tools_port: int
    databases: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "DATA_DIR": str(self.directory),
            "PORT": str(self.port),
            "RUNTIME_URL": f"http://127.0.0.1:{self.runtime_port}",
            "DEMO_MODEL_PORT": str(self.model_port),
            "DEMO_TOOLS_PORT": str(self.tools_port),
            **self.databases,
        }

    @property
    def log(self) -> Path:
        return self.directory / "serve.log"

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def start(self) -> int:
        """Start and wait for the ready line; returns the parent's process id."""
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "serve"],
                cwd=ROOT,
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        ready = f"Mandate is ready on http://127.0.0.1:{self.port}\n"
        until(lambda: ready in self.output or self.process_ended(), START_SECONDS)
        assert ready in self.output, self.output
        return self.process.pid

    def process_ended(self) -> bool:
        return self.process is None or self.process.poll() is not None

    def doctor(self) -> subprocess.CompletedProcess[str]:
        """Examine the installation as a person does who knows its directory alone."""
        return subprocess.run(
            [sys.executable, "manage.py", "doctor"],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "DATA_DIR": str(self.directory), **self.databases},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def once(self) -> subprocess.CompletedProcess[str]:
        """Run serve for as long as it lasts, which is short when it refuses."""
        return subprocess.run(
            [sys.executable, "manage.py", "serve"],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    made = Serve(tmp_path, free_port(), free_port(), free_port(), free_port())
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.terminate()
        made.process.wait(20)


def until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)


def parents() -> dict[int, int]:
    """The parent of every process that runs; zombies run no more."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text(encoding="utf-8", errors="replace").rsplit(") ", 1)[1].split()
        except (OSError, IndexError):
            continue
        if fields[0] != "Z":
            found[int(status.parent.name)] = int(fields[1])
    return found


def descendants(pid: int) -> set[int]:
    known, found = parents(), {pid}
    while more := {child for child, parent in known.items() if parent in found} - found:
        found |= more
    return found - {pid}


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def find(pids: set[int], words: str) -> int:
    """The one process of *pids* that runs these words."""
    (pid,) = [pid for pid in pids if words in command_of(pid)]
    return pid


def test_one_command_runs_everything_and_sigterm_ends_it_cleanly(serve: Serve) -> None:
    parent = serve.start()
    children = descendants(parent)

    for port in (serve.port, serve.runtime_port, serve.model_port, serve.tools_port):
        assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    assert "qcluster" in " ".join(command_of(pid) for pid in children)
    passwords = re.findall(r"^  (\w+)\s+(\S+)$", serve.output, re.MULTILINE)
    assert [name for name, _ in passwords] == ["admin", "manager", "member"]

    runtime = find(children, "chat.runtime")
    environment = Path(f"/proc/{runtime}/environ").read_bytes().decode().split("\0")
    names = {entry.split("=")[0] for entry in environment if entry}
    assert names == {"GATEWAY_URL", "RUNTIME_BIND", "RUNTIME_PORT", "RUNTIME_TOKEN"}
    assert stat_mode(serve.directory / addresses.KEY_FILE) == 0o600

    told = serve.output[serve.output.index("Mandate is ready") :]
    assert "People: admin, manager, member; their passwords stand above, this once" in told
    assert f"Shop:   http://127.0.0.1:{serve.tools_port}/" in told
    examined = serve.doctor()
    assert (examined.returncode, "FAIL" in examined.stdout) == (0, False), examined.stdout
    assert f"http://127.0.0.1:{serve.runtime_port} is healthy" in examined.stdout

    refused = serve.once()
    assert refused.returncode != 0
    assert f"Another serve runs on {serve.directory}" in refused.stderr
    assert httpx.get(f"http://127.0.0.1:{serve.port}/health").status_code == 200

    assert serve.process is not None
    serve.process.send_signal(signal.SIGTERM)
    assert serve.process.wait(20) == 0
    assert not children & set(parents())
    assert "Mandate has stopped." in serve.output
    assert "Traceback" not in serve.output
    socket.create_server(("127.0.0.1", serve.port)).close()


def test_kill_9_of_the_parent_leaves_nothing_behind(serve: Serve) -> None:
    parent = serve.start()
    children = descendants(parent)
    assert len([pid for pid in children if "qcluster" in command_of(pid)]) >= 4

    assert serve.process is not None
    serve.process.kill()
    serve.process.wait(10)
    until(lambda: not children & set(parents()), 10)

    left = {pid: command_of(pid) for pid in children & set(parents())}
    assert not left

    # The lock and the ports are free again, nothing was seeded twice, and what the dead owned was
    # known to be lost before anything started.
    serve.start()
    assert "passwords are shown" not in serve.output
    assert "their passwords were shown at the first start" in serve.output
    with sqlite3.connect(serve.directory / "control.sqlite3") as control:
        told = control.execute(
            "SELECT role, parent_id, ended_at FROM agents_boot ORDER BY created_at"
        )
        boots = told.fetchall()
    assert len({parent for _, parent, _ in boots}) == 1
    assert [bool(ended) for role, _, ended in boots if role == "web"] == [True, False]
    serve.process.send_signal(signal.SIGINT)
    assert serve.process.wait(20) == 0


@pytest.mark.postgres
def test_it_runs_on_postgresql_as_well(serve: Serve) -> None:
    names = [postgres.create_database() for _ in range(2)]
    serve.databases = {
        "DATABASE_URL": postgres.url(names[0]),
        "CONTENT_DATABASE_URL": postgres.url(names[1]),
    }
    serve.start()
    assert httpx.get(f"http://127.0.0.1:{serve.port}/health").status_code == 200
    assert not list(serve.directory.glob("*.sqlite3-wal"))

    assert serve.process is not None
    serve.process.terminate()
    assert serve.process.wait(20) == 0
    assert "Traceback" not in serve.output, serve.output
    for name in names:
        postgres.drop_database(name)


def test_when_one_process_ends_by_itself_all_stop_and_it_is_named(serve: Serve) -> None:
    parent = serve.start()
    children = descendants(parent)
    os.kill(find(children, "project.demo.tools"), signal.SIGKILL)

    assert serve.process is not None
    assert serve.process.wait(20) != 0
    assert "Ended by itself: demo-tools" in serve.output
    assert not children & set(parents())


def test_a_taken_port_is_named_with_its_variable(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", serve.model_port)):
        refused = serve.once()
    assert refused.returncode != 0
    assert f"Port {serve.model_port} is in use" in refused.stderr
    assert re.search(r"set another one: DEMO_MODEL_PORT=\d+\n", refused.stderr)
    with socket.create_server(("127.0.0.1", serve.runtime_port)):
        refused = serve.once()
    assert re.search(r"set another one: RUNTIME_URL=http://127\.0\.0\.1:\d+\n", refused.stderr)
    assert not (serve.directory / "control.sqlite3").exists()


def test_each_process_gets_only_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SECRET_KEY", "KEYRING", "MANDATE_MODEL_KEY"):
        monkeypatch.setenv(name, "secret-value-" + "x" * 40)
    config = Config(data_dir=tmp_path, runtime_token="token", mandate_demo=True)

    started = {m.name: m for m in members(config, ["127.0.0.1:8011"])}

    assert list(started) == ["web", "runtime", "worker", "demo-model", "demo-tools"]
    for name in ("runtime", "demo-model", "demo-tools"):
        assert "secret-value" not in str(started[name].environment)
    assert started["web"].environment["OUTGOING_ALLOWED"] == "127.0.0.1:8011"
    assert started["web"].environment["SECRET_KEY"].startswith("secret-value")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mandate_demo": False}, ["web", "runtime", "worker"]),
        (
            {"mandate_demo": True, "mandate_model_url": "http://127.0.0.1:11434/v1"},
            ["web", "runtime", "worker", "demo-tools"],
        ),
        (
            {"mandate_demo": False, "runtime_url": "http://runtime.internal:8010"},
            ["web", "worker"],
        ),
    ],
)
def test_what_runs_elsewhere_is_not_started(
    tmp_path: Path, settings: dict[str, object], expected: list[str]
) -> None:
    config = Config(data_dir=tmp_path, **settings)  # type: ignore[arg-type]
    assert [member.name for member in members(config, [])] == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("", ["127.0.0.1:8011", "127.0.0.1:8012"]),
        ("http://127.0.0.1:11434/v1", ["127.0.0.1:11434", "127.0.0.1:8012"]),
        ("https://api.example.com/v1", ["api.example.com:443", "127.0.0.1:8012"]),
        ("http://[::1]:9000/v1", ["[::1]:9000", "127.0.0.1:8012"]),
    ],
)
def test_the_demos_addresses_are_allowed(tmp_path: Path, url: str, expected: list[str]) -> None:
    config = Config(data_dir=tmp_path, mandate_demo=True, mandate_model_url=url)
    assert addresses.outgoing_allowed(config) == expected


def stat_mode(path: Path) -> int:
    return path.stat().st_mode & 0o777
