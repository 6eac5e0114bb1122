"""Read a request's body within bounds, and the JSON in it without surprises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

import orjson

from agents.errors import (
    Invalid,
    MalformedBody,
    RequestTimeout,
    TooLarge,
    UnsupportedMediaType,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

#: Seconds for a whole body; whoever trickles one byte a second is cut off.
BODY_SECONDS = 30.0
MAX_DEPTH = 64
JSON_TYPES = ("application/json",)


class ClientGone(Exception):
    """The client closed the connection. There is nobody to answer."""


async def read_json(scope: Scope, receive: Receive, *, limit: int) -> Any:
    """Read and parse a JSON body of at most *limit* bytes. See :func:`parse_json`."""
    return parse_json(await read_body(scope, receive, limit=limit))


async def read_body(
    scope: Scope,
    receive: Receive,
    *,
    limit: int,
    media_types: Collection[str] = JSON_TYPES,
) -> bytes:
    """The body, at most *limit* bytes, in at most BODY_SECONDS.

    Raises UnsupportedMediaType for another type or any content encoding (nothing is unpacked),
    TooLarge as soon as the bound is passed or announced, RequestTimeout, or ClientGone.
    """
    _check_headers(scope, limit, media_types)
    # Most bodies are in the first message, which is there already: no timer for those.
    message = await asyncio.wait_for(receive(), BODY_SECONDS) if _slow(scope) else await receive()
    if not message.get("more_body"):
        return _checked(_piece(message), limit)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _read_rest(message, receive, limit)
    except TimeoutError:
        raise RequestTimeout from None
