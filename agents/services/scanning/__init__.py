"""Proof that the control store holds no content: what ``manage.py scan_control`` runs.

Tables, columns and files come from the engine, so a table that no model knows is scanned too.
Values are decoded in depth. Public tool metadata is the only exception: its columns are not
searched, and text that stands there is public wherever else it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.content_store import content_texts
from agents.models import Tool
from agents.services.scanning import catalogue
from agents.services.scanning.decoding import texts
from agents.services.scanning.matching import ContentIndex, normalised

#: Columns that show what a tool server publishes about its tools.
PUBLIC_COLUMNS = frozenset(
    (Tool._meta.db_table, column)
    for column in (
        "name", "exposed_name", "title", "description", "input_schema", "annotations", "observed",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """Where something stands that must not stand there. It never quotes content."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


def scan_control(
    *,
    canaries: Iterable[str] = (),
    also: Iterable[Path] = (),
    alias: str = "default",
    content: Callable[[], Iterable[str]] = content_texts,
    progress: Callable[[str], object] = lambda place: None,
) -> list[Finding]:
    """Search the control database, and the files *also*, for canaries and for content.

    *progress* is called with the name of each place before it is searched.
    """
    public = [text for _, text in _public_texts(alias)]
    wanted = {canary: normalised(canary) for canary in canaries if canary.strip()}
    search = _Search(wanted, ContentIndex(content, public))
    for table in catalogue.tables(alias):
        progress(table.name)
        for row in catalogue.rows(alias, table):
            for column, value in zip(table.columns, row, strict=True):
                if (table.name, column) not in PUBLIC_COLUMNS:
                    search.look(f"{table.name}.{column}", value)
    for value in catalogue.large_objects(alias):
        search.look("large objects", value)
    # A file cannot tell which column its bytes are of: what is public somewhere is passed over.
    published = " ".join(normalised(text) for text in public)
    search.canaries = {c: text for c, text in wanted.items() if text not in published}
    for path in [*catalogue.files(alias), *also]:
        progress(path.name)
        for piece in catalogue.file_pieces(path):
            search.look(f"file {path.name}", piece)
    return search.findings()


def _public_texts(alias: str) -> Iterator[tuple[str, str]]:
    for table in catalogue.tables(alias):
        public = [c for c in table.columns if (table.name, c) in PUBLIC_COLUMNS]
        if public:
            for row in catalogue.rows(alias, table):
                for column, value in zip(table.columns, row, strict=True):
                    if column in public:
                        for text in texts(value):
                            yield column, text


class _Search:
    """Collects exact finds at once, and suspected windows until the content confirms them."""

    def __init__(self, canaries: dict[str, str], index: ContentIndex) -> None:
        self.canaries = canaries
        self._index = index
        self._found: set[Finding] = set()
        self._suspects: dict[str, set[str]] = {}

    def look(self, place: str, value: Any) -> None:
        if value is None or isinstance(value, int | float):
            return
        seen: set[int] = set()
        for text in texts(value):
            if hash(text) in seen:
                continue
            seen.add(hash(text))
            plain = normalised(text)
            for canary, wanted in self.canaries.items():
                if wanted in plain:
                    self._found.add(Finding(place, f"canary {canary}"))
            for suspect in self._index.suspects(text):
                self._suspects.setdefault(suspect, set()).add(place)

    def findings(self) -> list[Finding]:
        confirmed = self._index.confirm(self._suspects)
        for suspect in confirmed:
            for place in self._suspects[suspect]:
                self._found.add(Finding(place, "text of the content store"))
        return sorted(self._found)
