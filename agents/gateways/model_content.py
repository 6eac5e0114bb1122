"""The parts of a message: what is not text travels inside the request, never as an address.

A provider that is handed an address fetches it from its own network, for whoever asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.errors import Invalid


def check_contents(messages: list[dict[str, Any]]) -> None:
    """Raise Invalid for a content that is neither text nor a list of parts that may pass."""
    for message in messages:
        content = message.get("content")
        if content is None or isinstance(content, str):
            continue
        if not isinstance(content, list) or not all(_may_pass(part) for part in content):
            raise Invalid(
                "A content is text, or parts: text, refusal, image_url and file as data: URLs, "
                "and input_audio. Addresses and stored files are not passed on.",
                field="messages",
            )


def _may_pass(part: Any) -> bool:
    """Whether *part* is of a known kind and has that kind's members only."""
    if not isinstance(part, dict) or not isinstance(kind := part.get("type"), str):
        return False
    check = _KINDS.get(kind)
    return check is not None and part.keys() == {"type", kind} and check(part[kind])


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_data_url(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("data:")


def _is_image(value: Any) -> bool:
    return _is_object(value, {"url", "detail"}) and _is_data_url(value.get("url"))


def _is_file(value: Any) -> bool:
    return _is_object(value, {"file_data", "filename"}) and _is_data_url(value.get("file_data"))


def _is_audio(value: Any) -> bool:
    if not _is_object(value, {"data", "format"}):
        return False
    data = value.get("data")
    # No address is without a colon, and no base64 has one.
    return isinstance(data, str) and (":" not in data or _is_data_url(data))


def _is_object(value: Any, members: set[str]) -> bool:
    return isinstance(value, dict) and value.keys() <= members


_KINDS: dict[str, Callable[[Any], bool]] = {
    "text": _is_text,
    "refusal": _is_text,
    "image_url": _is_image,
    "file": _is_file,
    "input_audio": _is_audio,
}
