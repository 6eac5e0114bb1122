"""The Django edge of errors: whatever goes wrong becomes one problem document.

``problem_of`` is the only mapping from exceptions to refusals; django-ninja's handlers and the
middleware both end in ``problem``. Pages keep HTML; the machine surfaces never answer it.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

from django.core.exceptions import (
    BadRequest,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
    TooManyFieldsSent,
)
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.csrf import csrf_failure as html_csrf_failure
from ninja.errors import AuthenticationError, HttpError, ValidationError

from agents.errors import (
    Conflict,
    CsrfFailed,
    DomainError,
    Forbidden,
    InternalError,
    Invalid,
    MalformedBody,
    MethodNotAllowed,
    NotFound,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
    UnsupportedMediaType,
)
from agents.problems import problem_response

log = logging.getLogger("mandate.errors")

#: Everything under these answers problem+json and never a page or a redirect.
MACHINE_PREFIXES = ("/api/", "/apps/", "/gateway/")
#: The one page for people among them: it may lead to the sign-in.
DOCUMENTATION_PATH = "/api/docs"
#: Where pydantic's message holds a piece of the input; the type alone is told instead.
OWN_MESSAGES = frozenset({"value_error", "assertion_error"})
#: At most this many fields are named in one refusal.
FIELDS_LIMIT = 20


class BadRequestProblem(DomainError):
    code, status, title = "bad_request", 400, "The request cannot be understood"


BY_STATUS: dict[int, type[DomainError]] = {
    400: BadRequestProblem,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    413: TooLarge,
    415: UnsupportedMediaType,
    503: StoreUnavailable,
}


def is_machine_path(path: str) -> bool:
    """Whether *path* belongs to a surface for programs, spelled with or without its slash."""
    return f"{path}/".startswith(MACHINE_PREFIXES) and path != DOCUMENTATION_PATH


def problem(request: HttpRequest, error: DomainError) -> HttpResponse:
    """The problem document of *error* as Django's response."""
    status, headers, body = problem_response(error, getattr(request, "request_id", ""))
    return HttpResponse(body, status=status, headers=headers)


def problem_of(error: BaseException) -> DomainError | None:
    """The refusal that an exception stands for; None for what nobody foresaw."""
    match error:
        case DomainError():
            return error
        case ValidationError():
            return Invalid(errors=[_field_error(found) for found in error.errors[:FIELDS_LIMIT]])
        case AuthenticationError():
            return Unauthenticated()
        case HttpError():
            # Raised around whatever a parser raises, and by the library's own checks.
            if isinstance(error.__cause__, DomainError):
                return error.__cause__
            return BY_STATUS.get(error.status_code, MalformedBody)()
        case Http404():
            return NotFound()
        case PermissionDenied():
            return Forbidden()
        case RequestDataTooBig() | TooManyFieldsSent():
            return TooLarge()
        case SuspiciousOperation() | BadRequest():
            return BadRequestProblem()
        case DatabaseError() | InterfaceError():
            return _database_problem(error)
    return None


def _database_problem(error: Exception) -> DomainError | None:
    match error:
        case DataError():
            return Invalid("A value does not fit; shorten it.")
        case IntegrityError():
            # Two writers passed the same look; the constraint let one of them in.
            return Conflict()
        case OperationalError() | InterfaceError():
            return StoreUnavailable()
    return None


def answer_exception(request: HttpRequest, error: Exception) -> HttpResponse:
    """Answer any exception; an unforeseen one is 500 with the request's id and a log line."""
    found = problem_of(error)
    if found is None:
        log_by_type(request, error)
        found = InternalError()
    elif isinstance(error, (IntegrityError, OperationalError, InterfaceError)):
        log.warning("%s became %s %s", type(error).__name__, found.code, _where(request))
    return problem(request, found)


def log_by_type(request: HttpRequest, error: BaseException) -> None:
    """One line: type and innermost frames. An exception's text may quote content; it stays out."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    trail = " < ".join(f"{f.filename}:{f.lineno} {f.name}" for f in reversed(frames))
    log.error("%s %s at %s", type(error).__name__, _where(request), trail)


def problem_for_status(request: HttpRequest, response: HttpResponseBase) -> HttpResponse:
    """Replace a response that is no problem document by the one its status stands for."""
    kind = BY_STATUS.get(response.status_code)
    if kind is None:
        kind = InternalError if response.status_code >= 500 else BadRequestProblem
        if response.status_code < 400:  # A redirect: no route for programs has any.
            kind = NotFound
    replaced = problem(request, kind())
    if "Allow" in response:
        replaced["Allow"] = response["Allow"]
    return replaced


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponseBase:
    """Django's page for people, a problem document for programs."""
    if is_machine_path(request.path_info):
        return problem(request, CsrfFailed())
    return html_csrf_failure(request, reason=reason)


def _field_error(found: dict[str, Any]) -> dict[str, str]:
    """Where and what of one refused field, without the value that was sent."""
    kind = str(found["type"])
    location = [str(part) for part in found["loc"]]
    if location[:1] == ["body"]:
        del location[1:2]  # the operation's own name for its body says nothing
    if kind == "extra_forbidden":
        location = location[:-1]  # A member's name is the sender's text too.
        message = "Unknown members are refused"
    elif "error" in found.get("ctx", {}) and kind not in OWN_MESSAGES:
        message = kind.replace("_", " ").capitalize()
    else:
        message = str(found["msg"])
    return {"field": ".".join(location), "type": kind, "message": message}


def _where(request: HttpRequest) -> str:
    match = request.resolver_match
    route = match.route if match is not None else "unresolved"
    return f"on {request.method} {route} request={getattr(request, 'request_id', '')}"
