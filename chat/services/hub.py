"""Tells readers of this process what was just appended, so that they need not ask the store."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID

from chat.selectors.log import Entry

#: Entries a slow reader may leave waiting; beyond it reads them from the store instead.
MAX_WAITING = 2_000


class Subscription:
    """One reader's inbox for one session."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._missed = False
        self._wake = asyncio.Event()

    def offer(self, entries: Sequence[Entry]) -> None:
        if len(self._entries) + len(entries) > MAX_WAITING:
            self._entries, self._missed = [], True
        else:
            self._entries.extend(entries)
        self._wake.set()

    async def wait(self, seconds: float) -> bool:
        """Whether something came within *seconds*."""
        if self._entries or self._missed:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def take(self, after: int) -> list[Entry] | None:
        """What follows *after* without a gap; None when the store must be asked."""
        entries, self._entries = self._entries, []
        missed, self._missed = self._missed, False
        self._wake.clear()
        fresh = [entry for entry in entries if entry.seq > after]
        if missed or (fresh and fresh[0].seq != after + 1):
            return None
        return fresh


class Hub:
    def __init__(self) -> None:
        self._sessions: dict[UUID, set[Subscription]] = {}

    def publish(self, session_id: UUID, entries: Sequence[Entry]) -> None:
        for subscription in self._sessions.get(session_id, ()):
            subscription.offer(entries)

    @contextmanager
    def subscribe(self, session_id: UUID) -> Iterator[Subscription]:
        subscription = Subscription()
        self._sessions.setdefault(session_id, set()).add(subscription)
        try:
            yield subscription
        finally:
            others = self._sessions[session_id]
            others.discard(subscription)
            if not others:
                del self._sessions[session_id]


hub = Hub()
