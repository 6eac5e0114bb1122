"""What really happened to one HTTP exchange with a tool server, seen below the MCP SDK.

The SDK tells an answered error, a broken connection and a refused one apart in no reliable way,
and a failing exchange takes all others of its session along. So every exchange that carries a
:class:`Trace` (in a context variable, which the SDK hands on to its own tasks) is watched here:
its failures become plain 502 answers, and the trace says what they were. Only what fails while
a name is resolved or a connection made was certainly not sent; every other failure may have come
after the request had left.
"""

from __future__ import annotations

import contextvars
import socket
from collections.abc import AsyncIterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import httpx2

from agents.errors import DestinationRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Bytes of one answer that belongs to no traced exchange: the handshake. Streams are not bounded.
UNTRACED_LIMIT = 1 << 20

#: A TLS record that fails later is an OSError too, so OSError as such says nothing.
_NOTHING_SENT = (
    DestinationRefused,
    socket.gaierror,
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
)


@dataclass(slots=True)
class Trace:
    """One request and its answer. ``limit`` bounds the answer's bytes on the wire."""

    limit: int | None
    #: HTTP status of the answer, 0 when none came.
    status: int = 0
    #: The request certainly did not leave: no connection was made for it.
    unsent: bool = False
    #: The connection failed after the request had left, at least in part.
    broken: bool = False
    oversize: bool = False
    #: The request reached this transport at all.
    started: bool = False

    @property
    def answered(self) -> bool:
        """Whether an answer with a body came whole, as far as this layer can tell."""
        return not self.broken and 200 <= self.status < 300 and self.status != 202

    def start(self) -> bool:
        """Whether this is the traced request itself, not a notification that came after it."""
        first, self.started = not self.started, True
        return first


_current: contextvars.ContextVar[Trace | None] = contextvars.ContextVar("trace", default=None)


@contextmanager
def traced(limit: int | None) -> Iterator[Trace]:
    """Trace the exchange that the block causes; None bounds nothing, for endless streams."""
    trace = Trace(limit)
    token = _current.set(trace)
    try:
        yield trace
    finally:
        _current.reset(token)


class TracingTransport(httpx2.AsyncBaseTransport):
    """Around the vetted transport: no encodings, bounded answers, failures noted and contained."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        #: HTTP status of the last answer, 0 before one came.
        self.status = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        trace = _current.get()
        # A compressed answer could unpack to any size; whoever sends one anyway is not read.
        request.headers["accept-encoding"] = "identity"
        if trace is None:
            response = await self._inner.handle_async_request(request)
            self.status = response.status_code
            return _bounded(response, None)
        first = trace.start()
        try:
            response = await self._inner.handle_async_request(request)
        except _NOTHING_SENT:
            trace.unsent = trace.unsent or first
            return _failed(request)
        except Exception:  # noqa: BLE001 - whatever it was, the request may have left
            trace.broken = trace.broken or first
            return _failed(request)
        self.status = response.status_code
        if first:
            trace.status = response.status_code
        return _bounded(response, trace)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _failed(request: httpx2.Request) -> httpx2.Response:
    return httpx2.Response(502, request=request)


def _bounded(response: httpx2.Response, trace: Trace | None) -> httpx2.Response:
    """The same answer with its bytes counted."""
    endless = response.headers.get("content-type", "").startswith("text/event-stream")
    untraced = None if endless else UNTRACED_LIMIT
    limit = untraced if trace is None else trace.limit
    encoded = response.headers.get("content-encoding", "identity") != "identity"
    response.headers.pop("content-encoding", None)
    stream = cast("httpx2.AsyncByteStream", response.stream)
    response.stream = _CountedStream(stream, 0 if encoded else limit, trace)
    return response


class _CountedStream(httpx2.AsyncByteStream):
    """Ends in a StreamError, which the SDK confines to the exchange, whatever goes wrong."""

    def __init__(
        self, inner: httpx2.AsyncByteStream, limit: int | None, trace: Trace | None
    ) -> None:
        self._inner = inner
        self._left = limit
        self._trace = trace

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._inner:
                self._count(len(piece))
                yield piece
        except httpx2.StreamError:
            raise
        except Exception:  # noqa: BLE001 - a TLS failure comes as it is, not as httpx2's own
            if self._trace is not None:
                self._trace.broken = True
            msg = "the connection failed"
            raise httpx2.StreamError(msg) from None

    def _count(self, size: int) -> None:
        if self._left is None:
            return
        self._left -= size
        if self._left < 0:
            if self._trace is not None:
                self._trace.oversize = True
            msg = "the answer is too large"
            raise httpx2.StreamError(msg)

    async def aclose(self) -> None:
        await self._inner.aclose()
