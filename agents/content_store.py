"""Immutable content, sealed, addressed by organization, kind and keyed digest.

Write content first, then the control row that names it. Control rows tell the sweep what they
name through :func:`register_references`; what nobody names is deleted once it has not been put or
touched for 24 hours.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

import rfc8785
from django.db.models import Model, Q
from django.utils import timezone

from agents.digests import keyed_digest
from agents.errors import DamagedContent
from agents.models.content import Blob

SHA256_BYTES = 32
#: How many blobs one step of a sweep or a verification looks at.
BATCH = 500

Address = tuple[UUID, str]
#: Given digests, those of them that a row still names; given ``None``, everything that rows name.
References = Callable[[Sequence[str] | None], Iterable[Address]]
ContentSource = Callable[[], Iterable[str]]


def put(organization_id: UUID, kind: str, data: bytes) -> str:
    """Store *data* once and return its keyed digest. Repeating it only refreshes its age."""
    digest = keyed_digest(data)
    if touch(organization_id, kind, digest):
        return digest
    blob = Blob(organization_id=organization_id, kind=kind, digest=digest)
    blob.seal_value("sealed", hashlib.sha256(data).digest() + data)
    # Whoever inserts the same address at the same time stores the same content.
    Blob.objects.bulk_create([blob], ignore_conflicts=True)
    return digest


def get(organization_id: UUID, kind: str, digest: str) -> bytes:
    """The content under *digest*, opened and compared; ``DamagedContent`` if missing or not it."""
    blob = Blob.objects.filter(organization_id=organization_id, kind=kind, digest=digest).first()
    if blob is None:
        raise _damaged(digest)
    return open_blob(blob)


def open_blob(blob: Blob) -> bytes:
    """The content of a row that was read; ``DamagedContent`` if it is not what its digest says."""
    try:
        value = blob.open_bytes("sealed")
    except DamagedContent:
        raise _damaged(blob.digest) from None
    checksum, data = value[:SHA256_BYTES], value[SHA256_BYTES:]
    whole = hmac.compare_digest(checksum, hashlib.sha256(data).digest())
    if not whole or not hmac.compare_digest(blob.digest, keyed_digest(data)):
        raise _damaged(blob.digest)
    return data


def put_json(organization_id: UUID, kind: str, value: Any) -> str:
    """Store *value* as canonical JSON (RFC 8785), so that equal values have one digest."""
    return put(organization_id, kind, rfc8785.dumps(value))


def get_json(organization_id: UUID, kind: str, digest: str) -> Any:
    """The value that :func:`put_json` stored."""
    data = get(organization_id, kind, digest)
    try:
        return json.loads(data)
    except ValueError:
        raise _damaged(digest) from None


def touch(organization_id: UUID, kind: str, digest: str) -> bool:
    """Refresh the age of what is stored; false when it is not there."""
    rows = Blob.objects.filter(organization_id=organization_id, kind=kind, digest=digest)
    return rows.update(touched_at=timezone.now()) == 1


def _damaged(digest: str) -> DamagedContent:
    return DamagedContent(table=Blob._meta.db_table, digest=digest[:12])


# --- who names what -------------------------------------------------------------------------

_references: dict[str, References] = {}
_erasures: dict[str, References] = {}
_sources: dict[str, ContentSource] = {}


def register_references(name: str, source: References) -> None:
    """Tell the sweep which blobs the rows behind *source* name. Call it when the app is ready."""
    _references[name] = source


def register_erasures(name: str, source: References) -> None:
    """Tell which addresses were erased on purpose although rows name them: no damage."""
    _erasures[name] = source


def column_references(
    model: type[Model], column: str, organization: str = "organization_id"
) -> References:
    """References held by one digest column; *organization* is a lookup path from the row."""

    def source(digests: Sequence[str] | None) -> Iterable[Address]:
        named = ~Q(**{column: ""}) & Q(**{f"{column}__isnull": False})
        rows = model._default_manager.filter(named)
        if digests is not None:
            rows = rows.filter(**{f"{column}__in": digests})
        return rows.values_list(organization, column).distinct().iterator(chunk_size=2_000)

    return source


def register_content_source(name: str, source: ContentSource) -> None:
    """Add texts that must stand nowhere in the control store, for ``scan_control``."""
    _sources[name] = source


def content_texts() -> Iterator[str]:
    """Every text of the content store that opens: blobs, then the registered sources."""
    for blob in Blob.objects.iterator(chunk_size=BATCH):
        try:
            yield open_blob(blob).decode("utf-8", "replace")
        except DamagedContent:
            continue
    for source in _sources.values():
        yield from source()


# --- sweeping and verifying -----------------------------------------------------------------


def delete_unreferenced(older_than_hours: int = 24, limit: int = BATCH) -> int:
    """Delete old blobs that no row names; returns how many.

    One call looks at the *limit* longest untouched blobs. Those still named are touched, so that
    the next call sees others: each blob is looked at about once in *older_than_hours*. Without
    any registered reference nothing is deleted.
    """
    if not _references:
        return 0
    cutoff = timezone.now() - dt.timedelta(hours=older_than_hours)
    old = Blob.objects.filter(touched_at__lt=cutoff).order_by("touched_at")
    candidates = list(old.values_list("pk", "organization_id", "digest")[:limit])
    named = _named({digest for _, _, digest in candidates})
    kept = [pk for pk, organization_id, digest in candidates if (organization_id, digest) in named]
    Blob.objects.filter(pk__in=kept).update(touched_at=timezone.now())
    gone = {pk for pk, _, _ in candidates}.difference(kept)
    # A put may have refreshed one of them since: it stays.
    deleted, _ = Blob.objects.filter(pk__in=gone, touched_at__lt=cutoff).delete()
    return deleted


def _named(digests: Collection[str]) -> set[Address]:
    asked = sorted(digests)
    return {address for source in _references.values() for address in source(asked)}


@dataclass(frozen=True, slots=True)
class Damage:
    """Content that does not open, or that a row names and nobody has. Holds no content."""

    problem: str
    organization_id: UUID
    digest: str
    kind: str = ""
    named_by: str = ""

    def __str__(self) -> str:
        what = self.kind or f"named by {self.named_by}"
        where = f"organization {self.organization_id}"
        return f"{self.problem}: blob {self.digest[:12]} ({what}), {where}"


def verify_all(on_checked: Callable[[], object] = lambda: None) -> Iterator[Damage]:
    """Open every blob and look for every named one; yields what is damaged or missing.

    *on_checked* is called after each blob and each name, for progress.
    """
    for blob in Blob.objects.order_by("pk").iterator(chunk_size=BATCH):
        try:
            open_blob(blob)
        except DamagedContent:
            yield Damage("damaged", blob.organization_id, blob.digest, kind=blob.kind)
        on_checked()
    for name, source in _references.items():
        addresses = iter(source(None))
        while batch := list(islice(addresses, BATCH)):
            found = _present({digest for _, digest in batch})
            missing = sorted({digest for place, digest in batch if (place, digest) not in found})
            found |= {address for erased in _erasures.values() for address in erased(missing)}
            for organization_id, digest in batch:
                if (organization_id, digest) not in found:
                    yield Damage("missing", organization_id, digest, named_by=name)
                on_checked()


def _present(digests: Collection[str]) -> set[Address]:
    rows = Blob.objects.filter(digest__in=digests)
    return set(rows.values_list("organization_id", "digest"))
