"""Sealing: AES-256-GCM envelopes under the keys of one ring.

Every value gets a fresh data key, wrapped by the ring's active key. A sealed value opens only
with the ring's key that its header names and only at the place it was sealed for: store, table,
column, row, organization and version are associated data. Rotation re-wraps the data key and
leaves the content's bytes alone.

Format, fixed offsets::

    v1|A256GCM|<key id, 16 bytes padded with dots>|<wrap nonce 12><wrapped data key 48>
    <nonce 12><ciphertext and tag>
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from agents.errors import DamagedContent, KeyringProblem

MAGIC: Final = b"v1|A256GCM|"
KEK_ID_BYTES: Final = 16
#: What names the key: a prefix of constant length, so that SQL can select it.
HEADER_BYTES: Final = len(MAGIC) + KEK_ID_BYTES + 1
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
WRAPPED_BYTES: Final = NONCE_BYTES + KEY_BYTES + TAG_BYTES
#: Bytes that sealing adds to a value.
OVERHEAD_BYTES: Final = HEADER_BYTES + WRAPPED_BYTES + NONCE_BYTES + TAG_BYTES

_KEK_ID = re.compile(r"[a-z0-9-]{1,16}")
_FILE_MODES: Final = frozenset({0o400, 0o600})

#: Drivers hand out ``memoryview`` on PostgreSQL and ``bytes`` on SQLite.
Sealed: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class SealContext:
    """The one place where a sealed value opens. ``row_id`` must exist before the INSERT."""

    store: str
    table: str
    column: str
    row_id: UUID | str
    organization_id: UUID | None
    version: int = 0

    @property
    def purpose(self) -> str:
        """The label under which the wrapping key is derived: one per sealed column."""
        return wrapping_purpose(self.store, self.table, self.column)

    def associated_data(self) -> bytes:
        """Every member, each behind its length, so that no two contexts spell the same bytes."""
        organization = "" if self.organization_id is None else self.organization_id.hex
        row_id = self.row_id.hex if isinstance(self.row_id, UUID) else self.row_id
        parts = (self.store, self.table, self.column, row_id, organization, str(self.version))
        encoded = [part.encode() for part in parts]
        return b"v1" + b"".join(len(part).to_bytes(4, "big") + part for part in encoded)


def wrapping_purpose(store: str, table: str, column: str) -> str:
    """The derivation label of one sealed column."""
    return f"wrap/{store}/{table}/{column}"


@dataclass(frozen=True, slots=True)
class Keyring:
    """Key-encryption keys by id, one of them active. Never shows a key's bytes."""

    active: str
    keys: Mapping[str, bytes] = field(repr=False)
    _derived: dict[tuple[str, str], AESGCM] = field(default_factory=dict, repr=False, compare=False)

    def __contains__(self, kek_id: object) -> bool:
        return kek_id in self.keys

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys)

    def cipher(self, kek_id: str, purpose: str) -> AESGCM:
        """The AEAD of one purpose under one key, derived by HKDF. ``KeyError``: unknown id."""
        cached = self._derived.get((kek_id, purpose))
        if cached is None:
            cached = AESGCM(derive(self.keys[kek_id], purpose))
            self._derived[kek_id, purpose] = cached
        return cached


def derive(key: bytes, purpose: str) -> bytes:
    """A 32-byte key for *purpose*, independent of every other purpose of the same key."""
    kdf = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=f"mandate/{purpose}".encode())
    return kdf.derive(key)


# --- values ---------------------------------------------------------------------------------


def seal(plaintext: bytes, context: SealContext) -> bytes:
    """Seal *plaintext* for one place, under the active key."""
    data_key = secrets.token_bytes(KEY_BYTES)
    nonce = secrets.token_bytes(NONCE_BYTES)
    ciphertext = AESGCM(data_key).encrypt(nonce, plaintext, context.associated_data())
    ring = load_keyring()
    return _wrapped_header(data_key, ring, context.purpose) + nonce + ciphertext


def unseal(sealed: Sealed | None, context: SealContext) -> bytes:
    """Open a value at its place. ``DamagedContent`` for anything else than what was sealed."""
    try:
        data_key = unwrap(sealed, context.purpose)
        body = _bytes(sealed)[HEADER_BYTES + WRAPPED_BYTES :]
        return AESGCM(data_key).decrypt(
            body[:NONCE_BYTES], body[NONCE_BYTES:], context.associated_data()
        )
    except (InvalidTag, KeyError, ValueError):
        raise DamagedContent(table=context.table, row=str(context.row_id)) from None


def unwrap(sealed: Sealed | None, purpose: str) -> bytes:
    """The data key of *sealed*.

    Raises ``ValueError`` for a malformed value, ``KeyError`` for a key that the ring lacks and
    ``InvalidTag`` when the ring's key of that id is another one.
    """
    value = _bytes(sealed)
    kek_id = sealed_kek_id(value)
    header, wrapped = value[:HEADER_BYTES], value[HEADER_BYTES : HEADER_BYTES + WRAPPED_BYTES]
    cipher = load_keyring().cipher(kek_id, purpose)
    return cipher.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], header)


def rewrap(sealed: Sealed | None, context: SealContext) -> bytes:
    """The same content under the active key; only the header changes."""
    try:
        data_key = unwrap(sealed, context.purpose)
    except (InvalidTag, KeyError, ValueError):
        raise DamagedContent(table=context.table, row=str(context.row_id)) from None
    header = _wrapped_header(data_key, load_keyring(), context.purpose)
    return header + _bytes(sealed)[HEADER_BYTES + WRAPPED_BYTES :]


def sealed_kek_id(sealed: Sealed | None) -> str:
    """The id of the key that wraps *sealed* (its header alone suffices); else ``ValueError``."""
    header = _bytes(sealed)[:HEADER_BYTES]
    padded = header[len(MAGIC) : -1]
    kek_id = padded.rstrip(b".").decode("ascii", "replace")
    if header != _header(kek_id) or not _KEK_ID.fullmatch(kek_id):
        msg = "not a sealed value"
        raise ValueError(msg)
    return kek_id


def is_sealed(value: Sealed | None) -> bool:
    """Whether *value* has the shape of a sealed value (not whether it opens)."""
    try:
        sealed_kek_id(value)
    except ValueError:
        return False
    return len(_bytes(value)) >= OVERHEAD_BYTES


def _wrapped_header(data_key: bytes, ring: Keyring, purpose: str) -> bytes:
    header = _header(ring.active)
    nonce = secrets.token_bytes(NONCE_BYTES)
    return header + nonce + ring.cipher(ring.active, purpose).encrypt(nonce, data_key, header)


def _header(kek_id: str) -> bytes:
    return MAGIC + kek_id.encode().ljust(KEK_ID_BYTES, b".") + b"|"


def _bytes(value: Sealed | None) -> bytes:
    if value is None:
        msg = "there is no value"
        raise ValueError(msg)
    return bytes(value)


# --- the ring -------------------------------------------------------------------------------

_lock = threading.Lock()
_ring: Keyring | None = None


def load_keyring() -> Keyring:
    """The ring of this installation, read once per process. ``KeyringProblem`` when unusable."""
    global _ring
    ring = _ring
    if ring is None:
        with _lock:
            if _ring is None:
                _ring = _read_ring()
            ring = _ring
    return ring


def reset() -> None:
    """Forget the ring, so that the next use reads it again."""
    global _ring
    with _lock:
        _ring = None


def keyring_exists() -> bool:
    """Whether a ring is configured: given in the environment, or present as a file."""
    return bool(settings.KEYRING_JSON) or Path(settings.KEYRING_PATH).exists()


def create_keyring(path: Path) -> None:
    """Write a ring with one fresh key to *path* (0400). ``KeyringProblem`` if the file exists.

    The file appears complete or not at all, also when two processes try at once.
    """
    kek_id = f"k-{secrets.token_hex(4)}"
    key = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    text = json.dumps({"active": kek_id, "keys": {kek_id: key}}, indent=2) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # A link fails when the name is taken, where a rename would replace the other's ring.
        path.hardlink_to(draft)
    except FileExistsError:
        msg = f"The key ring {path} exists already; it is never replaced"
        raise KeyringProblem(msg) from None
    finally:
        draft.unlink()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read_ring() -> Keyring:
    if settings.KEYRING_JSON:
        return parse_keyring(settings.KEYRING_JSON, "The key ring in the environment")
    path = Path(settings.KEYRING_PATH)
    origin = f"The key ring {path}"
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        msg = f"{origin} is missing; restore it, sealed content cannot be read without it"
        raise KeyringProblem(msg) from None
    except OSError as error:
        msg = f"{origin} cannot be opened: {os.strerror(error.errno or 0)}"
        raise KeyringProblem(msg) from None
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        status = os.fstat(file.fileno())
        mode = stat.S_IMODE(status.st_mode)
        if not stat.S_ISREG(status.st_mode) or mode not in _FILE_MODES:
            msg = f"{origin} must be a regular file of mode 0400 or 0600, not {mode:04o}"
            raise KeyringProblem(msg)
        if status.st_uid != os.geteuid():
            msg = f"{origin} belongs to user {status.st_uid}, not to {os.geteuid()}"
            raise KeyringProblem(msg)
        return parse_keyring(file.read(), origin)


def parse_keyring(text: str, origin: str) -> Keyring:
    """Read ``{"active": id, "keys": {id: base64 of 32 bytes}}``; *origin* begins its complaints."""
    try:
        document = json.loads(text)
        active, encoded = document["active"], dict(document["keys"])
        keys = {str(name): base64.b64decode(key, validate=True) for name, key in encoded.items()}
    except (ValueError, TypeError, KeyError, binascii.Error):
        msg = f'{origin} is not JSON of the form {{"active": id, "keys": {{id: base64}}}}'
        raise KeyringProblem(msg) from None
    for name, key in keys.items():
        if not _KEK_ID.fullmatch(name):
            msg = f"{origin} has a key id that is not 1 to 16 of a-z, 0-9 and -"
            raise KeyringProblem(msg)
        if len(key) != KEY_BYTES:
            msg = f"{origin}: key {name} has {len(key)} bytes instead of {KEY_BYTES}"
            raise KeyringProblem(msg)
    if active not in keys:
        msg = f"{origin} names an active key that it does not hold"
        raise KeyringProblem(msg)
    return Keyring(active=active, keys=keys)
