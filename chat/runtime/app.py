"""The runtime's HTTP face: ``GET /health`` and ``POST /runs``, as a plain ASGI program."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx2
from pydantic import ValidationError

from chat.runtime.joining import JoiningTransport
from chat.runtime.outbox import Outbox
from chat.runtime.problems import Problem, problem_body
from chat.runtime.runner import Services, build_services, execute
from chat.runtime.settings import Settings
from chat.runtime.tools import CALL_SECONDS
from chat.runtime.wire import RunRequest

logger = logging.getLogger("chat.runtime.app")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

#: Bytes of a run request: a long history with large tool results fits.
BODY_BYTES = 64 * 2**20


class Disconnected(Exception):
    """Web went away before its request was complete."""


def build_http_client() -> httpx2.AsyncClient:
    """The one client of the process: no proxy of the environment, no redirects, no retries."""
    limits = httpx2.Limits(max_connections=1_000, max_keepalive_connections=100)
    transport = httpx2.AsyncHTTPTransport(trust_env=False, limits=limits)
    return httpx2.AsyncClient(
        transport=JoiningTransport(transport),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx2.Timeout(connect=5.0, read=CALL_SECONDS, write=30.0, pool=30.0),
    )


class RuntimeApp:
    """Serves runs with the given settings. The services live as long as the ASGI lifespan."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._services: Services | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with build_http_client() as http:
            self._services = build_services(self._settings, http)
            await send({"type": "lifespan.startup.complete"})
            await receive()
            self._services = None
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"] == "/health":
                _require_method(scope, "GET")
                await _respond(send, 200, b'{"status":"ok"}', "application/json")
                return
            request = await self._accept(scope, receive)
        except Problem as problem:
            headers = ((b"www-authenticate", b"Bearer"),) if problem.status == 401 else ()
            body = problem_body(problem)
            await _respond(send, problem.status, body, "application/problem+json", headers)
        except Disconnected:
            return
        else:
            assert self._services is not None
            await _stream_run(request, self._services, receive, send)

    async def _accept(self, scope: Scope, receive: Receive) -> RunRequest:
        """Read a run request. Raises :class:`Problem` for everything that is not one."""
        if scope["path"] != "/runs":
            raise Problem(404, "not_found", "There is no such thing here")
        _require_method(scope, "POST")
        headers = dict(scope["headers"])
        expected = f"Bearer {self._settings.token}".encode()
        if not hmac.compare_digest(headers.get(b"authorization", b""), expected):
            raise Problem(401, "unauthenticated", "No valid credential was sent")
        if headers.get(b"content-type", b"").partition(b";")[0].strip() != b"application/json":
            raise Problem(415, "unsupported_media_type", "Send application/json")
        return _parse(await _read_body(headers, receive))


def _require_method(scope: Scope, method: str) -> None:
    if scope["method"] != method:
        raise Problem(405, "method_not_allowed", "This route does not answer that method")


async def _read_body(headers: dict[bytes, bytes], receive: Receive) -> bytes:
    too_large = Problem(413, "too_large", "The input is larger than this route accepts")
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > BODY_BYTES:
        raise too_large
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body += message.get("body", b"")
        if len(body) > BODY_BYTES:
            raise too_large
        if not message.get("more_body", False):
            return bytes(body)


def _parse(body: bytes) -> RunRequest:
    try:
        return RunRequest.model_validate_json(body)
    except ValidationError as error:
        if any(problem["type"] == "json_invalid" for problem in error.errors(include_input=False)):
            raise Problem(400, "malformed_body", "The body is not JSON") from None
        raise Problem(422, "invalid", "The body is not a run request") from None


async def _respond(
    send: Send,
    status: int,
    body: bytes,
    content_type: str,
    headers: tuple[tuple[bytes, bytes], ...] = (),
) -> None:
    own = [(b"content-type", content_type.encode()), (b"cache-control", b"no-store"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": own})
    await send({"type": "http.response.body", "body": body})


async def _stream_run(
    request: RunRequest, services: Services, receive: Receive, send: Send
) -> None:
    """Run and stream at once. When web closes the connection the run and its calls are cancelled."""
    outbox = Outbox()
    run = asyncio.create_task(_run_into(outbox, request, services))
    watch = asyncio.create_task(_until_disconnect(receive))
    watch.add_done_callback(lambda _: run.cancel())
    headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        while (lines := await outbox.take()) is not None:
            await send({"type": "http.response.body", "body": lines, "more_body": True})
        await asyncio.wait((run,))
        if not run.cancelled():
            await send({"type": "http.response.body", "body": b""})
    finally:
        for task in (run, watch):
            task.cancel()
        await asyncio.gather(run, watch, return_exceptions=True)


async def _run_into(outbox: Outbox, request: RunRequest, services: Services) -> None:
    try:
        await execute(request, services, outbox)
    except asyncio.CancelledError:
        logger.info("run %s cancelled", request.run_id)
        raise
    finally:
        outbox.close()


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
