"""What counts as something that a model said: only that is passed on to a client."""

from __future__ import annotations

import json
from typing import Any

import orjson


def read_completion(data: bytes) -> dict[str, Any] | None:
    """*data* as a chat completion, or one chunk of one; None for anything else.

    A completion has a list of choices, each an object, and reports no error: not of its own, not
    of a choice, and not by its kind.
    """
    document = _parsed(data)
    if not isinstance(document, dict) or document.get("error") or document.get("object") == "error":
        return None
    choices = document.get("choices")
    if not isinstance(choices, list):
        return None
    if any(not isinstance(choice, dict) or choice.get("error") for choice in choices):
        return None
    return document


def _parsed(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    # Some servers write NaN, half of a surrogate pair or half of a character, and clients cope.
    try:
        return json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
