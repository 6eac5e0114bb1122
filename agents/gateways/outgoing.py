"""The only place that builds HTTP clients, so that every connection obeys the same rules.

Whatever leaves is vetted twice: the spelling of the host before each request, and every address
its name resolves to when a connection is made; the connection goes to exactly the addresses that
were checked. No client follows redirects, reads proxies from the environment, or unpacks bodies.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import httpx
import httpx2
from aiohttp.abc import AbstractResolver, ResolveResult
from django.conf import settings
from yarl import URL

from agents.errors import DestinationRefused
from agents.vetting import check_host, check_ip

# Names for callers, who import no HTTP client themselves.
Response = aiohttp.ClientResponse
TimeLimits = aiohttp.ClientTimeout
TransportError = aiohttp.ClientError

#: Seconds to get a connection, TLS included.
CONNECT_SECONDS = 10.0
#: An idle connection is closed after this many seconds, and its name resolved and vetted anew.
KEEPALIVE_SECONDS = 30.0


#: What a request through aiohttp raises when its connection fails.
FAILURES: tuple[type[Exception], ...] = (aiohttp.ClientError, TimeoutError, OSError)


class AnswerTooLong(Exception):
    """An upstream's body exceeds the caller's bound."""


# --- vetting --------------------------------------------------------------------------------


def vet_url(url: str | URL) -> None:
    """Refuse a destination by its spelling. Raises DestinationRefused."""
    parsed = URL(url) if isinstance(url, str) else url
    if parsed.scheme not in {"http", "https"} or parsed.host is None or parsed.port is None:
        raise DestinationRefused
    if parsed.user is not None or parsed.password is not None:
        raise DestinationRefused
    check_host(parsed.host.lower(), parsed.port)


async def vetted_addresses(host: str, port: int) -> list[str]:
    """Resolve *host* once and return its addresses, all of which may be connected to.

    One refused address refuses the name. Raises DestinationRefused, or socket.gaierror when the
    name does not resolve.
    """
    found = await _look_up(host, port)
    for address in found:
        # A scoped address names an interface of ours: never a public place.
        check_ip(address.partition("%")[0], port, host=host)
    if not found:
        msg = "the name has no address"
        raise socket.gaierror(socket.EAI_NONAME, msg)
    return found


async def _look_up(host: str, port: int) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
    )
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


# --- aiohttp: the hot path ------------------------------------------------------------------


class VettedResolver(AbstractResolver):
    """Hands aiohttp only addresses that were checked a moment before it connects to them."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await vetted_addresses(host, port)
            if family in {socket.AF_UNSPEC, socket.AF_INET6 if ":" in address else socket.AF_INET}
        ]

    async def close(self) -> None:
        """Nothing is kept between two look-ups."""


_vetted: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}
_runtime: dict[asyncio.AbstractEventLoop, aiohttp.ClientSession] = {}


def session() -> aiohttp.ClientSession:
    """This loop's session for configured providers and connectors.

    aiohttp asks no resolver about literal addresses: use :func:`send`, or call :func:`vet_url`
    before each request.
    """
    loop = asyncio.get_running_loop()
    found = _vetted.get(loop)
    if found is None or found.closed:
        connector = aiohttp.TCPConnector(
            resolver=VettedResolver(),
            use_dns_cache=False,
            limit=0,
            keepalive_timeout=KEEPALIVE_SECONDS,
        )
        found = _vetted[loop] = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            timeout=TimeLimits(total=None, connect=CONNECT_SECONDS),
        )
    return found


def runtime_session() -> aiohttp.ClientSession:
    """This loop's session for the runtime's configured address, and for nothing else."""
    loop = asyncio.get_running_loop()
    found = _runtime.get(loop)
    if found is None or found.closed:
        found = _runtime[loop] = aiohttp.ClientSession(
            base_url=settings.RUNTIME_URL,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            timeout=TimeLimits(total=None, connect=CONNECT_SECONDS),
        )
    return found


@asynccontextmanager
async def send(
    method: str,
    url: str | URL,
    *,
    headers: Mapping[str, str],
    timeout: TimeLimits,  # noqa: ASYNC109 - a record of several limits
    data: bytes | None = None,
) -> AsyncIterator[Response]:
    """Send one request; a redirect comes back as the answer it is.

    Raises DestinationRefused before anything is sent, else TransportError or TimeoutError.
    Leaving the block early closes the connection, which cancels the call upstream.
    """
    target = URL(url) if isinstance(url, str) else url
    vet_url(target)
    async with session().request(
        method, target, headers=headers, data=data, timeout=timeout, allow_redirects=False
    ) as response:
        yield response


async def read_bounded(response: Response, limit: int) -> bytes:
    """The whole body, of at most *limit* bytes. Raises AnswerTooLong, having read no more."""
    if response.content_length is not None and response.content_length > limit:
        raise AnswerTooLong
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > limit:
            raise AnswerTooLong
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def close() -> None:
    """Close this loop's sessions, for the end of the process or of a loop."""
    loop = asyncio.get_running_loop()
    for sessions in (_vetted, _runtime):
        found = sessions.pop(loop, None)
        if found is not None:
            await found.close()


# --- httpx and the mcp client's httpx2 ------------------------------------------------------


class PinnedTransport(httpx.AsyncBaseTransport):
    """Sends each request to an address that was just vetted, under the name it was asked for."""

    def __init__(self) -> None:
        #: One pool for each name, so that no connection is ever shared between two names.
        self._pools: dict[tuple[str, str, int], httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        scheme, host, port = _origin(request.url)
        address = await _pinned_address(scheme, host, port)
        request.extensions = _naming(request.extensions, host)
        request.url = request.url.copy_with(host=address)
        pool = self._pools.get((scheme, host, port))
        if pool is None:
            pool = self._pools[scheme, host, port] = httpx.AsyncHTTPTransport(trust_env=False)
        return await pool.handle_async_request(request)

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


class PinnedTransport2(httpx2.AsyncBaseTransport):
    """:class:`PinnedTransport` for httpx2, whose classes are its own."""

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str, int], httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        scheme, host, port = _origin(request.url)
        address = await _pinned_address(scheme, host, port)
        request.extensions = _naming(request.extensions, host)
        request.url = request.url.copy_with(host=address)
        pool = self._pools.get((scheme, host, port))
        if pool is None:
            pool = self._pools[scheme, host, port] = httpx2.AsyncHTTPTransport(trust_env=False)
        return await pool.handle_async_request(request)

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()


def _origin(url: httpx.URL | httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host.lower(), url.port or (443 if url.scheme == "https" else 80)


async def _pinned_address(scheme: str, host: str, port: int) -> str:
    if scheme not in {"http", "https"}:
        raise DestinationRefused
    check_host(host, port)
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return (await vetted_addresses(host, port))[0]
    return host


def _naming(extensions: Mapping[str, Any], host: str) -> dict[str, Any]:
    """TLS asks for, and verifies, the name and not the address."""
    return {**extensions, "sni_hostname": host}


def httpx_client(
    *, headers: Mapping[str, str] | None = None, timeout: float = 30.0
) -> httpx.AsyncClient:
    """A client for connector checks and commands. The caller closes it; *timeout* is seconds."""
    return httpx.AsyncClient(
        transport=PinnedTransport(),
        headers=headers,
        timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS),
        follow_redirects=False,
        trust_env=False,
    )


def httpx2_client(
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    read_timeout: float | None = None,
    wrap: Callable[[httpx2.AsyncBaseTransport], httpx2.AsyncBaseTransport] | None = None,
) -> httpx2.AsyncClient:
    """A client for the mcp SDK. *read_timeout* is the silence a stream may keep, in seconds.

    *wrap* may put a transport of the caller's around the vetted one.
    """
    vetted = PinnedTransport2()
    return httpx2.AsyncClient(
        transport=vetted if wrap is None else wrap(vetted),
        headers=dict(headers or {}),
        timeout=httpx2.Timeout(timeout, connect=CONNECT_SECONDS, read=read_timeout or timeout),
        follow_redirects=False,
        max_redirects=0,  # The SDK follows redirects by itself as long as this allows it.
        trust_env=False,
    )
