"""Which of the offered tools the person wants, whatever the tools are called."""

from __future__ import annotations

import re
from typing import Final

from project.demo.rules import values
from project.demo.rules.arguments import (
    fill,
    is_about_everything,
    kind_of,
    schema_type,
    without_dictation,
)
from project.demo.rules.turn import Tool, Turn
from project.demo.rules.words import CHANGING, meanings

_THRESHOLD: Final = 0.75
_NAME_WEIGHT: Final = 2.0
_FIT: Final = 0.5
_MISFIT: Final = -0.6
#: A question about what is or was, not a request to do it.
_QUESTION: Final = re.compile(
    r"^\W*(?:(?:hi|hello|hey)\W+)?(?:has|have|was|were|is|are|did|does|do|when|why|who|what|how|where"
    r"|which)\b",
    re.IGNORECASE,
)


def changes(tool: Tool) -> frozenset[str]:
    """What the tool changes in the world, by its name, else by its description; empty: it reads."""
    named = frozenset(meanings(tool.title)) & CHANGING
    if named or "search" in meanings(tool.title) or "status" in meanings(tool.title):
        return named
    return frozenset(meanings(tool.description)) & CHANGING


def wanted_tools(turn: Turn) -> list[Tool]:
    """The tools to call for this request, best first; each explains words that no other did."""
    open_words = set(meanings(without_dictation(turn.request)))
    asks = bool(_QUESTION.match(turn.request))
    wanted: list[Tool] = []
    rest = list(turn.tools)
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
        rest = [other for other in rest if changes(other)] if not changes(tool) else rest
        if not open_words:
            break
    return sorted(wanted, key=lambda tool: "email" in changes(tool))


def helper_for(turn: Turn, missing: list[str]) -> tuple[Tool, list[dict[str, object]]] | None:
    """A read that was not made yet and may bring what is missing."""
    if not missing:
        return None
    done = {result.tool for result in turn.results}
    for tool in turn.tools:
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
    kinds = {kind_of(name, tool.properties[name]) for name in tool.required}
    if "identity" in kinds:
        return _FIT if values.ids(turn.request) else _MISFIT
    searches = any(
        kind_of(name, schema) == "query" and schema_type(schema) == "string"
        for name, schema in tool.properties.items()
    )
    if not searches:
        return 0.0
    if values.names(turn.request) and not values.ids(turn.request):
        return _FIT
    calls = fill(tool, turn).calls
    has_words = any(value for call in calls for value in call.values())
    return 0.0 if has_words or is_about_everything(turn.request) else _MISFIT
