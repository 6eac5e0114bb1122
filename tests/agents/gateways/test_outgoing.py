"""Outgoing connections: only vetted addresses, no redirects, no proxies, bounded bodies."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest

from agents.errors import DestinationRefused
from agents.gateways import outgoing
from tests.fakes.model_provider import FakeProvider, redirect
from tests.fakes.model_provider import fake_provider as fake_provider  # noqa: PLC0414 - a fixture
from tests.world import allow

LIMITS = aiohttp.ClientTimeout(total=5)


@pytest.fixture(autouse=True)
async def _closed_clients() -> AsyncIterator[None]:
    yield
    await outgoing.close()


class Canary:
    """A listener that must never be reached."""

    def __init__(self) -> None:
        self.hits = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.hits += 1
            connection.close()

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def canary() -> Iterator[Canary]:
    listener = Canary()
    yield listener
    listener.close()


async def post(url: str) -> int:
    async with outgoing.send("POST", url, headers={}, data=b"{}", timeout=LIMITS) as response:
        return response.status


async def with_httpx(url: str) -> int:
    async with outgoing.httpx_client() as client:
        return (await client.post(url, json={})).status_code


async def with_httpx2(url: str) -> int:
    async with outgoing.httpx2_client() as client:
        return (await client.post(url, json={})).status_code


CLIENTS = pytest.mark.parametrize("reach", [post, with_httpx, with_httpx2])

SPELLINGS = [
    "http://127.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://0.0.0.0:{port}/",
    "http://[::1]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f.1:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://localhost.:{port}/",
    "http://ok@127.0.0.1:{port}/",
    "http://169.254.169.254:{port}/",
    "http://[fe80::1%25lo]:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://service.internal:{port}/",
]


@CLIENTS
@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_private_address_is_refused_in_every_spelling(
    canary: Canary, reach: Any, spelling: str
) -> None:
    with pytest.raises((DestinationRefused, ValueError, httpx.InvalidURL, httpx2.InvalidURL)):
        await reach(spelling.format(port=canary.port))
    assert canary.hits == 0


@pytest.mark.parametrize("url", ["file:///etc/passwd", "gopher://a.example/", "ftp://a.example/"])
@CLIENTS
async def test_other_schemes_are_refused(reach: Any, url: str) -> None:
    with pytest.raises((DestinationRefused, httpx.UnsupportedProtocol, httpx2.UnsupportedProtocol)):
        await reach(url)


@CLIENTS
@pytest.mark.parametrize(
    "answers",
    [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["::1"], ["10.0.0.7"], ["169.254.169.254"]],
)
async def test_a_name_that_resolves_to_a_private_address_is_refused(
    monkeypatch: pytest.MonkeyPatch, canary: Canary, reach: Any, answers: list[str]
) -> None:
    resolves_to(monkeypatch, answers)
    with pytest.raises(DestinationRefused):
        await reach(f"http://rebound.example:{canary.port}/")
    assert canary.hits == 0


@CLIENTS
async def test_a_name_is_resolved_once_and_the_vetted_address_is_connected_to(
    monkeypatch: pytest.MonkeyPatch, settings: Any, fake_provider: FakeProvider, reach: Any
) -> None:
    """A second answer, private and unvetted, would be the rebinding: it is never asked for."""
    name = f"http://model.example:{fake_provider.port}"
    allow(settings, name)
    asked = resolves_to(monkeypatch, ["127.0.0.1"], ["192.0.2.1"])
    assert await reach(f"{name}/v1/models") == 405
    assert asked == ["model.example"]


@CLIENTS
async def test_the_upstream_sees_the_name_and_not_the_address(
    monkeypatch: pytest.MonkeyPatch, settings: Any, fake_provider: FakeProvider, reach: Any
) -> None:
    name = f"http://model.example:{fake_provider.port}"
    allow(settings, name)
    resolves_to(monkeypatch, ["127.0.0.1"])
    fake_provider.default = fake_provider.default.but(body=b"{}")
    await reach(f"{name}/v1/chat/completions")
    assert fake_provider.requests[0].headers["host"] == f"model.example:{fake_provider.port}"


@CLIENTS
async def test_a_redirect_is_an_answer_and_not_followed(
    settings: Any, fake_provider: FakeProvider, canary: Canary, reach: Any
) -> None:
    allow(settings, fake_provider.base_url)
    fake_provider.script(redirect(f"http://127.0.0.1:{canary.port}/"))
    assert await reach(f"{fake_provider.base_url}/chat/completions") == 302
    assert canary.hits == 0


@CLIENTS
async def test_the_environments_proxies_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    fake_provider: FakeProvider,
    canary: Canary,
    reach: Any,
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
    allow(settings, fake_provider.base_url)
    fake_provider.default = fake_provider.default.but(body=b"{}")
    assert await reach(f"{fake_provider.base_url}/chat/completions") == 200
    assert canary.hits == 0


@CLIENTS
async def test_the_operators_word_covers_one_port_only(
    settings: Any, fake_provider: FakeProvider, canary: Canary, reach: Any
) -> None:
    allow(settings, fake_provider.base_url)
    with pytest.raises(DestinationRefused):
        await reach(f"http://127.0.0.1:{canary.port}/")
    assert canary.hits == 0


async def test_a_body_is_read_within_its_bound(settings: Any, fake_provider: FakeProvider) -> None:
    allow(settings, fake_provider.base_url)
    url = f"{fake_provider.base_url}/chat/completions"
    fake_provider.default = fake_provider.default.but(body=b"x" * 1_000)
    async with outgoing.send("POST", url, headers={}, data=b"{}", timeout=LIMITS) as response:
        assert len(await outgoing.read_bounded(response, 1_000)) == 1_000
    async with outgoing.send("POST", url, headers={}, data=b"{}", timeout=LIMITS) as response:
        with pytest.raises(outgoing.AnswerTooLong):
            await outgoing.read_bounded(response, 999)


async def test_one_session_serves_a_loop_until_it_is_closed() -> None:
    first = outgoing.session()
    assert outgoing.session() is first
    await outgoing.close()
    assert first.closed
    assert outgoing.session() is not first


def resolves_to(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Answer look-ups in this order, the last one for ever; returns the names asked for."""
    asked: list[str] = []

    async def look_up(host: str, _port: int) -> list[str]:
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    monkeypatch.setattr(outgoing, "_look_up", look_up)
    return asked
