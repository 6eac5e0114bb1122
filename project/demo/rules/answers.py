"""The words of an answer: about results, refusals, what is missing, and the model itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from project.demo.rules import smalltalk
from project.demo.rules.arguments import Filled, is_negated
from project.demo.rules.dictation import ASKS_FOR_TEXT
from project.demo.rules.kinds import changes, input_kind
from project.demo.rules.rendering import listing, sentence
from project.demo.rules.turn import QUESTIONS, Result, Tool, Turn
from project.demo.rules.voice import persona
from project.demo.rules.words import sentences, split_name

I_AM: Final = "I am Mandate's demo model: I answer by fixed rules, not by thinking."
_DENIED: Final = re.compile(
    r"\b(?:denied|declined|disapproved|not approved|rejected)\b|\brefused by\b", re.IGNORECASE
)
_CANCELLED: Final = re.compile(
    r"\b(?:cancell?ed by|was cancell?ed|call cancell?ed)\b|^cancell?ed\b|\bnot carried out\b",
    re.IGNORECASE,
)
_UNKNOWN: Final = re.compile(
    r"\boutcome\b[^.]*\bunknown\b|\buncertain\b|\bmay have happened\b", re.IGNORECASE
)
_FAILED: Final = re.compile(
    r"^(?:error|the tool call failed)|\bfailed\b|\bcannot\b|\bcan still be\b|\bthere is no\b|\bnot found\b"
    r"|\balready\b|\bunavailable\b|\binvalid\b|\bmust be\b|\bnot allowed\b|\bvalidation error"
    r"|\bended before\b",
    re.IGNORECASE,
)
_PREAMBLE: Final = re.compile(r"^error executing tool \S+:\s*", re.IGNORECASE)
_DENIED_BY: Final = re.compile(r"^denied by the user[:.]\s*", re.IGNORECASE)
_NONE_SUCH: Final = re.compile(r"^there is no\b|\bnot found\b", re.IGNORECASE)
_ALL_INSTEAD: Final = "I can only search for what is so, not for what is not; here is all there is."
_OUTCOMES: Final = (
    ("unknown", _UNKNOWN), ("denied", _DENIED), ("cancelled", _CANCELLED), ("failed", _FAILED),
)  # fmt: skip


def outcome(result: Result) -> str:
    """``denied``, ``cancelled``, ``unknown``, ``failed`` or ``done``, from the text alone."""
    if result.value is not None:
        return "done"
    return next((name for name, pattern in _OUTCOMES if pattern.search(result.text)), "done")


def report(results: Sequence[Result], turn: Turn, *, brief: bool) -> str:
    """What became of the calls, as the results tell it and nothing more."""
    told: list[str] = []
    shown: list[Any] = []
    for result in results:
        # A read after a change tells the same thing again.
        if result.value is None or result.value not in shown:
            tool = turn.tool(result.tool)
            told.append(_told(result, tool, turn.request, brief=brief))
        shown.append(result.value)
    return "\n\n".join(told)


def _told(result: Result, tool: Tool | None, question: str, *, brief: bool) -> str:
    title = tool.title if tool else split_name(result.tool).lower()
    text = _PREAMBLE.sub("", result.text.strip())
    match outcome(result):
        case "denied":
            why = _DENIED_BY.sub("", text)
            return f"You did not allow “{title}”, so I did nothing." + (
                f" Your reason: {why}" if why else ""
            )
        case "cancelled":
            return f"“{title}” was {_why_not(text)}"
        case "unknown":
            return f"I do not know whether “{title}” went through. Check before you ask again."
        case "failed" if tool and not changes(tool) and _NONE_SUCH.search(text):
            return text
        case "failed":
            return f"“{title}” did not work: {text}"
    lead = f"Done: {title}." if tool and changes(tool) else ""
    value = result.value
    if isinstance(value, dict) and tool and not lead and not tool.required:
        value = [value]
    if isinstance(value, list):
        searched = " ".join(v for v in result.arguments.values() if isinstance(v, str))
        instead = _ALL_INSTEAD if is_negated(question) and not searched else ""
        said = listing(value, question=question, searched=searched, lead=instead, brief=brief)
    elif isinstance(value, dict):
        is_mail = tool is not None and "email" in changes(tool)
        said = _sent(tool, result) if tool and is_mail else ""
        said = said or sentence(value, question=question, brief=brief)
    else:
        said = text
    return f"{lead} {said}".strip() or "It worked, and there is nothing to show."


def _why_not(text: str) -> str:
    told = re.search(r"\bnot carried out\b.*", text, re.IGNORECASE | re.DOTALL)
    return told.group() if told else "cancelled, so I did nothing."


def _sent(tool: Tool, result: Result) -> str:
    """What went to whom, where the call says so."""
    named = [name for name in result.arguments if name in tool.properties]
    given = {input_kind(tool, name): result.arguments[name] for name in named}
    if not given.get("address") or not given.get("body"):
        return ""
    subject = f", subject “{given['subject']}”" if given.get("subject") else ""
    return f"It is addressed to {given['address']}{subject}:\n\n> " + "\n> ".join(
        str(given["body"]).splitlines()
    )


def ask(tool: Tool, filled: Filled) -> str:
    """A question for what is missing, in the schema's words."""
    if filled.choice:
        name, options = filled.choice
        listed = ", ".join(f"{o:g}" if isinstance(o, float) else str(o) for o in options[:10])
        return f"{QUESTIONS[1]} for “{tool.title}”? I see {listed} as the {split_name(name)}."
    wanted = [_wanted(name, tool) for name in filled.missing]
    listed = " and ".join([", ".join(wanted[:-1]), wanted[-1]] if len(wanted) > 1 else wanted)
    return f"For “{tool.title}” {QUESTIONS[0]} {listed}."


def _wanted(name: str, tool: Tool) -> str:
    label = split_name(name).lower()
    match input_kind(tool, name):
        case "identity":
            rest = [w for w in label.split() if w not in {"id", "number", "no"}]
            return " ".join(["the", *rest, "number"])
        case "address":
            return "the recipient's email address"
        case "body":
            return ASKS_FOR_TEXT
        case "amount":
            return f"the {label} as a figure, such as 12.50"
        case _:
            return f"the {label}"


def forbidden(tool: Tool, sentence: str) -> str:
    return f"I may not do “{tool.title}”, because my instructions say: “{sentence}”"


def small_talk(kind: str, turn: Turn) -> str:
    """The answer to a greeting, a goodbye and the like."""
    match kind:
        case "greeting":
            return f"Hello! {introduce(turn)}{_language(turn)}"
        case "how are you":
            return f"Always the same, thank you. {introduce(turn)}"
        case "never mind":
            return "All right, I leave it."
        case "fine":
            return "All right. Tell me what to do next."
        case "bye":
            return "Goodbye!"
        case _:
            return f"{introduce(turn)}{_language(turn)}"


def introduce(turn: Turn) -> str:
    """Who answers here, as whom, and with what."""
    role = persona(turn.instructions)
    as_whom = f" My instructions say that I am {role}." if role else ""
    return f"{I_AM}{as_whom}{_abilities(turn)}"


def at_a_loss(turn: Turn) -> str:
    """No rule fits: say so, and what would."""
    said = " ".join(turn.message.split())
    said = f"{said[:120]}…" if len(said) > 120 else said
    return f"I have no rule for “{said}”. {I_AM}{_language(turn)}{_abilities(turn)}"


def unsupported(change: str, fact: str, turn: Turn) -> str:
    """The person asks for a change that no tool makes; *fact* is what the instructions add."""
    added = f" My instructions say: “{fact}”" if fact else ""
    return f"I have no tool to {change} anything here.{added}{_abilities(turn)}"


def _language(turn: Turn) -> str:
    if smalltalk.is_german(turn.message):
        return " I know a few words of German, but I answer in English."
    return ""


def _abilities(turn: Turn) -> str:
    """The tools in their own first sentences."""
    if not turn.tools:
        return " I was offered no tools, so I can only talk."
    lines = [
        f"- **{tool.title}**: {next(iter(sentences(tool.description)), 'no description')}"
        for tool in turn.tools
    ]
    return "\n\nI can use:\n\n" + "\n".join(lines)
