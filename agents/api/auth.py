"""Who a request to ``/api/v1`` comes from. Further kinds of credential are added here.

The API tries the members of ``AUTHENTICATORS`` in order; the first that returns an actor wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from ninja.security import APIKeyCookie
from ninja.utils import check_csrf

from agents.errors import CsrfFailed
from agents.policy import Actor
from agents.selectors.identity import actor_of


class ActorRequest(HttpRequest):
    """A request after authentication, as operations see it."""

    auth: Actor


class SessionAuth(APIKeyCookie):
    """A browser's session. Whoever is signed in must also show the CSRF token when it writes."""

    param_name = settings.SESSION_COOKIE_NAME

    def __call__(self, request: HttpRequest) -> Actor:
        """The actor of live rows. Raises Unauthenticated before anything is said of CSRF."""
        actor = actor_of(request.user)
        if check_csrf(request) is not None:
            raise CsrfFailed
        return actor

    def authenticate(self, request: HttpRequest, key: str | None) -> Any:
        """Unused: the session middleware has read the cookie already."""
        raise NotImplementedError


AUTHENTICATORS: list[Callable[[HttpRequest], Actor]] = [SessionAuth()]
