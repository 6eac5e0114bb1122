"""``manage.py serve``: the whole product on one machine, in one command."""

from __future__ import annotations

import errno
import fcntl
import gc
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from agents import digests, keyring, writer
from agents.errors import DomainError
from agents.services import boots
from project import served
from project.config import HIGHEST_PORT, Config
from project.demo import addresses
from project.demo.seed import PEOPLE, installation_is_empty, seed_demo
from project.household import Household
from project.processes import WORKER_PID_FILE, installation_id, members, runs_here, runtime_place

LOCK_FILE: Final = "serve.lock"
#: A predecessor that was just killed may hold its ports a moment longer.
PORT_GRACE_SECONDS: Final = 3.0


class Command(BaseCommand):
    help = "Prepare this installation and run all of it until Ctrl-C."
    _seeded = False

    def handle(self, *args: Any, **options: Any) -> None:
        config = addresses.with_kept_ports(settings.CONFIG)
        with only_one(config.data_dir):
            check_ports(config)
            self._prepare(config)
            served.record(config)
            try:
                self._run(config)
            finally:
                served.forget(config)

    def _prepare(self, config: Config) -> None:
        """Bring both stores, the key ring and the demo to where the processes need them."""
        # The seed saves addresses, which are vetted in this process.
        settings.OUTGOING_ALLOWED.extend(
            pair
            for pair in addresses.outgoing_allowed(config)
            if pair not in settings.OUTGOING_ALLOWED
        )
        for database in ("content", "default"):
            call_command("migrate", database=database, interactive=False, verbosity=0)
        boots.end_boots_left_behind(installation_id(config.data_dir))
        try:
            keyring.ensure_keyring()
            digests.warm()
            if config.mandate_demo and installation_is_empty():
                seed_demo(sys.stdout)
                addresses.keep_ports(config)
                self._seeded = True
        except DomainError as problem:
            raise CommandError(problem.detail) from problem
        self.stdout.write("The databases and the key ring are in order.")
        self.stdout.flush()

    def _run(self, config: Config) -> None:
        Path(config.data_dir, WORKER_PID_FILE).unlink(missing_ok=True)
        # The children are forks of this process: no thread and no connection may be left in it.
        writer.stop_all()
        close_connections()
        gc.collect()
        gc.freeze()
        household = Household(
            members(config, settings.OUTGOING_ALLOWED),
            when_ready=lambda: _say(self._welcome(config)),
        )
        household.loop()
        if household.fallen:
            names = ", ".join(f"{name} ({code})" for name, code in household.fallen.items())
            raise CommandError(f"Ended by itself: {names}. Everything else was stopped.")
        _say("Mandate has stopped.")

    def _welcome(self, config: Config) -> str:
        """What a person needs once everything answers: where, who, and how to end it."""
        lines = ["", f"Mandate is ready on {config.public_address}"]
        if config.mandate_demo:
            people = ", ".join(person.username for person in PEOPLE)
            once = "stand above, this once" if self._seeded else "were shown at the first start"
            lines += [
                f"  People: {people}; their passwords {once}",
                f"  Shop:   http://127.0.0.1:{config.demo_tools_port}/",
            ]
        lines += [f"  Data:   {config.data_dir}", "  Stop:   Ctrl-C", ""]
        return "\n".join(lines)


def close_connections() -> None:
    """Close every database connection of this process, those that wait in pools too."""
    for connection in connections.all():
        connection.close()
        close_pool = getattr(connection, "close_pool", None)
        if close_pool is not None:
            close_pool()


@contextmanager
def only_one(data_dir: Path) -> Iterator[None]:
    """Hold the data directory's lock, or refuse."""
    with (data_dir / LOCK_FILE).open("a", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(
                f"Another serve runs on {data_dir}. Stop it, or set DATA_DIR to another directory."
            ) from None
        yield


def check_ports(config: Config) -> None:
    """Refuse when a needed port is taken, naming it and the variable that moves it."""
    wanted = [(config.bind, config.port, "PORT={}")]
    if runs_here(config):
        host, port = runtime_place(config)
        shown = f"[{host}]" if ":" in host else host
        wanted.append((host, port, f"RUNTIME_URL=http://{shown}:{{}}"))
    if addresses.uses_demo_model(config):
        wanted.append(("127.0.0.1", config.demo_model_port, "DEMO_MODEL_PORT={}"))
    if config.mandate_demo:
        wanted.append(("127.0.0.1", config.demo_tools_port, "DEMO_TOOLS_PORT={}"))
    deadline = time.monotonic() + PORT_GRACE_SECONDS
    with ExitStack() as held:  # All at once, so that two equal settings are noticed too.
        for host, port, setting in wanted:
            while not _try_to_hold(held, host, port, setting.partition("=")[0]):
                if time.monotonic() > deadline:
                    other = setting.format(port + 20 if port + 20 <= HIGHEST_PORT else port - 20)
                    raise CommandError(
                        f"Port {port} is in use. Free it, or set another one: {other}"
                    )
                time.sleep(0.2)


def _try_to_hold(held: ExitStack, host: str, port: int, variable: str) -> bool:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        held.enter_context(socket.create_server((host, port), family=family))
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            return False
        raise CommandError(
            f"Port {port} cannot be opened on {host} ({problem.strerror}). See {variable}."
        ) from problem
    return True


def _say(line: str) -> None:
    print(line, flush=True)
