"""A whole installation as ``make serve`` starts it, in its own directory and on its own ports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from project.config import ROOT
from tests.processes import free_port

START_SECONDS = 90
PASSWORD_LINE = re.compile(r"^  (\w+)\s+(\S+)$", re.MULTILINE)


@dataclass
class Site:
    """The demo, running. ``passwords`` are those that it printed."""

    directory: Path
    outgoing_allowed: str = ""
    port: int = field(default_factory=free_port)
    runtime_port: int = field(default_factory=free_port)
    model_port: int = field(default_factory=free_port)
    tools_port: int = field(default_factory=free_port)
    passwords: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    #: Cookies of those who signed in once: hashing a password takes a second.
    sessions: dict[str, Any] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "serve.log"

    def start(self) -> None:
        """Start it and wait for the ready line."""
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "serve"],
                cwd=ROOT,
                env={
                    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                    "DATA_DIR": str(self.directory),
                    "PORT": str(self.port),
                    "RUNTIME_URL": f"http://127.0.0.1:{self.runtime_port}",
                    "DEMO_MODEL_PORT": str(self.model_port),
                    "DEMO_TOOLS_PORT": str(self.tools_port),
                    "OUTGOING_ALLOWED": self.outgoing_allowed,
                },
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_SECONDS
        while f"Mandate is ready on {self.url}" not in self.output:
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.1)
        self.passwords = dict(PASSWORD_LINE.findall(self.output))

    @property
    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)

    # --- what happened behind the agents' backs ---------------------------------------------

    def order(self, number: int) -> dict[str, Any]:
        """One order as the demo's tool server has it."""
        orders: list[dict[str, Any]] = self._tools("orders")
        return next(order for order in orders if order["order"] == number)

    def outbox(self) -> list[dict[str, Any]]:
        """The e-mails that the demo's tool server sent."""
        mails: list[dict[str, Any]] = self._tools("outbox")
        return mails

    def _tools(self, name: str) -> Any:
        return httpx.get(f"http://127.0.0.1:{self.tools_port}/{name}").json()


class Hand:
    """A person at the API, with the session that the sign-in page gives."""

    def __init__(self, site: Site, username: str) -> None:
        self._client = httpx.Client(base_url=site.url, follow_redirects=True)
        self._client.get("/sign-in/")
        form = {"username": username, "password": site.passwords[username]}
        headers = {"X-CSRFToken": self._client.cookies["csrftoken"]}
        answer = self._client.post("/sign-in/", data=form, headers=headers)
        answer.raise_for_status()

    def get(self, path: str, **query: str) -> Any:
        answer = self._client.get(f"/api/v1{path}", params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def post(self, path: str, body: dict[str, Any], **query: str) -> Any:
        headers = {"X-CSRFToken": self._client.cookies["csrftoken"]}
        answer = self._client.post(f"/api/v1{path}", json=body, params=query, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()
