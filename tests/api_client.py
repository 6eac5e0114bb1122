"""A browser session that speaks JSON to ``/api/v1``, as tests of the API use it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.test import Client

from agents.models import User
from agents.problems import CONTENT_TYPE


class Api:
    """Signed in as one person, or as nobody; operators name their organization once."""

    def __init__(self, user: User | None = None, *, organization: str = "") -> None:
        self.client = Client(raise_request_exception=False)
        self.organization = organization
        if user is not None:
            self.client.force_login(user)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Any:
        asked = dict(query or {})
        if self.organization:
            asked.setdefault("organization", self.organization)
        address = f"/api/v1{path}" + (f"?{urlencode(asked)}" if asked else "")
        options: dict[str, Any] = {"headers": headers or {}}
        if body is not None:
            options |= {"data": body, "content_type": "application/json"}
        return getattr(self.client, method.lower())(address, **options)

    def get(self, path: str, **options: Any) -> Any:
        return self.send("get", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        return self.send("post", path, body, **options)

    def patch(self, path: str, body: Any, **options: Any) -> Any:
        return self.send("patch", path, body, **options)

    def put(self, path: str, body: Any, **options: Any) -> Any:
        return self.send("put", path, body, **options)


def problem_of(response: Any, status: int, code: str) -> dict[str, Any]:
    """Assert that *response* is the problem document with this status and code; return it."""
    assert response.status_code == status, response.content
    assert response["Content-Type"] == CONTENT_TYPE
    document: dict[str, Any] = response.json()
    assert (document["code"], document["status"]) == (code, status)
    assert document["request_id"] == response["X-Request-Id"]
    return document
