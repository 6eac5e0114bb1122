"""The gateway calls that this process has open, and how they end early.

A call is cut when its client goes away, and within a second of the commit that takes its key or
its resource away: one thread re-reads the rights of all open calls once a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from django.db import connections
from django.db.backends.utils import CursorWrapper

from agents.errors import DomainError, KeyDead, OutOfScope, StoreUnavailable
from agents.gateways.body import ClientGone, Receive
from agents.lifecycle import OwnThread
from agents.selectors.rights import read_key, rights_of_key

logger = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
#: How long calls stay open while their rights cannot be read; the boot counts as dead by then.
BLIND_SECONDS = 5.0

#: What must still hold: a key, and at most one of a model's slug or a tool's exposed name.
Claim = tuple[UUID, str | None, str | None, UUID | None]

_open: set[OpenCall] = set()


class CallCut(Exception):
    """The call was ended from outside; ``error`` is the refusal, or ClientGone."""

    def __init__(self, error: DomainError | ClientGone) -> None:
        super().__init__(type(error).__name__)
        self.error = error


class OpenCall:
    """A context manager around everything that happens upstream for one call.

    Its body is cancelled by :meth:`cut` and then raises CallCut. Calls of no key are never
    re-checked. With *receive*, which nobody else may read from then on, the client is watched.
    """

    def __init__(
        self,
        receive: Receive | None,
        *,
        key_id: UUID | None,
        model_slug: str | None = None,
        tool_name: str | None = None,
        resource_id: UUID | None = None,
    ) -> None:
        self.claim: Claim | None = (
            None if key_id is None else (key_id, model_slug, tool_name, resource_id)
        )
        self.reason: DomainError | ClientGone | None = None
        self._receive = receive
        self._task: asyncio.Task[Any] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._cancelling = 0

    def cut(self, error: DomainError | ClientGone) -> None:
        """End the call, from its own event loop. The first reason counts."""
        if self.reason is None and self._task is not None:
            self.reason = error
            self._task.cancel()

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None  # a coroutine runs in one
        self._cancelling = self._task.cancelling()
        if self._receive is not None:
            self._watcher = asyncio.create_task(self._watch(self._receive))
        if self.claim is not None:
            _open.add(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _open.discard(self)
        if self._watcher is not None:
            self._watcher.cancel()
        task, self._task = self._task, None
        if self.reason is None or task is None:
            return
        # As asyncio.timeout does: our own cancellation is consumed, anybody else's goes on.
        if task.uncancel() <= self._cancelling and kind is not None:
            raise CallCut(self.reason) from None

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.cut(ClientGone())


def open_call(
    receive: Receive | None,
    *,
    key_id: UUID | None,
    model_slug: str | None = None,
    tool_name: str | None = None,
    resource_id: UUID | None = None,
) -> OpenCall:
    """Enter this around the upstream part of a call; ``tool_name`` is the exposed name."""
    return OpenCall(
        receive,
        key_id=key_id,
        model_slug=model_slug,
        tool_name=tool_name,
        resource_id=resource_id,
    )


def open_calls() -> int:
    """How many calls are open and re-checked."""
    return len(_open)


# --- the check ------------------------------------------------------------------------------


@asynccontextmanager
async def checking() -> AsyncIterator[None]:
    """Re-check the open calls once a second until the block ends."""
    thread = OwnThread("open-calls")
    task = asyncio.create_task(_check_for_ever(thread), name="open-calls")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        thread.close()


async def _check_for_ever(thread: OwnThread) -> None:
    seen = time.monotonic()
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        try:
            async with asyncio.timeout(BLIND_SECONDS):
                await check_once(thread)
            seen = time.monotonic()
        except Exception as error:  # noqa: BLE001 - the next look may succeed
            logger.warning("open calls were not checked: %s", type(error).__name__)
            if time.monotonic() - seen >= BLIND_SECONDS:
                for call in list(_open):
                    call.cut(StoreUnavailable())


async def check_once(thread: OwnThread) -> None:
    """Cut every open call whose key or resource no longer holds."""
    calls = list(_open)
    claims = {call.claim for call in calls if call.claim is not None}
    if not claims:
        return
    broken = await thread.run(lambda: broken_claims(claims))
    for call in calls:
        error = broken.get(call.claim) if call.claim is not None else None
        if error is not None:
            call.cut(error)


def broken_claims(claims: set[Claim]) -> dict[Claim, DomainError]:
    """Of these claims, those that no longer hold, each with its refusal. Plain reads, no lock."""
    broken: dict[Claim, DomainError] = {}
    try:
        with connections["default"].cursor() as cursor:
            for claim in claims:
                try:
                    _require(cursor, claim)
                except DomainError as error:
                    broken[claim] = error
    except Exception:
        connections["default"].close()
        raise
    return broken


def _require(cursor: CursorWrapper, claim: Claim) -> None:
    key_id, model_slug, tool_name, resource_id = claim
    key = read_key(cursor, key_id=key_id, hold=False)
    if key is None:
        raise KeyDead
    rights = rights_of_key(cursor, key, model_slug=model_slug, tool_name=tool_name)
    for name, found in (
        (model_slug, rights.model(model_slug or "")),
        (tool_name, rights.tool(tool_name or "")),
    ):
        if name is not None and (found is None or found.id != (resource_id or found.id)):
            raise OutOfScope
