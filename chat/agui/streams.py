"""Follow a run's events as server-sent events, from the log, in any process."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import orjson

from agents.choices import RunState
from agents.errors import DomainError
from agents.gateways.responses import Header, Receive, Send
from agents.models import Run
from agents.services.boots import dead_boots
from agents.services.sweeps import fail_dead_run
from chat.agui.bearers import bearers
from chat.selectors.log import PAGE, TERMINAL, Entry, entries_after, first_seq
from chat.services.execution import executor
from chat.services.hub import Subscription, hub
from chat.services.log import LogClosed
from chat.services.planning import Attached
from chat.services.stores import read
from chat.services.terminal import settle
from chat.words import in_words

logger = logging.getLogger(__name__)

#: Seconds of silence after which a comment keeps the connection open.
KEEP_ALIVE_SECONDS = 10.0
#: How often the log is asked when another process writes it.
POLL_SECONDS = 0.05
#: How often the run's row is asked whether it ended without a word.
CHECK_SECONDS = 1.0
#: Seconds that one piece may wait for a client that does not read.
SEND_SECONDS = 30.0
KEEP_ALIVE = b": keep-alive\n\n"
TOKEN_DIED = b": token_invalid\n\n"

HEADERS: list[Header] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


def frame(entry: Entry) -> bytes:
    """One event: LF only, its number in the session as id."""
    return b"id: %d\ndata: %b\n\n" % (entry.seq, entry.payload)


async def stream(run: Attached, after: int, token: str, receive: Receive, send: Send) -> None:
    """Answer with the run's events behind *after*, until its end or until the client goes.

    It also ends when *token* does not hold any more, or when the client does not read for
    SEND_SECONDS. All of that stops nothing but this answer.
    """
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    with bearers.until_death(token) as died:
        writing = asyncio.create_task(_write(run, after, send))
        leaving = asyncio.create_task(_until_gone(receive))
        dying = asyncio.create_task(died.wait())
        try:
            await asyncio.wait({writing, leaving, dying}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            dying.cancel()
            stopped = not writing.done()
            if stopped:
                writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing
    if stopped and died.is_set():
        with suppress(OSError):
            await _push(send, TOKEN_DIED)
            await _push(send, b"", more=False)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _push(send: Send, body: bytes, *, more: bool = True) -> None:
    """Raises OSError when the client is gone, TimeoutError when it does not read."""
    async with asyncio.timeout(SEND_SECONDS):
        await send({"type": "http.response.body", "body": body, "more_body": more})


async def _write(run: Attached, after: int, send: Send) -> None:
    try:
        async for entries in follow(run, after):
            body = b"".join(map(frame, entries)) if entries else KEEP_ALIVE
            await _push(send, body)
        await _push(send, b"", more=False)
    except OSError:
        return
    except Exception as error:  # noqa: BLE001 - the stream must end with a terminal event
        code = error.code if isinstance(error, DomainError) else "internal"
        logger.error("the stream of run %s broke: %s", run.run_id, type(error).__name__)  # noqa: TRY400
        event = {"type": "RUN_ERROR", "message": in_words(code), "code": code}
        body = b"data: " + orjson.dumps(event) + b"\n\n"
        with suppress(OSError):
            await _push(send, body)
            await _push(send, b"", more=False)


async def follow(run: Attached, after: int) -> AsyncIterator[list[Entry]]:
    """The run's events behind number *after*, as they come, to the terminal one.

    An empty list says that nothing came for KEEP_ALIVE_SECONDS.
    """
    seen, ended = await _behind(run, after), False
    checked, spoke = -math.inf, time.monotonic()
    with hub.subscribe(run.session_id) as inbox:
        batch = await _stored(run, seen)
        while True:
            if batch:
                seen = batch[-1].seq
                mine = [e for e in batch if e.run_id == run.run_id and e.is_event]
                if mine:
                    spoke = time.monotonic()
                    yield mine
                    if mine[-1].type in TERMINAL:
                        return
            elif ended:
                return  # the client has seen the end already, or the thread was erased
            elif time.monotonic() - checked >= CHECK_SECONDS and not executor.owns(run.run_id):
                checked = time.monotonic()
                ended = await _has_ended(run)
                if ended:
                    batch = await _stored(run, seen)
                    continue
            if time.monotonic() - spoke >= KEEP_ALIVE_SECONDS:
                spoke = time.monotonic()
                yield []
            batch = await _next(run, inbox, seen, more=len(batch) >= PAGE)


async def _behind(run: Attached, after: int) -> int:
    """The number behind which the run's own entries may be expected without a gap."""
    first = executor.first_seq(run.run_id) or await read(first_seq, run.session_id, run.run_id)
    return after if first is None else max(after, first - 1)


async def _stored(run: Attached, seen: int) -> Sequence[Entry]:
    return await read(entries_after, run.organization_id, run.session_id, seen, run_id=run.run_id)


async def _next(run: Attached, inbox: Subscription, seen: int, *, more: bool) -> Sequence[Entry]:
    """What follows: from this process's own writer as it writes, else from the store."""
    if not more and await inbox.wait(CHECK_SECONDS if executor.owns(run.run_id) else POLL_SECONDS):
        entries = inbox.take(seen)
        if entries is not None:
            return entries
    return await _stored(run, seen)


async def _has_ended(run: Attached) -> bool:
    """Whether the run is over and its end told; sees to both when its process is dead."""
    if await read(_is_running_on, run):
        return False
    try:
        return await settle(run.run_id)
    except LogClosed:
        return False


def _is_running_on(run: Attached) -> bool:
    row = Run.objects.filter(id=run.run_id).values_list("state", "boot_id").first()
    if row is None or row[0] != RunState.RUNNING:
        return False
    return not dead_boots().filter(id=row[1]).exists() or not fail_dead_run(run.run_id)
