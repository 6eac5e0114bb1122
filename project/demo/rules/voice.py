"""How the instructions shape an answer: what they allow, how they sound, what they say."""

from __future__ import annotations

import re
from typing import Final

from project.demo.rules.kinds import changes
from project.demo.rules.turn import Tool
from project.demo.rules.words import meanings, sentences

_QUOTE: Final = "[\"'\u201c\u2018\u00ab]([^\"'\u201d\u2019\u00bb]+)[\"'\u201d\u2019\u00bb]"
_TAIL: Final = r"([^.\n]+)"
_ANSWER: Final = (
    r"(?:\s+(?:every|each|your|all|the|any))*(?:\s+(?:answer|repl|response|message)\w*)?"
)
_START: Final = re.compile(
    rf"\b(?:start|begin|open)(?:s|ing)?{_ANSWER}\s+(?:with|by saying)\s+(?:the words?\s+)?(?:{_QUOTE}|{_TAIL})",
    re.IGNORECASE,
)
_END: Final = re.compile(
    rf"\b(?:end|finish|close|conclude)(?:s|ing)?{_ANSWER}\s+(?:with|by saying)\s+(?:the words?\s+)?(?:{_QUOTE}|{_TAIL})",
    re.IGNORECASE,
)
_SIGN: Final = re.compile(
    rf"\bsign(?:ed)?(?:\s+off)?{_ANSWER}\s+(?:as|with|by)\s+(?:{_QUOTE}|{_TAIL})", re.IGNORECASE
)
_MENTION: Final = re.compile(
    rf"\b(?:mention|say|include|add|remind)\b[^.\n\"“]*{_QUOTE}", re.IGNORECASE
)
_SHORT: Final = re.compile(r"\b(?:one|a single|1) (?:short )?sentence\b", re.IGNORECASE)
_BRIEF: Final = re.compile(r"\b(?:brief|short|concise|terse)\b", re.IGNORECASE)
_SHOUT: Final = re.compile(r"\b(?:all caps|upper ?case|capital letters)\b", re.IGNORECASE)
_PERSONA: Final = re.compile(r"\byou are\s+([^.\n]+)", re.IGNORECASE)
_FORBIDS: Final = re.compile(
    r"\b(?:never|do not|don't|must not|may not|not allowed)\b", re.IGNORECASE
)
_CONDITION: Final = re.compile(
    r"\b(?:unless|only|without|until|before|if|when|except)\b", re.IGNORECASE
)
_LIMIT: Final = re.compile(
    r"\b(?:more than|over|above|beyond)\D{0,12}(\d+(?:[.,]\d+)?)", re.IGNORECASE
)
_TONES: Final = (
    (r"\bpirate", "Arr! ", ""),
    (r"\bformal", "Dear customer, ", ""),
    (r"\b(?:friendly|cheerful|warm)", "", "\n\nIs there anything else I can do?"),
    (r"\bpolite", "Thank you for asking. ", ""),
    (r"\bapologi[sz]e", "I am sorry for the trouble. ", ""),
)


def persona(instructions: str) -> str:
    """What the instructions say that the agent is, or nothing."""
    found = _PERSONA.search(instructions)
    return found.group(1).strip() if found else ""


def is_brief(instructions: str) -> bool:
    return bool(_BRIEF.search(instructions) or _SHORT.search(instructions))


def forbids(instructions: str, tool: Tool, arguments: dict[str, object]) -> str:
    """The sentence of the instructions that rules this call out, or nothing.

    A call that names no amount may be of any amount, so an upper bound rules it out too.
    """
    for sentence in sentences(instructions):
        if not _FORBIDS.search(sentence) or not changes(tool) & set(meanings(sentence)):
            continue
        limit = _LIMIT.search(sentence)
        if limit:
            bound = float(limit.group(1).replace(",", "."))
            given = [v for v in arguments.values() if isinstance(v, float)]
            if not given or max(given) > bound:
                return sentence
        elif not _CONDITION.search(sentence):
            return sentence
    return ""


def knowledge(instructions: str, question: str, told_elsewhere: set[str]) -> str:
    """The sentence of the instructions that shares most with the question, or nothing.

    Who the agent is is no knowledge, and words in *told_elsewhere* alone do not make a sentence
    fit: a rule about orders says nothing about one order.
    """
    wanted = set(meanings(question))
    told = [s for s in sentences(instructions) if not _PERSONA.match(s)]
    best = max(
        ((len(wanted & set(meanings(s))), -i, s) for i, s in enumerate(told)),
        default=(0, 0, ""),
    )
    needed = 1 if len(wanted) <= 2 else 2
    fits = best[0] >= needed and (wanted & set(meanings(best[2]))) - told_elsewhere
    return best[2] if fits else ""


def spoken(text: str, instructions: str, *, is_question: bool = False) -> str:
    """The answer as the instructions want it to sound. A question stays the last thing said."""
    if _SHORT.search(instructions):
        text = re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0]
    for pattern, before, after in _TONES:
        if re.search(pattern, instructions, re.IGNORECASE):
            text = f"{before}{text}{'' if is_question else after}"
    if mention := _MENTION.search(instructions):
        text = _joined(text, mention.group(1))
    if start := _START.search(instructions):
        text = f"{_given(start)} {text}"
    if end := _END.search(instructions):
        text = _joined(text, _given(end))
    if sign := _SIGN.search(instructions):
        text = f"{text}\n\n— {_given(sign)}"
    return text.upper() if _SHOUT.search(instructions) else text


def _given(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group).strip()


def _joined(text: str, sentence: str) -> str:
    if sentence in text:
        return text
    return f"{text}\n\n{sentence}" if "\n" in text else f"{text} {sentence}"
