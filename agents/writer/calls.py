"""What waits in the writer's queue, and how each kind of caller gets its answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar, cast

from django.db.backends.utils import CursorWrapper

logger = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[CursorWrapper], T]


class Call(Generic[T]):
    """One operation in the queue. Posted ones are nobody's: a failure is logged, by type only."""

    #: Whether it takes one of the bounded places.
    counted = False

    def __init__(self, operation: Operation[T], *, full: bool = False) -> None:
        self.operation = operation
        self.full = full
        self.attempts = 0
        self.result: T | None = None
        self.error: BaseException | None = None

    def wanted(self) -> bool:
        """Whether anybody still waits; asked before the operation runs."""
        return True

    def deliver(self) -> None:
        """Hand over the result or the error; nothing the second time."""
        if self.error is not None:
            logger.error("a posted operation failed: %s", type(self.error).__name__)


class ThreadCall(Call[T]):
    """A thread waits for it."""

    counted = True

    def __init__(self, operation: Operation[T], *, full: bool) -> None:
        super().__init__(operation, full=full)
        self.future: Future[T] = Future()

    def deliver(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("T", self.result))


class LoopCall(Call[T]):
    """A task waits for it; delivered on its event loop, one wake-up for a whole group."""

    counted = True

    def __init__(
        self, operation: Operation[T], *, full: bool, on_abandoned: Callable[[T], object]
    ) -> None:
        super().__init__(operation, full=full)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self.on_abandoned = on_abandoned

    def wanted(self) -> bool:
        return not self.future.cancelled()

    def deliver(self) -> None:
        if self.future.cancelled():
            self.abandon()
        elif self.future.done():
            return
        elif self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast("T", self.result))

    def abandon(self) -> None:
        """Nobody will see the result of what was committed."""
        if self.error is None:
            self.on_abandoned(cast("T", self.result))


def deliver(calls: Iterable[Call[Any]]) -> None:
    """Answer *calls* from the writer's thread: one wake-up for each event loop among them."""
    by_loop: dict[asyncio.AbstractEventLoop, list[LoopCall[Any]]] = {}
    for call in calls:
        if isinstance(call, LoopCall):
            by_loop.setdefault(call.loop, []).append(call)
        else:
            call.deliver()
    for loop, waiting in by_loop.items():
        try:
            loop.call_soon_threadsafe(_deliver_here, waiting)
        except RuntimeError:  # The loop is closed and its tasks with it.
            for call in waiting:
                call.abandon()


def _deliver_here(calls: list[LoopCall[Any]]) -> None:
    for call in calls:
        call.deliver()
