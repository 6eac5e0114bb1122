"""Which lines of the Procfile run on this machine, and all that each of them is told."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from honcho.environ import parse_procfile

from project.config import ROOT, Config
from project.demo import addresses
from project.household import Member, answers, lives

#: Written into the data directory by the worker once its cluster runs.
WORKER_PID_FILE: Final = "worker.pid"
#: Names this installation among all that share a database. It lives as long as the directory.
INSTALLATION_FILE: Final = "installation.id"
LOOPBACK: Final = {"127.0.0.1", "localhost", "::1"}


def members(config: Config, outgoing_allowed: Sequence[str]) -> list[Member]:
    """The processes to start, in the Procfile's order.

    Web, worker and lines that an operator added get this process's environment; the others only
    what is listed here, so that no key and no database address reaches what has no use for it.
    """
    lines = parse_procfile((ROOT / "Procfile").read_text(encoding="utf-8")).processes
    environments = _environments(config, outgoing_allowed)
    readiness = _readiness(config)
    return [
        Member(
            name,
            command,
            environments.get(name, environments["web"]),
            readiness.get(name, lambda: True),
        )
        for name, command in lines.items()
        if _is_wanted(config, name)
    ]


def installation_id(data_dir: Path) -> str:
    """The random name of this data directory, made at its first use.

    Its web and worker processes record it with their boots, so that the next ``serve`` on the
    directory knows which of them a crash left behind.
    """
    file = data_dir / INSTALLATION_FILE
    known = file.read_text(encoding="ascii").strip() if file.exists() else ""
    if not known:
        known = secrets.token_hex(16)
        file.write_text(known, encoding="ascii")
    return known


def runtime_place(config: Config) -> tuple[str, int]:
    """Host and port of RUNTIME_URL."""
    parts = urlsplit(config.runtime_url)
    return parts.hostname or "127.0.0.1", parts.port or 80


def runs_here(config: Config) -> bool:
    """Whether the runtime is ours to start: elsewhere it is started with the same RUNTIME_TOKEN."""
    return runtime_place(config)[0] in LOOPBACK


def _is_wanted(config: Config, name: str) -> bool:
    match name:
        case "runtime":
            return runs_here(config)
        case "demo-model":
            return addresses.uses_demo_model(config)
        case "demo-tools":
            return config.mandate_demo
        case _:
            return True


def _environments(config: Config, outgoing_allowed: Sequence[str]) -> dict[str, dict[str, str]]:
    token = config.runtime_token or secrets.token_urlsafe(32)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    bare = {"PATH": path}
    full = {
        **os.environ,
        **bare,
        "PYTHONUNBUFFERED": "1",
        "OUTGOING_ALLOWED": ",".join(outgoing_allowed),
        "MANDATE_PARENT": installation_id(config.data_dir),
    }
    if not config.runtime_token:  # A given one reaches web the way it reached this process.
        full["RUNTIME_TOKEN"] = token
    runtime_host, runtime_port = runtime_place(config)
    return {
        "web": full,
        "worker": full,
        "runtime": {
            **bare,
            "RUNTIME_BIND": runtime_host,
            "RUNTIME_PORT": str(runtime_port),
            "GATEWAY_URL": config.gateway_address,
            "RUNTIME_TOKEN": token,
        },
        "demo-model": {
            **bare,
            "DEMO_MODEL_PORT": str(config.demo_model_port),
            "DEMO_MODEL_PACE_MS": os.environ.get("DEMO_MODEL_PACE_MS", ""),
        },
        "demo-tools": {
            **bare,
            "DATA_DIR": str(config.data_dir),
            "DEMO_TOOLS_PORT": str(config.demo_tools_port),
            "DEMO_TOOLS_DB": os.environ.get("DEMO_TOOLS_DB", ""),
            "DEMO_TOOLS_KEY": addresses.tools_key(config) if config.mandate_demo else "",
        },
    }


def _readiness(config: Config) -> dict[str, Callable[[], bool]]:
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound
    web_host = everywhere.get(config.bind, config.bind)
    runtime_host, runtime_port = runtime_place(config)
    return {
        "web": lambda: _answers(web_host, config.port),
        "runtime": lambda: _answers(runtime_host, runtime_port),
        "worker": lambda: lives(config.data_dir / WORKER_PID_FILE),
        "demo-model": lambda: _answers("127.0.0.1", config.demo_model_port),
        "demo-tools": lambda: _answers("127.0.0.1", config.demo_tools_port),
    }


def _answers(host: str, port: int) -> bool:
    return answers(f"http://{f'[{host}]' if ':' in host else host}:{port}/health")
