"""Which content of erased threads rows still name, although nobody has it any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from agents.models import Approval, ParkedCall
from agents.services.approvals import ARGUMENTS, OUTCOME, REASON
from chat.models import Thread
from chat.selectors.resolutions import RESULT

Address = tuple[UUID, str]

#: Columns that name a thread's content, each with the kind of blob.
COLUMNS = (
    (Approval, "arguments_digest", "organization_id", "thread_id", ARGUMENTS),
    (Approval, "decided_digest", "organization_id", "thread_id", ARGUMENTS),
    (Approval, "reason_digest", "organization_id", "thread_id", REASON),
    (Approval, "outcome_digest", "organization_id", "thread_id", OUTCOME),
    (ParkedCall, "outcome_digest", "run__organization_id", "run__thread_id", RESULT),
)


def _erased_threads() -> QuerySet[Thread, UUID]:
    return Thread.objects.filter(deleted_at__isnull=False).values_list("id", flat=True)


def named_by_erased(digests: Sequence[str] | None) -> Iterable[Address]:
    """Addresses that erased threads name and no other thread does."""
    erased: set[Address] = set()
    alive: set[Address] = set()
    threads = _erased_threads()
    for model, column, organization, thread, _kind in COLUMNS:
        rows: QuerySet[Any] = model._default_manager.exclude(**{column: ""})
        if digests is not None:
            rows = rows.filter(**{f"{column}__in": list(digests)})
        erased.update(rows.filter(**{f"{thread}__in": threads}).values_list(organization, column))
        alive.update(rows.exclude(**{f"{thread}__in": threads}).values_list(organization, column))
    return erased - alive


def content_of_erased(thread_ids: Sequence[UUID]) -> dict[str, set[Address]]:
    """By kind of blob: what these erased threads name and no living thread does."""
    found: dict[str, set[Address]] = {}
    threads = _erased_threads()
    for model, column, organization, thread, kind in COLUMNS:
        rows: QuerySet[Any] = model._default_manager.exclude(**{column: ""})
        mine = set(
            rows.filter(**{f"{thread}__in": list(thread_ids)}).values_list(organization, column)
        )
        shared = rows.exclude(**{f"{thread}__in": threads}).filter(
            **{f"{column}__in": [digest for _, digest in mine]}
        )
        found.setdefault(kind, set()).update(mine - set(shared.values_list(organization, column)))
    return found
