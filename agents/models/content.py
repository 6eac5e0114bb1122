"""The lowest layer of the content store: immutable sealed values, addressed by keyed digest."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from agents.models.sealing import SealedField, SealsFields


class Blob(SealsFields):
    """One immutable value of one organization. Read and write it through ``content_store`` alone.

    ``touched_at`` is refreshed by every put; a blob that no row names is deleted once it has not
    been touched for 24 hours.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization_id = models.UUIDField()
    #: What it is, for people who repair a store: ``instructions``, ``arguments``, …
    kind = models.CharField(max_length=32)
    digest = models.CharField(max_length=64)
    #: The plain SHA-256 (32 bytes), then the content.
    sealed = SealedField()
    touched_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organization_id", "kind", "digest"], name="blob_address"
            ),
        ]
        indexes = [models.Index(fields=["touched_at"], name="blob_by_touch")]

    def __str__(self) -> str:
        return f"{self.kind} {self.digest[:12]}"
