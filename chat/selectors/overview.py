"""The list of a principal's threads, newest first, with what each waits for."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Count, Q

from agents import clock
from agents.choices import ApprovalState, RunState
from agents.errors import Invalid
from agents.models import Approval, Run
from chat.models import Thread
from chat.selectors.inbox import titles_of
from chat.selectors.threads import threads_of
from chat.selectors.tokens import Caller

MAX_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Page:
    items: list[dict[str, Any]]
    next: str | None


def overview(caller: Caller, *, limit: int, before: str | None) -> Page:
    """One page. Raises Invalid for a ``before`` that no page gave."""
    threads = threads_of(caller)
    if before is not None:
        active_at, thread_id = _cursor(before)
        threads = threads.filter(
            Q(active_at__lt=active_at) | Q(active_at=active_at, id__lt=thread_id)
        )
    rows = list(threads.order_by("-active_at", "-id")[: limit + 1])
    shown = rows[:limit]
    more = len(rows) > limit
    return Page(_items(shown), _mark(shown[-1]) if more else None)


def _mark(thread: Thread) -> str:
    return f"{thread.active_at.astimezone(dt.UTC):%Y%m%dT%H%M%S.%f}_{thread.id}"


def _cursor(value: str) -> tuple[dt.datetime, UUID]:
    when, _, thread_id = value.partition("_")
    try:
        at = dt.datetime.strptime(when, "%Y%m%dT%H%M%S.%f").replace(tzinfo=dt.UTC)
        return at, UUID(thread_id)
    except ValueError:
        raise Invalid("`before` is what a page gave as `next`.", field="before") from None


def _items(threads: list[Thread]) -> list[dict[str, Any]]:
    ids = [thread.id for thread in threads]
    titles = titles_of(ids)
    running = set(
        Run.objects.filter(thread_id__in=ids, state=RunState.RUNNING).values_list(
            "thread_id", flat=True
        )
    )
    waiting = dict(
        Approval.objects.filter(
            thread_id__in=ids, state=ApprovalState.OPEN, expires_at__gt=clock.database_now()
        )
        .values_list("thread_id")
        .annotate(Count("id"))
    )
    return [
        {
            "id": str(thread.id),
            "threadId": thread.client_id,
            "title": titles.get(thread.id, ""),
            "agent": thread.agent.slug,
            "environment": thread.environment.slug,
            "active_at": thread.active_at,
            "state": "running"
            if thread.id in running
            else "waiting"
            if thread.id in waiting
            else "idle",
            "open_approvals": waiting.get(thread.id, 0),
        }
        for thread in threads
    ]
