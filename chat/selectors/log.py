"""Read the session log. Every payload is opened; a damaged one raises DamagedContent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from agents.errors import DamagedContent
from chat.models import SessionEvent

#: The types that tell a run's end.
TERMINAL = frozenset({"RUN_FINISHED", "RUN_ERROR"})
#: The product's own entries: never sent to people as events.
USER_MESSAGE = "user/message"
MODEL_MESSAGE = "model/message"

#: Entries read at once.
PAGE = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as it stands in the log; ``payload`` is compact JSON."""

    seq: int
    type: str
    run_id: UUID | None
    payload: bytes

    @property
    def is_event(self) -> bool:
        """Whether people's streams carry it: an AG-UI event."""
        return self.type.isupper()

    def data(self) -> Any:
        return orjson.loads(self.payload)


def entries_after(
    organization_id: UUID,
    session_id: UUID,
    after: int = 0,
    *,
    limit: int = PAGE,
    types: Iterable[str] | None = None,
    run_id: UUID | None = None,
) -> list[Entry]:
    """At most *limit* entries behind number *after*, in order; of one run when it is named."""
    rows = SessionEvent.objects.filter(session_id=session_id, seq__gt=after)
    if run_id is not None:
        rows = rows.filter(run_id=run_id)
    if types is not None:
        rows = rows.filter(type__in=list(types))
    return [_open(organization_id, row) for row in rows.order_by("seq")[:limit]]


def _open(organization_id: UUID, row: SessionEvent) -> Entry:
    if row.organization_id != organization_id:
        raise DamagedContent(table=SessionEvent._meta.db_table, row=str(row.pk))
    return Entry(row.seq, row.type, row.run_id, row.open_bytes("payload"))


def all_entries(
    organization_id: UUID, session_id: UUID, *, types: Iterable[str] | None = None
) -> Iterator[Entry]:
    """Every entry of a session, in order, a page at a time."""
    after = 0
    wanted = None if types is None else list(types)
    while page := entries_after(organization_id, session_id, after, types=wanted):
        yield from page
        after = page[-1].seq


def first_seq(session_id: UUID, run_id: UUID) -> int | None:
    """The number of a run's first entry; from there on its entries stand together."""
    rows = SessionEvent.objects.filter(session_id=session_id, run_id=run_id)
    return rows.order_by("seq").values_list("seq", flat=True).first()


def entry_of(organization_id: UUID, session_id: UUID, run_id: UUID, kind: str) -> Entry | None:
    """The first entry of one type that a run wrote."""
    rows = SessionEvent.objects.filter(session_id=session_id, run_id=run_id, type=kind)
    row = rows.order_by("seq").first()
    return None if row is None else _open(organization_id, row)


def model_history(organization_id: UUID, session_id: UUID) -> list[dict[str, Any]]:
    """The model's messages: what the runtime sent, after applying what each replaces."""
    return fold(e.data() for e in all_entries(organization_id, session_id, types=[MODEL_MESSAGE]))


def fold(frames: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Apply ``model/message`` payloads in order."""
    messages: list[dict[str, Any]] = []
    for frame in frames:
        replaced = frame.get("replaces", 0)
        if replaced:
            del messages[-replaced:]
        messages.append(frame["message"])
    return messages


def user_messages(organization_id: UUID, session_id: UUID) -> dict[str, str]:
    """Texts of the user messages that the session holds, by id, oldest first."""
    entries = all_entries(organization_id, session_id, types=[USER_MESSAGE])
    return {said["id"]: said["content"] for said in (entry.data() for entry in entries)}


def model_heard_the_user(session_id: UUID) -> bool:
    """Whether the model's history holds the last user message already."""
    rows = SessionEvent.objects.filter(session_id=session_id)
    last = rows.filter(type__in=[USER_MESSAGE, MODEL_MESSAGE]).order_by("-seq")
    return last.values_list("type", flat=True).first() == MODEL_MESSAGE
