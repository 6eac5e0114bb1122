"""What a tool does, what its inputs want and what the parts of its results are, by their names."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from project.demo.rules.turn import Tool
from project.demo.rules.words import (
    CHANGING,
    meaning,
    meaning_set,
    meanings,
    plain_words,
    split_name,
    word_set,
)

_AMOUNT: Final = meaning_set("amount price sum total value money cost payment")
_IDENTITY: Final = meaning_set(
    "order id number no ref reference ticket invoice case identifier code"
)
_ADDRESS: Final = meaning_set("to recipient address receiver email addressee")
_QUERY: Final = meaning_set("query search term keyword filter name customer q phrase text needle")
_SUBJECT: Final = meaning_set("subject title headline topic")
_BODY: Final = meaning_set("body text content note words")
_REASON: Final = meaning_set("reason why comment note cause remark because")
_TASK: Final = meaning_set("task prompt instruction question job request")
#: As they are written: "message" means the same as "email" elsewhere, and here it does not.
_BODY_NAMES: Final = word_set("body message letter")
_MAIL_BODY_NAMES: Final = word_set("body message letter text content contents words note say says")
_ADDRESS_NAMES: Final = word_set("to recipient recipients address addressee receiver")
_SUBJECT_NAMES: Final = word_set("subject title headline topic")


def changes(tool: Tool) -> frozenset[str]:
    """What the tool changes in the world, by its name, else by its description; empty: it reads."""
    return _changes(tool.title, tool.description)


@lru_cache(256)
def _changes(title: str, description: str) -> frozenset[str]:
    about = frozenset(meanings(title))
    if about & CHANGING or about & {"search", "status"}:
        return about & CHANGING
    return frozenset(meanings(description)) & CHANGING


def input_kind(tool: Tool, name: str) -> str:
    """What one input of *tool* wants."""
    schema = tool.properties[name]
    if schema.get("format") == "email":
        return "address"
    if schema_type(schema) == "string" and "email" in changes(tool):
        for text in (split_name(name), schema.get("description", "")):
            if found := _part_of_mail(text):
                return found
    return kind_of(name, schema)


def _part_of_mail(text: str) -> str:
    words = {word.casefold() for word in plain_words(text)}
    for kind, names in (
        ("address", _ADDRESS_NAMES), ("subject", _SUBJECT_NAMES), ("body", _MAIL_BODY_NAMES),
    ):  # fmt: skip
        if words & names:
            return kind
    return ""


def kind_of(name: str, schema: dict[str, Any]) -> str:
    """What a property wants: decided by its name, and by its description where that is silent."""
    last = split_name(name).casefold().split()[-1:]
    if schema_type(schema) == "string" and _BODY_NAMES & set(last):
        return "body"
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


def is_money(name: str) -> bool:
    """Whether a part of a result is an amount of money, by its name."""
    return bool({meaning(word) for word in plain_words(split_name(name))} & _AMOUNT)


def is_state(name: str) -> bool:
    return bool({"status"} & {meaning(word) for word in plain_words(split_name(name))})


def is_identity(name: str, value: Any) -> bool:
    """Whether a part of a result says which thing it is about."""
    if isinstance(value, bool) or not re.fullmatch(r"#?\d+", str(value)):
        return False
    return bool({meaning(word) for word in plain_words(split_name(name))} & _IDENTITY)


def schema_type(schema: dict[str, Any]) -> str:
    """The type of a value, null aside; "string" when the schema does not say."""
    for branch in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        found = branch.get("type")
        for name in found if isinstance(found, list) else [found]:
            if isinstance(name, str) and name != "null":
                return name
    return "string"
