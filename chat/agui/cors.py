"""Which front ends of other origins may call: those that the operator lists, spelled exactly.

Nothing is ever allowed with cookies: the surface takes bearer tokens only.
"""

from __future__ import annotations

from django.conf import settings

ALLOWED_METHODS = "GET, POST, PATCH, DELETE"
ALLOWED_HEADERS = "authorization, content-type, accept"
EXPOSED_HEADERS = "retry-after, x-request-id"
MAX_AGE = "600"


def allowed(origin: str | None) -> bool:
    return origin is not None and origin in settings.CHAT_ORIGINS


def response_headers(origin: str | None) -> dict[str, str]:
    """Headers of an answer to *origin*. ``Vary`` keeps caches from mixing origins up."""
    headers = {"vary": "Origin"}
    if origin is not None and allowed(origin):
        headers["access-control-allow-origin"] = origin
        headers["access-control-expose-headers"] = EXPOSED_HEADERS
    return headers


def preflight_headers(origin: str | None) -> dict[str, str]:
    headers = response_headers(origin)
    if allowed(origin):
        headers["access-control-allow-methods"] = ALLOWED_METHODS
        headers["access-control-allow-headers"] = ALLOWED_HEADERS
        headers["access-control-max-age"] = MAX_AGE
    return headers
