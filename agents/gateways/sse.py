"""Watch a provider's event stream while it passes through, without changing a byte of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

#: Bytes of one event; a provider that sends a longer one is cut off.
MAX_EVENT_BYTES = 2**20
DONE = b"[DONE]"
_ENDS = (b"\n\n", b"\r\n\r\n")
#: What makes an event worth parsing. A quoted name inside a JSON string is escaped, so these
#: bytes are there only when the event has such a member or value.
_TELLING = (b'"usage"', b'"error"', DONE)


class EventTooLong(Exception):
    """One event exceeds MAX_EVENT_BYTES."""


class ErrorEvent(Exception):
    """The provider reported an error inside the stream. Its text stays here."""


class EventRelay:
    """Passes on complete events as they come, and remembers what the end of the stream says.

    ``hide_usage`` leaves out the usage-only chunk of a client that did not ask for it.
    """

    def __init__(self, *, hide_usage: bool) -> None:
        self.hide_usage = hide_usage
        #: The terminating event was seen: the answer is complete.
        self.done = False
        #: The last usage object, as the provider wrote it.
        self.usage: dict[str, Any] | None = None
        #: Something that a model said has passed.
        self.had_output = False
        self._tail = bytearray()

    def feed(self, data: bytes) -> bytes:
        """The complete events up to here, to be sent at once; the rest waits for its end.

        Raises EventTooLong or ErrorEvent; what came before the error in *data* is dropped then.
        """
        if not self._tail and data.endswith(b"\n\n"):
            return self._inspect(data)
        searched = max(0, len(self._tail) - 3)
        self._tail += data
        ends = [at + len(mark) for mark in _ENDS if (at := self._tail.rfind(mark, searched)) >= 0]
        if not ends:
            if len(self._tail) > MAX_EVENT_BYTES:
                raise EventTooLong
            return b""
        end = max(ends)
        complete = bytes(self._tail[:end])
        del self._tail[:end]
        return self._inspect(complete)

    def finish(self) -> bytes:
        """What is left when the provider has closed: an unterminated last event, or nothing."""
        rest = bytes(self._tail)
        self._tail.clear()
        return self._inspect(rest) if rest.strip() else b""

    def _inspect(self, block: bytes) -> bytes:
        if self.done:
            return b""
        if not any(telling in block for telling in _TELLING):
            self.had_output = True
            return block
        return b"".join(event for event in _events(block) if self._passes(event))

    def _passes(self, event: bytes) -> bool:
        if self.done:
            return False
        payload = _payload(event)
        if payload == DONE:
            self.done = True
            return True
        document = _parsed(payload)
        if document is None:
            return True
        if document.get("error"):
            raise ErrorEvent
        usage = document.get("usage")
        if isinstance(usage, dict):
            self.usage = usage
        if document.get("choices") == []:
            return not (self.hide_usage and isinstance(usage, dict))
        self.had_output = True
        return True


def _events(block: bytes) -> Iterator[bytes]:
    """The events of *block* with their ends; joined again they are *block*."""
    start = 0
    while start < len(block):
        ends = [at + len(mark) for mark in _ENDS if (at := block.find(mark, start)) >= 0]
        end = min(ends, default=len(block))
        yield block[start:end]
        start = end


def _payload(event: bytes) -> bytes:
    """The event's data, several lines joined as the format says."""
    lines = [
        line.removeprefix(b"data:").removeprefix(b" ")
        for line in event.splitlines()
        if line.startswith(b"data:")
    ]
    return b"\n".join(lines).strip()


def _parsed(payload: bytes) -> dict[str, Any] | None:
    if not payload.startswith(b"{"):
        return None
    try:
        document = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None
