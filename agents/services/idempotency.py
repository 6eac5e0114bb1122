"""``Idempotency-Key``: the same answer for the same request, for 24 hours."""

from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import UUID

from agents import clock
from agents.errors import IdempotencyMismatch, Invalid
from agents.models import IdempotencyRecord

LIFETIME = dt.timedelta(hours=24)


def recall(
    *, organization_id: UUID, actor_id: str, operation: str, key: str, body_digest: str
) -> dict[str, Any] | None:
    """The stored result of this key, or None for a new one. A step.

    Raises IdempotencyMismatch when the key came with another body, Invalid when it is no plain
    text of 1 to 128 characters.
    """
    if not 1 <= len(key) <= 128 or not key.isascii() or not key.isprintable():
        raise Invalid("An Idempotency-Key has 1 to 128 printable ASCII characters.")
    record = IdempotencyRecord.objects.filter(
        organization_id=organization_id, actor_id=actor_id, operation=operation, key=key
    ).first()
    if record is None:
        return None
    if record.expires_at <= clock.database_now():
        record.delete()
        return None
    if record.body_digest != body_digest:
        raise IdempotencyMismatch
    result: dict[str, Any] = record.result
    return result


def remember(
    *,
    organization_id: UUID,
    actor_id: str,
    operation: str,
    key: str,
    body_digest: str,
    result: dict[str, Any],
) -> None:
    """Keep a result beside the change it tells, in the same transaction. Ids and numbers only."""
    IdempotencyRecord.objects.create(
        organization_id=organization_id,
        actor_id=actor_id,
        operation=operation,
        key=key,
        body_digest=body_digest,
        result=result,
        expires_at=clock.database_now() + LIFETIME,
    )


def forget_expired() -> int:
    """Delete records whose day is over. A sweep's step."""
    deleted, _ = IdempotencyRecord.objects.filter(expires_at__lte=clock.database_now()).delete()
    return deleted
