"""tools/list: exactly what the key may call, in both protocol eras."""

from __future__ import annotations

from typing import Any

import pytest

from agents.choices import Classification
from agents.models import Tool
from agents.services import grants, identity, keys, resources
from agents.services.tools import withdraw_tool
from tests.agents.gateways.mcp_support import Bench

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])


async def listed(bench: Bench, key: str, mode: str = "auto") -> list[str]:
    async with bench.client(key, mode=mode) as session:
        return [tool.name for tool in (await session.list_tools()).tools]


@ERAS
def test_it_shows_what_the_key_may_call(bench: Bench, mode: str, run: Any) -> None:
    async def look() -> Any:
        async with bench.client(bench.world.key_text, mode=mode) as session:
            return session.protocol_version, await session.list_tools()

    version, result = run(look())

    assert version == ("2026-07-28" if mode == "auto" else "2025-11-25")
    assert [tool.name for tool in result.tools] == ["shop__refund", "shop__status"]
    assert [tool.annotations.read_only_hint for tool in result.tools] == [False, True]
    assert result.tools[0].input_schema["required"] == ["order"]
    assert result.ttl_ms == 0 if mode == "auto" else True


def test_it_shows_scope_and_grants_and_state_together(bench: Bench, run: Any) -> None:
    refund, status = bench.tools["refund"], bench.tools["status"]
    narrow = bench.world.mint_key({"tools": [str(status.id)]}).text
    nothing = bench.world.mint_key({"tools": []}).text
    assert run(listed(bench, narrow)) == ["shop__status"]
    assert run(listed(bench, nothing)) == []

    withdraw_tool(actor=bench.world.operator, tool=refund)
    assert run(listed(bench, bench.world.key_text)) == ["shop__status"]

    grants.revoke_grant(actor=bench.world.manager, grant=bench.grants["status"])
    assert run(listed(bench, bench.world.key_text)) == []


def test_a_disabled_connector_shows_nothing(bench: Bench, run: Any) -> None:
    resources.change_connector(actor=bench.world.operator, connector=bench.connector, enabled=False)
    assert run(listed(bench, bench.world.key_text)) == []


def test_a_run_sees_what_its_definition_lists(bench: Bench, run: Any) -> None:
    bench.tools.pop("refund")
    assert run(listed(bench, bench.start_run().key)) == ["shop__status"]


def test_a_dead_key_gets_a_problem_document(bench: Bench) -> None:
    keys.revoke_key(actor=bench.world.manager, key=bench.world.key)
    for method in ("tools/list", "ping", "initialize", "tools/call", "nonsense"):
        answer = bench.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}})
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["code"] == "key_invalid"
        assert bench.world.key_text not in answer.text


def test_a_closed_agent_is_refused(bench: Bench) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    identity.suspend_agent(actor=bench.world.manager, agent=bench.world.agent, rationale="test")
    answer = bench.post(body)
    assert (answer.status_code, answer.json()["code"]) == (403, "suspended")


def test_schemas_that_refuse_objects_are_not_shown(bench: Bench, run: Any) -> None:
    Tool.objects.filter(name="refund").update(input_schema={"type": "string"})
    assert run(listed(bench, bench.world.key_text)) == ["shop__status"]


def test_unclassified_counts_as_action(bench: Bench, run: Any) -> None:
    Tool.objects.filter(name="status").update(classification="")
    assert bench.code(bench.world.key_text, "status", {}) == "approval_unavailable"
    Tool.objects.filter(name="status").update(classification=Classification.READ)
    assert not bench.call(bench.world.key_text, "status", {}).is_error
