"""Results in the words and tables of an answer: money, dates, one thing, many things."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any, Final

from project.demo.rules.kinds import is_identity, is_money, is_state
from project.demo.rules.words import meanings, split_name

#: Rows and columns of a table, characters of a cell, and further facts of a short sentence.
ROWS: Final = 12
COLUMNS: Final = 6
CELL: Final = 60
FACTS: Final = 4
_TEXT: Final = 300
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}")
#: Words of a question, and a sign of the part of a result that answers it.
_WHO: Final = re.compile(r"\b(?:who|whose|wer|wem)\b", re.IGNORECASE)
_WHEN: Final = re.compile(r"\b(?:when|what day|date|wann)\b", re.IGNORECASE)
_HOW_MUCH: Final = re.compile(
    r"\b(?:how much|cost|costs|price|paid|pay|worth|wie ?viel|kostet)\b", re.IGNORECASE
)

Item = dict[str, Any]


def sentence(item: Item, *, question: str = "", brief: bool = True) -> str:
    """One thing in a sentence; what *question* asks about comes first.

    A brief one leaves out addresses, zeros and what is beyond the first few facts.
    """
    subject, used = _subject(item)
    state = next((k for k, v in item.items() if is_state(k) and isinstance(v, str) and v), "")
    if state:
        used.add(state)
    asked = [key for key in item if key not in used and _answers(key, item[key], question)]
    others = [
        key
        for key, value in item.items()
        if key not in used and key not in asked and not _is_left_out(key, value, brief=brief)
    ]
    if brief:
        others = others[:FACTS]
    facts = ", ".join(_fact(key, item) for key in [*asked, *others])
    if not subject:
        parts = [f"state {item[state]}"] if state else []
        said = ", ".join([*parts, facts] if facts else parts)
        return f"{said[:1].upper()}{said[1:].rstrip('.')}." if said else "It says nothing more."
    head = f"{subject} is {item[state]}" if state else subject
    return f"{head}: {facts.rstrip('.')}." if facts else f"{head}."


def listing(
    items: list[Any], *, question: str = "", searched: str = "", lead: str = "", brief: bool = True
) -> str:
    """Many things as a table with *lead* before it, one as a sentence, none as a refusal."""
    if not items:
        return f"I found nothing for “{searched}”." if searched else "I found nothing that fits."
    things = [item for item in items if isinstance(item, dict)]
    if len(things) < len(items):
        lines = [f"- {_clipped(str(item), CELL)}" for item in items[:ROWS]]
        return f"I found {len(items)}.\n\n" + "\n".join(lines) + _more(len(items))
    noun = _noun(things[0])
    if len(things) == 1:
        one = sentence(things[0], question=question, brief=brief)
        return f"I found one {noun}. {one}"
    lead = lead or f"I found {len(things)} {noun}s."
    return f"{lead}\n\n{_table(things, question)}{_more(len(things))}"


def _more(count: int) -> str:
    return f"\n\n… and {count - ROWS} more." if count > ROWS else ""


def _table(things: list[Item], question: str) -> str:
    keys = list(dict.fromkeys(key for thing in things for key in thing))
    columns = [key for key in keys if any(not _is_left_out(key, t.get(key)) for t in things)]
    asked = [k for k in keys if any(k in t and _answers(k, t[k], question) for t in things)]
    asked = [key for key in asked if key not in columns[:COLUMNS] and key != "currency"]
    # What was asked for has its column, at the cost of the last ones.
    kept = {*asked[:COLUMNS], *columns[: max(COLUMNS - len(asked), 0)]}
    columns = [key for key in keys if key in kept]
    lines = [
        "| " + " | ".join(_label(key).capitalize() for key in columns) + " |",
        "|" + " --- |" * len(columns),
    ]
    lines += [
        "| " + " | ".join(_cell(key, thing) for key in columns) + " |" for thing in things[:ROWS]
    ]
    return "\n".join(lines)


def _cell(key: str, item: Item) -> str:
    return _clipped(shown(key, item.get(key), item), CELL).replace("|", "\\|") or "-"


def shown(key: str, value: Any, item: Item) -> str:
    """One value as a person writes it; *item* may name the currency."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) or (isinstance(value, int) and is_money(key)):
        currency = item.get("currency")
        return f"{value:,.2f} {currency}" if isinstance(currency, str) else f"{value:,.2f}"
    if isinstance(value, list):
        return ", ".join(shown(key, part, item) for part in value[:ROWS])
    if isinstance(value, dict):
        return ", ".join(_fact(k, value) for k in value)
    return _moment(str(value))


def _moment(text: str) -> str:
    """A date or a moment of ISO 8601 as a person writes it; any other text as it is."""
    try:
        if _DATE.fullmatch(text):
            day = date.fromisoformat(text)
            return f"{day.day} {day:%b %Y}"
        if _MOMENT.match(text):
            moment = datetime.fromisoformat(text)
            return f"{moment.day} {moment:%b %Y, %H:%M %Z}".strip()
    except ValueError:
        return text
    return text


def _fact(key: str, item: Item) -> str:
    value = _clipped(shown(key, item[key], item), _TEXT) or "nothing"
    return f"{_label(key)} {value}"


def _label(key: str) -> str:
    return split_name(key).lower() or key


def _subject(item: Item) -> tuple[str, set[str]]:
    """Which thing it is, and the part that says so.

    Where a thing has a state, its first whole number is taken for its number: "parcel 7".
    """
    has_state = any(map(is_state, item))
    for key, value in item.items():
        is_number = isinstance(value, int) and not isinstance(value, bool) and value > 0
        if is_identity(key, value) or (has_state and is_number and not is_money(key)):
            noun = _own_words(key)
            return f"{noun.capitalize() or 'Number'} {value}", {key}
    return "", set()


def _noun(item: Item) -> str:
    """What one thing is called, by the name of its number."""
    keys = (key for key, value in item.items() if is_identity(key, value))
    return next((_own_words(key) for key in keys if _own_words(key)), "result")


def _own_words(key: str) -> str:
    """``order_id`` -> ``order``."""
    return " ".join(w for w in _label(key).split() if w not in {"id", "number", "no", "ref"})


def _is_left_out(key: str, value: Any, *, brief: bool = True) -> bool:
    if value is None or value in ("", []) or key == "currency":
        return True
    if not brief:
        return False
    is_zero = isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0
    return is_zero or isinstance(value, dict) or (isinstance(value, str) and "@" in value)


def _answers(key: str, value: Any, question: str) -> bool:
    """Whether a part of a result is what the question asks for."""
    if not question or key == "currency":
        return False
    text = str(value)
    if _WHEN.search(question) and (_DATE.fullmatch(text) or _MOMENT.match(text)):
        return True
    if _HOW_MUCH.search(question) and is_money(key):
        return True
    about = set(meanings(_label(key)))
    if _WHO.search(question) and about & {"customer", "nam"}:
        return True
    if is_identity(key, value):
        return False
    return bool(about & (set(meanings(question)) - {"order"}))


def _clipped(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
