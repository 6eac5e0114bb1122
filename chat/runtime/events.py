"""AG-UI events of a run: what people see while the model answers.

One :class:`EventStream` serves one run. It turns the agent library's stream events into AG-UI 1.0
events, keeps at most one message, reasoning span or tool call open, and closes whatever is open on
:meth:`EventStream.close`. It never makes RUN_STARTED, RUN_FINISHED or RUN_ERROR: those are web's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from ag_ui.core import (
    BaseEvent,
    ReasoningEndEvent,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
)
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

JSON = dict[str, Any]


def fresh_id() -> str:
    """An id for a message: unique in every thread."""
    return str(uuid4())


@dataclass(frozen=True)
class _Open:
    """What is open now: ``kind`` is text, reasoning or tool; ``id`` its message or call id."""

    kind: str
    id: str


class EventStream:
    """Maps one run's library events to AG-UI events, in order, always well bracketed."""

    def __init__(self) -> None:
        self._open: _Open | None = None
        self._answer_id = fresh_id()
        self._answer_spoke = False

    def begin_answer(self) -> None:
        """A model answer starts: its text and its tool calls share a fresh message id."""
        self._answer_id = fresh_id()
        self._answer_spoke = False

    def on_model_event(self, event: object) -> Iterator[JSON]:
        """The events for one item of a model's stream; anything unknown gives none."""
        match event:
            case PartStartEvent(part=TextPart() as part):
                yield from self._start_text(part.content)
            case PartStartEvent(part=ThinkingPart() as part):
                yield from self.close()
                yield from self._reason(part.content)
            case PartStartEvent(part=ToolCallPart() as part):
                yield from self._start_call(part)
            case PartDeltaEvent(delta=TextPartDelta() as delta):
                yield from self._text(delta.content_delta)
            case PartDeltaEvent(delta=ThinkingPartDelta() as delta):
                yield from self._reason(delta.content_delta or "")
            case PartDeltaEvent(delta=ToolCallPartDelta() as delta):
                if isinstance(delta.args_delta, str):
                    yield from self._arguments(delta.args_delta)
            case PartEndEvent():
                yield from self.close()

    def result(self, part: ToolReturnPart) -> JSON:
        """The result of a call, for people: the text that the model gets."""
        return _dump(
            ToolCallResultEvent(
                message_id=fresh_id(),
                tool_call_id=part.tool_call_id,
                content=part.model_response_str(),
                role="tool",
            )
        )

    def close(self) -> Iterator[JSON]:
        """End what is open, if anything is. Safe to call at any time, any number of times."""
        opened, self._open = self._open, None
        if opened is None:
            return
        if opened.kind == "text":
            yield _dump(TextMessageEndEvent(message_id=opened.id))
        elif opened.kind == "tool":
            yield _dump(ToolCallEndEvent(tool_call_id=opened.id))
        else:
            yield _dump(ReasoningMessageEndEvent(message_id=opened.id))
            yield _dump(ReasoningEndEvent(message_id=opened.id))

    def _start_text(self, content: str) -> Iterator[JSON]:
        yield from self.close()
        yield from self._text(content)

    def _text(self, content: str) -> Iterator[JSON]:
        if not content:
            return
        if self._open is None:
            if self._answer_spoke:
                # Text after a tool call of the same answer is a message of its own.
                self._answer_id = fresh_id()
            self._answer_spoke = True
            self._open = _Open("text", self._answer_id)
            yield _dump(TextMessageStartEvent(message_id=self._answer_id, role="assistant"))
        yield _dump(TextMessageContentEvent(message_id=self._open.id, delta=content))

    def _reason(self, content: str) -> Iterator[JSON]:
        if not content:
            return
        if self._open is None:
            self._open = _Open("reasoning", fresh_id())
            yield _dump(ReasoningStartEvent(message_id=self._open.id))
            yield _dump(ReasoningMessageStartEvent(message_id=self._open.id, role="reasoning"))
        yield _dump(ReasoningMessageContentEvent(message_id=self._open.id, delta=content))

    def _start_call(self, part: ToolCallPart) -> Iterator[JSON]:
        yield from self.close()
        self._answer_spoke = True
        self._open = _Open("tool", part.tool_call_id)
        yield _dump(
            ToolCallStartEvent(
                tool_call_id=part.tool_call_id,
                tool_call_name=part.tool_name,
                parent_message_id=self._answer_id,
            )
        )
        if part.args:
            # Arguments that stream are not JSON yet: their text goes out as it came.
            arguments = part.args if isinstance(part.args, str) else part.args_as_json_str()
            yield from self._arguments(arguments)

    def _arguments(self, delta: str) -> Iterator[JSON]:
        if delta and self._open is not None:
            yield _dump(ToolCallArgsEvent(tool_call_id=self._open.id, delta=delta))


def _dump(event: BaseEvent) -> JSON:
    event.timestamp = time.time_ns() // 1_000_000
    return event.model_dump(mode="json", by_alias=True, exclude_none=True)
