"""Two texts compared word by word, for people. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["same", "added", "removed"]

#: Unchanged text longer than this many characters is shortened to its two ends.
CONTEXT = 240
#: Words on both sides multiplied: beyond it a changed passage is shown whole, not word by word.
WORK_LIMIT = 250_000

_WORDS = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of text and what became of it."""

    kind: Kind
    text: str


def compare(before: str, after: str) -> list[Part]:
    """The parts that turn *before* into *after*; empty when the texts are equal."""
    if before == after:
        return []
    parts = _merge(_compare_lines(before, after))
    last = len(parts) - 1
    return [
        Part("same", _shorten(part.text, first=i == 0, last=i == last))
        if part.kind == "same"
        else part
        for i, part in enumerate(parts)
    ]


def _compare_lines(before: str, after: str) -> Iterator[Part]:
    """Lines first: it keeps long texts cheap and the word diff inside changed passages."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        removed, added = "".join(old[i:j]), "".join(new[k:m])
        if tag == "equal":
            yield Part("same", removed)
        else:
            yield from _compare_words(removed, added)


def _compare_words(before: str, after: str) -> Iterator[Part]:
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    if len(old) * len(new) > WORK_LIMIT:
        yield from (Part("removed", before), Part("added", after))
        return
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, i, j, k, m in matcher.get_opcodes():
        if tag == "equal":
            yield Part("same", "".join(old[i:j]))
            continue
        yield Part("removed", "".join(old[i:j]))
        yield Part("added", "".join(new[k:m]))


def _merge(parts: Iterator[Part]) -> list[Part]:
    merged: list[Part] = []
    for part in parts:
        if not part.text:
            continue
        if merged and merged[-1].kind == part.kind:
            merged[-1] = Part(part.kind, merged[-1].text + part.text)
        else:
            merged.append(part)
    return merged


def _shorten(text: str, *, first: bool, last: bool) -> str:
    """Unchanged text keeps what stands beside a change; a mark says that something is left out."""
    if len(text) <= CONTEXT:
        return text
    half = CONTEXT // 2
    head = "" if first else text[:half]
    tail = "" if last else text[-half:]
    return f"{head} … {tail}"
