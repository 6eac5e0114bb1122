"""What bad requests get: a problem document with a code, never HTML, never a 500."""

from __future__ import annotations

import httpx2
import pytest

from tests.agents.gateways.mcp_support import Bench, call_body

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def deep(levels: int) -> bytes:
    inside = b'{"a":' * levels + b"1" + b"}" * levels
    return b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":' + inside + b"}}"


BAD_BODIES: list[tuple[bytes, dict[str, str], int, str]] = [
    (b"{", {}, 400, "malformed_body"),
    (b"[]", {}, 400, "malformed_body"),
    (b'{"a": NaN}', {}, 400, "malformed_body"),
    (b"\xff\xfe", {}, 400, "malformed_body"),
    (deep(100), {}, 413, "too_deep"),
    (b"[" * 100_000, {}, 400, "malformed_body"),
    (b"{}", {"content-type": "text/plain"}, 415, "unsupported_media_type"),
    (b"{}", {"content-encoding": "gzip"}, 415, "unsupported_media_type"),
    (b" " * (1 << 20) + b"{}", {}, 413, "too_large"),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"accept": "text/html"}, 406, "not_acceptable"),
]


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_it_is_a_problem_document(bench: Bench, version: str) -> None:
    for body, headers, status, code in BAD_BODIES:
        answer = bench.post(body, headers={"mcp-protocol-version": version, **headers})
        assert (answer.status_code, answer.json()["code"]) == (status, code), body[:40]
        assert answer.headers["content-type"] == "application/problem+json"


def test_only_post_is_answered(bench: Bench) -> None:
    headers = {**bench.world.authorization(), "accept": "text/event-stream"}
    for method in ("GET", "DELETE", "PUT", "OPTIONS"):
        answer = httpx2.request(method, bench.gateway.endpoint, headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "POST"


def test_without_a_live_key_there_is_no_answer(bench: Bench) -> None:
    credentials: list[dict[str, str]] = [
        {},
        {"authorization": "Basic eDp5"},
        {"authorization": "Bearer mk_aaaaaaaa_unknown"},
    ]
    for authorization in credentials:
        for body in (call_body("shop__status", {}), {"jsonrpc": "2.0", "id": 1, "method": "ping"}):
            headers = {"accept": "application/json", **authorization}
            answer = httpx2.post(bench.gateway.endpoint, json=body, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert answer.json()["code"] in {"unauthenticated", "key_invalid"}


def test_a_key_in_the_address_is_refused(bench: Bench) -> None:
    answer = httpx2.post(
        f"{bench.gateway.endpoint}?key={bench.world.key_text}",
        json=call_body("shop__status", {}),
        headers=bench.world.authorization(),
    )
    assert (answer.status_code, answer.json()["code"]) == (400, "credential_in_url")
    assert bench.world.key_text not in answer.text


def test_unknown_methods_and_envelopes_are_json_rpc_errors(bench: Bench) -> None:
    for body in (
        {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"arguments": {}}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 3}},
        {"jsonrpc": "2.0", "id": 1},
        {},
    ):
        for version in ("2025-11-25", "2026-07-28", "1999-01-01"):
            answer = bench.post(body, headers={"mcp-protocol-version": version})
            assert answer.status_code < 500
            assert answer.headers["content-type"].startswith("application/json")
            assert "error" in answer.json()
    assert bench.fake.total == 0


def test_a_repeated_name_is_read_once(bench: Bench) -> None:
    body = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shop__status",'
        b'"arguments":{"order":1,"order":2}}}'
    )
    assert bench.post(body).status_code == 200
    assert bench.fake.calls[0].arguments == {"order": 2}
