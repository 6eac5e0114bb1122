"""What became of the calls that a session's model may still wait for, as data for the runtime.

Web does not read model messages: it offers what its rows know, by tool call id, and the runtime
ignores what is not open. Ids are unique in a thread.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from agents import content_store
from agents.choices import ApprovalState, ParkedState, RunState
from agents.errors import DamagedContent
from agents.gateways.mcp_outcomes import OutcomeText, outcome_text
from agents.models import Approval, ParkedCall, Run
from agents.services.approvals import ARGUMENTS, OUTCOME, REASON
from chat.runtime.wire import Resolution

UNCERTAIN = (
    "The outcome of this call is unknown: it was started, and the answer was lost. It may have "
    "happened; check before you repeat it."
)
NOT_DONE = "It was not carried out: {}."
#: The reason that is recorded for a cancelled interrupt.
CANCELLED = "Cancelled by the user."
STOPPED = "The work ended before it returned a result: {}."
#: Kind of blob that holds what a parked call returned.
RESULT = "handoff_result"
#: Runs behind the last answered one that are looked at.
MAX_RUNS = 100


def resolutions_for(session_id: UUID, resume_run_id: UUID) -> list[Resolution]:
    """A resolution for each call that may be open when *resume_run_id* starts.

    Only approvals bound to exactly that run say ``approved``.
    """
    runs = _unanswered_runs(session_id)
    found: dict[str, Resolution] = {}
    parked = ParkedCall.objects.filter(run_id__in=runs).exclude(tool_call_id="")
    for call in parked.select_related("child").order_by("created_at"):
        found[call.tool_call_id] = _of_parked(call)
    approvals = Approval.objects.filter(run_id__in=runs).exclude(tool_call_id="")
    for approval in approvals.order_by("created_at"):
        found[approval.tool_call_id] = _of_approval(approval, resume_run_id)
    return list(found.values())


def _unanswered_runs(session_id: UUID) -> list[UUID]:
    """Runs since the last that succeeded: an answer that came to its end leaves no call open."""
    runs: list[UUID] = []
    rows = Run.objects.filter(session_id=session_id).order_by("-created_at", "-id")
    for run_id, state in rows.values_list("id", "state")[:MAX_RUNS]:
        if state == RunState.SUCCEEDED:
            break
        runs.append(run_id)
    return runs


def _of_approval(approval: Approval, resume_run_id: UUID) -> Resolution:
    call_id, state = approval.tool_call_id, approval.state
    if state == ApprovalState.APPROVED and approval.resume_run_id == resume_run_id:
        return Resolution(
            tool_call_id=call_id,
            kind="approved",
            approval_id=str(approval.id),
            arguments=_edited(approval),
        )
    if state == ApprovalState.EXECUTED:
        outcome = _outcome(approval)
        return returned(call_id, outcome.text, is_error=outcome.is_error)
    if state in {ApprovalState.EXECUTING, ApprovalState.UNCERTAIN}:
        return returned(call_id, UNCERTAIN, is_error=True)
    return Resolution(tool_call_id=call_id, kind="denied", content=_why_not(approval))


def _edited(approval: Approval) -> dict[str, Any] | None:
    if approval.decided_digest == approval.arguments_digest:
        return None
    arguments: dict[str, Any] = content_store.get_json(
        approval.organization_id, ARGUMENTS, approval.decided_digest
    )
    return arguments


def _outcome(approval: Approval) -> OutcomeText:
    try:
        blob = content_store.get(approval.organization_id, OUTCOME, approval.outcome_digest)
        return outcome_text(blob)
    except DamagedContent:
        return OutcomeText(UNCERTAIN, is_error=True)


def _why_not(approval: Approval) -> str:
    """The words for the model: what a person said, or what ended it."""
    if approval.state == ApprovalState.EXPIRED:
        return NOT_DONE.format("the approval expired before anybody decided")
    if approval.state == ApprovalState.DENIED:
        if not approval.reason_digest:
            return "Denied by the user."
        try:
            reason = content_store.get(approval.organization_id, REASON, approval.reason_digest)
        except DamagedContent:
            return "Denied by the user."
        words = reason.decode()
        return words if words == CANCELLED else f"Denied by the user: {words}"
    why = (approval.void_reason or "run_ended").replace("_", " ")
    return NOT_DONE.format(f"the approval became void ({why})")


def _of_parked(call: ParkedCall) -> Resolution:
    if call.state == ParkedState.DONE and call.outcome_digest:
        try:
            blob = content_store.get(call.child.organization_id, RESULT, call.outcome_digest)
        except DamagedContent:
            return returned(call.tool_call_id, UNCERTAIN, is_error=True)
        return returned(call.tool_call_id, blob.decode(), is_error=call.outcome_is_error)
    why = call.child.error_code or "nobody answered what it asked"
    return returned(call.tool_call_id, STOPPED.format(why.replace("_", " ")), is_error=True)


def returned(call_id: str, content: str, *, is_error: bool = False) -> Resolution:
    return Resolution(tool_call_id=call_id, kind="returned", content=content, is_error=is_error)
