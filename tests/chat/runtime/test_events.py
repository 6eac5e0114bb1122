"""The events of one run, whatever the model's stream does."""

from typing import Any

from ag_ui.core import Event
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_ai.messages import (
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
)

from chat.runtime.events import EventStream
from chat.runtime.wire import EventFrame
from tests.chat.runtime.conftest import Told, brackets_hold

JSON = dict[str, Any]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def part(kind: str, content: str, number: int) -> Any:
    """A whole part as the library streams it: its start, one delta, its end or none."""
    if kind == "text":
        return TextPart(content), TextPartDelta(content)
    if kind == "thought":
        return ThinkingPart(content), ThinkingPartDelta(content_delta=content)
    return (
        ToolCallPart("orders__status", content, f"call_{number}"),
        ToolCallPartDelta(args_delta=content, tool_call_id=f"call_{number}"),
    )


PARTS = st.lists(
    st.tuples(st.sampled_from(["text", "thought", "tool"]), st.text(max_size=3), st.booleans()),
    max_size=8,
)


def stream(parts: list[tuple[str, str, bool]]) -> list[JSON]:
    events = EventStream()
    events.begin_answer()
    told: list[JSON] = []
    for number, (kind, content, ends) in enumerate(parts):
        first, delta = part(kind, content, number)
        told += events.on_model_event(PartStartEvent(index=number, part=first))
        told += events.on_model_event(PartDeltaEvent(index=number, delta=delta))
        if ends:
            told += events.on_model_event(PartEndEvent(index=number, part=first))
    return [*told, *events.close()]


@given(parts=PARTS)
def test_what_is_opened_is_closed_once_and_ids_are_fresh(
    parts: list[tuple[str, str, bool]],
) -> None:
    told = stream(parts)

    for event in told:
        EVENT.validate_python(event)
    assert brackets_hold(Told([EventFrame(event=event) for event in told]))
    opened = [
        e["messageId"] for e in told if e["type"] in {"TEXT_MESSAGE_START", "REASONING_START"}
    ]
    assert len(opened) == len(set(opened))
    said = "".join(e["delta"] for e in told if e["type"] == "TEXT_MESSAGE_CONTENT")
    assert said == "".join(2 * content for kind, content, _ in parts if kind == "text")
    called = [e["toolCallId"] for e in told if e["type"] == "TOOL_CALL_START"]
    assert called == [f"call_{i}" for i, (kind, *_) in enumerate(parts) if kind == "tool"]


def test_text_after_a_call_is_a_message_of_its_own() -> None:
    told = stream([("text", "a", True), ("tool", "{}", True), ("text", "b", True)])

    first, second = (e["messageId"] for e in told if e["type"] == "TEXT_MESSAGE_START")
    [call] = [e for e in told if e["type"] == "TOOL_CALL_START"]
    assert first != second
    assert call["parentMessageId"] == first


def test_closing_twice_says_nothing_twice() -> None:
    events = EventStream()
    list(events.on_model_event(PartStartEvent(index=0, part=TextPart("a"))))

    assert len(list(events.close())) == 1
    assert list(events.close()) == []


def test_a_failed_return_is_told_as_an_error() -> None:
    failed = ToolReturnPart("t", "The tool call failed: x.", "call_1", outcome="failed")

    event = EventStream().result(failed)

    assert event["content"] == '{"error":"The tool call failed: x."}'
    EVENT.validate_python(event)
