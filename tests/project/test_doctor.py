"""``manage.py doctor``: what it finds, and that it says what to do."""

from __future__ import annotations

import datetime as dt
import io
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

from agents import clock, content_store, vault
from agents.models import Blob, Boot, Connector, GatewayRequest
from project import doctor
from project.doctor import Finding, examine
from tests.world import make_world

pytestmark = pytest.mark.django_db(databases="__all__")


class Answering(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def well(settings: Any, tmp_path: Path) -> Iterator[type[Answering]]:
    """An installation in which everything works."""
    handler = type("Handler", (Answering,), {})
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings.GATEWAY_URL = settings.RUNTIME_URL = f"http://127.0.0.1:{server.server_port}"
    settings.DATA_DIR = tmp_path
    (tmp_path / "worker.pid").write_text(str(os.getpid()), encoding="ascii")
    yield handler
    server.shutdown()
    server.server_close()


def finding(name: str) -> Finding:
    return next(found for found in examine() if found.name == name)


def diagnose() -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("doctor", stdout=out, no_color=True)
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_a_well_installation_is_ok_line_by_line(well: type[Answering]) -> None:
    make_world()
    code, told = diagnose()
    assert (code, "FAIL" in told) == (0, False), told
    assert len(told.splitlines()) == len(doctor.CHECKS) + 1


def test_one_failure_is_exit_code_1(well: type[Answering], tmp_path: Path) -> None:
    (tmp_path / "worker.pid").unlink()
    code, told = diagnose()
    assert code == 1
    assert "FAIL  worker: none lives; start serve, or manage.py qcluster" in told
    assert told.endswith("1 checks failed.\n")


def test_a_worker_elsewhere_is_known_by_its_heartbeat(
    well: type[Answering], tmp_path: Path
) -> None:
    (tmp_path / "worker.pid").unlink()
    boot = Boot.objects.create(pid=1, host="other", role="worker")
    assert finding("worker").ok
    boot.heartbeat_at -= dt.timedelta(seconds=6)
    boot.save()
    assert not finding("worker").ok


def test_processes_that_do_not_answer_or_are_ill(well: type[Answering], settings: Any) -> None:
    well.status = 503
    assert "answers 503" in finding("web").detail
    settings.RUNTIME_URL = "http://127.0.0.1:9"
    found = finding("runtime")
    assert (found.ok, "correct RUNTIME_URL" in found.detail) == (False, True)


def test_migrations_that_wait(well: type[Answering]) -> None:
    for alias, name in (("default", "control store"), ("content", "content store")):
        recorder = MigrationRecorder(connections[alias])
        recorder.record_unapplied("chat", "0001_initial")
        found = finding(name)
        assert (found.ok, f"migrate --database {alias}" in found.detail) == (False, True)
        recorder.record_applied("chat", "0001_initial")
        assert finding(name).ok


def test_it_makes_no_database_where_none_is(
    well: type[Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_missing", lambda alias: alias == "content")
    found = {finding.name: finding for finding in examine()}
    assert "set DATA_DIR as serve had it" in found["content store"].detail
    assert found["control store"].ok
    for name in doctor.NEED_STORES:
        assert found[name].detail == "not checked: a store is missing"
    assert found["web"].ok


def test_a_key_ring_that_others_can_read(
    well: type[Answering], settings: Any, tmp_path: Path
) -> None:
    settings.KEYRING_JSON, settings.KEYRING_PATH = "", tmp_path / "ring.json"
    vault.reset()
    assert "is missing" in finding("key ring").detail
    vault.create_keyring(settings.KEYRING_PATH)
    assert finding("key ring").ok
    settings.KEYRING_PATH.chmod(0o644)
    assert "chmod 400" in finding("key ring").detail


def test_a_key_ring_that_does_not_fit(well: type[Answering], settings: Any, tmp_path: Path) -> None:
    make_world()
    settings.KEYRING_JSON, settings.KEYRING_PATH = "", tmp_path / "ring.json"
    vault.create_keyring(settings.KEYRING_PATH)
    vault.reset()
    found = finding("key ring")
    assert (found.ok, "does not fit the databases" in found.detail) == (False, True)


def test_a_damaged_newest_blob(well: type[Answering]) -> None:
    world = make_world()
    content_store.put(world.organization.id, "probe", b"content-canary")
    assert finding("content").ok
    Blob.objects.filter(kind="probe").update(digest="0" * 64)
    found = finding("content")
    assert (found.ok, "content-canary" in found.detail) == (False, False)


def test_what_a_dead_process_still_owns(well: type[Answering]) -> None:
    boot = Boot.objects.create(pid=1, host="h", role="web")
    GatewayRequest.objects.create(
        id=boot.id, organization_id=boot.id, boot_id=boot.id, kind="model", state="open",
        opened_at=boot.created_at,
    )  # fmt: skip
    assert finding("processes").ok
    Boot.objects.update(heartbeat_at=boot.created_at - dt.timedelta(seconds=6))
    assert "still own 1 requests" in finding("processes").detail


def test_connectors_whose_reading_failed(well: type[Answering]) -> None:
    world = make_world()
    connector = Connector.objects.create(
        organization=world.organization, name="Orders", slug="orders", url="https://t.example/mcp"
    )
    assert finding("connectors").ok
    connector.last_error = "connector_timeout"
    connector.save()
    assert "orders (connector_timeout)" in finding("connectors").detail


def test_clocks_that_differ(well: type[Answering]) -> None:
    assert finding("clock").ok
    with clock.shifted(dt.timedelta(seconds=30)):
        assert "+30.0 s" in finding("clock").detail


def test_a_check_that_breaks_fails_by_type_alone(
    well: type[Answering], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> str:
        raise ValueError("canary")

    monkeypatch.setitem(doctor.CHECKS, "clock", broken)
    assert finding("clock") == Finding(
        "clock", ok=False, detail="could not be checked (ValueError)"
    )
