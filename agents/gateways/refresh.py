"""Reading connectors' tools again, so that a changed tool is found before it is called.

A list is read when a session opens, when the server says that it changed, before a call when the
last reading is older than a minute, and every five minutes otherwise. A call waits for the
reading it causes, and does not happen when the list cannot be read: what cannot be compared
cannot be trusted. One process reads at a time, by a conditional update of the connector's row.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError, connections
from django.db.backends.utils import CursorWrapper
from mcp_types import Tool as ListedTool

from agents import clock
from agents.errors import (
    ConnectorTimeout,
    DomainError,
    InternalError,
    Invalid,
    StoreUnavailable,
)
from agents.gateways.mcp_upstream import (
    CallFailed,
    SessionEnded,
    Upstream,
    UpstreamPool,
    UpstreamSession,
)
from agents.lifecycle import OwnThread
from agents.models import Connector
from agents.services.connectors import (
    Reading,
    claim_reading,
    due_connectors,
    enabled_connectors,
    fail_reading,
    read_connector,
)
from agents.services.tools import ListingResult, ObservedTool, apply_listing
from agents.writer import Operation, get_writer

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: A list may be this old when one of its tools is called, and this old when none is.
IN_USE = dt.timedelta(seconds=60)
UNUSED = dt.timedelta(minutes=5)
#: Seconds between two looks for connectors that are due, and two tries of one that fails.
SWEEP_SECONDS = 15.0
AGAIN_SECONDS = 60.0
#: Seconds that a call waits for another process's reading, looking every so often.
WAIT_SECONDS = 25.0
POLL_SECONDS = 0.05
#: Seconds between two readings that a server asks for.
CHANGES_SECONDS = 1.0
#: Connectors that a sweep reads side by side.
ABREAST = 4
#: The code of a reading whose caller went away.
INTERRUPTED = "interrupted"


class Refresher:
    """One process's sessions with tool servers, and the readings of their lists."""

    def __init__(self) -> None:
        self.pool = UpstreamPool(self._on_changed)
        self._locks: dict[UUID, asyncio.Lock] = {}
        self._changed: set[UUID] = set()
        self._reading_changed: set[UUID] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._tried: dict[UUID, float] = {}
        self._thread = OwnThread("listings")

    async def ready(self, upstream: Upstream, *, current: bool) -> tuple[UpstreamSession, bool]:
        """A session for a call, and whether the list was read meanwhile.

        *current*: the list was read within the last minute. After a reading the caller decides
        anew whether the call may happen. Raises a DomainError when nothing may be called.
        """
        session = self.pool.live(upstream)
        if session is not None and current:
            return session, False
        async with self._lock(upstream.connector_id):
            return await self._read(upstream, None if session is None else IN_USE), True

    async def refresh(self, connector_id: UUID, *, older_than: dt.timedelta | None = None) -> None:
        """Read a connector's list, unless a reading within *older_than* is there.

        None reads in any case. A disabled connector loses its session. Raises a DomainError.
        """
        connector = await get_writer().run(lambda c: read_connector(c, connector_id))
        if connector is None:
            self.pool.drop(connector_id)
            return
        async with self._lock(connector_id):
            await self._read(Upstream.of_connector(connector), older_than)

    def _lock(self, connector_id: UUID) -> asyncio.Lock:
        return self._locks.setdefault(connector_id, asyncio.Lock())

    async def _read(self, upstream: Upstream, older_than: dt.timedelta | None) -> UpstreamSession:
        """Read through the open session, or through a new one, which always reads."""
        since = await get_writer().run(partial(_since, older_than=older_than))
        try:
            session = self.pool.live(upstream)
            if session is not None:
                try:
                    await self._read_with(session, since)
                except SessionEnded:
                    pass
                else:
                    return session
            session = await self.pool.open(upstream)
            await self._read_with(session, await get_writer().run(_now))
        except CallFailed as failed:
            raise failed.error from None
        except DomainError as error:
            # Nothing was claimed, or it was given back; operators should see why.
            await get_writer().run(partial(_note, upstream.connector_id, error.code))
            raise
        return session

    async def _read_with(self, session: UpstreamSession, since: dt.datetime) -> None:
        connector_id = session.upstream.connector_id
        claimed = await _claim(connector_id, since)
        if not claimed and session.listed:
            return
        try:
            tools = await session.list_tools()
            await self._thread.run(partial(_fold, connector_id, [observed(tool) for tool in tools]))
        except BaseException as error:
            give_back = _fail if claimed else _note
            get_writer().post(partial(give_back, connector_id, _code(error)))
            raise

    # --- without a call ---------------------------------------------------------------------

    def _on_changed(self, upstream: Upstream) -> None:
        """A server says that its list changed; whatever it repeats meanwhile is one reading."""
        connector_id = upstream.connector_id
        self._changed.add(connector_id)
        if connector_id not in self._reading_changed:
            self._reading_changed.add(connector_id)
            self._spawn(self._read_changed(connector_id))

    async def _read_changed(self, connector_id: UUID) -> None:
        try:
            while connector_id in self._changed:
                self._changed.discard(connector_id)
                await self._try(connector_id, None)
                await asyncio.sleep(CHANGES_SECONDS)
        finally:
            self._reading_changed.discard(connector_id)

    async def sweep(self) -> None:
        """Read what is due, and end the sessions of disabled connectors."""
        enabled = await get_writer().run(enabled_connectors)
        for connector_id in self.pool.connector_ids() - enabled:
            self.pool.drop(connector_id)
        due = await get_writer().run(lambda c: due_connectors(c, older_than=UNUSED))
        abreast = asyncio.Semaphore(ABREAST)

        async def read(connector_id: UUID) -> None:
            async with abreast:
                await self._try(connector_id, UNUSED)

        late = time.monotonic() - AGAIN_SECONDS
        wanted = [i for i in due if self._tried.get(i, late) <= late]
        await asyncio.gather(*(read(connector_id) for connector_id in wanted))

    async def _try(self, connector_id: UUID, older_than: dt.timedelta | None) -> None:
        """Refresh; a failure is in the connector's row and is tried again later.

        Whatever a server lists or a database does to one connector, the others are read.
        """
        self._tried[connector_id] = time.monotonic()
        try:
            await self.refresh(connector_id, older_than=older_than)
        except DomainError as error:
            logger.info("connector %s was not read: %s", connector_id, error.code)
        except Exception as error:  # noqa: BLE001 - told by type, because its text may quote rows
            logger.error(  # noqa: TRY400
                "connector %s was not read: %s", connector_id, type(error).__name__
            )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sweep until the block ends, then close every session."""
        self._spawn(self._sweep_always())
        try:
            yield
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.pool.close()
            self._thread.close()

    async def _sweep_always(self) -> None:
        while True:
            try:
                await self.sweep()
            except Exception as error:  # noqa: BLE001 - the next round goes on
                logger.warning("the sweep of connectors failed: %s", type(error).__name__)
            await asyncio.sleep(SWEEP_SECONDS)


# --- operations and steps --------------------------------------------------------------------


async def _claim(connector_id: UUID, since: dt.datetime) -> bool:
    """Whether this caller reads now; false once a reading since then is over."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        reading = await get_writer().run(
            lambda c: claim_reading(c, connector_id, since=since),
            abandoned=partial(_abandon, connector_id),
        )
        if reading is not Reading.BUSY:
            return reading is Reading.CLAIMED
        await asyncio.sleep(POLL_SECONDS)
    raise ConnectorTimeout


def _abandon(connector_id: UUID, reading: Reading) -> Operation[None]:
    """Give back what was claimed for a caller that is gone."""
    if reading is Reading.CLAIMED:
        return partial(_fail, connector_id, INTERRUPTED)
    return lambda _: None


def _code(error: BaseException) -> str:
    """Why a reading failed, for the connector's row."""
    match error:
        case CallFailed():
            return error.error.code
        case DomainError():
            return error.code
        case Exception():
            return InternalError.code
        case _:
            return INTERRUPTED


def _now(cursor: CursorWrapper) -> dt.datetime:
    return clock.now(cursor)


def _since(cursor: CursorWrapper, *, older_than: dt.timedelta | None) -> dt.datetime:
    return clock.now(cursor) - (older_than or dt.timedelta())


def _fail(connector_id: UUID, code: str, cursor: CursorWrapper) -> None:
    fail_reading(cursor, connector_id, code)


def _note(connector_id: UUID, code: str, _cursor: CursorWrapper) -> None:
    Connector.objects.filter(id=connector_id).update(last_error=code[:60])


def _fold(connector_id: UUID, listing: list[ObservedTool]) -> ListingResult:
    """Fold a list into the rows, in a thread that keeps no connection between two of them."""
    try:
        return apply_listing(connector=Connector.objects.get(id=connector_id), listing=listing)
    except (OperationalError, InterfaceError):
        raise StoreUnavailable from None
    finally:
        connections.close_all()


def observed(tool: ListedTool) -> ObservedTool:
    """One listed tool as the rows keep it."""
    hints = tool.annotations
    return ObservedTool(
        name=tool.name,
        title=tool.title or "",
        description=tool.description or "",
        input_schema=tool.input_schema,
        annotations={} if hints is None else hints.model_dump(by_alias=True, exclude_none=True),
    )


# --- entries ---------------------------------------------------------------------------------

_active: Refresher | None = None


@asynccontextmanager
async def refreshing() -> AsyncIterator[Refresher]:
    """This process's refresher, for the gateway's lifespan."""
    global _active
    refresher = Refresher()
    async with refresher.running():
        _active = refresher
        try:
            yield refresher
        finally:
            _active = None


def active() -> Refresher:
    """Raises RuntimeError outside the gateway's lifespan."""
    if _active is None:
        msg = "the gateway's lifespan is not running"
        raise RuntimeError(msg)
    return _active


async def refresh_connector(connector_id: UUID) -> None:
    """Read a connector's list now, in the process of the gateway. Raises a DomainError."""
    await active().refresh(connector_id)


def refresh_now(connector: Connector) -> ListingResult:
    """Read a connector's list in a session of its own: for the API, admin, commands, seeds.

    Blocks for at most the seconds of opening and listing. Raises Invalid for our own connector,
    else a DomainError that says why the list could not be read.
    """
    if connector.first_party or not connector.url:
        raise Invalid("This connector has no address to read.")
    try:
        tools = _run(_list_once(Upstream.of_connector(connector)))
    except CallFailed as failed:
        Connector.objects.filter(id=connector.id).update(last_error=failed.error.code)
        raise failed.error from None
    except DomainError as error:
        Connector.objects.filter(id=connector.id).update(last_error=error.code)
        raise
    return apply_listing(connector=connector, listing=[observed(tool) for tool in tools])


async def _list_once(upstream: Upstream) -> list[ListedTool]:
    session = UpstreamSession(upstream, lambda _: None)
    await session.open()
    try:
        return await session.list_tools()
    finally:
        await session.close()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, in another thread when this one has a loop already."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            errors.append(error)

    thread = threading.Thread(target=run, name="refresh-now")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
