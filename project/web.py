"""What the web process serves, and what it does from its start to its end."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import cast

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.db import DatabaseError, connections
from django.db.backends.utils import CursorWrapper

from agents import lifecycle
from agents.errors import DomainError, MethodNotAllowed, StoreUnavailable
from agents.gateways import calls, mcp_gateway, model_gateway, outgoing, prices
from agents.gateways.body import bounded
from agents.gateways.responses import App, Receive, Scope, Send, guard, send_json
from agents.models import VirtualModel
from agents.writer import get_writer
from chat.agui import routes
from project.statics import FoundFiles

logger = logging.getLogger(__name__)

MODEL_PREFIX = "/gateway/v1/"
MCP_PATH = "/gateway/mcp"
#: A heartbeat older than this many seconds makes the process unfit: others count it as dead.
STALE_SECONDS = 5.0
#: How long both databases may take to answer, and how long a good answer is repeated.
HEALTH_SECONDS = 2.0
HEALTH_MEMORY_SECONDS = 1.0


def build() -> App:
    """The ASGI application of the web process, after ``django.setup()``."""
    django = guard(_bounded_django())
    statics = FoundFiles()
    health = guard(Health())

    def choose(scope: Scope) -> App:
        path: str = scope["path"]
        if path.startswith(MODEL_PREFIX):
            return model_gateway.app
        if path == MCP_PATH:
            return mcp_gateway.app
        if path.startswith(statics.prefix):
            return statics
        if path == "/health":
            return health
        return routes.match(scope) or django

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            try:
                await choose(scope)(scope, receive, send)
            except asyncio.CancelledError:
                # The server ends and cancels what is left; it would print a traceback for each.
                logger.info("a request was cut off by the end of the process")
        elif kind == "lifespan":
            await _lifespan(receive, send, [mcp_gateway.lifespan, routes.lifespan])
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    return application


def _bounded_django() -> App:
    django = cast("App", get_asgi_application())  # typed for dicts and mappings only
    limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await django(scope, bounded(receive, limit), send)

    return application


# --- from start to end ----------------------------------------------------------------------

Lifespan = Callable[[], AbstractAsyncContextManager[object]]


async def _lifespan(receive: Receive, send: Send, parts: list[Lifespan]) -> None:
    """Speak the server's lifespan protocol around :func:`running`."""
    await receive()
    stack = AsyncExitStack()
    try:
        await stack.enter_async_context(running(parts))
    except Exception as error:  # noqa: BLE001 - the server ends the process with this message
        detail = error.detail if isinstance(error, DomainError) else type(error).__name__
        await send({"type": "lifespan.startup.failed", "message": f"Cannot start: {detail}"})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    try:
        await stack.aclose()
    except Exception as error:  # noqa: BLE001 - whatever is left undone, the sweeps will find
        await send({"type": "lifespan.shutdown.failed", "message": type(error).__name__})
        return
    await send({"type": "lifespan.shutdown.complete"})


@asynccontextmanager
async def running(parts: list[Lifespan]) -> AsyncIterator[None]:
    """Be a web process: a boot with a heartbeat, sweeps, checked calls, and the given parts.

    On the way out the parts end first, then the clients close, then the writers drain, and the
    boot ends last.
    """
    thread = lifecycle.OwnThread("boot")
    boot = lifecycle.booted("web")
    await thread.run(boot.__enter__)
    try:
        await thread.run(_load_prices)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(outgoing.close)
            await stack.enter_async_context(lifecycle.sweeping())
            await stack.enter_async_context(calls.checking())
            for part in parts:
                await stack.enter_async_context(part())
            _settle_memory()
            yield
    finally:
        await thread.run(lambda: boot.__exit__(None, None, None))
        thread.close()


def _load_prices() -> None:
    """Read the bundled price list now if any model refers to it: later it would hold up a call."""
    reference = VirtualModel.objects.exclude(pricing_reference="").first()
    if reference is not None:
        prices.is_published(reference.pricing_reference)
    connections.close_all()


def _settle_memory() -> None:
    """Keep what was imported out of the collector's way: its full rounds took 150 ms and more."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)


# --- health ---------------------------------------------------------------------------------


class Health:
    """``GET /health``: 200 while the heartbeat is fresh and both databases answer, else 503."""

    def __init__(self) -> None:
        self._answered = -HEALTH_MEMORY_SECONDS

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            raise MethodNotAllowed(allow="GET, HEAD")
        if lifecycle.heartbeat_age() > STALE_SECONDS:
            raise StoreUnavailable("The heartbeat of this process is stale.")
        if time.monotonic() - self._answered >= HEALTH_MEMORY_SECONDS:
            await self._ask()
            self._answered = time.monotonic()
        await send_json(send, {"status": "ok"}, headers=[(b"cache-control", b"no-store")])

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                await asyncio.gather(
                    get_writer("default").run(_select), get_writer("content").run(_select)
                )
        except TimeoutError:
            raise StoreUnavailable("A database does not answer in time.") from None
        except DatabaseError:
            raise StoreUnavailable from None


def _select(cursor: CursorWrapper) -> None:
    cursor.execute("SELECT 1")
