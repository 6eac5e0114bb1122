"""Append to the audit log, inside the transaction of the change it tells."""

from __future__ import annotations

import hashlib
from typing import Any
from uuid import UUID

import rfc8785
from django.utils import timezone

from agents.models import AuditEvent, AuditHead
from agents.policy import Actor


def append_audit(
    *,
    actor: Actor,
    organization_id: UUID,
    action: str,
    target_kind: str,
    target_id: UUID | str,
    agent_id: UUID | None = None,
    environment_id: UUID | None = None,
    rationale: str = "",
    before_digest: str = "",
    after_digest: str = "",
    **data: Any,
) -> AuditEvent:
    """Write one event and extend the organization's hash chain.

    ``data`` must be JSON of ids, names, numbers and digests; content never goes in. The chain's
    head row is locked until the caller's transaction ends, so events commit in ``seq`` order.
    """
    AuditHead.objects.get_or_create(organization_id=organization_id)
    head = AuditHead.objects.select_for_update().get(organization_id=organization_id)
    event = AuditEvent(
        created_at=timezone.now(),
        organization_id=organization_id,
        seq=head.seq + 1,
        action=action,
        actor_kind=actor.kind,
        actor_id=actor.id,
        target_kind=target_kind,
        target_id=str(target_id),
        agent_id=agent_id,
        environment_id=environment_id,
        rationale=rationale,
        before_digest=before_digest,
        after_digest=after_digest,
        data={name: str(v) if isinstance(v, UUID) else v for name, v in data.items()},
        previous_hash=head.hash,
    )
    event.hash = event_hash(event)
    event.save(force_insert=True)
    head.seq, head.hash = event.seq, event.hash
    head.save(update_fields=["seq", "hash"])
    return event


def event_hash(event: AuditEvent) -> str:
    """SHA-256 over the canonical JSON of everything an event says and the hash before it."""
    members = {
        "id": str(event.id),
        "at": event.created_at.isoformat(),
        "organization": str(event.organization_id),
        "seq": event.seq,
        "action": event.action,
        "actor": [event.actor_kind, event.actor_id],
        "target": [event.target_kind, event.target_id],
        "agent": str(event.agent_id or ""),
        "environment": str(event.environment_id or ""),
        "rationale": event.rationale,
        "digests": [event.before_digest, event.after_digest],
        "data": event.data,
        "previous": event.previous_hash,
    }
    return hashlib.sha256(rfc8785.dumps(members)).hexdigest()


def broken_audit_link(organization_id: UUID) -> int | None:
    """Return the ``seq`` of the first event that was changed, dropped or reordered, or None."""
    previous, expected = "", 1
    events = AuditEvent.objects.filter(organization_id=organization_id).order_by("seq")
    for event in events.iterator():
        intact = event.previous_hash == previous and event.hash == event_hash(event)
        if event.seq != expected or not intact:
            return expected
        previous, expected = event.hash, expected + 1
    head = AuditHead.objects.filter(organization_id=organization_id).first()
    if head is not None and (head.seq, head.hash) != (expected - 1, previous):
        return expected
    return None
