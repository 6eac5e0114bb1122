"""Streamed answers of the model, with pieces of text joined while they wait.

Reading one delta costs the client libraries far more than the network, so a stream that arrives
faster than it is processed is joined before they see it: all text that has arrived is handed on as
one delta. A delta that arrives alone passes as it came, byte for byte, and nothing waits for more
than what is already there. The text is the same either way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from pydantic_core import from_json, to_json

JSON = dict[str, Any]

#: Longest time, in seconds, to collect what is already on this machine.
COLLECT_SECONDS = 0.005
#: Turns of the event loop without a new piece after which nothing more is there.
IDLE_TURNS = 2
#: Bytes that may wait before the wire is no longer read.
WAITING_BYTES = 2**20

_END = b"\n\n"


class JoiningTransport(httpx2.AsyncBaseTransport):
    """Sends requests through ``inner`` and joins the deltas of event streams."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        streams = response.headers.get("content-type", "").startswith("text/event-stream")
        if streams and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = JoiningStream(response.stream)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class JoiningStream(httpx2.AsyncByteStream):
    """A body that is read ahead by a task of its own and handed on in joined pieces."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner
        self._waiting = bytearray()
        self._pieces = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        # A client that leaves the loop at the end mark iterates again to drain what follows.
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        reader = self._reader
        rest = b""
        while not reader.done() or self._waiting:
            if not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            await self._collect()
            data, rest = join(rest + self._take())
            if data:
                yield data
        if rest:
            yield rest
        await reader  # raises what ended the stream early

    async def aclose(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._inner.aclose()

    async def _read(self) -> None:
        try:
            async for piece in self._inner:
                self._waiting += piece
                self._pieces += 1
                self._changed.set()
                if len(self._waiting) > WAITING_BYTES:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._changed.set()

    async def _collect(self) -> None:
        """Let the reader take what has already arrived, as long as it finds something."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + COLLECT_SECONDS
        seen, idle = self._pieces, 0
        while idle < IDLE_TURNS and clock() < deadline:
            await asyncio.sleep(0)
            idle = idle + 1 if seen == self._pieces else 0
            seen = self._pieces

    def _take(self) -> bytes:
        data = bytes(self._waiting)
        self._waiting.clear()
        self._room.set()
        return data


def join(data: bytes) -> tuple[bytes, bytes]:
    """Join the whole events in ``data``; gives them and the begun event that follows them.

    Only neighbouring events that are nothing but a next piece of text are touched.
    """
    if b"\r" in data:
        return data, b""  # another framing than ours, so it passes as it is
    whole = data.rfind(_END) + len(_END) if _END in data else 0
    events, rest = data[:whole].split(_END)[:-1], data[whole:]
    if len(events) < 2:
        return data[:whole], rest
    joined: list[bytes] = []
    open_text: JSON | None = None
    for event in events:
        text = _text(event)
        if text is not None and open_text is not None:
            _delta(open_text)["content"] += _delta(text)["content"]
            joined[-1] = b"data: " + to_json(open_text)
        else:
            open_text = text
            joined.append(event)
    return _END.join([*joined, b""]), rest


def _text(event: bytes) -> JSON | None:
    """The event's JSON when it is a piece of text and nothing else."""
    if not event.startswith(b"data: {") or b"\n" in event or b'"content"' not in event:
        return None
    try:
        chunk = from_json(event[len(b"data: ") :])
    except ValueError:
        return None
    choices = chunk.get("choices")
    if chunk.get("usage") is not None or not isinstance(choices, list) or len(choices) != 1:
        return None
    choice = choices[0]
    if not isinstance(choice, dict) or not isinstance(choice.get("delta"), dict):
        return None
    if any(choice[name] is not None for name in choice.keys() - {"index", "delta"}):
        return None
    said = {name: value for name, value in choice["delta"].items() if value is not None}
    return chunk if said.keys() == {"content"} and isinstance(said["content"], str) else None


def _delta(chunk: JSON) -> JSON:
    delta: JSON = chunk["choices"][0]["delta"]
    return delta
