"""What is recorded: audit events, gateway requests, idempotency keys."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone

from agents.choices import RequestKind, RequestState
from agents.models.base import Row, one_of


class AuditHead(models.Model):
    """The end of one organization's audit chain; locked by the event that extends it."""

    organization_id = models.UUIDField(primary_key=True)
    seq = models.PositiveBigIntegerField(default=0)
    hash = models.CharField(max_length=64, default="")


class AuditEvent(Row):
    """Append-only and hash-chained per organization. A database trigger refuses changes.

    It points at things by id and outlives them. ``data`` holds ids, names, numbers and digests,
    never content.
    """

    organization_id = models.UUIDField()
    seq = models.PositiveBigIntegerField()
    action = models.CharField(max_length=60)
    actor_kind = models.CharField(max_length=20)
    actor_id = models.CharField(max_length=300)
    target_kind = models.CharField(max_length=40)
    target_id = models.CharField(max_length=80)
    agent_id = models.UUIDField(null=True)
    environment_id = models.UUIDField(null=True)
    rationale = models.TextField(blank=True, default="")
    before_digest = models.CharField(max_length=64, blank=True, default="")
    after_digest = models.CharField(max_length=64, blank=True, default="")
    data: models.JSONField[dict[str, Any]] = models.JSONField(default=dict)
    previous_hash = models.CharField(max_length=64, blank=True, default="")
    hash = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization_id", "seq"], name="audit_seq"),
        ]
        indexes = [
            models.Index(fields=["agent_id", "created_at"], name="audit_by_agent"),
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.action}"


class GatewayRequest(models.Model):
    """One gateway call: opened before anything is sent upstream, closed afterwards.

    Times are the database's. ``cost`` is micro-dollars, null when no price is known.
    """

    id = models.UUIDField(primary_key=True)
    organization_id = models.UUIDField()
    agent_id = models.UUIDField(null=True)
    environment_id = models.UUIDField(null=True)
    key_accessor = models.CharField(max_length=8, blank=True, default="")
    run_id = models.UUIDField(null=True)
    boot_id = models.UUIDField(null=True)
    purpose = models.CharField(max_length=20, default="agent")
    kind = models.CharField(max_length=5, choices=RequestKind)
    resource_id = models.UUIDField(null=True)
    resource_name = models.CharField(max_length=80, blank=True, default="")
    state = models.CharField(max_length=10, choices=RequestState)
    code = models.CharField(max_length=60, blank=True, default="")
    opened_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True)
    first_byte_ms = models.PositiveIntegerField(null=True)
    duration_ms = models.PositiveIntegerField(null=True)
    input_tokens = models.PositiveBigIntegerField(null=True)
    output_tokens = models.PositiveBigIntegerField(null=True)
    cost = models.PositiveBigIntegerField(null=True)

    class Meta:
        constraints = [
            one_of("kind", RequestKind, "gateway_request_kind"),
            one_of("state", RequestState, "gateway_request_state"),
        ]
        indexes = [
            models.Index(fields=["run_id"], name="request_by_run"),
            models.Index(fields=["boot_id"], condition=models.Q(state="open"), name="request_open"),
            models.Index(fields=["organization_id", "opened_at"], name="request_by_time"),
        ]


class IdempotencyRecord(Row):
    """What an ``Idempotency-Key`` answered, for 24 hours. Another body under the key is 422."""

    organization_id = models.UUIDField()
    actor_id = models.CharField(max_length=300)
    operation = models.CharField(max_length=60)
    key = models.CharField(max_length=128)
    body_digest = models.CharField(max_length=64)
    result: models.JSONField[dict[str, Any]] = models.JSONField(default=dict)
    expires_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "actor_id", "operation", "key"],
                name="idempotency_key",
            ),
        ]
