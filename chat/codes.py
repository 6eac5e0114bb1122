"""The codes with which a run may fail: a closed set, whatever a runtime claims."""

from __future__ import annotations

from agents.errors import DomainError

#: What the runtime says by itself; it also passes on the gateways' codes.
RUNTIME_CODES = frozenset(
    {
        "model_failed", "no_output", "output_limit", "content_filtered", "step_limit", "deadline",
        "history_unreadable", "nothing_to_run", "tool_protocol", "internal",
    }
)  # fmt: skip


def known_code(claimed: str | None) -> str:
    """*claimed* when it is a code of the runtime or of a refusal of ours, else ``internal``."""
    if claimed in RUNTIME_CODES or claimed in _refusals(DomainError):
        return str(claimed)
    return "internal"


def _refusals(refusal: type[DomainError]) -> set[str]:
    return {refusal.code}.union(*map(_refusals, refusal.__subclasses__()))
