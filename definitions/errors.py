"""Refusals of drafts and publications."""

from agents.errors import Conflict, DomainError, TooLarge


class DraftChanged(Conflict):
    """The draft is not the one that the caller saw. ``current`` carries both sides' digests."""

    code, title = "draft_changed", "The draft changed since you opened it"


class NothingToPublish(Conflict):
    code, title = "nothing_to_publish", "The draft needs instructions and a model first"


class NotPublishedHere(Conflict):
    code, title = "not_published_here", "Nothing is published in this environment"


class InstructionsTooLarge(TooLarge):
    code, title = "instructions_too_large", "Instructions may have at most 64 KiB"


class IfMatchRequired(DomainError):
    """A draft is written against the one that was seen; saying which is not optional."""

    code, status = "if_match_required", 428
    title = 'Send If-Match with the digest of the draft you saw, in quotes: "<64 hex>"'
