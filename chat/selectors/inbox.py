"""A member's approvals inbox: what waits for this person, oldest first, by conversation."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, QuerySet

from agents import clock
from agents.choices import ApprovalState, RunState
from agents.errors import DamagedContent
from agents.models import Approval, Run
from agents.services.runs import Principal
from chat.models import Thread, ThreadText
from chat.selectors.interrupts import as_interrupts


@dataclass(frozen=True, slots=True)
class Card:
    """One approval, as its interrupt tells it."""

    interrupt: dict[str, Any]
    expires_at: dt.datetime

    @property
    def headline(self) -> str:
        return str(self.interrupt["message"])

    @property
    def call(self) -> dict[str, Any]:
        found: dict[str, Any] = self.interrupt["metadata"]
        return found

    @property
    def version(self) -> str:
        number = self.call["version"]
        return "" if number is None else f"v{number}"

    @property
    def path(self) -> str:
        """The agents from the first to the one that asks, when there are several, and the tool."""
        agents = self.call["path"]
        return " → ".join([*(agents if len(agents) > 1 else []), self.call["tool"]])

    @property
    def arguments(self) -> list[tuple[str, str]]:
        """Names and JSON values. Beyond ASCII only escapes, so that nothing is hidden."""
        return [
            (json.dumps(name)[1:-1], json.dumps(value, indent=2))
            for name, value in self.call["arguments"].items()
        ]


@dataclass(frozen=True, slots=True)
class Group:
    """The approvals of one conversation: decided one by one, submitted together."""

    thread: Thread
    title: str
    cards: tuple[Card, ...]
    asked_at: dt.datetime

    def matches(self, query: str) -> bool:
        """Whether title, agent or a headline holds the words of *query*."""
        texts = [self.title, self.thread.agent.name, *(card.headline for card in self.cards)]
        return query.lower() in " ".join(texts).lower()


def open_approvals_of(principal: Principal) -> QuerySet[Approval]:
    """What this principal may decide now, at any depth of delegation, oldest first.

    A child may ask while others of its turn still work: that comes once the whole turn pauses.
    """
    working = Run.objects.filter(session_id=OuterRef("thread_id"), state=RunState.RUNNING)
    return (
        Approval.objects.filter(
            principal_issuer=principal.issuer,
            principal_subject=principal.subject,
            state=ApprovalState.OPEN,
            expires_at__gt=clock.database_now(),
        )
        .exclude(Exists(working))
        .select_related("agent", "tool__connector", "run")
        .order_by("created_at", "id")
    )


def count_open_approvals(principal: Principal) -> int:
    """The number beside "Approvals" in the navigation."""
    return open_approvals_of(principal).count()


def inbox_of(principal: Principal) -> list[Group]:
    """The open approvals by conversation; a conversation stands where its oldest approval does."""
    by_thread: dict[UUID, list[Approval]] = {}
    for approval in open_approvals_of(principal):
        by_thread.setdefault(approval.thread_id, []).append(approval)
    threads = Thread.objects.select_related("agent", "environment").in_bulk(list(by_thread))
    titles = titles_of(list(by_thread))
    groups = []
    for thread_id, approvals in by_thread.items():
        thread = threads.get(thread_id)
        if thread is None or thread.deleted_at is not None:
            continue
        expiry = {str(approval.id): approval.expires_at for approval in approvals}
        cards = tuple(Card(one, expiry[one["id"]]) for one in as_interrupts(approvals))
        if cards:
            title = titles.get(thread_id, "")
            groups.append(Group(thread, title, cards, approvals[0].created_at))
    return groups


def titles_of(thread_ids: Sequence[UUID]) -> dict[UUID, str]:
    """The titles that can be read; a damaged one is left out."""
    titles = {}
    for row in ThreadText.objects.filter(id__in=thread_ids):
        try:
            titles[row.id] = row.open_value("title") or ""
        except DamagedContent:
            continue
    return titles
