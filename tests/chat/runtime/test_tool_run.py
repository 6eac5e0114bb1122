"""A run that calls tools."""

import pytest

from chat.runtime.wire import META_APPROVAL, META_TOOL_CALL, EventFrame, MessageFrame
from tests.chat.runtime.conftest import KEY, Web, brackets_hold
from tests.chat.runtime.gateway import FakeGateway, ToolReply, result, rpc_error, tool_error
from tests.fakes.model_provider import call, calls, text


def model_saw(gateway: FakeGateway) -> list[str]:
    """The tool results in the last request to the model."""
    messages = gateway.completions[-1].json["messages"]
    return [m["content"] for m in messages if m["role"] == "tool"]


async def test_it_calls_the_tool_and_gives_the_result_to_the_model(
    web: Web, gateway: FakeGateway
) -> None:
    gateway.script(calls(call("orders__status", {"order": 7}), say="Let me look."), text("Sent."))
    gateway.on_tool("orders__status", result("shipped"))

    told = await web.turn("Where is order 7?")

    assert told.final.outcome == "success"
    assert told.text == "Let me look.Sent."
    assert told.results == ["shipped"]
    assert model_saw(gateway) == ["shipped"]
    assert [m["kind"] for m in told.history] == ["request", "response", "request", "response"]
    [made] = gateway.tool_calls
    assert made.arguments == {"order": 7}
    assert made.recorded.headers["authorization"] == f"Bearer {KEY}"
    assert made.meta[META_TOOL_CALL] == told.call_ids[0]
    assert META_APPROVAL not in made.meta


async def test_a_result_is_kept_for_the_model_before_people_see_it(
    web: Web, gateway: FakeGateway
) -> None:
    gateway.script(
        calls(call("orders__status", {}, "a"), call("orders__refund", {}, "b")), text("Done.")
    )
    gateway.on_tool("orders__status", result("slow", delay=0.15))
    gateway.on_tool("orders__refund", result("fast"))

    told = await web.turn("Both")

    assert told.results == ["fast", "slow"]
    held: list[object] = []
    for frame in told.frames:
        if isinstance(frame, MessageFrame):
            held = [*held[: len(held) - frame.replaces], frame.message]
        if isinstance(frame, EventFrame) and frame.event["type"] == "TOOL_CALL_RESULT":
            assert frame.event["toolCallId"] in str(held[-1])
    # The message that grew holds both, in the order of the calls.
    assert [p["content"] for p in told.history[2]["parts"]] == ["slow", "fast"]
    assert len(told.history) == 4


async def test_every_call_gets_an_id_of_its_own_also_when_the_model_repeats_one(
    web: Web, gateway: FakeGateway
) -> None:
    twice = calls(call("orders__status", {"order": 1}), call("orders__status", {"order": 2}))
    gateway.script(twice, twice, text("Done."))
    gateway.on_tool("orders__status", result("shipped"))

    told = await web.turn("Look")

    assert told.final.outcome == "success"
    assert len(set(told.call_ids)) == 4
    assert "'call_0'" not in str(told.history)
    assert [c.arguments["order"] for c in gateway.tool_calls].count(1) == 2
    assert len(told.results) == 4


@pytest.mark.parametrize(
    ("reply", "seen"),
    [
        (tool_error("No such order"), "No such order"),
        (rpc_error(-32602, {"code": "out_of_scope"}), "The tool call failed: out_of_scope."),
        (rpc_error(-32603), "The tool call failed: tool_error."),
        (rpc_error(-32603, {"code": "SECRET text!"}), "The tool call failed: tool_error."),
        (
            ToolReply(status=401, body=b'{"code": "key_invalid", "title": "SECRET"}'),
            "The tool call failed: key_invalid.",
        ),
        (ToolReply(status=502, body=b"<html>SECRET"), "The tool call failed: tool_error."),
        (ToolReply(status=302, body=b""), "The tool call failed: tool_error."),
        (rpc_error(-32603, {"code": "connector_timeout"}), "connector_timeout. It may have"),
        (ToolReply(drop=True), "tool_unanswered. It may have happened"),
    ],
)
async def test_a_failed_call_is_told_to_the_model_once_without_a_retry(
    web: Web, gateway: FakeGateway, reply: ToolReply, seen: str
) -> None:
    gateway.script(calls(call("orders__status", {"order": 7})), text("Sorry."))
    gateway.on_tool("orders__status", reply)

    told = await web.turn("Where?")

    assert told.final.outcome == "success"
    assert len(gateway.tool_calls) == 1
    assert len(gateway.completions) == 2
    assert seen in model_saw(gateway)[0]
    assert "SECRET" not in str(told.frames)


async def test_arguments_that_are_no_json_object_reach_no_tool(
    web: Web, gateway: FakeGateway
) -> None:
    gateway.script(
        calls(
            call("orders__status", '{"order": ', "a"),
            call("orders__status", "[1]", "b"),
            call("orders__status", '{"order": NaN}', "c"),
        ),
        text("Sorry."),
    )

    told = await web.turn("Where?")

    assert told.final.outcome == "success"
    assert gateway.tool_calls == []
    assert all("arguments_invalid" in seen for seen in model_saw(gateway))


async def test_a_tool_that_is_not_offered_is_not_called(web: Web, gateway: FakeGateway) -> None:
    gateway.script(calls(call("billing__pay", {"all": True})), text("Sorry."))

    told = await web.turn("Pay")

    assert told.final.outcome == "success"
    assert gateway.tool_calls == []
    assert "billing__pay" in model_saw(gateway)[0]


async def test_an_answer_as_an_event_stream_is_read_too(web: Web, gateway: FakeGateway) -> None:
    gateway.script(calls(call("orders__status", {"order": 7})), text("Sent."))
    gateway.on_tool("orders__status", result("shipped", stream=True))

    told = await web.turn("Where?")

    assert told.results == ["shipped"]


async def test_a_result_of_other_than_text_is_named_not_dropped(
    web: Web, gateway: FakeGateway
) -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    link = {"type": "resource_link", "uri": "file:///a.txt", "name": "a"}
    gateway.script(calls(call("orders__status", {})), calls(call("orders__refund", {})), text("."))
    gateway.on_tool("orders__status", ToolReply(result={"content": [image, link]}))
    gateway.on_tool(
        "orders__refund", ToolReply(result={"content": [], "structuredContent": {"ok": [1, None]}})
    )

    told = await web.turn("Look")

    assert told.results == [
        "[image: this model gets text only]\n[resource file:///a.txt]",
        '{"ok":[1,null]}',
    ]


async def test_the_steps_of_a_run_are_bounded(web: Web, gateway: FakeGateway) -> None:
    gateway.default = calls(call("orders__status", {"order": 7}))
    gateway.on_tool("orders__status", result("still the same"))

    told = await web.turn("Loop", max_steps=3)

    assert (told.final.outcome, told.final.code) == ("error", "step_limit")
    assert len(gateway.completions) == 3
    assert told.final.usage.requests == 3


async def test_events_are_bracketed_over_a_whole_run(web: Web, gateway: FakeGateway) -> None:
    two = calls(call("orders__status", {"order": 1}), call("orders__refund", {}), say="Look.")
    gateway.script(two.but(reasoning="Hm."), text("Done.", reasoning="So."))
    gateway.on_tool("orders__status", result("a"))
    gateway.on_tool("orders__refund", result("b"))

    told = await web.turn("Go")

    assert brackets_hold(told)
    starts = [e for e in told.events if e["type"] == "TOOL_CALL_START"]
    said = next(e["messageId"] for e in told.events if e["type"] == "TEXT_MESSAGE_START")
    assert {e["parentMessageId"] for e in starts} == {said}
