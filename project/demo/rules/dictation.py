"""What the person wants passed on to somebody else, apart from what they want done."""

from __future__ import annotations

import re
from typing import Final

from project.demo.rules import values
from project.demo.rules.rendering import sentence
from project.demo.rules.turn import Turn
from project.demo.rules.words import meanings, sentences

#: How a question of ours asks for the text of an email; the reply is that text.
ASKS_FOR_TEXT: Final = "what it should say"
_SAYING: Final = re.compile(
    r"(?:\bthat\s+)?\b(?:saying|says|reads|reading|with the (?:text|words|message)|mit dem text"
    r"|(?:text|message|body|content)(?=\s*:))\b"
    r"\s*(?:that\b)?[\s:,]*(?P<said>\S.{2,}?)\s*$",
    re.IGNORECASE | re.DOTALL,
)
_THAT: Final = re.compile(
    r"\b(?:that|dass)\b(?!\s+(?:e-?mail|mail|message|letter|customer|order)\b)[\s:,]*"
    r"(?P<said>\S.{2,}?)\s*$",
    re.IGNORECASE | re.DOTALL,
)
_TELL: Final = re.compile(
    r"\b(?:telling|tell)\s+(?:(?:the|our|my)\s+)?\w+\s+(?P<said>\S.{2,}?)\s*$",
    re.IGNORECASE | re.DOTALL,
)
_AFTER_ADDRESS: Final = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+(?P<mark>\s*[:,\u2013\u2014-]*)\s*"
    r"(?:(?:a|an|the|this|another|short|quick|following)\s+)*"
    r"(?:(?:e-?mail|mail|message|note|letter)\b(?P<colon>\s*[:,]?)\s*)?(?P<said>.*?)\s*$",
    re.IGNORECASE | re.DOTALL,
)
_NO_TEXT: Final = re.compile(
    r"^(?:about|regarding|concerning|for|with|and|or|to|please|subject|when|if|now|again|asap|today"
    r"|at|from|in|bitte|über)\b",
    re.IGNORECASE,
)
_SUBJECT: Final = re.compile(
    r"\bsubject(?: line)?\b:?\s+(?:[\"“'«](?P<quoted>[^\"”'»]+)[\"”'»]"
    r"|(?P<plain>[^\n]+?)(?=\s+(?:saying|says|and|with|that)\b|[,.;\n]|$))",
    re.IGNORECASE,
)
_QUOTED_WHOLE: Final = re.compile(r"[\"“«'](?P<said>[^\"”»]+)[\"”»'][.!?]?")
_TOPIC: Final = re.compile(
    r"\b(?:about|regarding|concerning)\b(?P<said>.*)$", re.IGNORECASE | re.DOTALL
)
_FAVOUR: Final = re.compile(r"^\W*(?:can|could|would|will|may)\b", re.IGNORECASE)
_BECAUSE: Final = re.compile(
    r"\b(?:because|since|as the|reason(?: is)?:?|due to|weil)\s+(.+?)(?:[.!?](?:\s|$)|$)",
    re.IGNORECASE | re.DOTALL,
)


def reason(text: str) -> str:
    """Why, in the person's words, or nothing."""
    found = _BECAUSE.search(text)
    return found.group(1).strip() if found else ""


def subject(turn: Turn) -> str:
    """The subject line that was named, else one that says which thing it is about."""
    if named := _SUBJECT.search(turn.request):
        return (named.group("quoted") or named.group("plain")).strip()
    for material in (turn.request, *(str(a) for r in turn.results for a in r.arguments.values())):
        if found := values.ids(material):
            return f"Your order {found[0]}"
    return "A message from us"


def body(turn: Turn) -> str:
    """The person's own words, else what was just found out."""
    if ASKS_FOR_TEXT in turn.question and (said := _reply(turn.message)):
        return _polished(said)
    for part in reversed(turn.parts):
        if said := _dictated(part):
            return _polished(said)
    for result in reversed(turn.results):
        if isinstance(result.value, dict):
            told = sentence(result.value, brief=True)
            return f"Hello, {told[0].lower()}{told[1:]}"
    return ""


def without_dictation(turn: Turn) -> str:
    """The request without words that are only to be passed on, and without its reasons."""
    parts = turn.parts[:-1] if ASKS_FOR_TEXT in turn.question else turn.parts
    return "\n".join(_undictated(part) for part in parts)


def _undictated(text: str) -> str:
    text = _BECAUSE.sub(" ", _SUBJECT.sub(" ", text))
    for quote in values.quoted(text):
        text = text.replace(quote, " ")
    for pattern in (_SAYING, _THAT, _AFTER_ADDRESS, _TOPIC):
        found = pattern.search(text)
        if found and _is_text(found) and "email" in meanings(text[: found.start("said")]):
            text = text[: found.start("said")]
    return text


def _dictated(text: str) -> str:
    """The words after "saying", "that" or the address, or in quotation marks."""
    text = _SUBJECT.sub(" ", text)
    if found := _SAYING.search(text):
        return _unquoted(found.group("said"))
    if (found := _THAT.search(text)) or (found := _TELL.search(text)):
        said = _unquoted(found.group("said"))
        return f"{said.rstrip('?')}." if _FAVOUR.match(text) and said.endswith("?") else said
    if quotes := values.quoted(text):
        return quotes[-1]
    found = _AFTER_ADDRESS.search(text)
    return _unquoted(found.group("said")) if found and _is_text(found) else ""


def _is_text(found: re.Match[str]) -> bool:
    """Whether what follows an address reads like a message and not like more of the request."""
    groups = found.groupdict()
    said = groups["said"].strip(" .,;:")
    if "mark" not in groups:
        return bool(said)
    if ":" in f"{groups['mark']}{groups['colon'] or ''}":
        return bool(said)
    return len(said.split()) > 1 and not _NO_TEXT.match(said)


def _unquoted(said: str) -> str:
    whole = _QUOTED_WHOLE.fullmatch(said)
    return whole.group("said") if whole else said


def _reply(message: str) -> str:
    """A reply that is not only an address and a subject."""
    if found := _dictated(message):
        return found
    rest = _SUBJECT.sub(" ", message)
    for address in values.emails(rest):
        rest = rest.replace(address, " ")
    return rest.strip(" .,;:\n")


def _polished(said: str) -> str:
    said = said.strip().lstrip(",;: ")
    if len(sentences(said)) == 1 and said[-1:] not in ".!?…)":
        said = f"{said}."
    return f"{said[:1].upper()}{said[1:]}"
