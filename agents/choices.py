"""Closed sets of words. A value outside its set is refused by a database constraint."""

from django.db.models import TextChoices


class Role(TextChoices):
    MEMBER = "member"
    AGENT_MANAGER = "agent_manager"


class Status(TextChoices):
    """Of an organization or an agent."""

    ACTIVE = "active"
    SUSPENDED = "suspended"


class EnvironmentState(TextChoices):
    """Whether an agent's keys work in an environment at all."""

    OPEN = "open"
    CONTAINED = "contained"


class Classification(TextChoices):
    """An operator's word on a tool. Unclassified counts as ``action``."""

    READ = "read"
    ACTION = "action"


class OutputLimitParameter(TextChoices):
    """The name under which a provider takes the most tokens that an answer may have."""

    MAX_TOKENS = "max_tokens"
    MAX_COMPLETION_TOKENS = "max_completion_tokens"


class ToolState(TextChoices):
    NEW = "new"
    ACCEPTED = "accepted"
    CHANGED = "changed"
    GONE = "gone"


class KeyKind(TextChoices):
    EXTERNAL = "external"
    MANAGED = "managed"


class RunState(TextChoices):
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class InitiatorKind(TextChoices):
    MEMBER = "member"
    END_USER = "end_user"
    SERVICE = "service"
    SYSTEM = "system"


class ApprovalState(TextChoices):
    REQUESTED = "requested"  # the gateway asked; the run has not paused yet
    OPEN = "open"  # waits for the person
    APPROVED = "approved"
    DENIED = "denied"
    EXECUTING = "executing"  # claimed by the resumed run's key; the call is on its way
    EXECUTED = "executed"  # an outcome is stored (also a tool's own error)
    UNCERTAIN = "uncertain"  # claimed, and nobody can tell what became of the call
    EXPIRED = "expired"
    VOID = "void"  # the run, the right or the tool went away


class RequestKind(TextChoices):
    MODEL = "model"
    TOOL = "tool"


class RequestState(TextChoices):
    OPEN = "open"
    OK = "ok"
    REFUSED = "refused"  # nothing was sent upstream
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"  # its process died


class ParkedState(TextChoices):
    WAITING = "waiting"
    DONE = "done"
    VOID = "void"
