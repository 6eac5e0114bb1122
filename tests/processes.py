"""Real server processes on the test's own databases: started by command line, killed by signal.

The test makes its world with services in its own process (``transaction=True``, both databases,
``stored_secrets``); the processes started here see the same rows.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings
from django.db import connections

ROOT = Path(__file__).resolve().parents[1]
RUNTIME_TOKEN = "runtime-token-of-the-tests"


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def database_url(alias: str) -> str:
    """The address of the test database behind *alias*, for another process."""
    values: dict[str, Any] = connections[alias].settings_dict
    if connections[alias].vendor == "sqlite":
        return f"sqlite:///{values['NAME']}"
    user, host, port = values["USER"], values["HOST"], values["PORT"]
    if host.startswith("/"):
        return f"postgresql://{user}@/{values['NAME']}?host={host}&port={port}"
    return f"postgresql://{user}:{values['PASSWORD']}@{host}:{port}/{values['NAME']}"


@dataclass
class Server:
    """One process and where it answers."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


@dataclass
class Servers:
    """Starts processes and ends them all with the test."""

    directory: Path
    outgoing_allowed: list[str] = field(default_factory=list)
    runtime_port: int = field(default_factory=free_port)
    started: list[Server] = field(default_factory=list)

    def web(self, *, port: int | None = None, **environment: str) -> Server:
        """One web process; ready when its health page says so."""
        port = port or free_port()
        command = [
            sys.executable, "-m", "uvicorn", "project.asgi:application", "--host", "127.0.0.1",
            "--port", str(port), "--lifespan", "on", "--loop", "uvloop", "--http", "httptools",
            "--no-access-log", "--timeout-graceful-shutdown", "3",
        ]  # fmt: skip
        return self._start(
            f"web-{port}",
            command,
            f"http://127.0.0.1:{port}",
            {
                "DJANGO_SETTINGS_MODULE": "project.settings",
                "PATH": os.environ["PATH"],
                "DATA_DIR": str(self.directory),
                "SECRET_KEY": settings.SECRET_KEY,
                "KEYRING": settings.KEYRING_JSON,
                "DATABASE_URL": database_url("default"),
                "CONTENT_DATABASE_URL": database_url("content"),
                "OUTGOING_ALLOWED": ",".join(self.outgoing_allowed),
                "RUNTIME_URL": self.runtime_url,
                "RUNTIME_TOKEN": RUNTIME_TOKEN,
                "PORT": str(port),
                **environment,
            },
        )

    @property
    def runtime_url(self) -> str:
        return f"http://127.0.0.1:{self.runtime_port}"

    def runtime(self, gateway: Server) -> Server:
        """The runtime, which knows one gateway and has no other environment."""
        return self._start(
            "runtime",
            [sys.executable, "-m", "chat.runtime"],
            self.runtime_url,
            {
                "RUNTIME_PORT": str(self.runtime_port),
                "GATEWAY_URL": gateway.url,
                "RUNTIME_TOKEN": RUNTIME_TOKEN,
            },
        )

    def _start(
        self, name: str, command: list[str], url: str, environment: dict[str, str]
    ) -> Server:
        log = self.directory / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT
            )
        server = Server(process, url, log)
        self.started.append(server)
        wait_until_healthy(server)
        return server

    def stop(self) -> None:
        for server in reversed(self.started):
            server.stop()


def wait_until_healthy(server: Server, seconds: float = 30) -> None:
    """Wait for ``GET /health`` to answer 200; fail with the process's own words."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.process.poll() is not None:
            break
        try:
            if httpx.get(f"{server.url}/health", timeout=2).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.05)
    msg = f"{server.url} did not become ready:\n{server.output[-4000:]}"
    raise AssertionError(msg)


@contextmanager
def running_servers(directory: Path, *outgoing_allowed: str) -> Iterator[Servers]:
    """Servers of one test; ``outgoing_allowed`` are the fakes' ``host:port``."""
    servers = Servers(directory, list(outgoing_allowed))
    try:
        yield servers
    finally:
        servers.stop()
