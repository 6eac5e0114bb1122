"""Amounts of money in a text: figures or words, before or after a currency, or vague."""

from __future__ import annotations

import re
from typing import Final

#: ``1,200.50``, ``1.200,50``, ``12,5`` and ``12``.
_FIGURE: Final = r"\d{1,3}(?:[.,]\d{3})+(?:[.,]\d{1,2})?(?!\d)|\d+(?:[.,]\d{1,2})?(?!\d)"
_CURRENCY: Final = (
    r"(?:[$€£]|\b(?:EUR|USD|GBP|CHF)\b|\b(?:euros?|dollars?|pounds?|bucks|quid|francs?)\b)"
)
_AFTER: Final = r"(?:[$€£]|(?:EUR|USD|GBP|CHF|euros?|dollars?|pounds?|bucks|quid|francs?)\b)"
_WORDS: Final = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
    "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30,
    "forty": 40, "fifty": 50, "hundred": 100,
}  # fmt: skip
_WORD: Final = rf"(?:{'|'.join(_WORDS)})"
_MONEY: Final = re.compile(
    rf"{_CURRENCY}\s?(?P<before>{_FIGURE})"
    rf"|(?<![\w.,])(?P<after>{_FIGURE})(?:[.,][-\u2013])?\s?{_AFTER}"
    rf"|\b(?P<word>{_WORD})\s+{_AFTER}"
    r"|(?<![\w.,])(?P<cents>\d+)\s?cents?\b"
    r"|(?<![\d.,-])(?P<bare>\d+[.,]\d{2})(?![\d.,-])",
    re.IGNORECASE,
)
#: A share or a negative amount: meant as money, but not a sum that could be paid.
_VAGUE: Final = re.compile(
    r"\b(?:half|a third|a quarter|part of it|some of it|partly|partial(?:ly)?|hälfte)\b"
    r"|\d\s?(?:%|percent\b|per cent\b|prozent\b)|(?<!\w)[-\u2212](?=\d)",
    re.IGNORECASE,
)


def sums(text: str) -> list[float]:
    """Every amount with a currency or two decimals, in order; none that is less than nothing."""
    return [
        _value(match)
        for match in _MONEY.finditer(text)
        if not re.search(r"(?<!\w)[-\u2212]$", text[: match.start()])
    ]


def without_money(text: str) -> str:
    """The text with its amounts blanked, so that a price is never taken for a number of a thing."""
    return _MONEY.sub(lambda match: " " * len(match.group()), text)


def is_vague(text: str) -> bool:
    """Whether the text speaks of a share, or of less than nothing: to be asked back."""
    return bool(_VAGUE.search(text))


def _value(match: re.Match[str]) -> float:
    if word := match.group("word"):
        return float(_WORDS[word.casefold()])
    if cents := match.group("cents"):
        return int(cents) / 100
    figure = match.group("before") or match.group("after") or match.group("bare")
    whole, _, decimals = figure.replace(",", ".").rpartition(".")
    if whole and len(decimals) < 3:
        return float(f"{whole.replace('.', '')}.{decimals}")
    return float(f"{whole}{decimals}".replace(".", ""))
