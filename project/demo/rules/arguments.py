"""Fill a tool's arguments from what was said and found, by its schema alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from project.demo.rules import values
from project.demo.rules.turn import Result, Tool, Turn
from project.demo.rules.words import (
    CHANGING,
    is_small,
    meaning,
    meaning_set,
    meanings,
    plain_words,
    sentences,
    split_name,
)

_AMOUNT: Final = meaning_set("amount price sum total value money cost payment")
_IDENTITY: Final = meaning_set(
    "order id number no ref reference ticket invoice case identifier code"
)
_ADDRESS: Final = meaning_set("to recipient address receiver email addressee")
_QUERY: Final = meaning_set("query search term keyword filter name customer q phrase text needle")
_SUBJECT: Final = meaning_set("subject title headline topic")
_BODY: Final = meaning_set("body message text content letter note words")
_REASON: Final = meaning_set("reason why comment note cause remark because")
_TASK: Final = meaning_set("task prompt instruction question job request")
_QUESTION_WORDS: Final = frozenset({"where", "which", "track", "status", "state", "whereabouts"})
_ALL: Final = re.compile(r"\b(?:all|every|each|everything|any|list)\b", re.IGNORECASE)
_BECAUSE: Final = re.compile(
    r"\b(?:because|since|as the|reason(?: is)?:?|due to)\s+(.+?)(?:[.!?](?:\s|$)|$)",
    re.IGNORECASE | re.DOTALL,
)
_SAYING: Final = re.compile(
    r"\b(?:saying|says|telling (?:\w+ ){1,3}|tell (?:\w+ ){1,3}|reads|with the (?:text|words)|that)"
    r"\s*(?:that\b)?[\s:,]*(.{3,}?)\s*$",
    re.IGNORECASE | re.DOTALL,
)


@dataclass
class Filled:
    """The calls that can be made, or why none can."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    #: Required properties without a value.
    missing: list[str] = field(default_factory=list)
    #: A property and the values between which the person must choose.
    choice: tuple[str, list[Any]] | None = None


def kind_of(name: str, schema: dict[str, Any]) -> str:
    """What a property wants: decided by its name, and by its description where that is silent."""
    for text in (split_name(name), schema.get("description", "")):
        about = {meaning(word) for word in plain_words(text)}
        if schema_type(schema) in {"integer", "number"}:
            if about & _AMOUNT:
                return "amount"
            if about & _IDENTITY:
                return "identity"
        elif schema_type(schema) == "string":
            for kind, words in (
                ("address", _ADDRESS), ("reason", _REASON), ("subject", _SUBJECT),
                ("task", _TASK), ("identity", _IDENTITY), ("query", _QUERY), ("body", _BODY),
            ):  # fmt: skip
                if about & words and not (kind == "identity" and "customer" in about):
                    return kind
    return "other"


def schema_type(schema: dict[str, Any]) -> str:
    """The type of a value, null aside; "string" when the schema does not say."""
    for branch in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        found = branch.get("type")
        for name in found if isinstance(found, list) else [found]:
            if isinstance(name, str) and name != "null":
                return name
    return "string"


def fill(tool: Tool, turn: Turn) -> Filled:
    """Several identities that the person named make several calls; several found ones a choice."""
    filled = Filled()
    base: dict[str, Any] = {}
    many: tuple[str, list[Any]] | None = None
    for name, schema in tool.properties.items():
        wanted = name in tool.required
        said = _said(tool, name, schema, turn)
        found = said or (_known(name, schema, turn) if wanted else [])
        kind = kind_of(name, schema)
        if not found:
            if wanted:
                filled.missing.append(name)
        elif kind == "identity" and len(found) > 1:
            if not said or re.search(r"\bor\b", turn.request):
                filled.choice = (name, found)
            many = many or (name, found)
        elif len(found) > 1 and not said:
            filled.choice = (name, found)
        else:
            base[name] = found[0]
    if not filled.missing and filled.choice is None:
        name, options = many or ("", [])
        filled.calls = [{**base, name: option} for option in options] if many else [base]
        filled.calls = [{k: call[k] for k in tool.properties if k in call} for call in filled.calls]
    return filled


def _said(tool: Tool, name: str, schema: dict[str, Any], turn: Turn) -> list[Any]:
    """Values for this property that the person's own words hold."""
    choices = _options(schema)
    if choices:
        words = turn.request.casefold()
        return [c for c in choices if re.search(rf"\b{re.escape(str(c).casefold())}\b", words)][:1]
    match schema_type(schema):
        case "integer" | "number" as kind:
            return _numbers(kind, name, schema, turn.request)
        case "boolean":
            return _switch(name, turn.request)
        case "array":
            items = schema.get("items") or {}
            return [found] if (found := _said(tool, name, items, turn)) else []
        case "string":
            return [v for v in _string(tool, name, schema, turn) if v]
        case _:
            return []


def _options(schema: dict[str, Any]) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else []


def _numbers(kind: str, name: str, schema: dict[str, Any], text: str) -> list[Any]:
    found: list[Any]
    match kind_of(name, schema):
        case "amount":
            found = values.amounts(text)
        case "identity":
            found = values.ids(text)
        case _:
            found = values.ids(text) or values.amounts(text)
    return [int(n) for n in found if n == int(n)] if kind == "integer" else found


def _switch(name: str, text: str) -> list[bool]:
    if not set(meanings(split_name(name))) & set(meanings(text)):
        return []
    return [not re.search(rf"\b(?:no|not|without|don't)\b[^.]*\b{split_name(name)[:4]}", text)]


def _string(tool: Tool, name: str, schema: dict[str, Any], turn: Turn) -> list[str]:
    text, quotes = turn.request, values.quoted(turn.request)
    match "address" if schema.get("format") == "email" else kind_of(name, schema):
        case "address":
            return values.emails(text)
        case "identity":
            return [str(n) for n in values.ids(text)]
        case "query":
            return _query(tool, name, turn)
        case "reason":
            because = _BECAUSE.search(text)
            return [because.group(1).strip()] if because else []
        case "subject":
            return [_subject(turn)]
        case "body":
            return quotes[-1:] or [_body(turn)]
        case "task":
            return [text.strip()]
        case _:
            return values.dates(text)[:1] if schema.get("format") == "date" else quotes[:1]


def _query(tool: Tool, name: str, turn: Turn) -> list[str]:
    text = turn.request
    if found := values.quoted(text)[:1] or values.names(text)[:1] or values.emails(text)[:1]:
        return found
    spent = set(meanings(tool.title)) | set(meanings(split_name(name)))
    rest = [w for w in plain_words(text) if not is_small(w)]
    spent |= {*CHANGING, "search"}
    rest = [w for w in rest if meaning(w) not in spent and w.casefold() not in _QUESTION_WORDS]
    return [" ".join(rest) or next(map(str, values.ids(text)), "")]


def is_about_everything(text: str) -> bool:
    """Whether the person asks for all there is, so that an empty search is meant."""
    return bool(_ALL.search(text))


def _subject(turn: Turn) -> str:
    subject = re.search(r"\bsubject:?\s+[\"“']([^\"”']+)", turn.request, re.IGNORECASE)
    if subject:
        return subject.group(1)
    for material in (turn.request, *(str(a) for r in turn.results for a in r.arguments.values())):
        if found := values.ids(material):
            return f"Your order {found[0]}"
    return "A message from us"


def _body(turn: Turn) -> str:
    """What the person dictates, else what just happened."""
    last = next(iter(reversed(sentences(turn.request))), "")
    if saying := _SAYING.search(last):
        said = saying.group(1).strip().rstrip(".")
        return f"{said[0].upper()}{said[1:]}."
    for result in reversed(turn.results):
        if isinstance(result.value, dict):
            facts = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in result.value.items() if v)
            return f"Hello, this is how it stands: {facts}."
    return ""


def without_dictation(text: str) -> str:
    """The request without the words that it only wants passed on."""
    for quote in values.quoted(text):
        text = text.replace(quote, " ")
    saying = _SAYING.search(text)
    if saying and "email" in meanings(text[: saying.start()]):
        return text[: saying.start()]
    return text


def _known(name: str, schema: dict[str, Any], turn: Turn) -> list[Any]:
    """Values for this property in the newest result or text that holds any."""
    numeric = schema_type(schema) in {"integer", "number"}
    kind = "address" if schema.get("format") == "email" else kind_of(name, schema)
    if kind not in {"identity", "address"}:
        return []
    for material in (*reversed(turn.results), *turn.earlier):
        text = material.text if isinstance(material, Result) else material
        found: list[Any]
        if kind == "address":
            found = list(values.emails(text))
        elif isinstance(material, Result):
            found = [*_by_key(name, material.value), *_by_key(name, material.arguments)]
        else:
            found = list(values.ids(text))
        found = list(dict.fromkeys(found))
        if found:
            return [int(v) for v in found] if numeric else [str(v) for v in found]
    return []


def _by_key(name: str, value: Any) -> Iterator[Any]:
    wanted = set(meanings(split_name(name))) | {"order", meaning("id"), meaning("number")}
    if isinstance(value, dict):
        for key, item in value.items():
            if set(meanings(split_name(key))) & wanted and str(item).isdecimal():
                yield int(item)
    elif isinstance(value, list):
        for item in value:
            yield from _by_key(name, item)
