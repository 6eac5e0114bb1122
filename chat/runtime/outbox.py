"""Frames on their way to web: put without waiting, sent in order, joined when web is slow.

The run puts frames, a writer sends them. When the writer finds several waiting, they leave in one
write, and neighbouring pieces of one message become one: web gets fewer, longer deltas, never
another text. Nothing is held back for that; a frame that waits alone leaves at once.
"""

from __future__ import annotations

import asyncio
from collections import deque

from chat.runtime.wire import EventFrame, FinalFrame, MessageFrame, encode

Frame = EventFrame | MessageFrame | FinalFrame

#: Frames that may wait before the run is slowed down to what web reads.
HIGH_WATER = 256

_DELTAS = {
    "TEXT_MESSAGE_CONTENT": "messageId",
    "REASONING_MESSAGE_CONTENT": "messageId",
    "TOOL_CALL_ARGS": "toolCallId",
}


class Outbox:
    """A queue between one run and one response."""

    def __init__(self) -> None:
        self._waiting: deque[Frame] = deque()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._closed = False

    def put(self, frame: Frame) -> None:
        self._waiting.append(frame)
        self._filled.set()
        if len(self._waiting) >= HIGH_WATER:
            self._drained.clear()

    def close(self) -> None:
        """No more frames will be put."""
        self._closed = True
        self._filled.set()

    async def room(self) -> None:
        """Wait until web has caught up, if it is far behind."""
        if not self._drained.is_set():
            await self._drained.wait()

    async def take(self) -> bytes | None:
        """All that waits, as lines of JSON; None after the last frame."""
        while not self._waiting:
            if self._closed:
                return None
            self._filled.clear()
            await self._filled.wait()
        frames = joined(self._waiting)
        self._waiting.clear()
        self._drained.set()
        return b"".join(encode(frame) for frame in frames)


def joined(frames: deque[Frame]) -> list[Frame]:
    """The frames with neighbouring deltas of one message or call made one."""
    result: list[Frame] = []
    for frame in frames:
        last = result[-1] if result else None
        if (
            isinstance(frame, EventFrame)
            and isinstance(last, EventFrame)
            and _continues(last, frame)
        ):
            event = {**last.event, "delta": last.event["delta"] + frame.event["delta"]}
            result[-1] = EventFrame(event=event)
        else:
            result.append(frame)
    return result


def _continues(last: EventFrame, frame: EventFrame) -> bool:
    kind = frame.event["type"]
    key = _DELTAS.get(kind)
    return key is not None and last.event["type"] == kind and last.event[key] == frame.event[key]
