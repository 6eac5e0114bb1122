"""Fill a tool's arguments from what was said and found, by its schema alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from project.demo.rules import dictation, money, selection, values
from project.demo.rules.kinds import input_kind, schema_type
from project.demo.rules.turn import QUESTIONS, Result, Tool, Turn
from project.demo.rules.words import (
    CHANGING,
    is_small,
    meaning,
    meanings,
    plain_words,
    split_name,
    word_set,
)

_QUESTION_WORDS: Final = word_set("where which track status state whereabouts")
#: Words that say how to search and not for what.
_SEARCH_WORDS: Final = word_set(
    "many number count total yet list alle viele welche wieviele still already currently"
    " book books title titles"
)
_ALL: Final = re.compile(
    r"\b(?:all|every|each|everything|any|list|how many|alle|wie ?viele)\b", re.IGNORECASE
)
_NEGATED: Final = re.compile(r"\b(?:not|never|aren't|isn't|without|except|nicht)\b", re.IGNORECASE)
#: Inputs of which no value is taken for the first of several.
_NEVER_GUESSED: Final = word_set("identity address amount")
_OR: Final = re.compile(r"\b(?:or|oder)\s+(?:#|order\s+)?\d", re.IGNORECASE)


@dataclass
class Filled:
    """The calls that can be made, or why none can."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    #: Required properties without a value.
    missing: list[str] = field(default_factory=list)
    #: A property and the values between which the person must choose.
    choice: tuple[str, list[Any]] | None = None


def fill(tool: Tool, turn: Turn) -> Filled:
    """Several identities that the person named make several calls; several found ones a choice."""
    filled = Filled()
    base: dict[str, Any] = {}
    many: tuple[str, list[Any]] | None = None
    # Amounts last: whether several are a choice depends on how many things are meant.
    for name in sorted(tool.properties, key=lambda name: input_kind(tool, name) == "amount"):
        wanted = name in tool.required
        kind = input_kind(tool, name)
        said = _said(tool, name, tool.properties[name], turn)
        if QUESTIONS[1] in turn.question:
            said = _picked(tool, kind, turn) or said
        found = said or (_known(tool, name, turn) if wanted else [])
        if not found:
            if wanted or (kind == "amount" and money.is_vague(turn.request)):
                filled.missing.append(name)
        elif (
            len(found) == 1 or (said and kind not in _NEVER_GUESSED) or (many and kind == "amount")
        ):
            base[name] = found[0]
        elif not said or kind == "amount" or (kind == "identity" and _is_choice(turn)):
            filled.choice = (name, found)
        else:
            many = many or (name, found)
    if not filled.missing and filled.choice is None:
        _complete(filled, tool, turn, base, many)
    return filled


def _is_choice(turn: Turn) -> bool:
    """Whether the person named several things and wants one: until one was picked."""
    is_picked = QUESTIONS[1] in turn.question and bool(
        values.ids(turn.message) or selection.means_all(turn.message)
    )
    return bool(_OR.search(turn.request)) and not is_picked


def _complete(
    filled: Filled,
    tool: Tool,
    turn: Turn,
    base: dict[str, Any],
    many: tuple[str, list[Any]] | None,
) -> None:
    """One call, or one for each of many things with the amount that was meant for it."""
    if many is None:
        calls = [base]
    else:
        name, options = many
        calls = [{**base, name: option} for option in options]
        amount = next((n for n in base if input_kind(tool, n) == "amount"), "")
        if amount:
            replied = values.amounts(turn.message) if turn.question else []
            is_for_all = len(replied) == 1 and not values.ids(turn.message)
            owned: dict[Any, float | None] | None = (
                dict.fromkeys(options, replied[0])
                if is_for_all
                else selection.amounts_of(turn.request, options)
            )
            if owned is None:
                filled.missing.append(amount)
                return
            calls = [{**call, amount: owned[call[name]]} for call in calls]
    filled.calls = [
        {k: call[k] for k in tool.properties if call.get(k) is not None} for call in calls
    ]


def _picked(tool: Tool, kind: str, turn: Turn) -> list[Any]:
    """What a reply to "which one" picks: by number, by place, by a name in its row, or all."""
    if kind == "amount":
        return values.amounts(turn.message)
    if kind != "identity":
        return []
    if found := identities(tool, turn.message):
        return found
    options = values.ids(turn.question)
    if selection.means_all(turn.message):
        return options
    chosen = selection.narrowed(options, _rows(turn), turn.message)
    return chosen if len(chosen) < len(options) else []


def _rows(turn: Turn) -> list[dict[str, Any]]:
    """The things in all results, newest first."""
    rows: list[Any] = []
    for material in (*reversed(turn.results), *turn.earlier):
        value = material.value if isinstance(material, Result) else None
        rows += value if isinstance(value, list) else [value]
    return [row for row in rows if isinstance(row, dict)]


def identities(tool: Tool, text: str) -> list[int]:
    """The numbers of things that *text* names.

    Where the tool needs exactly one whole number, the only number of the text is that one too.
    """
    found = values.ids(text)
    if found or not _needs_one_number(tool):
        return found
    return values.sole_number(text)


def _needs_one_number(tool: Tool) -> bool:
    wanted = [name for name in tool.required if schema_type(tool.properties[name]) == "integer"]
    return len(wanted) == 1 and input_kind(tool, wanted[0]) != "amount"


def _said(tool: Tool, name: str, schema: dict[str, Any], turn: Turn) -> list[Any]:
    """Values for this property that the person's own words hold."""
    choices = _options(schema)
    if choices:
        words = turn.request.casefold()
        return [c for c in choices if re.search(rf"\b{re.escape(str(c).casefold())}\b", words)][:1]
    match schema_type(schema):
        case "integer" | "number" as kind:
            return _numbers(tool, kind, name, turn)
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


def _numbers(tool: Tool, schema_kind: str, name: str, turn: Turn) -> list[Any]:
    found: list[Any]
    text = turn.request
    match input_kind(tool, name):
        case "amount":
            found = values.amounts(text)
        case "identity":
            found = identities(tool, text)
        case _:
            found = identities(tool, text) or values.amounts(text)
    return [int(n) for n in found if n == int(n)] if schema_kind == "integer" else found


def _switch(name: str, text: str) -> list[bool]:
    if not set(meanings(split_name(name))) & set(meanings(text)):
        return []
    return [not re.search(rf"\b(?:no|not|without|don't)\b[^.]*\b{split_name(name)[:4]}", text)]


def _string(tool: Tool, name: str, schema: dict[str, Any], turn: Turn) -> list[str]:
    text, quotes = turn.request, values.quoted(turn.request)
    match input_kind(tool, name):
        case "address":
            return values.emails(text)
        case "identity":
            return [str(n) for n in values.ids(text)]
        case "query":
            return _query(tool, name, turn)
        case "reason":
            return [dictation.reason(text)]
        case "subject":
            return [dictation.subject(turn)]
        case "body":
            return [dictation.body(turn)]
        case "task":
            return [text.strip()]
        case _:
            return values.dates(text)[:1] if schema.get("format") == "date" else quotes[:1]


def _query(tool: Tool, name: str, turn: Turn) -> list[str]:
    text = turn.request
    if found := values.quoted(text)[:1] or values.names(text)[:1] or values.emails(text)[:1]:
        return found
    if is_negated(text):
        return []
    spent = set(meanings(tool.title)) | set(meanings(split_name(name)))
    rest = [w for w in plain_words(text) if not is_small(w)]
    spent |= {*CHANGING, "search"}
    rest = [
        w
        for w in rest
        if meaning(w) not in spent
        and w.casefold().rstrip("'") not in _QUESTION_WORDS | _SEARCH_WORDS
    ]
    return [" ".join(rest) or next(map(str, values.ids(text)), "")]


def is_about_everything(text: str) -> bool:
    """Whether the person asks for all there is, so that an empty search is meant."""
    return bool(_ALL.search(text) or is_negated(text))


def is_negated(text: str) -> bool:
    """Whether it asks for what is not so, which no search finds."""
    return bool(_NEGATED.search(text))


def _known(tool: Tool, name: str, turn: Turn) -> list[Any]:
    """Values for this property in the newest result or text that holds any."""
    numeric = schema_type(tool.properties[name]) in {"integer", "number"}
    kind = input_kind(tool, name)
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
        if found and kind == "identity":
            found = selection.narrowed(found, _rows(turn), turn.request)
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
