"""The two streaming routes, as raw ASGI programs mounted beside Django."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import parse_qs

from agents.errors import Invalid, MethodNotAllowed
from agents.gateways.auth import bearer
from agents.gateways.body import parse_json, read_body
from agents.gateways.responses import (
    App,
    Header,
    Message,
    Receive,
    Scope,
    Send,
    guard,
    send_whole,
)
from chat.agui.cors import preflight_headers, response_headers
from chat.agui.inputs import MAX_BODY, read_turn
from chat.agui.streams import stream
from chat.selectors.threads import own_run
from chat.selectors.tokens import caller_of
from chat.services.execution import executor
from chat.services.planning import attached_to
from chat.services.stores import read, stop_readers
from chat.services.turns import start_turn

PREFIX = "/apps/v1/"
RUN = re.compile(r"/apps/v1/agents/([^/]+)")
EVENTS = re.compile(r"/apps/v1/threads/([^/]+)/runs/([^/]+)/events")
#: ``after`` is a number of an entry; a session never has more.
MAX_AFTER = 2**53


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    """The life of this process's runs: what still runs at its end is ended and told."""
    executor.start()
    try:
        yield
    finally:
        await executor.shutdown()
        stop_readers()


Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]


def match(scope: Scope) -> App | None:
    """The program for a streaming route of the chat surface, or None for everything else."""
    path: str = scope["path"]
    if not path.startswith(PREFIX):
        return None
    if run := RUN.fullmatch(path):
        return _program(partial(_start, run[1]), "POST")
    if events := EVENTS.fullmatch(path):
        return _program(partial(_attach, events[1], events[2]), "GET")
    return None


def _program(endpoint: Endpoint, method: str) -> App:
    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != method:
            raise MethodNotAllowed
        await endpoint(scope, receive, send)

    guarded = guard(checked)

    async def program(scope: Scope, receive: Receive, send: Send) -> None:
        origin = _header(scope, b"origin")
        if scope["method"] == "OPTIONS":
            await send_whole(send, 204, _encoded(preflight_headers(origin)), b"")
        else:
            await guarded(scope, receive, _adding(send, _encoded(response_headers(origin))))

    return program


def _adding(send: Send, headers: list[Header]) -> Send:
    """Also refusals carry the CORS headers, or a front end could not read why."""

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return adding


async def _start(slug: str, scope: Scope, receive: Receive, send: Send) -> None:
    """The AG-UI run endpoint: RunAgentInput in, the run's events out."""
    token = bearer(scope)
    caller = await read(caller_of, token)
    turn = read_turn(parse_json(await read_body(scope, receive, limit=MAX_BODY)))
    run = await start_turn(caller, slug, turn)
    await stream(run, 0, token, receive, send)


async def _attach(thread_id: str, run_id: str, scope: Scope, receive: Receive, send: Send) -> None:
    """Follow a run from an event on, whichever process executes it."""
    token = bearer(scope)
    caller = await read(caller_of, token)
    after = _after(scope)
    _thread, run = await read(own_run, caller, thread_id, run_id)
    await stream(attached_to(run), after, token, receive, send)


def _after(scope: Scope) -> int:
    values = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("after", ["0"])
    if len(values) != 1 or not values[0].isascii() or not values[0].isdigit():
        raise Invalid("after is the number of an event.", field="after")
    after = int(values[0][:20])
    if after > MAX_AFTER:
        raise Invalid("after is the number of an event.", field="after")
    return after


def _header(scope: Scope, name: bytes) -> str | None:
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return None


def _encoded(headers: dict[str, str]) -> list[Header]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
