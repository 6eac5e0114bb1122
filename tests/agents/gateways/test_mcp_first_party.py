"""Our own tools behind the MCP Gateway: rights like any tool, handlers, parking, cancelling."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from agents.errors import Conflict
from agents.gateways import first_party, mcp_calls
from agents.gateways.first_party import FirstPartyCall, FirstPartyResult, Parked
from agents.models import Approval, Tool
from agents.services import first_party as definitions
from agents.services import grants
from tests.agents.gateways.mcp_support import Bench, eventually, operation

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])

HANDOFF = uuid.uuid4()
SCHEMA = {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]}


class Handler:
    """Does what the call says, and remembers the calls."""

    def __init__(self) -> None:
        self.calls: list[FirstPartyCall] = []
        self.cancelled = 0

    async def __call__(self, call: FirstPartyCall) -> FirstPartyResult:
        self.calls.append(call)
        match call.arguments["how"]:
            case "park":
                raise Parked(HANDOFF)
            case "refuse":
                raise Conflict("CANARY is not told")
            case "break":
                raise RuntimeError("CANARY")
            case "hang":
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
            case "fail":
                return FirstPartyResult("no", is_error=True)
        return FirstPartyResult("done", {"by": call.key.agent_slug})


@pytest.fixture
def handler(bench: Bench) -> Iterator[Handler]:
    """``mandate__try`` exists and is granted."""
    made = Handler()
    first_party.register("try", "Try something.", SCHEMA, made)
    operation(lambda: definitions.ensure_first_party(bench.world.organization))
    bench.tools["try"] = Tool.objects.get(exposed_name="mandate__try")
    bench.grants["try"] = grants.grant(
        actor=bench.world.manager,
        agent=bench.world.agent,
        environment=bench.world.production,
        resource=bench.tools["try"],
    )
    yield made
    first_party._handlers.pop("try")
    definitions.definitions.pop("try")


@ERAS
def test_a_handler_answers(bench: Bench, handler: Handler, mode: str) -> None:
    started = bench.start_run()
    result = bench.call(started.key, "mandate__try", {"how": "well"}, mode=mode)
    assert result.content[0].text == "done"  # type: ignore[union-attr]
    assert result.structured_content == {"by": "order-desk"}
    (call,) = handler.calls
    assert call.key.run_id == started.run.id
    assert {tool.name for tool in call.rights.tools} == {"refund", "status", "try"}
    assert [model.slug for model in call.rights.models] == ["standard"]
    assert not Approval.objects.exists()


@ERAS
def test_it_can_park(bench: Bench, handler: Handler, mode: str) -> None:
    refused = bench.refused(bench.start_run().key, "mandate__try", {"how": "park"}, mode=mode)
    assert refused.code == -32042
    assert refused.data == {"handoff": str(HANDOFF), "code": "parked"}


@ERAS
def test_refusals_and_failures_carry_a_code_alone(
    bench: Bench, handler: Handler, mode: str
) -> None:
    key = bench.start_run().key
    for how, code in (("refuse", "conflict"), ("break", "internal")):
        refused = bench.refused(key, "mandate__try", {"how": how}, mode=mode)
        assert refused.data["code"] == code
        assert "CANARY" not in str(refused.error)
    assert bench.code(key, "mandate__try", {}, mode=mode) == "arguments_invalid"
    assert bench.call(key, "mandate__try", {"how": "fail"}, mode=mode).is_error


def test_it_needs_allowlist_and_grant(bench: Bench, handler: Handler) -> None:
    tool = bench.tools.pop("try")
    assert bench.code(bench.start_run().key, "mandate__try", {"how": "well"}) == "out_of_scope"
    bench.tools["try"] = tool
    started = bench.start_run()
    grants.revoke_grant(actor=bench.world.manager, grant=bench.grants["try"])
    assert bench.code(started.key, "mandate__try", {"how": "well"}) == "out_of_scope"
    assert handler.calls == []


def test_it_is_bounded_in_time(
    bench: Bench, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_calls, "HANDLER_SECONDS", 0.2)
    assert bench.code(bench.world.key_text, "mandate__try", {"how": "hang"}) == "connector_timeout"
    assert handler.cancelled == 1


@ERAS
def test_a_caller_that_goes_away_cancels_it(bench: Bench, handler: Handler, mode: str) -> None:
    async def leave() -> Any:
        call = bench.call_async(bench.world.key_text, "mandate__try", {"how": "hang"}, mode=mode)
        return await asyncio.wait_for(call, 1)

    with pytest.raises(TimeoutError):
        asyncio.run(leave())
    eventually(lambda: handler.cancelled == 1)


def test_a_tool_without_a_handler_is_unavailable(bench: Bench, handler: Handler) -> None:
    first_party._handlers["try"] = handler
    handlers = dict(first_party._handlers)
    first_party._handlers.clear()
    try:
        code = bench.code(bench.world.key_text, "mandate__try", {"how": "well"})
    finally:
        first_party._handlers.update(handlers)
    assert code == "tool_unavailable"
