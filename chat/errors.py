"""Refusals of the chat surface."""

from agents.errors import Conflict, DomainError, Invalid, Unauthenticated


class TokenInvalid(Unauthenticated):
    """Unknown, expired, or died with its key, member or agent: one answer for all."""

    code, title = "token_invalid", "The chat token is unknown, expired or revoked"


class NothingToRun(Invalid):
    code, title = "nothing_to_run", "The input holds no new user message and no decision"


class NothingToResume(Conflict):
    code, title = "nothing_to_resume", "Nothing in this thread waits for these decisions"


class InterruptsUncovered(Conflict):
    """``missing`` names the open interrupts that the request did not answer."""

    code, title = "interrupts_uncovered", "Every open approval of the run needs an answer at once"


class RuntimeUnavailable(DomainError):
    code, status, title = "runtime_unavailable", 503, "The agent runtime cannot be reached"
