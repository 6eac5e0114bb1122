"""Finding canaries, and content of which a 32-character window stands somewhere else."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: A piece of content this long, found outside the content store, is a leak.
WINDOW = 32
#: Content is fingerprinted at every STRIDE-th position with grams that any window must contain.
STRIDE = 16
GRAM = WINDOW - STRIDE + 1

#: Identifiers, digests and times stand in both stores by design; they part the text around them.
_IDENTIFIER = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|[0-9a-f]{32,}"
    r"|\d{4}-\d\d-\d\d[t ]\d\d:\d\d:\d\d(?:\.\d+)?(?:z|[+-]\d\d:?\d\d)?"
)
_SPACES = re.compile(r"\s+")


def normalised(text: str) -> str:
    """Text without differences that do not matter: width, case, runs of white space."""
    return _SPACES.sub(" ", unicodedata.normalize("NFKC", text).casefold())


def pieces(text: str) -> Iterator[str]:
    """The normalised parts of *text* between identifiers that are long enough to matter."""
    for part in _IDENTIFIER.split(normalised(text)):
        piece = part.strip()
        if len(piece) >= WINDOW:
            yield piece


def strings_of(text: str) -> Iterator[str]:
    """The strings of a JSON document, without its keys and structure; other text as it is."""
    if text.lstrip()[:1] in {"{", "[", '"'}:
        try:
            yield from _leaves(json.loads(text))
        except (ValueError, RecursionError):
            yield text
    else:
        yield text


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from strings_of(value) if value.lstrip()[:1] in {"{", "["} else (value,)
    elif isinstance(value, dict):
        for member in value.values():
            yield from _leaves(member)
    elif isinstance(value, list):
        for member in value:
            yield from _leaves(member)


class ContentIndex:
    """Fingerprints of all content, small enough for memory, and the exact check behind them."""

    def __init__(self, content: Callable[[], Iterable[str]], public: Iterable[str] = ()) -> None:
        self._content = content
        self._public = [normalised(text) for text in public]
        self._grams: set[int] = set()
        for piece in self._pieces():
            for start in range(0, len(piece) - GRAM + 1, STRIDE):
                self._grams.add(hash(piece[start : start + GRAM]))

    def _pieces(self) -> Iterator[str]:
        for text in self._content():
            for string in strings_of(text):
                yield from pieces(string)

    def suspects(self, text: str) -> Iterator[str]:
        """Stretches of *text* that may share a window with content, for :meth:`confirm`."""
        if not self._grams:
            return
        around = STRIDE - 1
        for piece in pieces(text):
            for start in range(len(piece) - GRAM + 1):
                if hash(piece[start : start + GRAM]) in self._grams:
                    yield piece[max(0, start - around) : start + GRAM + around]

    def confirm(self, suspects: Iterable[str]) -> set[str]:
        """Those of *suspects* of which a whole window stands in content and is not public."""
        windows: dict[str, list[str]] = {}
        for suspect in suspects:
            for start in range(len(suspect) - WINDOW + 1):
                windows.setdefault(suspect[start : start + WINDOW], []).append(suspect)
        found: set[str] = set()
        if windows:
            for piece in self._pieces():
                for start in range(len(piece) - WINDOW + 1):
                    window = piece[start : start + WINDOW]
                    if window in windows and not any(window in text for text in self._public):
                        found.update(windows.pop(window))
        return found
