"""Checks the AG-UI events that the runtime claims, before they enter the log.

Only the events of a model's turn may come from there; each must be of a known type, carry text
where text belongs, and keep the brackets of the protocol. Others are dropped: the runtime is not
trusted to shape a conversation beyond its own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

JSON = dict[str, Any]

#: Members that are text, by event type; all are required.
TEXTS: dict[str, tuple[str, ...]] = {
    "TEXT_MESSAGE_START": ("messageId",),
    "TEXT_MESSAGE_CONTENT": ("messageId", "delta"),
    "TEXT_MESSAGE_END": ("messageId",),
    "TOOL_CALL_START": ("toolCallId", "toolCallName"),
    "TOOL_CALL_ARGS": ("toolCallId", "delta"),
    "TOOL_CALL_END": ("toolCallId",),
    "TOOL_CALL_RESULT": ("messageId", "toolCallId", "content"),
    "REASONING_START": ("messageId",),
    "REASONING_MESSAGE_START": ("messageId",),
    "REASONING_MESSAGE_CONTENT": ("messageId", "delta"),
    "REASONING_MESSAGE_END": ("messageId",),
    "REASONING_END": ("messageId",),
}
OPENS = {
    "TEXT_MESSAGE_START": "TEXT_MESSAGE",
    "TOOL_CALL_START": "TOOL_CALL",
    "REASONING_START": "REASONING",
    "REASONING_MESSAGE_START": "REASONING_MESSAGE",
}
CLOSES = {f"{kind}_END": kind for kind in OPENS.values()}
WITHIN = {
    "TEXT_MESSAGE_CONTENT": "TEXT_MESSAGE",
    "TOOL_CALL_ARGS": "TOOL_CALL",
    "REASONING_MESSAGE_CONTENT": "REASONING_MESSAGE",
}
#: What an event may carry besides its texts.
OPTIONAL = frozenset({"parentMessageId", "timestamp"})
ROLES = {
    "TEXT_MESSAGE_START": "assistant",
    "TOOL_CALL_RESULT": "tool",
    "REASONING_MESSAGE_START": "reasoning",
}
MAX_ID = 128
MAX_NAME = 128


class Brackets:
    """One run's open items. :meth:`accept` filters its events; :meth:`close` ends what is open."""

    def __init__(self) -> None:
        #: (kind, id) in the order of opening.
        self._open: dict[tuple[str, str], None] = {}
        #: The text of the last assistant message, which is what a child run returns.
        self.last_text: list[str] = []

    def accept(self, event: JSON) -> JSON | None:
        """The event as it is logged; None when it is dropped."""
        kind = event.get("type")
        texts = TEXTS.get(kind) if isinstance(kind, str) else None
        if kind is None or texts is None or not all(_is_text(event, name) for name in texts):
            return None
        item = event.get("toolCallId" if kind.startswith("TOOL") else "messageId", "")
        if not self._follow(kind, item):
            return None
        if kind == "TEXT_MESSAGE_START":
            self.last_text = []
        elif kind == "TEXT_MESSAGE_CONTENT":
            self.last_text.append(event["delta"])
        kept = {"type": kind, **{name: event[name] for name in texts}}
        if kind in ROLES:
            kept["role"] = ROLES[kind]
        for name in OPTIONAL & event.keys():
            if isinstance(event[name], int if name == "timestamp" else str):
                kept[name] = event[name]
        return kept

    def _follow(self, kind: str, item: str) -> bool:
        """Whether the event fits what is open, and the change it makes to that."""
        if kind in OPENS:
            opened = (OPENS[kind], item)
            if opened in self._open:
                return False
            self._open[opened] = None
        elif kind in CLOSES:
            closed = (CLOSES[kind], item)
            if closed not in self._open:
                return False
            del self._open[closed]
        elif kind in WITHIN:
            return (WITHIN[kind], item) in self._open
        return True

    def close(self) -> Iterator[JSON]:
        """The events that end what is open, innermost first."""
        for kind, item in reversed(list(self._open)):
            name = "toolCallId" if kind == "TOOL_CALL" else "messageId"
            yield {"type": f"{kind}_END", name: item}
        self._open.clear()


def _is_text(event: JSON, name: str) -> bool:
    value = event.get(name)
    if not isinstance(value, str):
        return False
    if name == "delta" or name == "content":
        return name == "content" or bool(value)
    limit = MAX_NAME if name == "toolCallName" else MAX_ID
    return 1 <= len(value) <= limit
