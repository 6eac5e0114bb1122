"""Keyed digests of content, and the stored form of agent keys.

Both are HMAC-SHA-256 under a secret that the installation makes once, keeps sealed in the control
store and never rotates: a plain digest of a short text can be guessed. A process reads each secret
once; call :func:`warm` before an event loop uses them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading

from django.db import connections, router, transaction

from agents import vault
from agents.errors import KeyringProblem
from agents.models.content import Blob
from agents.models.keys import AgentKey
from agents.models.sealing import InstallationSecret

DIGEST = "digest"
PEPPER = "pepper"
SECRET_BYTES = 32

_lock = threading.Lock()
_secrets: dict[str, bytes] = {}
_derived: dict[str, bytes] = {}


def keyed_digest(data: bytes, purpose: str = "content") -> str:
    """64 hex digits that identify *data* to this installation alone; purposes never collide."""
    key = _derived.get(purpose)
    if key is None:
        key = vault.derive(_secret(DIGEST), f"digest/{purpose}")
        if DIGEST in _secrets:
            _derived[purpose] = key
    return hmac.digest(key, data, hashlib.sha256).hex()


def credential_mac(text: str) -> str:
    """What is stored instead of a credential: 64 hex digits under the pepper."""
    return hmac.digest(_secret(PEPPER), text.encode(), hashlib.sha256).hex()


def warm() -> None:
    """Make the secrets if this installation has none, and keep them in this process.

    Call it outside a transaction and off the event loop. Afterwards the functions above touch no
    database.
    """
    for name in (DIGEST, PEPPER):
        _secret(name)


def reset() -> None:
    """Forget the secrets, so that the next use reads them again."""
    with _lock:
        _secrets.clear()
        _derived.clear()


def _secret(name: str) -> bytes:
    cached = _secrets.get(name)
    if cached is not None:
        return cached
    with _lock:
        value = _stored(name)
        if value is None:
            value = _made(name)
        connection = connections[router.db_for_write(InstallationSecret)]
        if not connection.in_atomic_block:
            # Inside a transaction the row may still be rolled back; a secret that outlived its
            # row in memory would produce digests that nobody can ever recompute.
            _secrets[name] = value
        return value


def _stored(name: str) -> bytes | None:
    row = InstallationSecret.objects.filter(pk=name).first()
    return None if row is None else row.open_bytes("sealed")


def _made(name: str) -> bytes:
    """Create the secret, or read what another process created at the same moment."""
    row = InstallationSecret(name=name)
    row.seal_value("sealed", secrets.token_bytes(SECRET_BYTES))
    with transaction.atomic(using=router.db_for_write(InstallationSecret)):
        value = _stored(name)
        if value is not None:
            return value
        if (Blob if name == DIGEST else AgentKey).objects.exists():
            # What is stored was made with the lost secret; a new one would orphan all of it.
            msg = f"The installation secret {name} is gone although it was used; restore it"
            raise KeyringProblem(msg)
        InstallationSecret.objects.bulk_create([row], ignore_conflicts=True)
    value = _stored(name)
    if value is None:
        msg = f"The installation secret {name} could not be stored"
        raise KeyringProblem(msg)
    return value
