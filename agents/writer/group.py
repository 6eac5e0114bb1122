"""The thread that groups calls into transactions."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from django.db import InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from agents.errors import Overloaded, StoreUnavailable
from agents.writer.calls import Call, LoopCall, Operation, T, ThreadCall, deliver

logger = logging.getLogger(__name__)

#: Calls that may wait; the next one is refused before it is queued.
MAX_WAITING = 1_024
#: Calls in one transaction: more would only lengthen the wait of the first.
MAX_GROUP = 64
#: How often a call is tried whose effects were certainly undone: deadlocks, lost connections.
MAX_ATTEMPTS = 5

#: SQLSTATE of serialization failures and deadlocks: the call lost a race and may win the next.
_LOST_RACES = frozenset({"40001", "40P01"})
#: SQLSTATE of a lock that was not given in time.
_LOCK_TIMEOUT = "55P03"
#: After one, for this many seconds no call waits as long for a lock: the calls behind it have
#: nothing to do with whoever holds that lock, and the locks of those before it are held too.
IMPATIENT_SECONDS = 10.0
_IMPATIENT = "SET LOCAL lock_timeout = '200ms'"


class Writer:
    """Runs operations on one database, in groups. Use :func:`get_writer`.

    An operation is raw SQL on the cursor it gets and has no other effect: it may run again when
    its first try was undone. Its result counts only once the call returns.
    """

    def __init__(self, alias: str = "default", *, limit: int = MAX_WAITING) -> None:
        self.alias = alias
        self.limit = limit
        self._queue: deque[Call[Any]] = deque()
        self._changed = threading.Condition()
        self._waiting = 0
        self._stopping = False
        #: The thread has found the queue empty while stopping and takes nothing more.
        self._drained = True
        self._thread: threading.Thread | None = None
        self._syncs_fully = False
        self._impatient_until = 0.0

    # --- callers ----------------------------------------------------------------------------

    async def run(
        self,
        operation: Operation[T],
        *,
        full: bool = False,
        abandoned: Callable[[T], Operation[Any]] | None = None,
    ) -> T:
        """Run *operation* and return its result once it is durable.

        ``full=True`` survives a power cut too. When the awaiting task is cancelled, the operation
        may or may not run; *abandoned* makes, from its result, the operation that closes or
        undoes what was committed, and that is then posted. Raises ``Overloaded`` when the queue
        is full, ``StoreUnavailable`` when the database failed, else what the operation raised.
        """

        def on_abandoned(result: T) -> None:
            if abandoned is not None:
                self.post(abandoned(result))

        call = LoopCall(operation, full=full, on_abandoned=on_abandoned)
        self._enqueue(call)
        try:
            return await call.future
        except asyncio.CancelledError:
            if not call.future.cancelled():  # The result came, and the cancellation right after.
                call.abandon()
            raise

    def run_sync(self, operation: Operation[T], *, full: bool = False) -> T:
        """:meth:`run` for threads. Never call it on an event loop or inside an operation."""
        if threading.current_thread() is self._thread:
            msg = "an operation cannot wait for the writer that runs it"
            raise RuntimeError(msg)
        call = ThreadCall(operation, full=full)
        self._enqueue(call)
        return call.future.result()

    def post(self, operation: Operation[Any]) -> None:
        """Run *operation* soon, waiting for nothing: for closings, which a sweep can repeat.

        Never refused for the queue's length; :meth:`stop` still runs it. After that it is lost,
        with a line in the log.
        """
        try:
            self._enqueue(Call(operation))
        except StoreUnavailable:
            logger.warning("an operation was posted after the writer had stopped")

    def start(self) -> None:
        """Start the thread. The first call does it too, but not again after :meth:`stop`."""
        with self._changed:
            self._stopping = False
            self._ensure_thread()

    def stop(self, timeout: float = 3.0) -> bool:
        """Refuse new calls, run what is queued, end the thread. False if that took too long.

        What still waits after *timeout* seconds gets ``StoreUnavailable``.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout)
        with self._changed:
            left = list(self._queue)
            self._queue.clear()
            self._waiting = 0
        self._fail(left)
        return thread is None or not thread.is_alive()

    @property
    def waiting(self) -> int:
        """Queued calls that count towards the bound."""
        return self._waiting

    def _enqueue(self, call: Call[Any]) -> None:
        with self._changed:
            if self._stopping and (call.counted or self._drained):
                raise StoreUnavailable
            if call.counted and self._waiting >= self.limit:
                raise Overloaded
            if not self._stopping:
                self._ensure_thread()
            self._queue.append(call)
            self._waiting += call.counted
            self._changed.notify()

    def _ensure_thread(self) -> None:
        if self._drained or self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(
                target=self._serve, name=f"writer-{self.alias}", daemon=True
            )
            self._drained = False
            self._thread.start()

    # --- the thread -------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while group := self._take():
                try:
                    self._run(group)
                except BaseException as error:  # noqa: BLE001 - somebody waits for every call
                    logger.error(  # noqa: TRY400 - its text may quote what was written
                        "the writer failed outside a group: %s", type(error).__name__
                    )
                    self._close()
                    self._fail(group)
        finally:
            self._close()

    def _take(self) -> list[Call[Any]]:
        """What waits, up to one group's worth; empty once the writer stops and all is done."""
        with self._changed:
            while not self._queue and not self._stopping:
                self._changed.wait()
            if not self._queue:
                self._drained = True
            group = [self._queue.popleft() for _ in range(min(MAX_GROUP, len(self._queue)))]
            self._waiting -= sum(call.counted for call in group)
            return group

    def _run(self, group: list[Call[Any]]) -> None:
        # A call whose task was cancelled while it waited is left out: it had no effect yet.
        pending = [call for call in group if call.wanted()]
        while pending:
            pending = self._attempt(pending)

    def _attempt(self, group: list[Call[Any]]) -> list[Call[Any]]:
        """Run and commit *group*; returns the calls that were undone and are worth another try."""
        connection = connections[self.alias]
        begun = committing = False
        try:
            self._set_sync(connection, fully=any(call.full for call in group))
            with transaction.atomic(using=self.alias, durable=True):
                begun = True
                if time.monotonic() < self._impatient_until:
                    _execute(connection, _IMPATIENT)
                alone = len(group) == 1
                again = [call for call in group if not self._run_one(connection, call, alone=alone)]
                committing = True
        except Exception as error:  # noqa: BLE001 - every call of the group is answered
            self._close()
            logger.warning(
                "a group of %d calls was not committed: %s", len(group), type(error).__name__
            )
            if begun and not committing and self._may_retry(connection, group):
                return group
            self._fail(group)
            return []
        deliver(call for call in group if call not in again)
        return again

    def _run_one(self, connection: BaseDatabaseWrapper, call: Call[Any], *, alone: bool) -> bool:
        """Run one call behind its savepoint; the transaction itself is enough for one *alone*.

        False: it lost a race, was undone, and may try again. An error of the connection or of the
        savepoints is the group's.
        """
        call.attempts += 1
        call.error = None
        if not alone:
            _execute(connection, "SAVEPOINT one_call")
        try:
            with connection.cursor() as cursor:
                call.result = call.operation(cursor)
        except Exception as error:
            if _is_lost(connection):
                raise
            if alone:
                transaction.set_rollback(True, using=self.alias)
            else:
                # The ORM may have marked the transaction as broken; the savepoint mends it.
                connection.needs_rollback = False
                _execute(connection, "ROLLBACK TO SAVEPOINT one_call")
            if _sqlstate(error) == _LOCK_TIMEOUT:
                self._impatient_until = time.monotonic() + IMPATIENT_SECONDS
                if not alone:
                    _execute(connection, _IMPATIENT)
            if _lost_race(error) and call.attempts < MAX_ATTEMPTS:
                return False
            call.error = _told(error)
        if not alone and connection.vendor == "sqlite":
            # Every write looks at all savepoints there. PostgreSQL's hide behind later ones of
            # the same name, and a round trip is saved.
            _execute(connection, "RELEASE SAVEPOINT one_call")
        return True

    def _may_retry(self, connection: BaseDatabaseWrapper, group: list[Call[Any]]) -> bool:
        # Nothing was committed, so running again is safe. A server that restarted answers the
        # next connection; a SQLite file that failed would fail again.
        return connection.vendor == "postgresql" and all(
            call.attempts < MAX_ATTEMPTS for call in group
        )

    def _set_sync(self, connection: BaseDatabaseWrapper, *, fully: bool) -> None:
        """SQLite's ``synchronous`` for the next commit; it can only change between two."""
        if connection.vendor == "sqlite" and fully != self._syncs_fully:
            _execute(connection, f"PRAGMA synchronous={'FULL' if fully else 'NORMAL'}")
            self._syncs_fully = fully

    def _close(self) -> None:
        """Close the connection; the next group opens another, which syncs as configured."""
        self._syncs_fully = False
        try:
            connections[self.alias].close()
        except Exception as error:  # noqa: BLE001 - a broken connection may also fail to close
            logger.warning("a connection did not close: %s", type(error).__name__)

    def _fail(self, calls: Iterable[Call[Any]]) -> None:
        failed = list(calls)
        for call in failed:
            call.error = StoreUnavailable()
        deliver(failed)


def _execute(connection: BaseDatabaseWrapper, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _is_lost(connection: BaseDatabaseWrapper) -> bool:
    """Whether the server hung up. SQLite's file cannot, and has no such attribute."""
    raw = connection.connection
    return raw is None or bool(getattr(raw, "closed", False))


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error.__cause__, "sqlstate", None)


def _lost_race(error: BaseException) -> bool:
    return _sqlstate(error) in _LOST_RACES


def _told(error: Exception) -> Exception:
    """What a caller learns: a database that did not answer is no error of the call's own."""
    if not isinstance(error, (OperationalError, InterfaceError)):
        return error
    logger.warning("a call was not run: %s %s", type(error).__name__, _sqlstate(error) or "")
    return StoreUnavailable()
