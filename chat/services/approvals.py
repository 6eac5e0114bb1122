"""Decisions of a principal: read from a request, checked, and recorded in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from agents import content_store
from agents.choices import ApprovalState
from agents.clock import database_now
from agents.errors import ApprovalConflict, ApprovalExpired, DomainError, Invalid, TooLarge
from agents.gateways.mcp_arguments import check_arguments_blocking
from agents.models import Approval
from agents.services.approvals import (
    APPROVALS_PER_RUN,
    ARGUMENTS,
    REASON,
    Decision,
    canonical_arguments,
    decide_approval,
    why_not_decidable,
)
from agents.services.runs import Principal
from chat.errors import InterruptsUncovered, NothingToResume
from chat.selectors.interrupts import open_approvals
from chat.selectors.resolutions import CANCELLED

logger = logging.getLogger(__name__)

MAX_REASON = 2_000
MAX_ARGUMENTS = 64 * 1024
#: Answers in one request: the approvals of a run and of several children at once.
MAX_ANSWERS = 8 * APPROVALS_PER_RUN

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One entry of a resume list, as the client wrote it, of the right types."""

    interrupt_id: str
    decision: Decision
    edited: JSON | None = None
    reason: str = ""


def read_answer(
    interrupt_id: str, status: Literal["resolved", "cancelled"], payload: Any
) -> Answer:
    """Turn a resume entry into an answer; strict, so that nothing but ``true`` approves.

    Raises Invalid.
    """
    if status == "cancelled":
        return Answer(interrupt_id, "cancel")
    if not isinstance(payload, dict) or not isinstance(payload.get("approved"), bool):
        raise Invalid("An answer's payload needs `approved`: true or false.", field="resume")
    unknown = payload.keys() - {"approved", "editedArgs", "reason"}
    if unknown:
        raise Invalid("An answer has `approved`, `editedArgs` and `reason` only.", field="resume")
    edited, reason = payload.get("editedArgs"), payload.get("reason", "")
    if "editedArgs" in payload and not isinstance(edited, dict):
        raise Invalid("`editedArgs` is an object of all arguments.", field="resume")
    if not isinstance(reason, str) or len(reason) > MAX_REASON or "\x00" in reason:
        raise Invalid(f"A reason is text of at most {MAX_REASON} characters.", field="resume")
    if not payload["approved"]:
        return Answer(interrupt_id, "deny", reason=reason.strip())
    return Answer(interrupt_id, "approve", edited=edited)


@dataclass(frozen=True, slots=True)
class Checked:
    """An answer to one approval, its blobs ready to be stored before the decision names them."""

    approval_id: UUID
    organization_id: UUID
    decision: Decision
    edited: bytes | None = None
    reason: bytes | None = None


def match_answers(
    thread_id: UUID, principal: Principal, answers: Sequence[Answer]
) -> list[Checked]:
    """Pair answers with this thread's approvals and check edits; nothing is decided. A selector.

    Unknown ids are left out with a warning. Raises NothingToResume when no id is known, Invalid
    for two answers to one interrupt, ArgumentsInvalid for an edit that does not fit the tool.
    """
    if len(answers) > MAX_ANSWERS:
        raise Invalid("Too many answers.", field="resume")
    ids = [a.interrupt_id for a in answers]
    if len(set(ids)) != len(ids):
        raise Invalid("Each interrupt is answered once.", field="resume")
    known = {
        str(approval.id): approval
        for approval in Approval.objects.filter(
            thread_id=thread_id,
            principal_issuer=principal.issuer,
            principal_subject=principal.subject,
        )
        .exclude(state=ApprovalState.REQUESTED)
        .select_related("tool")
    }
    checked = [_check(known[a.interrupt_id], a) for a in answers if a.interrupt_id in known]
    if len(checked) < len(answers):
        logger.warning("%d answers name no interrupt of this thread", len(answers) - len(checked))
    if not checked:
        raise NothingToResume
    return checked


def _check(approval: Approval, answer: Answer) -> Checked:
    edited = None
    if answer.edited is not None:
        check_arguments_blocking(
            answer.edited, schema=approval.tool.input_schema, digest=approval.tool.digest
        )
        edited = canonical_arguments(answer.edited)
        if len(edited) > MAX_ARGUMENTS:
            raise TooLarge("Arguments may have at most 64 KiB.", field="resume")
    reason = CANCELLED if answer.decision == "cancel" else answer.reason
    return Checked(
        approval.id,
        approval.organization_id,
        answer.decision,
        edited,
        reason.encode() if reason else None,
    )


def refuse_ended(checked: Sequence[Checked]) -> None:
    """Raise the refusal that says who or what decided, if that happened already. A selector."""
    ids = [c.approval_id for c in checked if c.decision != "cancel"]
    for approval in Approval.objects.filter(id__in=ids).exclude(state=ApprovalState.OPEN):
        raise _named(why_not_decidable(approval, database_now()), approval.id)


def _named(error: DomainError, approval_id: UUID) -> DomainError:
    error.extra["approval_id"] = str(approval_id)
    return error


@dataclass(frozen=True, slots=True)
class Stored:
    """A checked answer whose blobs are durable."""

    approval_id: UUID
    decision: Decision
    edited_digest: str = ""
    reason_digest: str = ""


def store_blobs(checked: Sequence[Checked]) -> list[Stored]:
    """Store edits and reasons. A step on the content store."""
    return [
        Stored(
            c.approval_id,
            c.decision,
            "" if c.edited is None else content_store.put(c.organization_id, ARGUMENTS, c.edited),
            "" if c.reason is None else content_store.put(c.organization_id, REASON, c.reason),
        )
        for c in checked
    ]


def decide_all(*, thread_id: UUID, principal: Principal, answers: Sequence[Stored]) -> None:
    """Record decisions that cover everything open; all or nothing. A step.

    Raises InterruptsUncovered, ApprovalConflict or ApprovalExpired; the caller's transaction then
    rolls back. Cancelling what ended by itself already changes nothing.
    """
    answered = {a.approval_id for a in answers}
    still_open = set(open_approvals(thread_id).values_list("id", flat=True))
    missing = still_open - answered
    if missing:
        raise InterruptsUncovered(missing=sorted(str(m) for m in missing))
    for answer in answers:
        if answer.decision == "cancel" and _ended_by_itself(answer.approval_id):
            continue
        try:
            decide_approval(
                approval_id=answer.approval_id,
                principal=principal,
                decision=answer.decision,
                edited_digest=answer.edited_digest,
                reason_digest=answer.reason_digest,
            )
        except (ApprovalConflict, ApprovalExpired) as error:
            raise _named(error, answer.approval_id) from None


def _ended_by_itself(approval_id: UUID) -> bool:
    approval = Approval.objects.get(id=approval_id)
    if approval.state == ApprovalState.OPEN:
        return not open_approvals(approval.thread_id).filter(id=approval_id).exists()
    return approval.state in {ApprovalState.EXPIRED, ApprovalState.VOID}
