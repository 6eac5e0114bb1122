"""Words and what they mean: stems, and a few groups of words that mean the same here."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

#: Longer expressions, replaced before a text is cut into words.
_PHRASES: Final = [
    (r"\bmoney[\s-]back\b", "refund"),
    (r"\b(?:money|cash) (?:returned|back)\b", "refund"),
    (
        r"\b(?:give|gave|given|pay|paid|get|send|sent|like|want|need|have)\b(?: [^\s?!]+){0,6} back\b",
        "refund",
    ),
    (r"\b(?:geld|euro|eur|€)\b[^.]{0,40}\bzurück\b", "refund"),
    (r"\bzurück ?(?:zahl|erstatt|geb|überweis)\w*", "refund"),
    (r"\b(?:give|pay|return)\w*\b(?: \w+){0,4} (?:money|payment)\b", "refund"),
    (r"\blook(?:ing|s)? (?:up|for)\b", "search"),
    (r"\bhow far\b|\bwhat(?: is|'s) up with\b|\bwhat happened (?:to|with)\b", "status"),
    (r"\b(?:any )?(?:news|updates?) (?:on|about|of|for)\b|\bwhat about\b", "status"),
    (r"\bhow many\b|\bwie ?viele\b|\b(?:show|give|tell|see|get)(?: me)? (?:all|every)\b", "search"),
    (r"\b(?:tell|send|write|ping|mail)\b(?: to)? (?=\S+@\S)", "email"),
    (r"\btell (?:the |our )?(?=customer\b|client\b|buyer\b)|\btell (?:him|her|them)\b", "email"),
    (r"\b(?:write|schreib\w*)(?= (?:\w+ ){0,4}(?:to|customer|client|buyer|an|dem|der)\b)", "email"),
    (r"\bdrop (?:\w+ )?a line\b", "email"),
    (r"\be-?mail", "email"),
    (r"\blet (?:\w+ ){1,3}know\b", "email"),
]

_GROUPS: Final = {
    "refund": "refund reimburse repay payback compensate chargeback recompense payout"
    " erstatte erstatten erstattung rückerstattung",
    "status": "status state where track progress ship deliver arrive whereabouts situation stage"
    " wo stand versendet geliefert",
    "search": "search find list lookup browse query locate discover which"
    " suche suchen finde zeige zeig liste welche",
    "email": "email mail notify message contact letter notification send inform"
    " sende schicke nachricht",
    "cancel": "cancel abort void annul withdraw storniere stornieren",
    "create": "create add new register place buy",
    "update": "update change edit modify amend rename move",
    "delete": "delete remove erase",
    "order": "order purchase bought bestellung bestellungen",
    "customer": "customer client buyer shopper kunde kunden",
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
    " know give let got am d ll m re s t ve pls plz"
    " ist der das den dem ein eine einen einer mir mich ich bitte für von und mit auf zu im möchte"
    " hätte gern gerne kann kannst du sie wir es wer mein meine meiner sind"
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
_SPELLED: Final = tuple(
    (word, group) for group, words in _GROUPS.items() for word in words.split() if len(word) > 3
)


def split_name(name: str) -> str:
    """``orders__refundOrder`` -> ``refund Order``: the connector's part says nothing about it."""
    own = name.rsplit("__", 1)[-1]
    return re.sub(r"[_\-.]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", own)).strip()


def plain_words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", text)


@lru_cache(4096)
def meaning(word: str) -> str:
    """The group of a word, a slip of the finger forgiven, or its stem."""
    word = word.casefold()
    if found := _MEANING.get(stem(word)):
        return found
    if len(word) > 3:
        return next((group for right, group in _SPELLED if _is_slip(word, right)), stem(word))
    return stem(word)


def _is_slip(word: str, right: str) -> bool:
    """Whether one letter is missing, doubled or swapped with its neighbour; the first one holds."""
    if word[0] != right[0]:
        return False
    if len(word) + 1 == len(right):
        return any(word == right[:i] + right[i + 1 :] for i in range(1, len(right)))
    if len(word) == len(right) + 1:
        return any(
            word[:i] + word[i + 1 :] == right and word[i] == word[i - 1]
            for i in range(1, len(word))
        )
    return len(word) == len(right) and any(
        word == right[:i] + right[i + 1] + right[i] + right[i + 2 :]
        for i in range(1, len(right) - 1)
    )


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
