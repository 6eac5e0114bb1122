"""What the control plane's rows have in common."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone


class Row(models.Model):
    """A row with an id that exists before the INSERT, as sealing and digests need."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        abstract = True


def one_of(field: str, choices: type[models.TextChoices], name: str) -> models.CheckConstraint:
    """A constraint that keeps *field* inside its closed set."""
    return models.CheckConstraint(condition=models.Q(**{f"{field}__in": choices.values}), name=name)
