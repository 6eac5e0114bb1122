"""An action's way through its approval: ask, or claim, execute once, and keep the outcome.

``approved → executing`` is committed before anything is sent. From there every end is recorded
before it is told:

- the server answered, with a result or an error: ``executed``, with the outcome stored;
- nothing left, or the server turned the request away unread: ``approved`` again, for the same run;
- anything else (a timeout, a lost connection, a cancelled call): ``uncertain``, never sent again.

No cancellation of the call takes a recording back. What could not be recorded, and a claim whose
own commit was unclear, stays ``executing``, which nobody executes, until the sweep calls it
uncertain.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from django.db.backends.utils import CursorWrapper
from mcp_types import CallToolResult

from agents import content_store
from agents.digests import keyed_digest
from agents.errors import ApprovalMismatch, ApprovalUnavailable, DomainError, OutcomeUncertain
from agents.gateways.mcp_hop import Admission, same_rights
from agents.gateways.mcp_outcomes import clean_result, failure_outcome, replay, result_outcome
from agents.gateways.mcp_upstream import Answered, NotExecuted, Unknown
from agents.lifecycle import current_boot_id
from agents.services.approvals import (
    ARGUMENTS,
    OUTCOME,
    Claim,
    canonical_arguments,
    claim_approval,
    mark_uncertain,
    release_claim,
    request_approval,
    require_room,
    store_outcome,
)
from agents.writer import Operation, get_writer

logger = logging.getLogger(__name__)

JSON = dict[str, Any]
#: Sends the call upstream; raises a CallFailed.
Execute = Callable[[JSON], Awaitable[CallToolResult]]


async def ask(admission: Admission, arguments: JSON, tool_call_id: str) -> UUID:
    """Open an approval for exactly this call and return its id.

    Raises ApprovalUnavailable for a key without a person behind it and ApprovalLimit for a run
    that waits for too many already, and writes nothing then.
    """
    key = admission.key
    run_id = key.run_id
    if run_id is None or key.thread_id is None:
        raise ApprovalUnavailable
    # Before the blob, so that none is left over; what decides is the count beside the row.
    await get_writer().run(lambda _: require_room(run_id))
    digest = await _put(admission, ARGUMENTS, canonical_arguments(arguments))

    def operation(cursor: CursorWrapper) -> UUID:
        rights = same_rights(cursor, admission)
        return request_approval(
            key=rights.key,
            tool=admission.tool,
            arguments_digest=digest,
            tool_call_id=tool_call_id,
        )

    return await get_writer().run(operation)


async def execute_approved(
    admission: Admission, approval: object, arguments: JSON, execute: Execute
) -> CallToolResult:
    """Claim the approval, execute what was approved, store the outcome; or replay it.

    *approval* is the id as the caller gave it. Raises ApprovalMismatch or ApprovalConflict when
    there is nothing to execute, OutcomeUncertain, or what became of the call.
    """
    digest = keyed_digest(canonical_arguments(arguments))
    claim = await _claim(admission, _approval_id(approval), digest)
    if claim.outcome_digest:
        return replay(await _get(admission, OUTCOME, claim.outcome_digest))
    return await _Execution(admission, claim).run(execute)


def _approval_id(value: object) -> UUID:
    if not isinstance(value, str):
        raise ApprovalMismatch
    try:
        return UUID(value)
    except ValueError:
        raise ApprovalMismatch from None


async def _claim(admission: Admission, approval_id: UUID, digest: str) -> Claim:
    boot_id = current_boot_id()

    def operation(cursor: CursorWrapper) -> Claim:
        rights = same_rights(cursor, admission)
        return claim_approval(
            approval_id=approval_id,
            key=rights.key,
            tool=admission.tool,
            arguments_digest=digest,
            boot_id=boot_id,
        )

    def abandoned(claim: Claim) -> Callable[[CursorWrapper], bool]:
        # Nobody is left to send it. A replayed claim holds nothing, and releasing it does nothing.
        return lambda _: (
            not claim.outcome_digest
            and release_claim(approval_id=claim.approval_id, boot_id=boot_id)
        )

    return await get_writer().run(operation, full=True, abandoned=abandoned)


class _Execution:
    """One claimed call, which ends in exactly one of the three ways above."""

    def __init__(self, admission: Admission, claim: Claim) -> None:
        self._admission = admission
        self._claim = claim

    async def run(self, execute: Execute) -> CallToolResult:
        arguments = await self._approved_arguments()
        try:
            result = clean_result(await execute(arguments))
        except NotExecuted as failed:
            await _record(self._released)
            raise failed.error from None
        except Answered as failed:
            await self._finish(failure_outcome(failed.error), is_error=True)
            raise failed.error from None
        except Unknown:
            await _record(self._uncertain)
            raise OutcomeUncertain from None
        except BaseException:
            # Cancelled, or broken by something of ours: the call may have left.
            get_writer().post(self._uncertain)
            raise
        await self._finish(result_outcome(result), is_error=result.is_error)
        return result

    async def _approved_arguments(self) -> JSON:
        """The stored bytes are what was shown and approved, so they are what runs."""
        try:
            data = await _get(self._admission, ARGUMENTS, self._claim.arguments_digest)
            arguments: JSON = json.loads(data)
        except BaseException:
            get_writer().post(self._released)
            raise
        return arguments

    def _released(self, _cursor: CursorWrapper) -> bool:
        return release_claim(approval_id=self._claim.approval_id, boot_id=current_boot_id())

    def _uncertain(self, _cursor: CursorWrapper) -> bool:
        return mark_uncertain(approval_id=self._claim.approval_id)

    async def _finish(self, outcome: bytes, *, is_error: bool) -> None:
        """Store the outcome, also when the caller goes away meanwhile: it is known by now."""
        task = asyncio.create_task(self._store(outcome, is_error=is_error))
        _storing.add(task)
        task.add_done_callback(_storing.discard)
        if not await asyncio.shield(task):
            raise OutcomeUncertain

    async def _store(self, outcome: bytes, *, is_error: bool) -> bool:
        try:
            digest = await _put(self._admission, OUTCOME, outcome)
            return await get_writer().run(
                lambda _: store_outcome(
                    approval_id=self._claim.approval_id,
                    outcome_digest=digest,
                    is_error=is_error,
                )
            )
        except Exception as error:  # noqa: BLE001 - whatever it was, the outcome is not stored
            logger.error("an outcome was not stored: %s", type(error).__name__)  # noqa: TRY400
            get_writer().post(self._uncertain)
            return False
        except asyncio.CancelledError:  # The end of the loop, which waits no longer.
            get_writer().post(self._uncertain)
            raise


async def _record(change: Operation[bool]) -> None:
    """Queue a change, once and beyond recall, and wait until it was tried.

    Whoever is cancelled while waiting leaves it in the queue. A release must not be tried twice:
    the second could free a claim that somebody took after the first.
    """
    get_writer().post(change)
    with suppress(DomainError):
        await get_writer().run(_nothing)


def _nothing(_cursor: CursorWrapper) -> None:
    """Runs behind everything that was queued before it."""


_storing: set[asyncio.Task[bool]] = set()


async def drain() -> None:
    """Wait until every known outcome is stored, for the end of the process."""
    if _storing:
        await asyncio.wait(set(_storing), timeout=3.0)


async def _put(admission: Admission, kind: str, data: bytes) -> str:
    put = partial(content_store.put, admission.key.organization_id, kind, data)
    return await get_writer("content").run(lambda _: put())


async def _get(admission: Admission, kind: str, digest: str) -> bytes:
    get = partial(content_store.get, admission.key.organization_id, kind, digest)
    return await get_writer("content").run(lambda _: get())
