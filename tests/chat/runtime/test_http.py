"""The runtime's HTTP face: who may start a run, and what bad input gets."""

import json
from typing import Any

import pytest

from chat.runtime import app as runtime_app
from tests.chat.runtime.conftest import Web, run_request
from tests.chat.runtime.gateway import FakeGateway


def good() -> bytes:
    return run_request("Hi").model_dump_json().encode()


async def test_health_needs_no_credential(web: Web) -> None:
    async with web.session.get(f"{web.url}/health") as response:
        assert response.status == 200
        assert await response.json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"authorization": ""}, good(), 401, "unauthenticated"),
        ({"authorization": "Bearer wrong"}, good(), 401, "unauthenticated"),
        ({"authorization": "Basic cnVudGltZQ=="}, b"", 401, "unauthenticated"),
        ({"authorization": "Bearer \xe9"}, b"", 401, "unauthenticated"),
        ({"content-type": "text/plain"}, good(), 415, "unsupported_media_type"),
        ({}, b"{", 400, "malformed_body"),
        ({}, b"", 400, "malformed_body"),
        ({}, b"[" * 10_000, 400, "malformed_body"),
        ({}, b"[]", 422, "invalid"),
        ({}, b'{"key": "SECRET"}', 422, "invalid"),
        ({}, good().replace(b'"max_steps":40', b'"max_steps":0'), 422, "invalid"),
        ({}, good().replace(b'"max_steps":40', b'"surprise":"SECRET"'), 422, "invalid"),
        ({}, b"\xff\xfe", 400, "malformed_body"),
    ],
)
async def test_bad_input_is_a_problem_and_nothing_runs(
    web: Web,
    gateway: FakeGateway,
    headers: dict[str, str],
    body: bytes,
    status: int,
    code: str,
) -> None:
    async with web.post(body, **headers) as response:
        problem = await response.json(content_type="application/problem+json")

    assert (response.status, problem["status"], problem["code"]) == (status, status, code)
    assert "SECRET" not in json.dumps(problem)
    assert response.headers["cache-control"] == "no-store"
    assert ("www-authenticate" in response.headers) == (status == 401)
    assert gateway.requests == []


async def test_a_good_media_type_may_carry_a_charset(web: Web) -> None:
    async with web.post(good(), **{"content-type": "application/json; charset=utf-8"}) as response:
        assert response.status == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused(
    web: Web, monkeypatch: pytest.MonkeyPatch, chunked: bool
) -> None:
    monkeypatch.setattr(runtime_app, "BODY_BYTES", 1_000)

    async def pieces() -> Any:
        for _ in range(20):
            yield b"x" * 100

    body: Any = pieces() if chunked else b"x" * 2_000
    async with web.post(body) as response:
        assert response.status == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/runs", 405), ("POST", "/health", 405), ("GET", "/", 404), ("POST", "/run", 404)],
)
async def test_other_routes_and_methods(web: Web, method: str, path: str, status: int) -> None:
    async with web.session.request(method, f"{web.url}{path}") as response:
        assert response.status == status
        assert response.content_type == "application/problem+json"
