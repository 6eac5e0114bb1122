"""Watch a provider's event stream while it passes through, without changing a byte of a chunk.

What is not a chunk of a completion is the provider's own word, and does not pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agents.gateways.model_answer import read_completion

#: Bytes of one event; a provider that sends a longer one is cut off.
MAX_EVENT_BYTES = 2**20
DONE = b"[DONE]"
_ENDS = (b"\n\n", b"\r\n\r\n")
#: What is sent instead of a provider's comment, which may say anything: the line is alive.
KEEP_ALIVE = b":\n\n"
#: Lines that mean nothing to a client of this wire, and are left out.
_IDLE = (b":", b"id:", b"retry:")


class EventTooLong(Exception):
    """One event exceeds MAX_EVENT_BYTES."""


class ErrorEvent(Exception):
    """The provider sent something other than chunks: most often an error. Its text stays here."""


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
        return b"".join(self._passed(event) for event in _events(block))

    def _passed(self, event: bytes) -> bytes:
        """What the client gets of one event: all of it, or nothing that the provider wrote."""
        if self.done:
            return b""
        sent, payload = _read(event)
        if payload is None:
            return sent
        if payload == DONE:
            self.done = True
            return sent
        document = read_completion(payload)
        if document is None:
            raise ErrorEvent
        usage = document.get("usage")
        if isinstance(usage, dict):
            self.usage = usage
        if document["choices"]:
            self.had_output = True
        elif self.hide_usage and isinstance(usage, dict):
            return b""
        return sent


def _events(block: bytes) -> Iterator[bytes]:
    """The events of *block* with their ends; joined again they are *block*."""
    start = 0
    while start < len(block):
        ends = [at + len(mark) for mark in _ENDS if (at := block.find(mark, start)) >= 0]
        end = min(ends, default=len(block))
        yield block[start:end]
        start = end


def _read(event: bytes) -> tuple[bytes, bytes | None]:
    """What may be sent of *event*, and its data: several lines joined as the format says.

    An event without data is sent as KEEP_ALIVE, and one of blank lines only as nothing. Raises
    ErrorEvent for a named event and for a line that is no part of the format.
    """
    lines = event.splitlines(keepends=True)
    data = [line for line in lines if line.startswith(b"data:")]
    others = [line for line in lines if not line.startswith(b"data:") and line.strip()]
    if not all(line.startswith(_IDLE) for line in others):
        raise ErrorEvent
    if not data:
        return KEEP_ALIVE if others else b"", None
    if others:
        event = b"".join(line for line in lines if line not in others)
    texts = (line.removeprefix(b"data:").removeprefix(b" ").rstrip(b"\r\n") for line in data)
    return event, b"\n".join(texts).strip()
