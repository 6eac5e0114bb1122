"""Drafts, versions and publications: ids and digests here, the text in the content store."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from agents.models import Agent, Environment, User
from agents.models.base import Row

Ids = list[str]


class Draft(Row):
    """An agent's one mutable definition.

    ``digest`` is the keyed digest of the canonical JSON of instructions, model and tools; that
    JSON lies sealed in the content store under it. Model and tools stand here too, so that lists
    need not open content; every verified read compares them.
    """

    agent = models.OneToOneField(Agent, models.PROTECT, related_name="draft")
    digest = models.CharField(max_length=64)
    virtual_model_id = models.UUIDField(null=True, blank=True)
    tool_ids: models.JSONField[Ids] = models.JSONField(default=list)
    updated_at = models.DateTimeField(default=timezone.now)
    updated_by = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")


class Version(Row):
    """An immutable, numbered definition made by Publish. A trigger refuses changes."""

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    digest = models.CharField(max_length=64)
    virtual_model_id = models.UUIDField()
    tool_ids: models.JSONField[Ids] = models.JSONField(default=list)
    rationale = models.TextField()
    created_by = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "number"], name="version_number"),
        ]

    def __str__(self) -> str:
        return f"v{self.number}"


class Publication(Row):
    """Points one environment at one version; absent while nothing is published there."""

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="publications")
    environment = models.ForeignKey(Environment, models.PROTECT, related_name="publications")
    version = models.ForeignKey(Version, models.PROTECT, related_name="publications")
    published_at = models.DateTimeField(default=timezone.now)
    published_by = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    rationale = models.TextField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "environment"], name="publication_slot"),
        ]

    def __str__(self) -> str:
        return f"{self.version} in {self.environment}"
