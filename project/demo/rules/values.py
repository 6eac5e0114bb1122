"""Values that a text names: numbers of things, money, addresses, quotations, names."""

from __future__ import annotations

import re
from typing import Final, TypeVar

from project.demo.rules import money
from project.demo.rules.words import word_set

T = TypeVar("T")

_NAMED_ID: Final = re.compile(
    r"(?:#|\b(?:order|purchase|number|no\.?|id|ticket|invoice|case|reference|ref|bestellung(?:en)?|nr\.?|nummer)"
    r"s?\b[\s:#]*)"
    r"(\d+(?:(?:\s*,\s*|\s*,?\s+(?:and|or|und|oder|&)\s+)#?\d+)*)",
    re.IGNORECASE,
)
_WHOLE: Final = re.compile(r"(?<![\w.,#-])#?(\d+)(?!\w|\s?%|[.,]\d|\s?percent\b)")
#: "3 orders", "2 days": how many, not which.
_COUNT: Final = re.compile(
    r"\b(\d+)\s+(?!(?:is|was|has|does|status|please|as|this|its|plus)\b)[^\W\d_]+s\b", re.IGNORECASE
)
_LONG: Final = 3
_ONLY: Final = re.compile(r"\b(?:only|just|nur)\s+\d", re.IGNORECASE)
_EMAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DATE: Final = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_QUOTED: Final = re.compile(r"\"([^\"]+)\"|“([^”]+)”|«([^»]+)»|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_NAME: Final = re.compile(r"\b[^\W\d_a-z][^\W\d_]+(?:[ '-][^\W\d_a-z][^\W\d_]+)*")
_NO_NAME: Final = word_set(
    "please find search show list give what where which who when why how refund send email order"
    " orders the can could i we my is has have did does do all and tell hello hi hey thanks thank"
    " eur usd gbp status look ok yes no your my her his our their this that it they are was were"
    " will would should if but so also write message mail cancel delete change track let get"
    " bitte wo wann wer was ist und ich wie zeige finde suche bestellung bestellungen euro danke"
    " hallo guten tag morgen abend erstatte kunde kunden alle buch"
)


def emails(text: str) -> list[str]:
    return _unique([found.rstrip(".") for found in _EMAIL.findall(text)])


def dates(text: str) -> list[str]:
    return _unique(_DATE.findall(text))


def quoted(text: str) -> list[str]:
    return [next(part for part in groups if part) for groups in _QUOTED.findall(text)]


def ids(text: str) -> list[int]:
    """Numbers of things: those named as such, else every whole number of three digits or more."""
    text = _without(text, _EMAIL, _DATE, _QUOTED)
    text = money.without_money(text)
    named = [int(n) for match in _NAMED_ID.finditer(text) for n in _digits(match.group(1))]
    if named:
        return _unique(named)
    return _unique([int(n) for n in re.findall(r"(?<![\w.,])\d{3,}(?![\w%]|[.,]\d)", text)])


def sole_number(text: str) -> list[int]:
    """The one whole number of a text that is no money, share, date or count of things, if any."""
    text = money.without_money(_without(text, _EMAIL, _DATE, _QUOTED))
    found = _unique([int(n) for n in _WHOLE.findall(text)])
    counts = [int(n) for n in _COUNT.findall(text)]
    return found if len(found) == 1 and not counts and not _ONLY.search(text) else []


def amounts(text: str) -> list[float]:
    """Money: numbers with a currency or two decimals, else whole numbers that name no thing."""
    text = _without(text, _EMAIL, _DATE, _QUOTED)
    if found := money.sums(text):
        return _unique(found)
    taken = {*ids(text), *sole_number(text)}
    rest = [
        match
        for match in _WHOLE.finditer(text)
        if int(match.group(1)) not in taken
        # A long number is a thing rather than a price, unless the words around it say so.
        and (len(match.group(1)) < _LONG or _is_priced(text, match))
    ]
    return _unique([float(match.group(1)) for match in rest])


def _is_priced(text: str, match: re.Match[str]) -> bool:
    before, after = text[: match.start()], text[match.end() :]
    return bool(
        re.search(r"\b(?:only|just|nur)\s+$", before) or re.match(r"\s+(?:of|from|von)\b", after)
    )


def names(text: str) -> list[str]:
    """Capitalised words that start no sentence of their own accord."""
    found = []
    for match in _NAME.finditer(_without(text, _EMAIL, _QUOTED)):
        parts = [w for w in match.group().split(" ") if w.casefold() not in _NO_NAME]
        first = match.start() == 0 or text[: match.start()].rstrip(" ")[-1:] in ".!?\n"
        if parts and (len(parts) > 1 or not first):
            found.append(" ".join(parts))
    return _unique(found)


def _digits(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def _without(text: str, *patterns: re.Pattern[str]) -> str:
    for pattern in patterns:
        text = pattern.sub(lambda match: " " * len(match.group()), text)
    return text


def _unique(items: list[T]) -> list[T]:
    return list(dict.fromkeys(items))
