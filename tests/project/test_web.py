"""The web process: what answers on which path, from its start to its end."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from django.db import OperationalError
from django.db.backends.utils import CursorWrapper

from agents import lifecycle
from agents.gateways import mcp_gateway
from agents.models import Boot, GatewayRequest
from chat.agui import routes
from project import web
from tests.fakes.model_provider import FakeProvider, hang
from tests.fakes.model_provider import fake_provider as fake_provider  # noqa: PLC0414 - a fixture
from tests.processes import Server, Servers, running_servers
from tests.serving import Served, served
from tests.world import allow, make_world
from tests.world import boot as boot  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def site(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The whole application, without its lifespan."""
    monkeypatch.setattr(lifecycle, "heartbeat_age", lambda: 0.1)
    with served(web.build()) as server:
        yield server


@pytest.fixture
def servers(stored_secrets: None, fake_provider: FakeProvider, tmp_path: Path) -> Iterator[Servers]:
    with running_servers(tmp_path, urlsplit(fake_provider.base_url).netloc) as started:
        yield started


# --- health ---------------------------------------------------------------------------------


def test_a_sound_process_says_so(site: Served) -> None:
    answer = httpx.get(f"{site.url}/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    assert answer.headers["cache-control"] == "no-store"


def test_a_stale_heartbeat_is_unhealthy(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "heartbeat_age", lambda: 5.1)
    answer = httpx.get(f"{site.url}/health")
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")


def test_a_database_that_does_not_answer_is_unhealthy(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_cursor: CursorWrapper) -> None:
        raise OperationalError

    monkeypatch.setattr(web, "_select", broken)
    answer = httpx.get(f"{site.url}/health")
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")


def test_health_is_read_only(site: Served) -> None:
    assert httpx.post(f"{site.url}/health").json()["code"] == "method_not_allowed"


# --- paths ----------------------------------------------------------------------------------


def test_static_files_are_served_and_revalidated(site: Served) -> None:
    answer = httpx.get(f"{site.url}/static/mandate/base.css")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/css")
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = httpx.get(
        f"{site.url}/static/mandate/base.css", headers={"if-none-match": answer.headers["etag"]}
    )
    assert again.status_code == 304
    assert httpx.get(f"{site.url}/static/admin/css/base.css").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/nothing.css",
        "/static/..%2f..%2fsettings.py",
        "/static/%2e%2e/settings.py",
        "/static//etc/passwd",
        "/static/mandate/../../settings.py",
        "/static/mandate%00.css",
    ],
)
def test_nothing_beside_the_static_files_is_served(site: Served, path: str) -> None:
    raw_request = f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.port)) as client:
        client.sendall(raw_request.encode())
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answer.split(b" ")[1] in {b"400", b"404"}
    assert b"SECRET_KEY" not in answer
    assert b"root:" not in answer


@pytest.mark.parametrize(
    "path",
    ["/gateway/v1/nothing", "/gateway/other", "/gateway/mcp", "/apps/v1/nothing", "/api/nothing"],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_program_is_ever_answered_with_a_page_or_a_redirect(
    site: Served, path: str, method: str
) -> None:
    answer = httpx.request(method, f"{site.url}{path}")
    assert 400 <= answer.status_code < 500
    assert "json" in answer.headers["content-type"]


def test_pages_are_djangos(site: Served) -> None:
    assert httpx.get(f"{site.url}/admin/login/").status_code == 200


# --- from start to end ----------------------------------------------------------------------


def speak_lifespan(application: Any) -> tuple[list[Any], Any]:
    """Start and stop *application* as a server does; its messages, and what ran in between."""

    async def live() -> tuple[list[Any], Any]:
        sent: list[Any] = []
        inbox: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        started = asyncio.Event()

        async def send(message: Any) -> None:
            sent.append(message)
            started.set()

        await inbox.put({"type": "lifespan.startup"})
        task = asyncio.create_task(application({"type": "lifespan"}, inbox.get, send))
        await started.wait()
        between = lifecycle._boot_id
        await inbox.put({"type": "lifespan.shutdown"})
        await task
        return sent, between

    return asyncio.run(live())


def test_the_process_is_a_boot_from_start_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[Any] = []
    monkeypatch.setattr(gc, "freeze", lambda: settled.append("freeze"))
    monkeypatch.setattr(gc, "set_threshold", lambda *numbers: settled.append(numbers))
    sent, boot_id = speak_lifespan(web.build())
    assert [m["type"] for m in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    row = Boot.objects.get(id=boot_id)
    assert row.role == "web"
    assert row.ended_at is not None
    assert settled == ["freeze", (50_000, 50, 100)]


@pytest.mark.parametrize("module", [mcp_gateway, routes])
def test_a_part_that_does_not_start_ends_the_process_with_no_text(
    monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    def broken() -> Any:
        raise ValueError("SECRET")

    monkeypatch.setattr(module, "lifespan", broken)
    sent, _ = speak_lifespan(web.build())
    [message] = sent
    assert message["type"] == "lifespan.startup.failed"
    assert "SECRET" not in message["message"]
    assert not Boot.objects.filter(ended_at=None).exists()


@pytest.mark.e2e
def test_a_terminated_process_closes_its_streams_and_rows(
    servers: Servers, settings: Any, fake_provider: FakeProvider
) -> None:
    allow(settings, fake_provider.base_url)
    world = make_world(provider_url=fake_provider.base_url)
    fake_provider.default = hang(after_chunks=1)
    server: Server = servers.web()
    body = {
        "model": "standard", "stream": True, "messages": [{"role": "user", "content": "Hi"}],
    }  # fmt: skip
    with httpx.stream(
        "POST",
        f"{server.url}/gateway/v1/chat/completions",
        json=body,
        headers=world.authorization(),
        timeout=20,
    ) as response:
        pieces = response.iter_raw()
        next(pieces)
        server.process.terminate()
        *_, last = b"".join(pieces).strip().split(b"\n\n")
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "shutting_down"
    server.process.wait(10)
    fake_provider.wait_until_gone()
    [row] = GatewayRequest.objects.all()
    assert (row.state, row.code) == ("cancelled", "shutdown")
    assert not Boot.objects.filter(ended_at=None).exists()
    assert "Traceback" not in server.output


def test_the_web_process_never_loads_what_runs_agents() -> None:
    program = "import project.asgi, sys; print('pydantic_ai' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "False"


async def test_a_body_without_a_length_is_cut_off_before_django_stores_it() -> None:
    """Only as much as the limit is taken from the connection; then the answer is 413."""
    taken = 0
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        nonlocal taken
        taken += 65_536
        return {"type": "http.request", "body": b"x" * 65_536, "more_body": True}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")]
    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/agents", "raw_path": b"/api/v1/agents",
        "query_string": b"", "headers": headers, "server": ("127.0.0.1", 80), "scheme": "http",
    }  # fmt: skip
    async with asyncio.timeout(10):
        await web.build()(scope, receive, send)
    assert sent[0]["status"] == 413
    assert b"too_large" in sent[1]["body"]
    assert taken <= 1_048_576 + 65_536
