"""Thread titles: the first words of the first message, sealed."""

from __future__ import annotations

from uuid import UUID

from agents.errors import Invalid
from chat.models import ThreadText

MAX_TITLE = 80


def title_from(text: str) -> str:
    """The first words of *text* on one line, at most 80 characters."""
    words = "".join(c if c.isprintable() else " " for c in text).split()
    line = " ".join(words)
    if len(line) <= MAX_TITLE:
        return line
    cut = line[: MAX_TITLE - 1]
    if " " in cut[MAX_TITLE // 2 :]:
        cut = cut[: cut.rindex(" ")]
    return cut.rstrip() + "…"


def clean_title(value: str) -> str:
    value = value.strip()
    if not 1 <= len(value) <= 200 or not value.isprintable():
        raise Invalid("A title has 1 to 200 printable characters.", field="title")
    return value


def store_title(organization_id: UUID, thread_id: UUID, title: str) -> None:
    """Set a thread's title. A step on the content store."""
    row = ThreadText.objects.filter(id=thread_id).first()
    fresh = row is None
    if row is None:
        row = ThreadText(id=thread_id, organization_id=organization_id)
    row.seal_value("title", title)
    row.save(force_insert=fresh, update_fields=None if fresh else ["title"])


def store_first_texts(
    organization_id: UUID, thread_id: UUID, title: str, display_name: str
) -> None:
    """Title and display name of a new thread, once. A step on the content store."""
    row = ThreadText(id=thread_id, organization_id=organization_id)
    row.seal_value("title", title)
    if display_name:
        row.seal_value("display_name", display_name)
    ThreadText.objects.bulk_create([row], ignore_conflicts=True)
