"""The control store holds no content, and the scan that says so finds what is planted."""

from __future__ import annotations

import base64
import json
import pickle
import sqlite3
import subprocess
import sys
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.core.management import CommandError, call_command
from django.db import connection
from django_q.models import OrmQ
from django_q.signing import SignedPackage
from hypothesis import given
from hypothesis import strategies as st

from agents import content_store
from agents.models import Connector, Organization, Tool
from agents.services.scanning import Finding, scan_control
from agents.services.scanning.catalogue import file_pieces
from agents.services.scanning.decoding import texts
from agents.services.scanning.matching import WINDOW, ContentIndex

CANARY = "CANARY-5d41-blue-heron-at-dawn"
ORGANIZATION = uuid.UUID(int=3)
SECRET_TEXT = "When the customer is angry, offer a refund of at most forty dollars at once."

in_database = pytest.mark.django_db(databases="__all__")


def places(findings: list[Finding]) -> set[str]:
    """Where, leaving out the files: they repeat what the tables say."""
    return {finding.place for finding in findings if not finding.place.startswith("file ")}


@pytest.fixture
def planted_table(db: None) -> str:
    """A table and a column that no model knows."""
    with connection.cursor() as cursor:
        cursor.execute('CREATE TABLE "left over" (id integer, "a note" text, raw text)')
    return "left over"


def make_tool(*, name: str, description: str) -> Tool:
    organization = Organization.objects.create(name="Acme", slug="acme")
    connector = Connector.objects.create(organization=organization, name="Orders", slug="orders")
    return Tool.objects.create(
        connector=connector, name=name, exposed_name="orders__refund", description=description,
        digest="0" * 64,
    )  # fmt: skip


def plant(value: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute('INSERT INTO "left over" VALUES (1, %s, NULL)', [value])


@in_database
def test_a_clean_database_reports_nothing() -> None:
    content_store.put(ORGANIZATION, "instructions", SECRET_TEXT.encode())
    Organization.objects.create(name="Acme", slug="acme")
    assert scan_control(canaries=[CANARY]) == []


@in_database
def test_a_canary_in_a_table_made_just_now_is_found(planted_table: str) -> None:
    plant(f"somebody left {CANARY} here")
    assert places(scan_control(canaries=[CANARY])) == {"left over.a note"}


@in_database
def test_content_is_found_without_naming_it(planted_table: str) -> None:
    content_store.put(ORGANIZATION, "instructions", SECRET_TEXT.encode())
    plant(f"log: {SECRET_TEXT[20 : 20 + WINDOW]}")
    findings = scan_control()
    assert places(findings) == {"left over.a note"}
    assert SECRET_TEXT[20:40] not in " ".join(map(str, findings))


@in_database
def test_less_than_a_window_is_not_content(planted_table: str) -> None:
    content_store.put(ORGANIZATION, "instructions", SECRET_TEXT.encode())
    plant(f"{SECRET_TEXT[20 : 20 + WINDOW - 1]}|")
    assert scan_control() == []


@in_database
@pytest.mark.parametrize(
    "disguise",
    [
        lambda text: text.upper(),
        lambda text: text.replace(" ", "\n\t "),
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: "key" + base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
        lambda text: text.encode().hex(),
        lambda text: base64.b64encode(zlib.compress(text.encode())).decode(),
        lambda text: base64.b64encode(pickle.dumps({"task": [text]})).decode(),
        lambda text: json.dumps({"deep": [{"er": json.dumps(text)}]}),
        lambda text: base64.b64encode(base64.b64encode(text.encode())).decode(),
        lambda text: "".join(f"\\u{ord(character):04x}" for character in text),
        lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    ],
    ids=[
        "case",
        "spaces",
        "base64",
        "urlsafe",
        "hex",
        "zlib",
        "pickle",
        "json",
        "twice",
        "escapes",
        "url",
    ],
)
def test_encodings_hide_nothing(planted_table: str, disguise: Callable[[str], str]) -> None:
    content_store.put(ORGANIZATION, "instructions", SECRET_TEXT.encode())
    plant(disguise(f"{CANARY} {SECRET_TEXT}"))
    whats = {f.what for f in scan_control(canaries=[CANARY]) if f.place == "left over.a note"}
    assert whats == {f"canary {CANARY}", "text of the content store"}


@in_database
def test_a_canary_in_a_queue_row_is_found() -> None:
    """Queue rows are signed pickles in base64."""
    payload = SignedPackage.dumps({"id": "1", "name": "t", "func": "f", "args": (CANARY,)})
    OrmQ.objects.create(key="mandate", payload=payload)
    assert CANARY not in payload
    assert places(scan_control(canaries=[CANARY])) == {f"{OrmQ._meta.db_table}.payload"}


@in_database
def test_a_canary_base64_encoded_in_a_queue_row_is_found() -> None:
    OrmQ.objects.create(key="mandate", payload=base64.b64encode(CANARY.encode()).decode())
    assert places(scan_control(canaries=[CANARY])) == {f"{OrmQ._meta.db_table}.payload"}


@in_database
def test_a_canary_in_a_session_is_found() -> None:
    session = SessionStore()
    session["last_message"] = CANARY * 20  # Long enough that Django compresses it.
    session.save()
    assert places(scan_control(canaries=[CANARY])) == {"django_session.session_data"}


@in_database
def test_a_columns_declared_type_hides_nothing() -> None:
    """SQLite keeps any value in a column of any type; PostgreSQL has stranger types."""
    sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE typed (moment {'datetime' if sqlite else 'text[]'})")
        cursor.execute("INSERT INTO typed VALUES (%s)", [CANARY if sqlite else ["first", CANARY]])
    assert places(scan_control(canaries=[CANARY])) == {"typed.moment"}


@in_database
def test_public_tool_metadata_is_the_only_exception(planted_table: str) -> None:
    public = "Refunds an order in whole or in part, and tells the customer by mail."
    make_tool(description=public, name=CANARY)
    content_store.put(ORGANIZATION, "history", json.dumps({"tools": [public]}).encode())
    assert scan_control(canaries=[CANARY]) == []
    plant(CANARY)
    assert places(scan_control(canaries=[CANARY])) == {"left over.a note"}


@in_database
def test_identifiers_that_both_stores_share_are_not_content(planted_table: str) -> None:
    run, digest = str(uuid.uuid4()), "ab" * 32
    event = {"type": "RUN_STARTED", "runId": run, "digest": digest, "at": "2026-01-01T00:00:00Z"}
    content_store.put(ORGANIZATION, "event", json.dumps(event).encode())
    plant(json.dumps(event))
    assert scan_control() == []


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_what_was_deleted_is_found_in_sqlites_file() -> None:
    is_sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        if is_sqlite:
            cursor.execute("PRAGMA secure_delete=OFF")
        cursor.execute("CREATE TABLE gone (note text)")
        cursor.execute("INSERT INTO gone VALUES (%s)", [CANARY])
        cursor.execute("DROP TABLE gone")
    findings = scan_control(canaries=[CANARY])
    assert any(finding.place.startswith("file ") for finding in findings) is is_sqlite


@in_database
def test_a_log_file_can_be_searched_too(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"INFO nothing\nERROR {CANARY}\n", encoding="utf-8")
    assert scan_control(canaries=[CANARY], also=[log]) == [
        Finding("file server.log", f"canary {CANARY}")
    ]


@in_database
def test_the_command_names_places_and_fails(
    planted_table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("scan_control", canary=[CANARY])
    assert "no content in the control store" in capsys.readouterr().out
    plant(CANARY)
    with pytest.raises(CommandError):
        call_command("scan_control", canary=[CANARY])
    assert "left over.a note" in capsys.readouterr().out


@given(st.text(st.characters(codec="ascii"), min_size=WINDOW, max_size=200), st.data())
def test_every_window_of_content_is_recognised(content: str, data: st.DataObject) -> None:
    """Wherever a window starts, its fingerprint is there; identifiers and spaces aside."""
    index = ContentIndex(lambda: [content])
    (whole, *_) = [*index._pieces()] or [""]
    if len(whole) < WINDOW:
        return
    start = data.draw(st.integers(0, len(whole) - WINDOW))
    window = whole[start : start + WINDOW]
    found = index.confirm(index.suspects(window))
    assert found or len(window.strip()) < WINDOW


def test_a_pickle_is_read_and_never_run() -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (exec, ("raise SystemExit",))

    found = list(texts(base64.b64encode(pickle.dumps([Bomb(), CANARY])).decode()))
    assert any(CANARY in text for text in found)


def test_reading_the_file_drops_no_lock_of_this_process(tmp_path: Path) -> None:
    """Another process that comes and goes meanwhile must not tidy up under our connection."""
    path = tmp_path / "live.sqlite3"
    ours = sqlite3.connect(path, isolation_level=None)
    try:
        ours.execute("PRAGMA journal_mode=WAL")
        ours.execute("CREATE TABLE t (x)")
        log = Path(f"{path}-wal")
        assert b"".join(file_pieces(path)) or b"".join(file_pieces(log))
        visitor = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]);"
        visitor += "c.execute('INSERT INTO t VALUES (1)'); c.commit(); c.close()"
        subprocess.run([sys.executable, "-c", visitor, str(path)], check=True)
        assert log.exists()
        ours.execute("INSERT INTO t VALUES (2)")
        assert ours.execute("SELECT count(*) FROM t").fetchone() == (2,)
    finally:
        ours.close()
