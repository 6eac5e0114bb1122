"""The pause of a run that waits for a person."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from agents.choices import ApprovalState, ParkedState
from agents.lifecycle import current_boot_id
from agents.models import Approval, ParkedCall, Run
from agents.services.approvals import CALL_ID
from agents.services.runs import interrupt_run
from chat.runtime.wire import FinalFrame
from chat.selectors.log import model_history
from chat.services.jobs import Job
from chat.services.relay import Reparked, history_digest
from chat.services.stores import control, read


def are_call_ids(final: FinalFrame) -> bool:
    """Whether what the runtime calls its calls may stand in rows."""
    claimed = [*(a.tool_call_id for a in final.approvals), *(p.tool_call_id for p in final.parked)]
    return all(CALL_ID.fullmatch(call_id) for call_id in claimed)


async def pause(job: Job, final: FinalFrame, reparked: Reparked | None) -> bool:
    """Interrupt a run: what it asked for opens, in one transaction. False when it did not pause.

    With *reparked* the run never reached the runtime: its own calls stay as they were, and the
    calls whose children wait again are parked anew under it.
    """
    run = job.run
    digest = history_digest(await read(model_history, run.organization_id, run.session_id))
    return await control(lambda: _pause(job, final, reparked, digest))


def _pause(job: Job, final: FinalFrame, reparked: Reparked | None, digest: str) -> bool:
    parked = [(UUID(p.handoff_id), p.tool_call_id) for p in final.parked if _is_id(p.handoff_id)]
    with transaction.atomic():
        # Before its approvals, as everybody else locks them.
        list(Run.objects.select_for_update(no_key=True).filter(id=job.run.id).values_list("id"))
        if reparked is not None:
            parked = _park_again(job, reparked)
        paused = interrupt_run(
            run_id=job.run.id,
            boot_id=current_boot_id(),
            history_digest=digest,
            approvals=[
                (UUID(a.approval_id), a.tool_call_id)
                for a in final.approvals
                if _is_id(a.approval_id)
            ],
            parked=parked,
            input_tokens=final.usage.input_tokens,
            output_tokens=final.usage.output_tokens,
        )
        if not paused:
            transaction.set_rollback(True)
    return paused


def _park_again(job: Job, reparked: Reparked) -> list[tuple[UUID, str]]:
    # Decided, but not carried out yet: the next run of this turn may claim it.
    Approval.objects.filter(resume_run=job.run, state=ApprovalState.APPROVED).update(
        resume_run=None
    )
    parked = []
    for call, child_id in reparked.waiting:
        ParkedCall.objects.filter(id=call.id).update(state=ParkedState.VOID)
        again = ParkedCall.objects.create(run=job.run, child_id=child_id, tool_name=call.tool_name)
        parked.append((again.id, call.tool_call_id))
    return parked


def _is_id(value: str) -> bool:
    try:
        UUID(value)
    except ValueError:
        return False
    return True
