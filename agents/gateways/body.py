"""Read a request's body within bounds, and the JSON in it without surprises."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

import orjson

from agents.errors import (
    MalformedBody,
    RequestTimeout,
    TooDeep,
    TooLarge,
    UnsupportedMediaType,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

#: Seconds for a whole body; whoever trickles one byte a second is cut off.
BODY_SECONDS = 30.0
MAX_DEPTH = 64
JSON_TYPES = frozenset({"application/json"})


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
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                piece = message.get("body", b"")
                size += len(piece)
                if size > limit:
                    raise TooLarge(limit=limit)
                pieces.append(piece)
                if not message.get("more_body"):
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    except TimeoutError:
        raise RequestTimeout from None


def bounded(receive: Receive, limit: int) -> Receive:
    """*receive* for a program that reads its body itself: TooLarge once *limit* bytes are passed.

    For Django, which would write a body without a declared length to disk before it looks.
    """
    size = 0

    async def counted() -> MutableMapping[str, Any]:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise TooLarge(limit=limit)
        return message

    return counted


def _check_headers(scope: Scope, limit: int, media_types: Collection[str]) -> None:
    media_type = ""
    for name, value in scope["headers"]:
        if name == b"content-type":
            media_type = value.decode("latin-1").partition(";")[0].strip().lower()
        elif name == b"content-encoding" and value.strip().lower() not in {b"", b"identity"}:
            raise UnsupportedMediaType("Compressed bodies are not accepted.")
        elif name == b"content-length" and value.isdigit() and int(value) > limit:
            raise TooLarge(limit=limit)
    if media_type not in media_types:
        raise UnsupportedMediaType(f"Send {' or '.join(sorted(media_types))}.")


def parse_json(data: bytes) -> Any:
    """Parse strict JSON: no NaN, no lone surrogates, no broken UTF-8, nested at most MAX_DEPTH.

    Of a repeated name the last value counts; so use what is returned, and never pass on *data*,
    which another parser may read differently. Raises MalformedBody or TooDeep.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise MalformedBody from None
    # Whoever opens fewer brackets than the bound cannot nest deeper than it.
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        raise TooDeep(limit=MAX_DEPTH)
    return value


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(limit):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return bool(level)
