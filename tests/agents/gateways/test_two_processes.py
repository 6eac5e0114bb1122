"""Two real web processes on one database: what one takes away, the other refuses at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from agents.models import GatewayRequest
from agents.services import keys
from tests.fakes.model_provider import FakeProvider, hang, text
from tests.processes import running_servers
from tests.world import World

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

ASK: dict[str, Any] = {"model": "standard", "messages": [{"role": "user", "content": "Hi"}]}
CHAT = "/gateway/v1/chat/completions"
TRIES = 100


@pytest.mark.e2e
def test_a_revoked_key_is_refused_by_every_process_and_its_streams_end(
    stored_secrets: None, world: World, provider: FakeProvider, tmp_path: Path
) -> None:
    provider.default = text("Hello.")
    minted = [world.mint_key() for _ in range(TRIES)]
    long_lived = world.mint_key()
    with running_servers(tmp_path, urlsplit(provider.base_url).netloc) as servers:
        first, second = servers.web(), servers.web()
        with httpx.Client() as client:
            ask = asking(client)
            for key in minted:
                assert ask(first.url, key.text).status_code == 200
                assert ask(second.url, key.text).status_code == 200
                keys.revoke_key(actor=world.manager, key=key.key)
                for url in (second.url, first.url):
                    answer = ask(url, key.text)
                    assert (answer.status_code, answer.json()["code"]) == (401, "key_invalid")
            provider.default = hang(after_chunks=1)
            ends: list[tuple[float, bytes]] = []
            readers = [
                threading.Thread(target=read_to_the_end, args=(server.url, long_lived.text, ends))
                for server in (first, second)
            ]
            for reader in readers:
                reader.start()
            provider.wait_for_requests(2 * TRIES + 2)
            time.sleep(0.2)  # The streams are open in both processes before the commit.
            keys.revoke_key(actor=world.manager, key=long_lived.key)
            committed = time.monotonic()
            for reader in readers:
                reader.join(5)
        assert len(ends) == 2
        for ended, body in ends:
            assert ended - committed < 2
            assert b'"code":"key_invalid"' in body
            assert b"[DONE]" not in body
        assert len(provider.requests) == 2 * TRIES + 2
        for server in (first, second):
            server.stop()
        assert not GatewayRequest.objects.filter(state="open").exists()
        assert world.key_text not in first.output + second.output
        assert "Traceback" not in first.output + second.output


def asking(client: httpx.Client) -> Callable[[str, str], httpx.Response]:
    def ask(url: str, key: str) -> httpx.Response:
        return client.post(
            f"{url}{CHAT}", json=ASK, headers={"authorization": f"Bearer {key}"}, timeout=10
        )

    return ask


def read_to_the_end(url: str, key: str, ends: list[tuple[float, bytes]]) -> None:
    headers = {"authorization": f"Bearer {key}"}
    with httpx.stream(
        "POST", f"{url}{CHAT}", json={**ASK, "stream": True}, headers=headers, timeout=10
    ) as response:
        body = b"".join(response.iter_raw())
    ends.append((time.monotonic(), body))
