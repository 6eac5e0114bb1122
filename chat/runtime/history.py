"""The model's history: opaque JSON to web, messages of the agent library here.

Web hands back what the runtime sent, in order. This module reads and writes it, finds the calls
that are still open, and folds web's resolutions into what the library resumes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai import DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelResponsePart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_core import to_json

from chat.runtime import codes
from chat.runtime.wire import Resolution

JSON = dict[str, Any]

UNKNOWN_OUTCOME = (
    "The outcome of this call is unknown: the run ended before it was reported. It may have "
    "happened; check before you repeat it."
)
DENIED = "The person denied this call."


class HistoryUnreadable(codes.RunFailed):
    """What web sent as history is not a list of the library's messages."""

    code = codes.HISTORY_UNREADABLE


def load(history: Sequence[JSON]) -> list[ModelMessage]:
    """Read the messages, oldest first. Raises :class:`HistoryUnreadable`."""
    try:
        return ModelMessagesTypeAdapter.validate_json(to_json(list(history)))
    except ValidationError as error:
        raise HistoryUnreadable from error


def dump(message: ModelMessage) -> JSON:
    """One message as JSON."""
    dumped: list[JSON] = ModelMessagesTypeAdapter.dump_python(
        [message], mode="json", exclude_none=True
    )
    return dumped[0]


def open_calls(messages: Sequence[ModelMessage]) -> list[ToolCallPart]:
    """The calls of the last answer that have no return yet, in call order."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ModelResponse):
            return [call for call in message.tool_calls if call.tool_call_id not in answered]
        answered |= {p.tool_call_id for p in message.parts if isinstance(p, ToolReturnPart)}
    return []


@dataclass(frozen=True)
class Resumption:
    """How a run starts from a history with open calls.

    ``rewritten`` are the messages at the end of the history that an edit changed, with all that
    follow them; web replaces as many with them. ``results`` is what the library resumes from.
    """

    messages: list[ModelMessage]
    rewritten: list[ModelMessage]
    results: DeferredToolResults


def resume(
    messages: list[ModelMessage], pending: Sequence[ToolCallPart], resolutions: Sequence[Resolution]
) -> Resumption:
    """Answer every open call: as web resolved it, or as unknown when web does not say.

    A call without a resolution is never executed. A resolution without an open call is ignored.
    """
    by_id = {resolution.tool_call_id: resolution for resolution in resolutions}
    results = DeferredToolResults()
    edits: dict[str, JSON] = {}
    for call in pending:
        resolution = by_id.get(call.tool_call_id)
        _answer(results, call.tool_call_id, resolution)
        if resolution and resolution.kind == "approved" and resolution.arguments is not None:
            edits[call.tool_call_id] = resolution.arguments
    messages, rewritten = _edit(messages, edits) if edits else (messages, [])
    return Resumption(messages=messages, rewritten=rewritten, results=results)


def _answer(results: DeferredToolResults, call_id: str, resolution: Resolution | None) -> None:
    if resolution is None:
        results.calls[call_id] = ToolFailed(UNKNOWN_OUTCOME)
    elif resolution.kind == "approved" and resolution.approval_id:
        results.approvals[call_id] = ToolApproved()
        results.metadata[call_id] = {"approval": resolution.approval_id}
    elif resolution.kind == "approved":
        # Nothing in the gateway could be claimed, so this call must not look approved.
        results.calls[call_id] = ToolFailed(UNKNOWN_OUTCOME)
    elif resolution.kind == "denied":
        results.approvals[call_id] = ToolDenied(resolution.content or DENIED)
    elif resolution.is_error:
        results.calls[call_id] = ToolFailed(resolution.content or UNKNOWN_OUTCOME)
    else:
        results.calls[call_id] = resolution.content or ""


def _edit(
    messages: list[ModelMessage], edits: dict[str, JSON]
) -> tuple[list[ModelMessage], list[ModelMessage]]:
    """Put the edited arguments into the last answer; gives all messages and the changed tail."""
    position = max(i for i, m in enumerate(messages) if isinstance(m, ModelResponse))
    answer = messages[position]
    assert isinstance(answer, ModelResponse)
    parts = [_with_arguments(part, edits) for part in answer.parts]
    tail = [replace(answer, parts=parts), *messages[position + 1 :]]
    return [*messages[:position], *tail], tail


def _with_arguments(part: ModelResponsePart, edits: dict[str, JSON]) -> ModelResponsePart:
    if not isinstance(part, ToolCallPart) or part.tool_call_id not in edits:
        return part
    return replace(part, args=to_json(edits[part.tool_call_id]).decode())
