"""Is this installation well? Each check reads, judges, and says what to do."""

from __future__ import annotations

import datetime as dt
import http.client
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings
from django.db import Error as DatabaseProblem
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from agents import clock, content_store, keyring, vault
from agents.choices import ApprovalState, RequestState, RunState
from agents.errors import DomainError
from agents.models import Approval, Blob, Boot, Connector, GatewayRequest, Run
from agents.services.boots import dead_boots
from project import served
from project.databases import CONTENT, CONTROL
from project.household import lives
from project.processes import WORKER_PID_FILE

#: Seconds between our clock and the database's that harm nothing.
SKEW_LIMIT = 2.0
HEALTH_SECONDS = 3.0


class Ailment(Exception):
    """A check failed; the text says what is wrong and what to do, and names no content."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    name: str
    ok: bool
    detail: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.ok else 'FAIL'}  {self.name}: {self.detail}"


def examine() -> Iterator[Finding]:
    """Run every check, one after the other; a check that breaks is a failed one."""
    for name, check in CHECKS.items():
        if name in NEED_STORES and any(map(_missing, (CONTROL, CONTENT))):
            # To connect would make an empty file, which hides what is wrong from the next look.
            yield Finding(name, ok=False, detail="not checked: a store is missing")
            continue
        try:
            yield Finding(name, ok=True, detail=check())
        except Ailment as ailment:
            yield Finding(name, ok=False, detail=str(ailment))
        except DomainError as refusal:
            yield Finding(name, ok=False, detail=refusal.detail)
        except Exception as error:  # noqa: BLE001  # the other checks go on; the text may quote rows
            yield Finding(name, ok=False, detail=f"could not be checked ({type(error).__name__})")


def check_store(alias: str) -> str:
    """The database answers, and every migration of it is applied."""
    connection = connections[alias]
    _require(
        not _missing(alias),
        f"{connection.settings_dict['NAME']} is missing; set DATA_DIR as serve had it, or run serve",
    )
    try:
        connection.ensure_connection()
    except DatabaseProblem as error:
        msg = f"does not answer ({type(error).__name__}); check its address and that it runs"
        raise Ailment(msg) from None
    executor = MigrationExecutor(connection)
    waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    _require(
        not waiting,
        f"{len(waiting)} migrations are not applied; run manage.py migrate --database {alias}",
    )
    return f"{connection.vendor}, migrated"


def _missing(alias: str) -> bool:
    """Whether the database is a file that is not there."""
    connection = connections[alias]
    name = str(connection.settings_dict["NAME"])
    return connection.vendor == "sqlite" and "memory" not in name and not Path(name).exists()


def check_keys() -> str:
    """The key ring opens what is sealed, and its file is for its owner alone."""
    if not settings.KEYRING_JSON:
        path = Path(settings.KEYRING_PATH)
        _require(path.exists(), f"{path} is missing; restore it, or let serve make the first one")
        mode = stat.S_IMODE(path.stat().st_mode)
        _require(not mode & 0o077, f"{path} is readable by others ({mode:o}); chmod 400 {path}")
    keyring.check_keyring()
    ring = vault.load_keyring()
    return f"opens what is sealed; {ring.active} is active"


def check_content() -> str:
    """The newest blob opens and is what its digest says."""
    newest = Blob.objects.order_by("-touched_at").first()
    if newest is None:
        return "empty"
    content_store.open_blob(newest)
    return "the newest blob opens (verify_store reads all)"


def check_health(setting: str) -> str:
    """The process whose address *setting* holds answers /health with 200."""
    base = served.address(setting)
    status = _health_status(base)
    _require(status is not None, f"{base} does not answer; start serve, or correct {setting}")
    _require(status == http.client.OK, f"{base}/health answers {status}; see its log")
    return f"{base} is healthy"


def _health_status(base: str) -> int | None:
    parts = urlsplit(base)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=HEALTH_SECONDS)
    try:
        connection.request("GET", f"{parts.path}/health", headers={"Connection": "close"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def check_worker() -> str:
    """A worker lives: on this machine by its process, elsewhere by its heartbeat."""
    if lives(settings.DATA_DIR / WORKER_PID_FILE):
        return "its process lives"
    dead = dead_boots()
    elsewhere = Boot.objects.filter(role="worker").exclude(id__in=dead)
    _require(elsewhere.exists(), "none lives; start serve, or manage.py qcluster")
    return "its heartbeat is fresh"


def check_clock() -> str:
    """Lifetimes are measured on the database's clock; ours must not differ much."""
    before = timezone.now()
    theirs = clock.database_now()
    after = timezone.now()
    skew = (theirs - (before + (after - before) / 2)) / dt.timedelta(seconds=1)
    _require(abs(skew) <= SKEW_LIMIT, f"{skew:+.1f} s from the database's; synchronise both")
    return f"{skew:+.3f} s from the database's"


def check_boots() -> str:
    """Nothing is still owned by a process that died; the sweeps put that right in 30 s."""
    dead = dead_boots()
    left = {
        "runs": Run.objects.filter(state=RunState.RUNNING, boot_id__in=dead).count(),
        "requests": GatewayRequest.objects.filter(
            state=RequestState.OPEN, boot_id__in=dead
        ).count(),
        "approvals": Approval.objects.filter(
            state=ApprovalState.EXECUTING, executing_boot_id__in=dead
        ).count(),
    }
    owned = ", ".join(f"{count} {what}" for what, count in left.items() if count)
    _require(not owned, f"dead processes still own {owned}; a running web sweeps them in 30 s")
    alive = Boot.objects.exclude(id__in=dead).count()
    return f"{alive} alive, the dead own nothing"


def check_connectors() -> str:
    """The last reading of every enabled connector went well."""
    rows = Connector.objects.filter(enabled=True, first_party=False).order_by("slug")
    ill = [f"{row.slug} ({row.last_error})" for row in rows if row.last_error]
    _require(not ill, f"{', '.join(ill)}; check address and credential, then refresh")
    return f"{len(rows)} without errors"


def _require(condition: object, complaint: str) -> None:
    if not condition:
        raise Ailment(complaint)


NEED_STORES = frozenset({"key ring", "content", "worker", "clock", "processes", "connectors"})
CHECKS: dict[str, Callable[[], str]] = {
    "control store": partial(check_store, CONTROL),
    "content store": partial(check_store, CONTENT),
    "key ring": check_keys,
    "content": check_content,
    "web": partial(check_health, "GATEWAY_URL"),
    "runtime": partial(check_health, "RUNTIME_URL"),
    "worker": check_worker,
    "clock": check_clock,
    "processes": check_boots,
    "connectors": check_connectors,
}
