"""No claimed call stays ``executing`` for ever, whatever interrupts its recording."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from agents import clock
from agents.choices import ApprovalState, RunState
from agents.errors import ConnectorError, StoreUnavailable
from agents.gateways import mcp_approvals
from agents.gateways.mcp_approvals import _Execution
from agents.gateways.mcp_upstream import Answered, CallFailed, NotExecuted, Unknown
from agents.models import Approval, Boot, Run
from agents.services import runs
from agents.services.approvals import Claim
from agents.services.sweeps import sweep_control
from agents.writer import get_writer
from tests.agents.gateways.mcp_support import Bench, RunKey, eventually, operation, state_of

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def claimed(bench: Bench) -> tuple[str, RunKey, Claim]:
    """An approval that this process has claimed."""
    approval, resumed = bench.approved("refund", {"order": 7})
    Approval.objects.filter(id=approval).update(
        state=ApprovalState.EXECUTING, executing_boot_id=bench.boot.id
    )
    digest = Approval.objects.get(id=approval).decided_digest
    return approval, resumed, Claim(UUID(approval), digest)


class FakeAdmission:
    """What an execution reads of its admission: whose content it is."""

    def __init__(self, bench: Bench) -> None:
        self.key = self
        self.organization_id = bench.world.organization.id


@pytest.mark.parametrize(
    ("failure", "state"),
    [
        (Unknown(ConnectorError()), ApprovalState.UNCERTAIN),
        (NotExecuted(ConnectorError()), ApprovalState.APPROVED),
    ],
    ids=["unknown", "not executed"],
)
def test_a_caller_that_goes_while_the_end_is_written_changes_nothing(
    bench: Bench, failure: CallFailed, state: ApprovalState
) -> None:
    approval, _, claim = claimed(bench)
    execution = _Execution(cast("Any", FakeAdmission(bench)), claim)
    busy, written = threading.Event(), threading.Event()

    def occupy(_cursor: Any) -> None:
        busy.set()
        written.wait(5)

    async def leave() -> None:
        failing = asyncio.Event()

        async def fail(_arguments: Any) -> Any:
            blocker.append(asyncio.create_task(get_writer().run(occupy)))
            await asyncio.to_thread(busy.wait, 5)
            failing.set()
            raise failure

        blocker: list[asyncio.Task[None]] = []
        call = asyncio.create_task(execution.run(fail))
        await failing.wait()
        await asyncio.sleep(0.05)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert call.cancelled()
        written.set()
        await asyncio.gather(*blocker)

    asyncio.run(leave())
    eventually(lambda: state_of(approval) == state)


def test_an_outcome_that_the_end_of_the_process_cuts_off_is_uncertain(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval, _, claim = claimed(bench)
    execution = _Execution(cast("Any", FakeAdmission(bench)), claim)
    storing = asyncio.Event()

    async def never(*_: Any) -> str:
        storing.set()
        await asyncio.Event().wait()
        return ""

    async def answered(_arguments: Any) -> Any:
        raise Answered(ConnectorError())

    async def end() -> None:
        call = asyncio.create_task(execution.run(answered))
        await storing.wait()
        assert not call.done()  # The loop ends now and cancels everything.

    monkeypatch.setattr(mcp_approvals, "_put", never)
    asyncio.run(end())
    eventually(lambda: state_of(approval) == ApprovalState.UNCERTAIN)


def test_a_claim_whose_commit_was_unclear_is_never_sent_and_ends_uncertain(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval, resumed = bench.approved("refund", {"order": 7})
    writer = get_writer()
    run = type(writer).run

    async def unclear(self: Any, step: Any, *, full: bool = False, **options: Any) -> Any:
        result = await run(self, step, full=full, **options)
        if isinstance(result, Claim):
            raise StoreUnavailable  # It was committed, and the answer was lost.
        return result

    with monkeypatch.context() as patch:
        patch.setattr(type(writer), "run", unclear)
        assert bench.code(resumed.key, "refund", {"order": 7}, approval) == "store_unavailable"
    code = bench.code(resumed.key, "refund", {"order": 7}, approval)
    assert code == "approval_already_decided"
    assert state_of(approval) == ApprovalState.EXECUTING
    end_since(bench, resumed.run, 91)
    sweep_control()
    assert state_of(approval) == ApprovalState.UNCERTAIN
    assert bench.fake.count("refund") == 0


def end_since(bench: Bench, run: Run, seconds: int) -> None:
    """End the run as if *seconds* ago, under a boot that lives."""
    operation(lambda: runs.end_run(run_id=run.id, boot_id=bench.boot.id, state=RunState.FAILED))
    now = clock.database_now()
    Run.objects.filter(id=run.id).update(ended_at=now - timedelta(seconds=seconds))
    Boot.objects.filter(id=bench.boot.id).update(heartbeat_at=now)


def test_the_sweep_waits_until_no_call_can_be_under_way(bench: Bench) -> None:
    approval, resumed, _ = claimed(bench)
    Boot.objects.filter(id=bench.boot.id).update(heartbeat_at=clock.database_now())
    assert sweep_control().approvals_uncertain == 0  # Its run is running.
    end_since(bench, resumed.run, 80)
    assert sweep_control().approvals_uncertain == 0
    assert state_of(approval) == ApprovalState.EXECUTING
    end_since(bench, resumed.run, 91)
    assert sweep_control().approvals_uncertain == 1
    assert state_of(approval) == ApprovalState.UNCERTAIN
