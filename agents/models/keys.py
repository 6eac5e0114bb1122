"""Agent keys: bearer credentials of an agent in an environment, stored as HMACs only."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q

from agents.choices import KeyKind
from agents.models.base import Row, one_of
from agents.models.identity import Agent, Environment, Organization, User
from agents.models.runs import Run


class AgentKey(Row):
    """``kind=external`` for runtimes outside; ``kind=managed`` one per run, 15 minutes.

    ``scope`` is ``{"all_grants": true}`` (external keys only, said explicitly) or
    ``{"models": [ids], "tools": [ids], "agents": [ids]}``. Empty or missing lists mean none.
    """

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="agent_keys")
    agent = models.ForeignKey(Agent, models.PROTECT, related_name="keys")
    environment = models.ForeignKey(Environment, models.PROTECT, related_name="keys")
    kind = models.CharField(max_length=8, choices=KeyKind)
    name = models.CharField(max_length=120, blank=True, default="")
    accessor = models.CharField(max_length=8, unique=True)
    mac = models.CharField(max_length=64, unique=True)
    scope: models.JSONField[dict[str, Any]] = models.JSONField()
    generation = models.PositiveBigIntegerField(null=True, blank=True)
    run = models.OneToOneField(Run, models.PROTECT, null=True, blank=True, related_name="key")
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_reason = models.CharField(max_length=40, blank=True, default="")
    created_by = models.ForeignKey(User, models.PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        constraints = [
            one_of("kind", KeyKind, "agent_key_kind"),
            models.CheckConstraint(
                name="managed_key_is_bound",
                condition=Q(kind="external")
                | Q(run__isnull=False, expires_at__isnull=False, generation__isnull=False),
            ),
        ]
        indexes = [
            models.Index(
                fields=["agent", "environment"],
                condition=Q(revoked_at__isnull=True),
                name="agent_key_live",
            ),
        ]

    def __str__(self) -> str:
        return f"mk_{self.accessor}"
