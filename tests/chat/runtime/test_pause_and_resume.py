"""A run that pauses for a person or for a parked call, and the run that goes on."""

from typing import Any

import pytest

from chat.runtime.history import DENIED, UNKNOWN_OUTCOME
from chat.runtime.wire import META_APPROVAL, META_TOOL_CALL, Resolution
from tests.chat.runtime.conftest import Told, Web
from tests.chat.runtime.gateway import FakeGateway, needs_approval, parked, result, rpc_error
from tests.fakes.model_provider import call, calls

REFUND_7 = call("orders__refund", {"order": 7})


async def paused(web: Web, gateway: FakeGateway, *tool_calls: Any) -> Told:
    """A run of these calls whose refunds wait for approval and whose status calls are free."""
    gateway.script(calls(*tool_calls, say="On it."))
    gateway.on_tool("orders__status", result("shipped"))
    gateway.on_tool("orders__refund", *(needs_approval(f"ap-{i}") for i in range(5)))
    told = await web.turn("Refund order 7")
    assert told.final.outcome == "interrupt"
    return told


def now_refunds(gateway: FakeGateway, *replies: Any) -> None:
    """From here on the gateway executes refunds."""
    gateway.forget_tool("orders__refund")
    gateway.on_tool("orders__refund", *(replies or (result("refunded"),)))
    gateway.tool_calls.clear()


def approve(told: Told, index: int = 0, **changes: Any) -> Resolution:
    waiting = told.final.approvals[index]
    return Resolution(
        tool_call_id=waiting.tool_call_id,
        kind="approved",
        approval_id=waiting.approval_id,
        **changes,
    )


def model_saw(gateway: FakeGateway) -> list[Any]:
    return [m["content"] for m in gateway.completions[-1].json["messages"] if m["role"] == "tool"]


async def test_a_call_that_needs_approval_pauses_the_run(web: Web, gateway: FakeGateway) -> None:
    told = await paused(web, gateway, REFUND_7)

    [waiting] = told.final.approvals
    assert waiting.approval_id == "ap-0"
    assert waiting.tool_call_id == told.call_ids[0]
    assert told.final.parked == []
    assert told.results == []
    assert len(gateway.completions) == 1
    assert gateway.tool_calls[0].meta[META_TOOL_CALL] == waiting.tool_call_id


async def test_an_approved_call_runs_once_with_its_approval(web: Web, gateway: FakeGateway) -> None:
    told = await paused(web, gateway, REFUND_7)
    now_refunds(gateway)

    after = await web.resume(told, approve(told), key="mk_second00_key")

    [made] = gateway.tool_calls
    assert made.arguments == {"order": 7}
    assert made.meta[META_APPROVAL] == "ap-0"
    assert made.recorded.headers["authorization"] == "Bearer mk_second00_key"
    assert after.final.outcome == "success"
    assert after.results == ["refunded"]
    assert "TOOL_CALL_START" not in after.kinds
    assert after.kinds[0] == "TOOL_CALL_RESULT"
    assert after.events[0]["toolCallId"] == told.call_ids[0]
    assert model_saw(gateway) == ["refunded"]


async def test_edited_arguments_are_what_runs_and_what_the_model_sees(
    web: Web, gateway: FakeGateway
) -> None:
    told = await paused(web, gateway, call("orders__status", {"order": 7}, "a"), REFUND_7)
    now_refunds(gateway)
    edited = {"order": 8, "note": None}

    after = await web.resume(told, approve(told, arguments=edited))

    [made] = gateway.tool_calls
    assert made.arguments == edited
    replaced = [f for f in after.frames if getattr(f, "replaces", 0)]
    assert after.frames[0] is replaced[0]
    assert "order" in str(after.history)
    assert '{"order": 7}' not in str(after.history[1]["parts"][-1])
    asked = next(m for m in gateway.completions[-1].json["messages"] if m.get("tool_calls"))
    assert asked["tool_calls"][1]["function"]["arguments"] == '{"order":8,"note":null}'
    # The free call that ran before the pause keeps its result and is not repeated.
    assert model_saw(gateway) == ["shipped", "refunded"]
    # What web holds now serves the next turn.
    assert (await web.turn("Thanks", after)).final.outcome == "success"


async def test_a_denied_call_does_not_run_and_the_model_gets_the_reason(
    web: Web, gateway: FakeGateway
) -> None:
    told = await paused(web, gateway, REFUND_7)
    now_refunds(gateway)
    denied = Resolution(tool_call_id=told.call_ids[0], kind="denied", content="Too expensive.")

    after = await web.resume(told, denied)

    assert gateway.tool_calls == []
    assert after.final.outcome == "success"
    assert "Too expensive." in model_saw(gateway)[0]
    silent = await web.resume(told, Resolution(tool_call_id=told.call_ids[0], kind="denied"))
    assert DENIED in silent.results[0]


async def test_one_of_two_equal_calls_approved_and_one_denied(
    web: Web, gateway: FakeGateway
) -> None:
    told = await paused(web, gateway, REFUND_7, REFUND_7)
    assert [a.approval_id for a in told.final.approvals] in (["ap-0", "ap-1"], ["ap-1", "ap-0"])
    now_refunds(gateway)
    second = told.final.approvals[1]

    after = await web.resume(
        told, approve(told), Resolution(tool_call_id=second.tool_call_id, kind="denied")
    )

    [made] = gateway.tool_calls
    assert made.meta[META_APPROVAL] == told.final.approvals[0].approval_id
    assert len(after.results) == 2
    assert after.final.outcome == "success"


async def test_a_free_call_beside_a_gated_one_keeps_its_result(
    web: Web, gateway: FakeGateway
) -> None:
    told = await paused(web, gateway, REFUND_7, call("orders__status", {"order": 7}, "b"))

    assert told.results == ["shipped"]
    assert [m["kind"] for m in told.history] == ["request", "response", "request"]
    now_refunds(gateway)
    after = await web.resume(told, approve(told))
    assert [c.name for c in gateway.tool_calls] == ["orders__refund"]
    assert sorted(model_saw(gateway)) == ["refunded", "shipped"]
    assert after.final.outcome == "success"


async def test_a_parked_call_ends_the_run_and_its_result_resumes_it(
    web: Web, gateway: FakeGateway
) -> None:
    gateway.script(calls(call("orders__status", {}, "x"), REFUND_7))
    gateway.on_tool("orders__status", parked("ho-1"))
    gateway.on_tool("orders__refund", needs_approval("ap-1"))
    told = await web.turn("Both")

    assert told.final.outcome == "interrupt"
    [waiting], [handoff] = told.final.approvals, told.final.parked
    assert (waiting.approval_id, handoff.handoff_id) == ("ap-1", "ho-1")
    assert {waiting.tool_call_id, handoff.tool_call_id} == set(told.call_ids)

    now_refunds(gateway)
    returned = Resolution(
        tool_call_id=handoff.tool_call_id, kind="returned", content="The child says 42."
    )
    after = await web.resume(told, returned, approve(told))
    assert [c.name for c in gateway.tool_calls] == ["orders__refund"]
    assert model_saw(gateway) == ["The child says 42.", "refunded"]
    assert after.final.outcome == "success"


async def test_only_parked_calls_are_an_interrupt_too(web: Web, gateway: FakeGateway) -> None:
    gateway.script(calls(REFUND_7))
    gateway.on_tool("orders__refund", parked("ho-9"))

    told = await web.turn("Delegate")

    assert told.final.outcome == "interrupt"
    assert [p.handoff_id for p in told.final.parked] == ["ho-9"]
    failed = Resolution(
        tool_call_id=told.call_ids[0], kind="returned", content="child failed", is_error=True
    )
    after = await web.resume(told, failed)
    assert "child failed" in model_saw(gateway)[0]
    assert after.final.outcome == "success"


async def test_a_resumed_call_can_pause_again(web: Web, gateway: FakeGateway) -> None:
    told = await paused(web, gateway, REFUND_7)

    again = await web.resume(told, approve(told))

    assert again.final.outcome == "interrupt"
    assert again.final.approvals[0].tool_call_id == told.call_ids[0]
    assert again.final.approvals[0].approval_id != "ap-0"


async def test_a_call_that_web_does_not_resolve_never_runs(web: Web, gateway: FakeGateway) -> None:
    told = await paused(web, gateway, REFUND_7, call("orders__refund", {"order": 8}, "b"))
    now_refunds(gateway)

    after = await web.resume(told, approve(told, 1))

    assert [c.meta[META_APPROVAL] for c in gateway.tool_calls] == [
        told.final.approvals[1].approval_id
    ]
    assert any(UNKNOWN_OUTCOME in seen for seen in model_saw(gateway))
    assert after.final.outcome == "success"


async def test_an_approval_without_an_id_and_one_for_no_open_call_run_nothing(
    web: Web, gateway: FakeGateway
) -> None:
    told = await paused(web, gateway, REFUND_7)
    now_refunds(gateway)
    forged = Resolution(tool_call_id=told.call_ids[0], kind="approved")
    stale = Resolution(tool_call_id="call_0", kind="approved", approval_id="ap-0")

    after = await web.resume(told, forged, stale)

    assert gateway.tool_calls == []
    assert after.final.outcome == "success"


async def test_a_stale_answer_never_meets_a_later_call_with_the_same_model_id(
    web: Web, gateway: FakeGateway
) -> None:
    first = await paused(web, gateway, REFUND_7)
    denied = Resolution(tool_call_id=first.call_ids[0], kind="denied")
    closed = await web.resume(first, denied)
    gateway.script(calls(REFUND_7))
    second = await web.turn("Again", closed)
    now_refunds(gateway)

    await web.resume(second, approve(first))

    assert first.call_ids != second.call_ids
    assert gateway.tool_calls == []


@pytest.mark.parametrize("kind", ["denied", "returned", "missing"])
async def test_a_new_prompt_closes_every_open_call_first(
    web: Web, gateway: FakeGateway, kind: str
) -> None:
    told = await paused(web, gateway, call("orders__status", {}, "a"), REFUND_7)
    now_refunds(gateway)
    waiting = told.final.approvals[0].tool_call_id
    resolutions = (
        [] if kind == "missing" else [Resolution(tool_call_id=waiting, kind=kind, content="Void.")]
    )

    after = await web.turn("Something else", told, resolutions=resolutions)

    assert gateway.tool_calls == []
    assert after.final.outcome == "success"
    messages = gateway.completions[-1].json["messages"]
    assert [m["role"] for m in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
    ]
    assert messages[-1]["content"] == "Something else"
    assert (UNKNOWN_OUTCOME if kind == "missing" else "Void.") in messages[-2]["content"]
    # Nothing dangles in what web holds now, and the next turn is an ordinary one.
    assert (await web.turn("And more", after)).final.outcome == "success"


async def test_a_history_cut_by_a_crash_can_be_continued(web: Web, gateway: FakeGateway) -> None:
    """Web held the answer with two calls and the first return when the runtime died."""
    gateway.script(calls(call("orders__status", {}, "a"), call("orders__refund", {}, "b")))
    gateway.on_tool("orders__status", result("shipped"))
    gateway.on_tool("orders__refund", result("refunded"))
    told = await web.turn("Both")
    returns = told.history[2]
    returns["parts"] = returns["parts"][:1]
    told.history = told.history[:3]

    after = await web.turn("What happened?", told)

    assert after.final.outcome == "success"
    assert model_saw(gateway)[0] == "shipped"
    assert UNKNOWN_OUTCOME in model_saw(gateway)[1]


@pytest.mark.parametrize("code", [-32042, -32043])
@pytest.mark.parametrize("data", [None, {}, {"approval": 7}, {"handoff": ""}, "ap-1"])
async def test_a_pause_without_an_id_is_a_protocol_error(
    web: Web, gateway: FakeGateway, code: int, data: Any
) -> None:
    gateway.script(calls(REFUND_7))
    gateway.on_tool("orders__refund", rpc_error(code, data))

    told = await web.turn("Refund")

    assert (told.final.outcome, told.final.code) == ("error", "tool_protocol")
    assert "SECRET" not in str(told.frames)


async def test_nothing_to_run_is_said_so(web: Web) -> None:
    done = await web.turn("Hi")

    assert (await web.turn(None, done)).final.code == "nothing_to_run"
    assert (await web.turn(None)).final.code == "nothing_to_run"
