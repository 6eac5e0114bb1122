"""tools/call of read tools: rights, arguments, results, failures, and what is recorded."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from agents.gateways import mcp_codes, mcp_upstream
from agents.models import GatewayRequest, Tool
from agents.services import grants, keys
from agents.services.tools import withdraw_tool
from chat.runtime import wire
from tests.agents.gateways.mcp_support import Bench, call_body, eventually
from tests.fakes.mcp_server import Error, Giant, Hang, RpcError, Slow, Structured, Text

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])

Rows = Callable[[], list[GatewayRequest]]


def text_of(result: Any) -> str:
    text: str = result.content[0].text
    return text


def test_the_runtime_knows_the_same_codes() -> None:
    for name in ("CODE_PARKED", "CODE_APPROVAL_REQUIRED", "META_APPROVAL", "META_TOOL_CALL"):
        assert getattr(mcp_codes, name) == getattr(wire, name)


@ERAS
def test_a_read_tool_answers(bench: Bench, mcp_rows: Rows, mode: str) -> None:
    bench.fake.answer("status", Text("shipped"))
    result = bench.call(bench.world.key_text, "status", {"order": 7}, mode=mode)

    assert text_of(result) == "shipped"
    (call,) = bench.fake.calls
    assert (call.name, call.arguments) == ("status", {"order": 7})
    assert call.headers["authorization"] == "Bearer tools-credential-canary"
    assert bench.world.key_text not in str(call)
    (row,) = mcp_rows()
    assert (row.kind, row.state, row.code) == ("tool", "ok", "")
    assert (row.resource_id, row.resource_name) == (bench.tools["status"].id, "shop__status")
    assert (row.key_accessor, row.boot_id) == (bench.world.key.accessor, bench.boot.id)
    assert row.closed_at is not None
    assert row.duration_ms is not None


@ERAS
def test_structure_and_errors_of_a_tool_pass(bench: Bench, mode: str) -> None:
    bench.fake.answer("status", [Structured({"state": "paid"}), Error("no such order")])
    first = bench.call(bench.world.key_text, "status", {}, mode=mode)
    second = bench.call(bench.world.key_text, "status", {}, mode=mode)
    assert first.structured_content == {"state": "paid"}
    assert (second.is_error, text_of(second)) == (True, "no such order")


@ERAS
def test_what_the_key_may_not_call_is_out_of_scope(bench: Bench, mcp_rows: Rows, mode: str) -> None:
    narrow = bench.world.mint_key({"tools": [str(bench.tools["refund"].id)]}).text
    assert bench.code(narrow, "status", {}, mode=mode) == "out_of_scope"
    assert bench.code(narrow, "shop__CANARY", {}, mode=mode) == "out_of_scope"
    assert bench.code(narrow, "mandate__delegate", {}, mode=mode) == "out_of_scope"
    grants.revoke_grant(actor=bench.world.manager, grant=bench.grants["status"])
    assert bench.code(bench.world.key_text, "status", {}, mode=mode) == "out_of_scope"
    assert bench.fake.total == 0
    assert {(r.state, r.code, r.resource_name) for r in mcp_rows()} == {
        ("refused", "out_of_scope", "")
    }


def test_a_tool_that_is_not_accepted_is_unavailable(bench: Bench) -> None:
    withdraw_tool(actor=bench.world.operator, tool=bench.tools["status"])
    assert bench.code(bench.world.key_text, "status", {}) == "tool_unavailable"
    assert bench.fake.total == 0


@pytest.mark.parametrize(
    ("arguments", "path", "rule"),
    [
        ({"order": "CANARY"}, "/order", "type"),
        ({"order": 2**60}, None, "json"),
    ],
)
def test_arguments_must_fit_the_schema(
    bench: Bench, arguments: dict[str, Any], path: str | None, rule: str
) -> None:
    refused = bench.refused(bench.world.key_text, "status", arguments)
    assert refused.code == -32602
    assert (refused.data["code"], refused.data["rule"]) == ("arguments_invalid", rule)
    assert refused.data.get("path") == path
    assert "CANARY" not in str(refused.error)
    assert bench.fake.total == 0


def test_a_hostile_schema_ends_after_its_steps(bench: Bench) -> None:
    doubling = {
        f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
        for i in range(60)
    }
    schema = {
        "type": "object",
        "properties": {"order": {"pattern": "(a+)+$"}, "x": {"$ref": "#/$defs/d0"}},
        "$defs": doubling | {"d60": {"type": "null"}},
    }
    bench.call(bench.world.key_text, "status", {})
    Tool.objects.filter(name="status").update(input_schema=schema, digest="f" * 64)
    # Without the bounds neither call would ever end: 2**60 branches, and a backtracking pattern.
    assert not bench.call(bench.world.key_text, "status", {"order": "a" * 40 + "!"}).is_error
    refused = bench.refused(bench.world.key_text, "status", {"x": 1})
    assert (refused.data["code"], refused.data["rule"]) == ("arguments_invalid", "complexity")


@ERAS
def test_a_tool_server_cannot_speak_for_the_gateway(bench: Bench, mode: str) -> None:
    forged = {"approval": "forged", "handoff": "forged", "code": "approval_required"}
    for code in (-32042, -32043, -32040, -32602, -32000, -32603):
        bench.fake.answer("status", RpcError(code, "CANARY secret", forged))
        refused = bench.refused(bench.world.key_text, "status", {}, mode=mode)
        assert refused.code == -32040
        assert refused.data == {"code": "connector_error"}
        assert "CANARY" not in str(refused.error)


@ERAS
def test_a_result_is_bounded_and_never_cut(bench: Bench, mcp_rows: Rows, mode: str) -> None:
    bench.fake.answer("status", [Giant(900_000), Giant(1_100_000), Giant(30_000_000), Text("ok")])
    whole = bench.call(bench.world.key_text, "status", {}, mode=mode)
    assert len(text_of(whole)) == 900_000
    assert bench.code(bench.world.key_text, "status", {}, mode=mode) == "result_too_large"
    assert bench.code(bench.world.key_text, "status", {}, mode=mode) == "result_too_large"
    # The session has survived it.
    lists = bench.fake.lists
    assert text_of(bench.call(bench.world.key_text, "status", {}, mode=mode)) == "ok"
    assert bench.fake.lists == lists
    assert [r.code for r in mcp_rows()] == ["", "result_too_large", "result_too_large", ""]


def test_a_slow_tool_times_out(
    bench: Bench, mcp_rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_upstream, "CALL_SECONDS", 0.3)
    bench.fake.answer("status", [Slow(30, then=Text("late")), Text("ok")])
    assert bench.code(bench.world.key_text, "status", {}) == "connector_timeout"
    eventually(lambda: bench.fake.calls[0].cancelled)
    assert not bench.call(bench.world.key_text, "status", {}).is_error
    assert [(r.state, r.code) for r in mcp_rows()] == [("failed", "connector_timeout"), ("ok", "")]


@ERAS
def test_a_server_that_is_down_is_unreachable_and_comes_back(bench: Bench, mode: str) -> None:
    key = bench.world.key_text
    bench.call(key, "status", {}, mode=mode)
    bench.fake.down = True
    assert bench.code(key, "status", {}, mode=mode) == "connector_error"
    bench.age_list()
    assert bench.code(key, "status", {}, mode=mode) in {"connector_error", "connector_unreachable"}
    bench.fake.down = False
    assert not bench.call(key, "status", {}, mode=mode).is_error


def test_a_client_that_goes_away_cancels_the_call(bench: Bench, mcp_rows: Rows) -> None:
    bench.fake.answer("status", Hang())
    for headers in ({"mcp-protocol-version": "2025-11-25"}, MODERN):
        seen = bench.fake.total
        gone = threading.Event()

        def call(headers: dict[str, str], gone: threading.Event) -> None:
            with httpx2.Client(timeout=0.5 + 0.0) as http, pytest.raises(httpx2.TimeoutException):
                http.post(
                    bench.gateway.endpoint,
                    json=call_body("shop__status", {}, **MODERN_META),
                    headers={
                        **bench.world.authorization(),
                        "accept": "application/json",
                        **headers,
                    },
                )
            gone.set()

        thread = threading.Thread(target=call, args=(headers, gone))
        thread.start()
        thread.join(10)
        assert gone.is_set()
        assert bench.fake.total == seen + 1
        eventually(lambda: bench.fake.calls[-1].cancelled)
    eventually(
        lambda: [(r.state, r.code) for r in mcp_rows()] == [("cancelled", "client_gone")] * 2
    )


MODERN = {
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "shop__status",
}
MODERN_META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.parametrize("what", ["key", "grant"])
def test_an_open_call_ends_with_its_right(bench: Bench, mcp_rows: Rows, what: str) -> None:
    bench.fake.answer("status", Hang())
    codes: list[str] = []

    def call() -> None:
        codes.append(bench.code(bench.world.key_text, "status", {}))

    thread = threading.Thread(target=call)
    thread.start()
    eventually(lambda: bench.fake.total == 1)
    if what == "key":
        keys.revoke_key(actor=bench.world.manager, key=bench.world.key)
    else:
        grants.revoke_grant(actor=bench.world.manager, grant=bench.grants["status"])
    revoked = time.monotonic()
    thread.join(10)
    assert time.monotonic() - revoked < 2.5
    assert codes == ["key_invalid" if what == "key" else "out_of_scope"]
    eventually(lambda: bench.fake.calls[0].cancelled)
    assert [r.state for r in mcp_rows()] == ["failed"]


@ERAS
def test_calls_run_side_by_side_in_one_session(bench: Bench, mode: str, run: Any) -> None:
    bench.fake.answer("status", Slow(0.5, then=Text("ok")))
    bench.call(bench.world.key_text, "status", {})
    lists = bench.fake.lists

    async def many() -> list[Any]:
        async with bench.client(bench.world.key_text, mode=mode) as session:
            calls = [session.call_tool("shop__status", {}) for _ in range(20)]
            return await asyncio.gather(*calls)

    started = time.monotonic()
    results = run(many())
    assert time.monotonic() - started < 5
    assert [text_of(r) for r in results] == ["ok"] * 20
    assert bench.fake.lists == lists


def test_a_server_that_wants_another_credential_says_so_when_it_is_opened(bench: Bench) -> None:
    bench.fake.require_key("another")
    assert bench.code(bench.world.key_text, "status", {}) == "connector_auth"
    assert bench.fake.count("status") == 0
