"""Values that a text names: numbers of things, money, addresses, quotations, names."""

from __future__ import annotations

import re
from typing import Final, TypeVar

from project.demo.rules.words import word_set

T = TypeVar("T")

_NUMBER: Final = r"\d+(?:[.,]\d{1,2})?"
_CURRENCY: Final = r"(?:[$€£]|EUR\b|USD\b|GBP\b|euros?\b|dollars?\b|pounds?\b)"
_MONEY: Final = re.compile(
    rf"{_CURRENCY}\s?({_NUMBER})|\b({_NUMBER})\s?{_CURRENCY}|(?<![\d.,-])(\d+[.,]\d{{2}})(?![\d.,-])",
    re.IGNORECASE,
)
_NAMED_ID: Final = re.compile(
    r"(?:#|\b(?:order|purchase|number|no\.?|id|ticket|invoice|case|reference|ref)s?\b[\s:#]*)"
    r"(\d+(?:(?:\s*,\s*|\s*,?\s+(?:and|or|&)\s+)#?\d+)*)",
    re.IGNORECASE,
)
_EMAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DATE: Final = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_QUOTED: Final = re.compile(r"\"([^\"]+)\"|“([^”]+)”|«([^»]+)»|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_NAME: Final = re.compile(r"\b[^\W\d_a-z][^\W\d_]+(?:[ '-][^\W\d_a-z][^\W\d_]+)*")
_NO_NAME: Final = word_set(
    "please find search show list give what where which who when why how refund send email order"
    " orders the can could i we my is has have did does do all and tell hello hi hey thanks thank"
    " eur usd gbp status look ok yes no"
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
    named = [int(n) for match in _NAMED_ID.finditer(_spent(text)) for n in _digits(match.group(1))]
    if named:
        return _unique(named)
    return _unique([int(n) for n in re.findall(r"(?<![\w.,])\d{3,}(?![\w]|[.,]\d)", _spent(text))])


def amounts(text: str) -> list[float]:
    """Money: numbers with a currency or two decimals, else whole numbers that name no thing."""
    text = _without(text, _EMAIL, _DATE, _QUOTED)
    money = [
        float(next(g for g in m.groups() if g).replace(",", ".")) for m in _MONEY.finditer(text)
    ]
    if money:
        return _unique(money)
    taken = set(ids(text))
    return _unique(
        [
            float(n)
            for n in re.findall(r"(?<![\w.,#])\d+(?![\w%]|[.,]\d)", text)
            if int(n) not in taken
        ]
    )


def names(text: str) -> list[str]:
    """Capitalised words that start no sentence of their own accord."""
    found = []
    for match in _NAME.finditer(_without(text, _EMAIL, _QUOTED)):
        parts = [w for w in match.group().split(" ") if w.casefold() not in _NO_NAME]
        first = match.start() == 0 or text[: match.start()].rstrip()[-1:] in ".!?"
        if parts and (len(parts) > 1 or not first):
            found.append(" ".join(parts))
    return _unique(found)


def _spent(text: str) -> str:
    """The text without its money, so that a price is never taken for an order."""
    return _MONEY.sub(lambda m: " " * len(m.group()), text)


def _digits(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def _without(text: str, *patterns: re.Pattern[str]) -> str:
    for pattern in patterns:
        text = pattern.sub(lambda match: " " * len(match.group()), text)
    return text


def _unique(items: list[T]) -> list[T]:
    return list(dict.fromkeys(items))
