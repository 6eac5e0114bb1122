"""The one API for machines: ``/api/v1`` for people's own programs, ``/apps/v1`` for chats.

Both are routers of one ``NinjaAPI``, so that authentication, parsing, errors and the OpenAPI
document follow one set of rules. An operation that says nothing about its caller takes none but
those of :data:`agents.api.auth.AUTHENTICATORS`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser

from agents.api import agents, connectors, identity, resources
from agents.api.auth import AUTHENTICATORS
from agents.errors import DomainError, TooLarge, UnsupportedMediaType
from agents.gateways.body import parse_json
from agents.problems import CONTENT_TYPE
from agents.selectors.identity import actor_of
from chat import api as chat
from definitions import api as definitions
from project.errors import DOCUMENTATION_PATH, answer_exception

VERSION = "1"
PROBLEM = {
    "title": "Problem",
    "description": "A refusal (RFC 9457). `code` is stable; the texts are for people.",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
    },
}


class StrictParser(Parser):
    """JSON and nothing else: other media types, encodings and oversized bodies are refused."""

    def parse_body(self, request: HttpRequest) -> Any:
        if request.content_type != "application/json":
            raise UnsupportedMediaType
        if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
            raise UnsupportedMediaType("Compressed bodies are not accepted.")
        # Django measures the announced length only; a chunked body announces none.
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if len(request.body) > limit:
            raise TooLarge(limit=limit)
        return parse_json(request.body)


class MandateAPI(NinjaAPI):
    """Says in the OpenAPI document that every operation may answer with a problem."""

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        document = super().get_openapi_schema(path_prefix=path_prefix, path_params=path_params)
        document.setdefault("components", {}).setdefault("schemas", {})["Problem"] = PROBLEM
        answer = {
            "description": "Refused",
            "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"]["default"] = answer
        return document


def for_signed_in(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Show the documentation to people with a session; browsers without one are led to sign in."""

    @never_cache
    @wraps(view, updated=())
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            actor_of(request.user)
        except DomainError as error:
            is_page = request.path_info == DOCUMENTATION_PATH
            if is_page and "text/html" in request.headers.get("Accept", ""):
                return redirect_to_login(request.get_full_path())
            return answer_exception(request, error)
        return ensure_csrf_cookie(view)(request, *args, **kwargs)

    return guarded


def answer(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
    """The library's handlers may be given a class; ours never are."""
    return answer_exception(request, error if isinstance(error, Exception) else error())


api = MandateAPI(
    title="Mandate",
    version=VERSION,
    description="Mission control for an organisation's AI agents.",
    urls_namespace="api",
    openapi_url="/api/openapi.json",
    docs_url=DOCUMENTATION_PATH,
    docs_decorator=for_signed_in,
    auth=AUTHENTICATORS,
    parser=StrictParser(),
)
for kind in (DomainError, ValidationError, HttpError, Exception):
    api.add_exception_handler(kind, answer)
for router in (
    identity.router,
    resources.router,
    connectors.router,
    definitions.router,
    agents.router,
):
    api.add_router("/api/v1", router)
api.add_router("/apps/v1", chat.router)
