"""Words and what they mean: stems, and a few groups of words that mean the same here."""

from __future__ import annotations

import re
from typing import Final

#: Longer expressions, replaced before a text is cut into words.
_PHRASES: Final = [
    (r"\bmoney[\s-]back\b", "refund"),
    (r"\b(?:money|cash) (?:returned|back)\b", "refund"),
    (r"\b(?:give|pay|get|paid|given|gave|send|sent)\b(?: \w+){0,3} back\b", "refund"),
    (r"\b(?:give|pay|return)\w*\b(?: \w+){0,4} (?:money|payment)\b", "refund"),
    (r"\blook(?:ing|s)? (?:up|for)\b", "search"),
    (r"\bhow far\b", "status"),
    (r"\bdrop (?:\w+ )?a line\b", "email"),
    (r"\be-?mail", "email"),
    (r"\blet (?:\w+ ){1,3}know\b", "email"),
]

_GROUPS: Final = {
    "refund": "refund reimburse repay payback compensate chargeback recompense payout",
    "status": "status state where track progress ship deliver arrive whereabouts situation stage",
    "search": "search find list lookup browse query locate discover which",
    "email": "email mail notify message contact letter notification send inform write",
    "cancel": "cancel abort void annul withdraw",
    "create": "create add new register place buy",
    "update": "update change edit modify amend rename move",
    "delete": "delete remove erase",
    "order": "order purchase",
    "customer": "customer client buyer shopper",
    "delegate": "delegate handoff hand pass forward",
}


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: What changes something in the world: never called unless the person asks for exactly that.
CHANGING: Final = word_set("refund email cancel create update delete delegate")

_STOP: Final = word_set(
    "a an and any are as at be been by can could did do does for from get give had has have he her"
    " hello hey hi him his how i if in into is it its just kindly like made make me my need now of"
    " on one only or our out please put say says show she should so some tell than thank thanks"
    " that the their them then there these they this those to up us use want was we were what when"
    " who whom whose will with would you your about all also every each more much no not see look"
    " know give let got am d ll m re s t ve"
)


def stem(word: str) -> str:
    """Cut English endings so that forms of one word meet. Crude on purpose."""
    word = word.casefold()
    for ending, rest in (
        ("ations", "ate"), ("ation", "ate"), ("ements", ""), ("ement", ""), ("ments", ""),
        ("ment", ""), ("ings", ""), ("ing", ""), ("ies", "y"), ("ied", "y"), ("ed", ""),
        ("ery", "er"), ("es", ""), ("s", ""),
    ):  # fmt: skip
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word[: -len(ending)] + rest
            break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word.rstrip("e") if len(word) > 3 else word


_MEANING: Final = {stem(word): group for group, words in _GROUPS.items() for word in words.split()}


def split_name(name: str) -> str:
    """``orders__refundOrder`` -> ``refund Order``: the connector's part says nothing about it."""
    own = name.rsplit("__", 1)[-1]
    return re.sub(r"[_\-.]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", own)).strip()


def plain_words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text)


def meaning(word: str) -> str:
    """The group of a word, or its stem."""
    return _MEANING.get(stem(word), stem(word))


def meaning_set(text: str) -> frozenset[str]:
    """The meanings of single words, small ones too."""
    return frozenset(map(meaning, text.split()))


def meanings(text: str) -> list[str]:
    """What a text is about, in order, without small words."""
    text = text.casefold()
    for pattern, replacement in _PHRASES:
        text = re.sub(pattern, f" {replacement} ", text)
    return [
        meaning(word)
        for word in (w.removesuffix("'s") for w in plain_words(text))
        if word not in _STOP
    ]


def is_small(word: str) -> bool:
    return word.casefold().removesuffix("'s") in _STOP


def sentences(text: str) -> list[str]:
    """Sentences and list items of a text, without their bullets."""
    parts = re.split(r"(?<=[.!?])\s+|\n+", text)
    return [part for part in (re.sub(r"^[\s\-*•#>]+", "", p).strip() for p in parts) if part]
