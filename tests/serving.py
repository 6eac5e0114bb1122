"""Serve a raw ASGI program on a loopback port, from a thread of its own; work beside a loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvicorn
from django.db import connections

from agents.gateways import calls, outgoing
from agents.gateways.responses import App

T = TypeVar("T")


async def aside(function: Callable[[], T]) -> T:
    """Run *function*, which may use the database, in a thread that keeps no connection of it."""

    def run() -> T:
        try:
            return function()
        finally:
            connections.close_all()

    return await asyncio.to_thread(run)


class Served:
    """A program on a port. ``run`` executes a coroutine on its event loop."""

    def __init__(self, app: App) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,
                http="httptools",
                ws="none",
                timeout_graceful_shutdown=1,
            )
        )

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with calls.checking():
            await self._server.serve(sockets=[self._socket])
        await outgoing.close()

    def run(self, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine(), self._loop).result(10)

    def start(self) -> None:
        self._thread.start()
        while not self._server.started:
            self._thread.join(0.01)
            assert self._thread.is_alive()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()


@contextmanager
def served(app: App) -> Iterator[Served]:
    """*app* on a port until the block ends, with open calls checked as in the real process."""
    server = Served(app)
    server.start()
    try:
        yield server
    finally:
        server.stop()
