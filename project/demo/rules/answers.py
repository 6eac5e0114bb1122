"""The words of an answer: about results, refusals, what is missing, and the model itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from project.demo.rules.arguments import Filled, kind_of
from project.demo.rules.choice import changes
from project.demo.rules.turn import QUESTIONS, Result, Tool, Turn
from project.demo.rules.voice import persona
from project.demo.rules.words import split_name

I_AM: Final = "I am Mandate's demo model: I answer by fixed rules, not by thinking."
_ROWS: Final = 12
_DENIED: Final = re.compile(
    r"\b(?:denied|declined|disapproved|not approved|rejected)\b|\brefused by\b", re.IGNORECASE
)
_CANCELLED: Final = re.compile(
    r"\b(?:cancell?ed by|was cancell?ed|call cancell?ed)\b|^cancell?ed\b", re.IGNORECASE
)
_UNKNOWN: Final = re.compile(r"\boutcome (?:is )?unknown\b|\buncertain\b", re.IGNORECASE)
_FAILED: Final = re.compile(
    r"^(?:error|the tool call failed)|\bfailed\b|\bcannot\b|\bcan still be\b|\bthere is no\b|\bnot found\b"
    r"|\balready\b|\bunavailable\b|\binvalid\b|\bmust be\b|\bnot allowed\b|\bvalidation error",
    re.IGNORECASE,
)


def outcome(result: Result) -> str:
    """``denied``, ``cancelled``, ``unknown``, ``failed`` or ``done``, from the text alone."""
    if result.value is not None:
        return "done"
    for name, pattern in (
        ("unknown", _UNKNOWN), ("denied", _DENIED), ("cancelled", _CANCELLED), ("failed", _FAILED),
    ):  # fmt: skip
        if pattern.search(result.text):
            return name
    return "done"


def report(results: Sequence[Result], turn: Turn, *, brief: bool) -> str:
    """What became of the calls, as the results tell it and nothing more."""
    return "\n\n".join(_told(result, turn.tool(result.tool), brief=brief) for result in results)


def _told(result: Result, tool: Tool | None, *, brief: bool) -> str:
    title = tool.title if tool else split_name(result.tool).lower()
    text = result.text.strip()
    match outcome(result):
        case "denied":
            return f"You did not allow “{title}”, so I did nothing. The answer was: {text}"
        case "cancelled":
            return f"“{title}” was cancelled, so I did nothing."
        case "unknown":
            return f"I do not know whether “{title}” went through. Check before you ask again."
        case "failed":
            return f"“{title}” did not work: {text}"
    lead = f"Done: {title}." if tool and changes(tool) else ""
    value = result.value
    if isinstance(value, list):
        return f"{lead} {_rows(value)}".strip()
    if isinstance(value, dict):
        return f"{lead} {_facts(value, brief=brief)}".strip()
    return f"{lead} {text}".strip() or "It worked, and there is nothing to show."


def _facts(value: dict[str, Any], *, brief: bool) -> str:
    shown = [(key.replace("_", " "), _shown(item)) for key, item in value.items()]
    if brief:
        listed = ", ".join(f"{key} {item}" for key, item in shown)
        return f"{listed[:1].upper()}{listed[1:].rstrip('.')}."
    return "This is what I found:\n\n" + "\n".join(f"- **{k.capitalize()}**: {v}" for k, v in shown)


def _rows(items: list[Any]) -> str:
    if not items:
        return "I found nothing that fits."
    lines = [
        "- "
        + (" · ".join(_shown(v) for v in item.values()) if isinstance(item, dict) else str(item))
        for item in items[:_ROWS]
    ]
    more = f"\n\nThere are {len(items) - _ROWS} more." if len(items) > _ROWS else ""
    return f"I found {len(items)}:\n\n" + "\n".join(lines) + more


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    return str(value) if value not in (None, "") else "nothing"


def ask(tool: Tool, filled: Filled) -> str:
    """A question for what is missing, in the schema's words."""
    if filled.choice:
        name, options = filled.choice
        listed = ", ".join(str(option) for option in options[:10])
        return f"{QUESTIONS[1]} for “{tool.title}”? I see {listed} as the {split_name(name)}."
    wanted = [_wanted(name, tool.properties[name]) for name in filled.missing]
    listed = " and ".join([", ".join(wanted[:-1]), wanted[-1]] if len(wanted) > 1 else wanted)
    return f"For “{tool.title}” {QUESTIONS[0]} {listed}."


def _wanted(name: str, schema: dict[str, Any]) -> str:
    label = split_name(name).lower()
    if kind_of(name, schema) == "identity":
        thing = " ".join(word for word in label.split() if word not in {"id", "number", "no"})
        return f"the {thing} number".replace("  ", " ")
    return {"to": "the recipient's email address", "body": "what it should say"}.get(
        label, f"the {label}"
    )


def forbidden(tool: Tool, sentence: str) -> str:
    return f"I may not do “{tool.title}”, because my instructions say: “{sentence}”"


def introduce(turn: Turn) -> str:
    """Who answers here, as whom, and with what."""
    role = persona(turn.instructions)
    parts = [I_AM]
    if role:
        parts.append(f"My instructions say that I am {role}.")
    parts.append(_abilities(turn))
    return " ".join(parts)


def at_a_loss(turn: Turn) -> str:
    """No rule fits: say so, and what would."""
    said = " ".join(turn.message.split())
    said = f"{said[:120]}…" if len(said) > 120 else said
    return f"{I_AM} I have no rule for “{said}”. {_abilities(turn)}"


def _abilities(turn: Turn) -> str:
    if not turn.tools:
        return "I was offered no tools, so I can only talk."
    return "I can use: " + ", ".join(tool.title for tool in turn.tools) + "."
