"""Every text of the chat's content, for the search that proves it stands nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agents.errors import DamagedContent
from chat.models import SessionEvent, ThreadText

PAGE = 500


def event_texts() -> Iterator[str]:
    """What session events say; ids and types are not texts. Damaged ones are left out."""
    for row in SessionEvent.objects.order_by("pk").iterator(chunk_size=PAGE):
        try:
            payload = json.loads(row.open_value("payload"))
        except (DamagedContent, ValueError):
            continue
        yield from _strings(payload)


#: Members of events and model messages that hold ids or the names of tools and types.
IDENTIFIERS = frozenset(
    {
        "id", "type", "role", "kind", "code", "threadId", "runId", "messageId", "toolCallId",
        "parentMessageId", "toolCallName", "tool_name", "tool_call_id", "part_kind", "model_name",
        "run_id", "conversation_id", "provider_name", "provider_url", "provider_response_id",
        "timestamp", "finish_reason", "protocolVersion", "expiresAt", "responseSchema", "schema",
        "tool", "classification", "agent", "path",
    }
)  # fmt: skip


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name not in IDENTIFIERS:
                yield from _strings(item)


def thread_texts() -> Iterator[str]:
    """Titles and display names."""
    for row in ThreadText.objects.order_by("pk").iterator(chunk_size=PAGE):
        for column in ("title", "display_name"):
            if getattr(row, column) is not None:
                try:
                    yield row.open_value(column)
                except DamagedContent:
                    continue
