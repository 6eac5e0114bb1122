"""Every refusal of the product, each with one stable code.

``code`` is the contract with programs; ``status`` is what HTTP answers; the message is for
people, says what to do, and never carries content, credentials or another party's text. Apps
above add their own subclasses in their ``errors.py``.
"""

from __future__ import annotations

from typing import Any, ClassVar


class DomainError(Exception):
    """A refusal that a caller can act on. Subclass it; never raise it bare."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "The request cannot be done"

    def __init__(self, detail: str = "", **extra: Any) -> None:
        super().__init__(detail or self.title)
        self.detail = detail or self.title
        #: Further members of the problem document: ids, limits, both versions of a conflict.
        self.extra = extra


class Unauthenticated(DomainError):
    code, status, title = "unauthenticated", 401, "No valid credential was sent"


class CredentialInUrl(Unauthenticated):
    code, status = "credential_in_url", 400
    title = "Credentials travel in the Authorization header only, never in an address"


class Forbidden(DomainError):
    code, status, title = "forbidden", 403, "You may not do this"


class CsrfFailed(Forbidden):
    code, title = "csrf_failed", "The CSRF token is missing or wrong; load the page again"


class NotFound(DomainError):
    """Also the answer for somebody else's anything: existence is not told."""

    code, status, title = "not_found", 404, "There is no such thing here"


class Conflict(DomainError):
    code, status, title = "conflict", 409, "Somebody else was faster; look again and retry"


class Invalid(DomainError):
    code, status, title = "invalid", 422, "Some of the input cannot be accepted"


class MalformedBody(DomainError):
    code, status, title = "malformed_body", 400, "The body is not the JSON that is expected here"


class UnsupportedMediaType(DomainError):
    code, status, title = "unsupported_media_type", 415, "Send application/json"


class TooLarge(DomainError):
    code, status, title = "too_large", 413, "The input is larger than this route accepts"


class RequestTimeout(DomainError):
    code, status, title = "request_timeout", 408, "The body did not arrive in time"


class TooDeep(TooLarge):
    code, title = "too_deep", "The JSON is nested deeper than this route accepts"


class MethodNotAllowed(DomainError):
    """``allow`` names the methods that the route answers, as the header spells them."""

    code, status, title = "method_not_allowed", 405, "This route does not answer that method"


class Overloaded(DomainError):
    """The bounded queue is full. Nothing was sent upstream; ``Retry-After`` says when."""

    code, status, title = "overloaded", 503, "Too many calls are waiting; try again in a second"
    retry_after: ClassVar[int] = 1


class StoreUnavailable(Overloaded):
    code, title = "store_unavailable", "The database does not answer; nothing was done"


class ShuttingDown(Overloaded):
    code, title = "shutting_down", "This server is stopping; send the request again"


class InternalError(DomainError):
    """Something nobody foresaw. The request id is all a client learns of it."""

    code, status, title = "internal", 500, "The server failed; the request id names the case"


class DamagedContent(DomainError):
    """A sealed value is missing, does not open, or is not what its digest says. Fails closed."""

    code, status, title = "content_damaged", 409, "Stored content is unreadable; ask an operator"


class KeyringProblem(DomainError):
    """The key ring is missing, unreadable, or lacks a key that a row needs."""

    code, status, title = "keyring_problem", 500, "The key ring does not fit the databases"


# --- rights ---------------------------------------------------------------------------------


class KeyDead(Unauthenticated):
    """Unknown, revoked, expired, or minted under an earlier generation: one answer for all."""

    code, title = "key_invalid", "The agent key is unknown, expired or revoked"


class OutOfScope(Forbidden):
    code, title = "out_of_scope", "The key's current rights do not include this"


class NotPublished(Forbidden):
    code, title = "not_published", "Nothing is published for this agent in this environment"


class Suspended(Forbidden):
    code, title = "suspended", "The agent or its organization is suspended"


class ModelNotGranted(Forbidden):
    code, title = "model_not_granted", "The definition's model is not granted in this environment"


class ModelDisabled(Forbidden):
    code, title = "model_disabled", "The virtual model or its provider is disabled"


class ToolUnavailable(Forbidden):
    code, title = "tool_unavailable", "The tool is not accepted, changed, or gone"


# --- gateways -------------------------------------------------------------------------------


class InputTooLarge(TooLarge):
    code, title = "input_too_large", "The input exceeds the model's context limit"


class ProviderError(DomainError):
    """Any failure of an upstream. Its own text never travels; ``code`` says which kind."""

    code, status, title = "provider_error", 502, "The provider failed"


class ProviderTimeout(ProviderError):
    code, status, title = "provider_timeout", 504, "The provider did not answer in time"


class ProviderRateLimited(ProviderError):
    code, status, title = "provider_rate_limited", 503, "The provider asks to slow down"


class ProviderRefused(ProviderError):
    code, title = "provider_refused", "The provider refused the request"


class ProviderAuth(ProviderError):
    code, title = "provider_auth", "The provider does not accept the stored credential"


class ConnectorError(ProviderError):
    code, title = "connector_error", "The tool server failed"


class ConnectorTimeout(ConnectorError):
    code, status, title = "connector_timeout", 504, "The tool server did not answer in time"


class ConnectorUnreachable(ConnectorError):
    """Nothing was sent: an action that met this was not executed."""

    code, title = "connector_unreachable", "The tool server could not be reached"


class ConnectorAuth(ConnectorError):
    code, title = "connector_auth", "The tool server refused the credential; enter it again"


class ArgumentsInvalid(Invalid):
    code, title = "arguments_invalid", "The arguments do not fit the tool's input schema"


class OutcomeUncertain(DomainError):
    """The action was sent and nobody can tell what became of it. It is never sent again."""

    code, status, title = "outcome_uncertain", 502, "Nobody can tell whether the action was done"


class NotAcceptable(DomainError):
    code, status, title = "not_acceptable", 406, "This route answers application/json"


class ResultTooLarge(DomainError):
    code, status, title = "result_too_large", 502, "The tool's result exceeds the limit"


class DestinationRefused(DomainError):
    """The outgoing address is private, or its name is; an operator may allow host and port."""

    code, status = "destination_refused", 422
    title = "Private addresses are refused; list this host:port in OUTGOING_ALLOWED to allow it"


class ParameterNotAllowed(Invalid):
    code, title = "parameter_not_allowed", "The gateway does not pass on this parameter"


class CredentialRequired(Invalid):
    code, title = "credential_required", "The address changed: enter the credential again"


# --- approvals ------------------------------------------------------------------------------


class ApprovalConflict(Conflict):
    code, title = "approval_already_decided", "The approval was already decided or has ended"


class ApprovalExpired(Conflict):
    code, title = "approval_expired", "The approval expired"


class ApprovalMismatch(Forbidden):
    code, title = "approval_mismatch", "The approval does not cover exactly this call"


class ApprovalLimit(DomainError):
    """One run asks for more actions than a person may be made to decide at once."""

    code, status, title = "approval_limit", 429, "The run waits for too many approvals already"


class ApprovalUnavailable(Forbidden):
    code, title = "approval_unavailable", "This key has no person who could approve an action"


# --- runs -----------------------------------------------------------------------------------


class RunActive(Conflict):
    code, title = "run_active", "A run is active in this thread; wait for it or stop it"


class RunIdReused(Conflict):
    code, title = "run_id_reused", "This run id was used with another body"


class ApprovalOpen(Conflict):
    code, title = "approval_open", "Decide or cancel the open approval before a new message"


class IdempotencyMismatch(DomainError):
    code, status, title = "idempotency_mismatch", 422, "This Idempotency-Key had another body"
