"""Answers of raw ASGI programs, and the last resort when one of them fails."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from uuid import uuid4

import orjson

from agents.errors import DomainError, InternalError
from agents.gateways.body import ClientGone
from agents.problems import problem_document, problem_headers

logger = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]
#: Turns a problem document into the one that a protocol's clients expect.
Shape = Callable[[dict[str, Any]], dict[str, Any]]


async def send_json(
    send: Send, value: Any, *, status: int = 200, headers: Iterable[Header] = ()
) -> None:
    """Answer with JSON; bytes are sent as they are."""
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    await send_whole(send, status, [(b"content-type", b"application/json"), *headers], body)


async def send_problem(
    send: Send, error: DomainError, request_id: str = "", *, shape: Shape | None = None
) -> None:
    """Answer with the problem document of a refusal."""
    request_id = request_id or error.extra.get("request_id", "")
    document = problem_document(error, request_id)
    if shape is not None:
        document = shape(document)
    headers = [(k.encode(), v.encode("latin-1")) for k, v in problem_headers(error).items()]
    if request_id:
        headers.append((b"x-request-id", request_id.encode()))
    await send_whole(send, error.status, headers, json.dumps(document).encode())


async def send_whole(send: Send, status: int, headers: list[Header], body: bytes) -> None:
    """Answer with one body of a known length."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


def guard(app: App, *, shape: Shape | None = None) -> App:
    """Let no exception of *app* reach the server: it becomes a problem, if none has started.

    A DomainError answers for itself; anything else is ``internal`` with a request id. Only the
    exception's type is logged, because its text may quote what a caller or a provider sent. An
    answer that has started is left unfinished, and the server closes the connection.
    """

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await app(scope, receive, watched)
        except ClientGone:
            return
        except DomainError as error:
            if not started:
                await send_problem(send, error, shape=shape)
        except Exception as error:  # noqa: BLE001 - the last resort
            request_id = str(uuid4())
            logger.error(  # noqa: TRY400 - the traceback's text may hold content
                "request %s failed: %s at %s", request_id, type(error).__name__, _place(error)
            )
            if not started:
                await send_problem(send, InternalError(), request_id, shape=shape)

    return guarded


def _place(error: BaseException) -> str:
    """Where in the code it was raised: a file and a line, never a value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "?"
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
