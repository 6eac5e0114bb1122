"""The one writer of RFC 9457 problem documents, for every surface of the product."""

from __future__ import annotations

import json
from typing import Any

from agents.errors import DomainError, MethodNotAllowed, Overloaded

CONTENT_TYPE = "application/problem+json"


def problem_document(error: DomainError, request_id: str = "") -> dict[str, Any]:
    """The members of one problem: ``type`` is ``about:blank`` because ``code`` identifies it."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": error.title,
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        **error.extra,
    }
    if request_id:
        body["request_id"] = request_id
    return body


def problem_headers(error: DomainError) -> dict[str, str]:
    headers = {"content-type": CONTENT_TYPE, "cache-control": "no-store"}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if isinstance(error, Overloaded):
        headers["retry-after"] = str(error.retry_after)
    if isinstance(error, MethodNotAllowed) and "allow" in error.extra:
        headers["allow"] = error.extra["allow"]
    return headers


def problem_response(error: DomainError, request_id: str = "") -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body, ready for a raw ASGI ``send`` or a Django response."""
    body = json.dumps(problem_document(error, request_id)).encode()
    return error.status, problem_headers(error), body
