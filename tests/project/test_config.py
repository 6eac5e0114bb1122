"""The installation's settings: derived, documented, and told by name when they are wrong."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from project import served
from project.config import ROOT, Config, load
from project.demo import addresses

DEPLOY = ROOT / "docs" / "how-to" / "deploy.md"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Config.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


# --- ports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        (None, (8000, "http://127.0.0.1:8010", 8011, 8012)),
        ("9000", (9000, "http://127.0.0.1:9010", 9011, 9012)),
        ("65530", (65530, "http://127.0.0.1:65520", 65519, 65518)),
    ],
)
def test_one_port_moves_all(
    monkeypatch: pytest.MonkeyPatch, port: str | None, expected: tuple[int, str, int, int]
) -> None:
    if port:
        monkeypatch.setenv("PORT", port)
    config = Config()
    found = (config.port, config.runtime_url, config.demo_model_port, config.demo_tools_port)
    assert found == expected
    assert config.gateway_address == config.public_address == f"http://127.0.0.1:{config.port}"


def test_what_is_set_is_not_derived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "9000")
    monkeypatch.setenv("RUNTIME_URL", "http://runtime.internal:80/")
    monkeypatch.setenv("DEMO_TOOLS_PORT", "7000")
    config = Config()
    assert config.runtime_url == "http://runtime.internal:80"
    assert (config.demo_model_port, config.demo_tools_port) == (9011, 7000)


def test_a_seeded_demo_keeps_the_ports_that_its_rows_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    addresses.keep_ports(Config(data_dir=tmp_path))
    monkeypatch.setenv("PORT", "9000")
    later = addresses.with_kept_ports(Config(data_dir=tmp_path))
    assert (later.runtime_url, later.demo_model_port, later.demo_tools_port) == (
        "http://127.0.0.1:9010", 8011, 8012,
    )  # fmt: skip
    monkeypatch.setenv("DEMO_TOOLS_PORT", "7000")
    assert addresses.with_kept_ports(Config(data_dir=tmp_path)).demo_tools_port == 7000
    (tmp_path / addresses.PORTS_FILE).write_text("{}", encoding="utf-8")
    assert addresses.with_kept_ports(Config(data_dir=tmp_path)).demo_model_port == 9011


# --- wrong ones ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"PORT": "canary"}, ["PORT: Input should be a valid integer"]),
        ({"PORT": "70000"}, ["PORT: Input should be less than or equal to 65535"]),
        ({"RUNTIME_URL": "127.0.0.1:canary"}, ["RUNTIME_URL: must be an http or https address"]),
        ({"RUNTIME_URL": "http://host:canary"}, ["RUNTIME_URL: must be an http or https address"]),
        ({"DATABASE_URL": "mysql://u:canary@h/d"}, ["DATABASE_URL: must start with sqlite:"]),
        (
            {"PORT": "canary", "LOG_LEVEL": "canary"},
            ["PORT: Input should be", "LOG_LEVEL: Input should be 'DEBUG'"],
        ),
        (
            {"SECRET_KEY": "canary", "SECRET_KEY_FILE": "/canary"},
            ["SECRET_KEY: SECRET_KEY and SECRET_KEY_FILE are both set"],
        ),
        ({"RUNTIME_TOKEN_FILE": "/canary"}, ["RUNTIME_TOKEN: the file that RUNTIME_TOKEN_FILE"]),
        ({"DATA_DIR": "/dev/null/canary"}, ["DATA_DIR: the directory cannot be made"]),
    ],
)
def test_wrong_settings_are_named_one_a_line_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    given: dict[str, str],
    told: list[str],
) -> None:
    monkeypatch.setenv("DATA_DIR", str(tmp_path))
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        load()
    lines = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert lines[0] == "Mandate cannot start with these settings:"
    assert len(lines) == len(told) + 1
    for line, start in zip(lines[1:], told, strict=True):
        assert line.startswith(f"  {start}")
        assert "canary" not in line


@pytest.mark.parametrize(
    "command", [["manage.py", "check"], ["-m", "uvicorn", "project.asgi:application"]]
)
def test_every_process_ends_with_2_and_no_traceback(tmp_path: Path, command: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "DATA_DIR": str(tmp_path), "PORT": "abc"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "  PORT: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_every_setting_is_in_the_deployment_page() -> None:
    table = "\n".join(
        line.split("|")[1] for line in DEPLOY.read_text("utf-8").splitlines() if line[:2] == "| "
    )
    documented = set(re.findall(r"`([A-Z_]+)`", table))
    assert documented == {name.upper() for name in Config.model_fields}


# --- beside a serve -----------------------------------------------------------------------------


def test_other_commands_know_where_serve_runs(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path
    settings.CONFIG = Config(data_dir=tmp_path)
    settings.RUNTIME_URL = settings.CONFIG.runtime_url
    monkeypatch.setenv("PORT", "9000")
    monkeypatch.setenv("RUNTIME_TOKEN", "canary")
    serving = Config(data_dir=tmp_path)
    served.record(serving)
    file = tmp_path / served.SERVED_FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "canary" not in file.read_text("utf-8")

    assert served.address("GATEWAY_URL") == "http://127.0.0.1:9000"
    assert served.address("RUNTIME_URL") == "http://127.0.0.1:9010"

    settings.CONFIG = Config(data_dir=tmp_path, port=7000)
    settings.GATEWAY_URL = settings.CONFIG.gateway_address
    assert served.address("GATEWAY_URL") == "http://127.0.0.1:7000"

    settings.CONFIG = Config(data_dir=tmp_path, port=9000)
    served.forget(serving)
    assert served.address("RUNTIME_URL") == settings.RUNTIME_URL


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_damaged_record_is_no_record(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path, text: str
) -> None:
    monkeypatch.delenv("PORT", raising=False)
    settings.DATA_DIR, settings.CONFIG = tmp_path, Config(data_dir=tmp_path)
    (tmp_path / served.SERVED_FILE).write_text(text, encoding="utf-8")
    assert served.address("RUNTIME_URL") == settings.RUNTIME_URL


def test_manage_py_finds_its_own_environment(tmp_path: Path) -> None:
    shutil.copy(ROOT / "manage.py", tmp_path)
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    own = tmp_path / ".venv" / "bin" / "python"
    own.parent.mkdir(parents=True)
    own.write_text('#!/bin/sh\necho "own environment: $2"\n', encoding="utf-8")
    own.chmod(0o755)
    done = subprocess.run(
        [tmp_path / "bare" / "bin" / "python", "manage.py", "doctor"],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "own environment: doctor\n"
