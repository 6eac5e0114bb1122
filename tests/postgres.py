"""A private PostgreSQL for the suite: found on the machine, started on demand, gone at exit.

It lives in a temporary directory, listens on a UNIX socket there, and keeps nothing safe: it
exists to show that statements and locks behave. Child processes share their parent's.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg

USER = "mandate"
#: Where a parent tells its children about the server it started.
SOCKET_VARIABLE = "TEST_POSTGRES_SOCKET"
START_SECONDS = 60
_PR_SET_PDEATHSIG = 1


class PostgresMissing(RuntimeError):
    """The machine has no PostgreSQL server to start."""


def url(database: str) -> str:
    """The address of *database* on the server; starts the server when it does not run yet."""
    return f"postgresql://{USER}@/{database}?host={socket_directory()}"


def create_database() -> str:
    """Make an empty database and return its name."""
    name = f"scratch_{uuid.uuid4().hex[:12]}"
    with connect() as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return name


def drop_database(name: str) -> None:
    """Drop *name*, whoever is still connected to it."""
    with connect() as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def connect(database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
    return psycopg.connect(url(database), autocommit=True)


@functools.cache
def socket_directory() -> str:
    """The directory of the server's socket."""
    inherited = os.environ.get(SOCKET_VARIABLE)
    if inherited:
        return inherited
    directory = _start()
    os.environ[SOCKET_VARIABLE] = directory
    return directory


def _binaries() -> Path:
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    pg_config = shutil.which("pg_config")
    if pg_config:
        found = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=True)
        candidates.insert(0, Path(found.stdout.strip()))
    on_path = shutil.which("initdb")
    if on_path:
        candidates.append(Path(on_path).parent)
    for directory in candidates:
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            return directory
    msg = "PostgreSQL's server is not installed: the locking tests need it (apt: postgresql)"
    raise PostgresMissing(msg)


def _start() -> str:
    binaries = _binaries()
    directory = Path(tempfile.mkdtemp(prefix="mandate-pg-"))
    identity: dict[str, Any] = {}
    if os.geteuid() == 0:  # The server refuses to run as root.
        nobody = pwd.getpwnam("nobody")
        directory.chmod(0o755)
        os.chown(directory, nobody.pw_uid, nobody.pw_gid)
        identity = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    data = directory / "data"
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    subprocess.run(
        [binaries / "initdb", "-D", data, "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync"],
        check=True,
        cwd=directory,
        env=environment,
        stdout=subprocess.DEVNULL,
        **identity,
    )
    log = (directory / "log").open("wb")
    server = subprocess.Popen(
        [
            binaries / "postgres",
            "-D",
            data,
            "-k",
            directory,
            "-h",
            "",
            "-c",
            "fsync=off",
            "-c",
            "max_connections=200",
            "-c",
            "deadlock_timeout=100ms",
        ],
        cwd=directory,
        env=environment,
        stdout=log,
        stderr=log,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - the suite has no threads yet
        **identity,
    )
    atexit.register(_stop, server, directory)
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(host=str(directory), user=USER, dbname="postgres").close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > deadline:
                text = (directory / "log").read_text(errors="replace")
                msg = f"PostgreSQL did not start:\n{text}"
                raise PostgresMissing(msg) from None
            time.sleep(0.05)
        else:
            return str(directory)


def _die_with_parent() -> None:
    # After the change of user, which would clear it; a killed test run leaves no server behind.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _stop(server: subprocess.Popen[bytes], directory: Path) -> None:
    server.send_signal(signal.SIGQUIT)
    server.wait(timeout=10)
    shutil.rmtree(directory, ignore_errors=True)
