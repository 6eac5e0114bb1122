"""A run that only talks."""

import asyncio

from ag_ui.core import Event
from pydantic import TypeAdapter

from chat.runtime.wire import EventFrame, FinalFrame, MessageFrame
from tests.chat.runtime.conftest import KEY, Web
from tests.chat.runtime.gateway import FakeGateway
from tests.fakes.model_provider import echo, failure, text

EVENT: TypeAdapter[Event] = TypeAdapter(Event)


async def test_it_streams_the_answer_and_keeps_both_messages(
    web: Web, gateway: FakeGateway
) -> None:
    gateway.script(text("Hello, I can help you.", pace=0.01))

    told = await web.turn("Hi")

    assert told.text == "Hello, I can help you."
    assert told.kinds[0] == "TEXT_MESSAGE_START"
    assert told.kinds[-1] == "TEXT_MESSAGE_END"
    assert told.kinds.count("TEXT_MESSAGE_CONTENT") > 1
    assert [m["kind"] for m in told.history] == ["request", "response"]
    assert told.final.outcome == "success"
    assert told.final.usage.model_dump() == {
        "requests": 1,
        "input_tokens": 11,
        "output_tokens": 7,
    }


async def test_the_prompt_comes_first_and_the_answer_after_its_events(web: Web) -> None:
    told = await web.turn("Hi")

    kinds = [type(frame) for frame in told.frames]
    assert kinds[0] is MessageFrame
    assert kinds[-2:] == [MessageFrame, FinalFrame]
    assert set(kinds[1:-2]) == {EventFrame}


async def test_the_model_is_asked_as_the_request_says(web: Web, gateway: FakeGateway) -> None:
    await web.turn("Hi", output_limit=123, model="gpt-5-fast", instructions="Be {{brief}}.")

    [asked] = gateway.completions
    assert asked.path == "/gateway/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.json["model"] == "gpt-5-fast"
    assert asked.json["max_completion_tokens"] == 123
    assert asked.json["stream"] is True
    assert asked.json["messages"] == [
        {"role": "system", "content": "Be {{brief}}."},
        {"role": "user", "content": "Hi"},
    ]
    assert [t["function"]["name"] for t in asked.json["tools"]] == [
        "orders__status",
        "orders__refund",
    ]


async def test_the_next_turn_continues_with_current_instructions_only(
    web: Web, gateway: FakeGateway
) -> None:
    first = await web.turn("One", instructions="OLD-INSTRUCTIONS")
    gateway.script(echo())
    second = await web.turn("Two", first, instructions="NEW-INSTRUCTIONS")

    assert second.text == "Two"
    assert "INSTRUCTIONS" not in str(second.history)
    assert gateway.completions[-1].json["messages"] == [
        {"role": "system", "content": "NEW-INSTRUCTIONS"},
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Hello from the fake."},
        {"role": "user", "content": "Two"},
    ]


async def test_events_are_agui_and_message_ids_are_never_reused(web: Web) -> None:
    first = await web.turn("One")
    second = await web.turn("Two", first)

    for event in [*first.events, *second.events]:
        EVENT.validate_python(event)
    assert first.events[0]["messageId"] != second.events[0]["messageId"]


async def test_reasoning_is_shown_as_reasoning(web: Web, gateway: FakeGateway) -> None:
    gateway.script(text("Seven.", reasoning="Let me think."))

    told = await web.turn("How many?")

    assert told.text == "Seven."
    thought = [e["delta"] for e in told.events if e["type"] == "REASONING_MESSAGE_CONTENT"]
    assert "".join(thought) == "Let me think."
    assert told.kinds.index("REASONING_END") < told.kinds.index("TEXT_MESSAGE_START")


async def test_two_runs_at_once_do_not_mix(web: Web, gateway: FakeGateway) -> None:

    gateway.default = echo().but(pace=0.002)
    told = await asyncio.gather(*(web.turn(f"I am number {i}") for i in range(8)))

    assert [t.text for t in told] == [f"I am number {i}" for i in range(8)]


async def test_a_turn_after_a_failed_one_answers_both_prompts(
    web: Web, gateway: FakeGateway
) -> None:

    gateway.script(failure(500))
    failed = await web.turn("One")
    assert failed.final.outcome == "error"

    again = await web.turn(None, failed)
    assert again.final.outcome == "success"
    assert [m["role"] for m in gateway.completions[-1].json["messages"]] == ["system", "user"]
    # The prompt is not told twice: web has it.
    assert len(again.history) == 2
