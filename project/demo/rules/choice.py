"""Which of the offered tools the person wants, whatever the tools are called."""

from __future__ import annotations

import re
from typing import Final

from project.demo.rules import smalltalk, values
from project.demo.rules.arguments import fill, identities, is_about_everything
from project.demo.rules.dictation import without_dictation
from project.demo.rules.kinds import changes, input_kind, schema_type
from project.demo.rules.turn import Tool, Turn
from project.demo.rules.words import CHANGING, meanings, plain_words

_THRESHOLD: Final = 0.75
_NAME_WEIGHT: Final = 2.0
_FIT: Final = 0.5
_MISFIT: Final = -0.6
#: A question about what is or was, not a request to do it.
_QUESTION: Final = re.compile(
    r"^\W*(?:(?:hi|hello|hey)\W+)?(?!how (?:do|can|could) i\b)(?:should|shall|has|have|was|were|is|are|did|does|do|when|why|who|what|how|where"
    r"|which)\b",
    re.IGNORECASE,
)
#: What was spoken of before, and what an email is about without saying it.
_IT: Final = re.compile(r"\b(?:it|its|that one|this one|this|they|she|he|her|his)\b", re.IGNORECASE)
_ABOUT: Final = re.compile(
    r"\b(?:about|regarding|concerning|customer|client|buyer|kunden?)\b", re.IGNORECASE
)


#: The one thing of the person, whose number is to be asked for.
_MINE: Final = re.compile(
    r"\b(?:my|mein|meine) (?:\w+ )?(?:order|purchase|book|parcel|package|delivery|stuff|bestellung|buch"
    r"|paket)\b(?!s)",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
    r"\b(?:don'?t|do not|never|no need to|shouldn't|should not)((?:\s+[\w'-]+){1,4})", re.IGNORECASE
)
_ALSO_ASKS: Final = re.compile(
    r"\b(?:where|what|which|when|status|state|list|show|find|search)\b|\?", re.IGNORECASE
)
_CLAUSE: Final = re.compile(r"\b(?:and|then)\b(?:\s+please\b)?|[,.;?!]", re.IGNORECASE)


def refused(text: str) -> set[str]:
    """The changes that the person says not to make."""
    return {
        change
        for match in _REFUSED.finditer(text)
        for change in CHANGING & set(meanings(match.group(1)))
    }


def _only_asks(text: str) -> bool:
    """Whether it is a question from beginning to end, so that nothing may be changed."""
    if not _QUESTION.match(text):
        return False
    clauses = [plain_words(clause) for clause in _CLAUSE.split(text)[1:]]
    return not any(
        words
        and meanings(words[0])[:1]
        and meanings(words[0])[0] in CHANGING
        and not words[0].casefold().endswith(("ed", "en"))
        for words in clauses
    )


def wanted_tools(turn: Turn) -> list[Tool]:
    """The tools to call for this request, best first; each explains words that no other did."""
    open_words = set(meanings(without_dictation(turn)))
    asks = _only_asks(turn.request)
    unwanted = refused(turn.request)
    wanted: list[Tool] = []
    rest = [tool for tool in turn.tools if not changes(tool) & unwanted]
    while rest:
        scored = [
            (_score(tool, turn, open_words, asks=asks, is_first=not wanted), tool) for tool in rest
        ]
        best, tool = max(scored, key=lambda pair: pair[0])
        if best < _THRESHOLD:
            break
        wanted.append(tool)
        rest.remove(tool)
        open_words -= set(meanings(f"{tool.title} {tool.description}"))
        # Reads come for the main question only; further tools must be asked for by their verb.
        if not changes(tool) or not _ALSO_ASKS.search(without_dictation(turn)):
            rest = [other for other in rest if changes(other)]
        if not open_words:
            break
    if not wanted:
        wanted = _meant_by_values(turn)
    return sorted(wanted, key=lambda tool: "email" in changes(tool))


def _meant_by_values(turn: Turn) -> list[Tool]:
    """A read for a number, a name or a noun alone, or a question about what was spoken of."""
    text = turn.message
    if turn.question or refused(text):
        return []
    reads = [tool for tool in turn.tools if not changes(tool)]
    said = set(meanings(text))
    if values.ids(text) or not plain_words(text) or (_IT.search(text) and _QUESTION.match(text)):
        about_one = [t for t in reads if t.required and identities(t, text)]
        if not about_one and plain_words(text) and not smalltalk.kind(text):
            about_one = [t for t in reads if t.required and fill(t, turn).calls]
        return about_one[:1]
    searches = [t for t in reads if not t.required and t.properties]
    named = [*values.quoted(text), *values.names(text)]
    if named and (known_words(turn.tools) | {"create"}) & said:
        return searches[:1]
    word = text.strip(" .!?")
    if word in (" ".join(named), *values.emails(text)) and not smalltalk.kind(text):
        return searches[:1]
    if len(plain_words(text)) == 1 and said and said <= known_words(reads):
        if word.endswith("ed") or (word.endswith("s") and "order" in said):
            return searches[:1]
        return [t for t in reads if t.required][:1]
    return []


def known_words(tools: list[Tool]) -> set[str]:
    """The meanings of all words that tools say about themselves."""
    return {word for tool in tools for word in meanings(f"{tool.title} {tool.description}")}


def unsupported(turn: Turn) -> str:
    """The change that the message asks for first and no tool makes, as the person says it."""
    if _QUESTION.match(turn.message):
        return ""
    for word in plain_words(without_dictation(turn)):
        found = meanings(word)
        if found and found[0] != "search":
            offered = {change for tool in turn.tools for change in changes(tool)}
            is_asked = found[0] in CHANGING - offered and word.casefold() != "new"
            return found[0] if is_asked else ""
    return ""


def stands_alone(turn: Turn) -> bool:
    """Whether a reply to our question is a request of its own: a question, or another verb."""
    first = next(iter(meanings(turn.message)), "")
    return bool(_QUESTION.match(turn.message)) or first in CHANGING | {"search", "status"}


def helper_for(
    turn: Turn, wanted: Tool, missing: list[str]
) -> tuple[Tool, list[dict[str, object]]] | None:
    """A read that was not made yet and may bring what is missing."""
    kinds = {input_kind(wanted, name) for name in missing}
    if kinds == {"body"} and not _ABOUT.search(turn.request):
        return None
    if not kinds or kinds & {"amount", "other", "task"}:
        return None
    done = {result.tool for result in turn.results}
    by_number = sorted(
        turn.tools, key=lambda tool: not (tool.required and identities(tool, turn.request))
    )
    for tool in by_number:
        if changes(tool) or tool.name in done or not tool.properties:
            continue
        filled = fill(tool, turn)
        if filled.calls and any(filled.calls[0].values()) and _is_named(tool, turn):
            return tool, filled.calls
    return None


def _is_named(tool: Tool, turn: Turn) -> bool:
    """A lookup needs something to look up: an identity for one thing, a name for a search."""
    if tool.required:
        return True
    text = turn.request
    return bool(values.names(text) or values.quoted(text) or values.emails(text))


def _score(tool: Tool, turn: Turn, words: set[str], *, asks: bool, is_first: bool) -> float:
    name, about = set(meanings(tool.title)), set(meanings(tool.description))
    changed = changes(tool)
    if changed and (asks or not changed & words):
        return 0.0
    score = _fit(tool, turn) if is_first else 0.0
    for word in words & (name | about):
        offered = sum(
            word in {*meanings(other.title), *meanings(other.description)} for other in turn.tools
        )
        score += (_NAME_WEIGHT if word in name or word in changed else 1.0) / max(offered, 1)
    return score


def _fit(tool: Tool, turn: Turn) -> float:
    """How well the values at hand fit the tool's inputs."""
    if changes(tool):
        return 0.0
    kinds = {input_kind(tool, name) for name in tool.required}
    if "identity" in kinds:
        if identities(tool, turn.request):
            return _FIT
        if _MINE.search(turn.request) and not values.names(turn.request):
            return _FIT
        return 0.0 if _IT.search(turn.request) and fill(tool, turn).calls else _MISFIT
    searches = any(
        input_kind(tool, name) == "query" and schema_type(schema) == "string"
        for name, schema in tool.properties.items()
    )
    if not searches:
        return 0.0
    if _MINE.search(turn.request) and not values.names(turn.request):
        return _MISFIT
    if values.names(turn.request) and not values.ids(turn.request):
        return _FIT
    calls = fill(tool, turn).calls
    has_words = any(value for call in calls for value in call.values())
    if is_about_everything(turn.request):
        return _FIT if not values.ids(turn.request) else 0.0
    return 0.0 if has_words else _MISFIT
