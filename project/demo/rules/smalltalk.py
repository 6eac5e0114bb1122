"""Messages that ask for no tool: greetings, thanks, who are you, never mind, counting."""

from __future__ import annotations

import re
from typing import Final

from project.demo.rules import values
from project.demo.rules.turn import Turn
from project.demo.rules.words import plain_words, word_set

_GREETING: Final = re.compile(
    r"^\W*(?:hi+|hello|hey+|hiya|howdy|good (?:morning|day|afternoon|evening)|hallo|moin|servus"
    r"|guten (?:tag|morgen|abend))\b",
    re.IGNORECASE,
)
_WHO: Final = re.compile(
    r"\b(?:who|what)(?: exactly)? are you\b"
    r"|\bare you (?:an? |the |really )*(?:bot|robot|ai|human|real|person|machine|demo|model|llm"
    r"|chatbot|chat ?gpt|gpt|claude|gemini|llama|mistral)\b"
    r"|\b(?:what|which) (?:\w+ )?(?:model|ai|llm) (?:are|is|do) (?:you|this)\b|\bwho am i talking to\b"
    r"|\bwhat (?:can|do|could) you (?:do|help)\b|\bhow can you help\b|\bhow (?:does|do) (?:this|you) work\b"
    r"|^\W*(?:help|hilfe|start|menu|\?+)\W*$|\bhelp me\b|\byour (?:instructions|rules|system prompt|name)\b"
    r"|\b(?:wer|was) bist du\b|\bwas kannst du\b|\bwhat is this\b",
    re.IGNORECASE,
)
_HOW_ARE_YOU: Final = re.compile(
    r"\bhow (?:are|r) (?:you|u)\b|\bhow(?:'s| is) it going\b|\bwie geht(?:'s| es)\b", re.IGNORECASE
)
_THANKS: Final = re.compile(
    r"^\W*(?:(?:ok|okay|great|perfect|cool|nice)\W+)?(?:many )?(?:thanks|thank you|thank u|thx|ty"
    r"|cheers|great|perfect|awesome|well done|danke|vielen dank|merci)\b",
    re.IGNORECASE,
)
_BYE: Final = re.compile(
    r"^\W*(?:bye+|goodbye|good night|see you|see ya|that(?:'s| is) all|tschüss|ciao)\b",
    re.IGNORECASE,
)
_FINE: Final = re.compile(
    r"^\W*(?:ok|okay|k|yes|yep|sure|fine|cool|alright|all right|got it|i see|ja|gut)\W*$",
    re.IGNORECASE,
)
_NEVER_MIND: Final = re.compile(
    r"^\W*(?:(?:ok|oh|no|actually|sorry)\W+)*(?:never ?mind|forget (?:it|that|about it)"
    r"|cancel(?: (?:that|it|this))?|stop(?: it| that)?|no|nope|no,? thanks?(?: you)?|nothing"
    r"|leave it|don't|do not|nein|abbrechen|vergiss es)\W*$",
    re.IGNORECASE,
)
_COUNT: Final = re.compile(r"\bcount (?:from \d+ )?(?:up )?to (\d{1,3})\b", re.IGNORECASE)
_ECHO: Final = re.compile(r"^\W*(?:please )?(?:say|repeat|echo)\b", re.IGNORECASE)
_GERMAN: Final = word_set(
    "ist und ich bitte danke hallo wo wer wie bist kannst möchte für bestellung bestellungen zeige"
    " erstatte guten tag nicht das mein meine alle schreibe sende"
)
_FEW_WORDS: Final = 6


def kind(message: str) -> str:
    """What small talk a message is, or nothing; the longer forms win over the shorter."""
    if _WHO.search(message):
        return "who"
    if _HOW_ARE_YOU.search(message):
        return "how are you"
    for name, pattern in (
        ("never mind", _NEVER_MIND), ("fine", _FINE), ("thanks", _THANKS), ("bye", _BYE),
        ("greeting", _GREETING),
    ):  # fmt: skip
        if pattern.search(message) and len(plain_words(message)) <= _FEW_WORDS + 4:
            is_long = name == "greeting" and len(plain_words(message)) > _FEW_WORDS
            return "" if is_long else name
    return ""


def interrupts(turn: Turn) -> bool:
    """Whether the reply to our question leaves it unanswered on purpose."""
    return kind(turn.message) not in {"", "fine"}


def asks_to_count(message: str) -> bool:
    """Whether the message begins by asking for numbers, which then name nothing for a tool."""
    return bool(_COUNT.match(message.strip()))


def dictated(message: str) -> str:
    """What the message only wants to hear back: numbers counted up, or a quotation."""
    if count := _COUNT.search(message):
        return ", ".join(str(n) for n in range(1, int(count.group(1)) + 1)) + "."
    if _ECHO.search(message) and (quotes := values.quoted(message)):
        return quotes[0]
    return ""


def is_german(message: str) -> bool:
    return any(word.casefold() in _GERMAN for word in plain_words(message))
