"""Which of several things the person means, and which amount belongs to which of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from project.demo.rules import money, values

_ALL: Final = re.compile(r"\b(?:both|all|all of them|each|every one|beide|alle)\b", re.IGNORECASE)
_EACH: Final = re.compile(r"\b(?:each|both|apiece|per order|jeweils|je)\b", re.IGNORECASE)
_ORDINALS: Final = (
    (re.compile(r"\b(?:first|1st|erste)\b", re.IGNORECASE), 0),
    (re.compile(r"\b(?:second|2nd|zweite)\b", re.IGNORECASE), 1),
    (re.compile(r"\b(?:third|3rd|dritte)\b", re.IGNORECASE), 2),
    (re.compile(r"\b(?:last|latest|newest|letzte)\b", re.IGNORECASE), -1),
)
_CLAUSE: Final = re.compile(r"\s(?:and|und|then|plus)\s|[;,]\s")


def narrowed(options: list[int], rows: Iterable[dict[str, Any]], text: str) -> list[int]:
    """The options that *text* points to by a name in their row or by their place; else all."""
    named = [*values.quoted(text), *values.names(text), *values.emails(text)]
    matching = [row for row in rows if named and _mentions(row, named)]
    chosen = [o for o in options if any(str(o) in map(str, row.values()) for row in matching)]
    if chosen and len(chosen) < len(options):
        return chosen
    for pattern, place in _ORDINALS:
        if pattern.search(text) and -1 <= place < len(options):
            return [options[place]]
    return options


def means_all(text: str) -> bool:
    """Whether a reply to "which one" takes all of them."""
    return bool(_ALL.search(text))


def amounts_of(text: str, things: list[int]) -> dict[int, float | None] | None:
    """The amount of each thing, None for its whole; None when the text does not say which is whose.

    One amount "each" is everybody's; else an amount belongs to the one thing in its clause.
    """
    found = values.amounts(text)
    if _EACH.search(text) and len(found) == 1:
        return dict.fromkeys(things, found[0])
    owned: dict[int, float | None] = {}
    for clause in _CLAUSE.split(text):
        here = [thing for thing in things if re.search(rf"(?<!\d){thing}(?!\d)", clause)]
        paid = money.sums(clause)
        if len(here) > 1 or len(paid) > 1 or (paid and not here):
            return None
        if here:
            owned[here[0]] = paid[0] if paid else None
    return owned if set(owned) == set(things) else None


def _mentions(row: dict[str, Any], named: list[str]) -> bool:
    held = " ".join(str(value) for value in row.values()).casefold()
    return any(name.casefold() in held for name in named)
