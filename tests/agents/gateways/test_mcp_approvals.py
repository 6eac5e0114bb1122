"""Actions: nothing runs without a person's decision on exactly this call, and then once."""

from __future__ import annotations

import asyncio
import threading
import uuid
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from agents import clock, content_store
from agents.choices import ApprovalState, RunState
from agents.gateways import mcp_upstream
from agents.gateways.mcp_arguments import check_arguments
from agents.gateways.mcp_outcomes import outcome_text
from agents.gateways.refresh import refresh_now
from agents.models import Approval, Blob, Boot, GatewayRequest
from agents.services import approvals, grants, runs
from agents.services.sweeps import sweep_control
from agents.services.tools import withdraw_tool
from tests.agents.gateways.mcp_support import (
    Bench,
    eventually,
    operation,
    review_all,
    state_of,
)
from tests.fakes.mcp_server import Error, Giant, Hang, RpcError, Text, tool

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])


@ERAS
def test_an_action_asks_first(bench: Bench, mode: str) -> None:
    started = bench.start_run()
    refused = bench.refused(started.key, "refund", {"order": 7}, mode=mode)

    assert refused.code == -32043
    approval = Approval.objects.get()
    assert refused.data == {"approval": str(approval.id), "code": "approval_required"}
    assert bench.fake.total == 0
    assert approval.state == ApprovalState.REQUESTED
    assert (approval.run_id, approval.tool_id) == (started.run.id, bench.tools["refund"].id)
    stored = content_store.get(
        bench.world.organization.id, approvals.ARGUMENTS, approval.arguments_digest
    )
    assert stored == b'{"order":7}'


def test_two_equal_calls_are_two_approvals(bench: Bench) -> None:
    key = bench.start_run().key
    assert bench.ask(key, "refund", {"order": 7}) != bench.ask(key, "refund", {"order": 7})


@ERAS
def test_an_approved_action_runs_once_and_is_replayed(bench: Bench, mode: str) -> None:
    bench.fake.answer("refund", [Text("refunded 7"), Text("refunded twice")])
    approval, resumed = bench.approved("refund", {"order": 7})
    for _ in range(3):
        result = bench.call(resumed.key, "refund", {"order": 7}, approval, mode=mode)
        assert result.content[0].text == "refunded 7"  # type: ignore[union-attr]
    assert bench.fake.count("refund") == 1
    row = Approval.objects.get(id=approval)
    assert (row.state, row.outcome_is_error) == (ApprovalState.EXECUTED, False)
    outcome = content_store.get(bench.world.organization.id, approvals.OUTCOME, row.outcome_digest)
    assert outcome_text(outcome).text == "refunded 7"


def test_an_edited_action_runs_with_the_edit_alone(bench: Bench) -> None:
    approval, resumed = bench.approved("refund", {"order": 7}, {"order": 8})
    assert bench.code(resumed.key, "refund", {"order": 7}, approval) == "approval_mismatch"
    assert bench.fake.total == 0
    bench.call(resumed.key, "refund", {"order": 8}, approval)
    assert [call.arguments for call in bench.fake.calls] == [{"order": 8}]


def free_tool(bench: Bench) -> None:
    """Let refund take anything, so that only the digest can tell calls apart."""
    bench.fake.set_tools([tool("refund", {}), tool("status", read_only=True)])
    refresh_now(bench.connector)
    bench.tools = review_all(bench.world, bench.connector, read=["status"])


SHOWN = {"order": 10, "reason": "caf\u00e9", "nested": {"a": 1, "b": [1, 2]}}


@pytest.mark.parametrize(
    "changed",
    [
        {"order": 1000},
        {"order": "10"},
        {"order": 10.5},
        {"order": True},
        {"extra": None},
        {"reason": "cafe\u0301"},
        {"nested": {"a": 1, "b": [2, 1]}},
    ],
    ids=["value", "string", "fraction", "bool", "added", "nfd", "order-of-items"],
)
def test_changed_arguments_run_nothing(bench: Bench, changed: dict[str, Any]) -> None:
    free_tool(bench)
    approval, resumed = bench.approved("refund", SHOWN)
    assert bench.code(resumed.key, "refund", {**SHOWN, **changed}, approval) == "approval_mismatch"
    assert bench.fake.total == 0
    assert state_of(approval) == ApprovalState.APPROVED


@pytest.mark.parametrize(
    "same",
    [
        {"order": 10.0, "reason": "caf\u00e9", "nested": {"a": 1, "b": [1, 2]}},
        {"nested": {"b": [1, 2], "a": 1}, "reason": "caf\u00e9", "order": 10},
    ],
    ids=["spelling-of-a-number", "order-of-names"],
)
def test_what_runs_is_what_was_shown(bench: Bench, same: dict[str, Any]) -> None:
    """Another spelling of the same JSON is the same call; the stored bytes are executed."""
    free_tool(bench)
    approval, resumed = bench.approved("refund", SHOWN)
    bench.call(resumed.key, "refund", same, approval)
    (call,) = bench.fake.calls
    assert approvals.canonical_arguments(call.arguments) == approvals.canonical_arguments(SHOWN)
    assert isinstance(call.arguments["order"], int)


def test_only_the_resuming_run_may_claim(bench: Bench) -> None:
    approval, resumed = bench.approved("refund", {"order": 7})
    stranger = bench.start_run()
    for key in (stranger.key, bench.world.key_text):
        assert bench.code(key, "refund", {"order": 7}, approval) == "approval_mismatch"
    for forged in (str(uuid.uuid4()), "", "x" * 5_000, "true", approval.upper() + "0"):
        assert bench.code(resumed.key, "refund", {"order": 7}, forged) == "approval_mismatch"
    assert bench.fake.total == 0
    bench.call(resumed.key, "refund", {"order": 7}, approval)
    assert bench.fake.total == 1


@pytest.mark.parametrize("forged", [True, 1, None, {}, ["a"]])
def test_what_is_no_id_approves_nothing(bench: Bench, forged: Any) -> None:
    resumed = bench.start_run()

    async def call() -> None:
        async with bench.client(resumed.key) as session:
            meta: Any = {"mandate/approval": forged}
            await session.call_tool("shop__refund", {"order": 1}, meta=meta)

    with pytest.raises(ExceptionGroup):
        asyncio.run(call())
    assert bench.fake.total == 0


def test_undecided_denied_and_expired_approvals_run_nothing(bench: Bench) -> None:
    first = bench.start_run()
    asked = bench.ask(first.key, "refund", {"order": 1})
    # Its own run, before anybody decided.
    assert bench.code(first.key, "refund", {"order": 1}, asked) == "approval_mismatch"
    bench.pause(first.run, asked)
    with clock.shifted(timedelta(minutes=16)):
        sweep_control()
    assert state_of(asked) == ApprovalState.EXPIRED
    resumed = bench.resume(first.run)
    assert bench.code(resumed.key, "refund", {"order": 1}, asked) == "approval_mismatch"

    second = bench.start_run()
    asked = bench.ask(second.key, "refund", {"order": 2})
    bench.pause(second.run, asked)
    bench.decide(asked, decision="deny")
    resumed = bench.resume(second.run)
    assert bench.code(resumed.key, "refund", {"order": 2}, asked) == "approval_mismatch"
    assert bench.fake.total == 0


def test_two_pending_calls_are_bound_by_id(bench: Bench) -> None:
    first = bench.start_run()
    one, two = (bench.ask(first.key, "refund", {"order": n}) for n in (1, 2))
    bench.pause(first.run, one, two)
    bench.decide(two)
    bench.decide(one, decision="deny")
    resumed = bench.resume(first.run)
    assert bench.code(resumed.key, "refund", {"order": 1}, one) == "approval_mismatch"
    assert bench.code(resumed.key, "refund", {"order": 1}, two) == "approval_mismatch"
    bench.call(resumed.key, "refund", {"order": 2}, two)
    assert [call.arguments for call in bench.fake.calls] == [{"order": 2}]


@ERAS
def test_five_claims_at_once_run_once(bench: Bench, mode: str) -> None:
    bench.fake.answer("refund", Hang())
    approval, resumed = bench.approved("refund", {"order": 7})

    async def five() -> tuple[set[str], CallToolResult]:
        calls = {
            asyncio.create_task(
                bench.call_async(resumed.key, "refund", {"order": 7}, approval, mode=mode)
            )
            for _ in range(5)
        }
        refused: set[str] = set()
        while len(calls) > 1:
            done, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            for call in done:
                error = call.exception()
                assert isinstance(error, MCPError)
                refused.add(error.data["code"])
        assert bench.fake.count("refund") == 1
        bench.fake.release()
        return refused, await calls.pop()

    refused, result = asyncio.run(five())
    assert refused == {"approval_already_decided"}
    assert not result.is_error
    assert bench.fake.count("refund") == 1
    assert state_of(approval) == ApprovalState.EXECUTED


def test_a_key_without_a_person_gets_no_approval(bench: Bench) -> None:
    code = bench.code(bench.world.key_text, "refund", {"order": 7})
    assert code == "approval_unavailable"
    assert not Approval.objects.exists()
    assert not Blob.objects.filter(kind=approvals.ARGUMENTS).exists()


def test_invalid_arguments_ask_nobody(bench: Bench) -> None:
    assert bench.code(bench.start_run().key, "refund", {}) == "arguments_invalid"
    assert not Approval.objects.exists()


# --- the right went away between the decision and the call ------------------------------------


@pytest.mark.parametrize("what", ["grant", "tool", "run", "listing"])
def test_it_is_judged_again_at_execution(bench: Bench, what: str) -> None:
    approval, resumed = bench.approved("refund", {"order": 7})
    expected = {"out_of_scope", "tool_unavailable"}
    if what == "grant":
        grants.revoke_grant(actor=bench.world.manager, grant=bench.grants["refund"])
    elif what == "tool":
        withdraw_tool(actor=bench.world.operator, tool=bench.tools["refund"])
    elif what == "run":
        operation(
            lambda: runs.end_run(
                run_id=resumed.run.id, boot_id=bench.boot.id, state=RunState.FAILED
            )
        )
        answer = bench.post(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "shop__refund"}},
            key=resumed.key,
        )
        assert (answer.status_code, answer.json()["code"]) == (401, "key_invalid")
        assert bench.fake.total == 0
        return
    else:
        changed = tool("refund", {"order": "integer"}, required=["order"], description="New words")
        bench.fake.set_tools([changed, tool("status", read_only=True)])
        bench.age_list()
    assert bench.code(resumed.key, "refund", {"order": 7}, approval) in expected
    assert bench.fake.total == 0
    assert state_of(approval) == ApprovalState.VOID


@pytest.mark.parametrize("step", ["claim", "ask"])
def test_it_is_judged_again_between_two_steps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The grant goes away after the call was admitted and before its next step."""
    approval, resumed = bench.approved("refund", {"order": 7})
    revoke = partial(grants.revoke_grant, actor=bench.world.manager, grant=bench.grants["refund"])

    async def revoke_meanwhile(arguments: Any, **schema: Any) -> None:
        await check_arguments(arguments, **schema)
        await asyncio.to_thread(revoke)

    monkeypatch.setattr("agents.gateways.mcp_calls.check_arguments", revoke_meanwhile)
    given = approval if step == "claim" else None
    assert bench.code(resumed.key, "refund", {"order": 7}, given) == "out_of_scope"
    assert bench.fake.total == 0
    assert Approval.objects.count() == 1
    assert state_of(approval) == ApprovalState.VOID


# --- how an execution ends --------------------------------------------------------------------


@ERAS
def test_a_tools_own_error_is_an_outcome(bench: Bench, mode: str) -> None:
    bench.fake.answer("refund", Error("already refunded"))
    approval, resumed = bench.approved("refund", {"order": 7})
    for _ in range(2):
        assert bench.call(resumed.key, "refund", {"order": 7}, approval, mode=mode).is_error
    row = Approval.objects.get(id=approval)
    assert (row.state, row.outcome_is_error) == (ApprovalState.EXECUTED, True)
    assert bench.fake.count("refund") == 1


@ERAS
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (RpcError(-32043, "CANARY", {"approval": "x"}), "connector_error"),
        (Giant(1_200_000), "result_too_large"),
    ],
)
def test_an_answered_error_is_an_outcome_and_is_replayed(
    bench: Bench, answer: Any, code: str, mode: str
) -> None:
    bench.fake.answer("refund", answer)
    approval, resumed = bench.approved("refund", {"order": 7})
    for _ in range(2):
        refused = bench.refused(resumed.key, "refund", {"order": 7}, approval, mode=mode)
        assert (refused.code, refused.data) == (-32040, {"code": code})
    assert state_of(approval) == ApprovalState.EXECUTED
    assert bench.fake.count("refund") == 1


def test_a_timeout_leaves_it_uncertain_for_ever(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_upstream, "CALL_SECONDS", 0.3)
    bench.fake.answer("refund", Hang())
    approval, resumed = bench.approved("refund", {"order": 7})
    assert bench.code(resumed.key, "refund", {"order": 7}, approval) == "outcome_uncertain"
    assert state_of(approval) == ApprovalState.UNCERTAIN
    code = bench.code(resumed.key, "refund", {"order": 7}, approval)
    assert code == "approval_already_decided"
    assert bench.fake.count("refund") == 1


@ERAS
def test_a_client_that_goes_away_leaves_it_uncertain(bench: Bench, mode: str) -> None:
    bench.fake.answer("refund", Hang())
    approval, resumed = bench.approved("refund", {"order": 7})

    async def leave() -> None:
        call = bench.call_async(resumed.key, "refund", {"order": 7}, approval, mode=mode)
        await asyncio.wait_for(call, 1.5)

    with pytest.raises(TimeoutError):
        asyncio.run(leave())
    eventually(lambda: state_of(approval) == ApprovalState.UNCERTAIN)
    assert bench.fake.count("refund") == 1
    eventually(lambda: GatewayRequest.objects.order_by("opened_at").last().state == "cancelled")  # type: ignore[union-attr]


def test_a_key_that_dies_during_the_call_leaves_it_uncertain(bench: Bench) -> None:
    bench.fake.answer("refund", Hang())
    approval, resumed = bench.approved("refund", {"order": 7})
    codes: list[str] = []
    thread = threading.Thread(
        target=lambda: codes.append(bench.code(resumed.key, "refund", {"order": 7}, approval))
    )
    thread.start()
    eventually(lambda: bench.fake.total == 1)
    operation(
        lambda: runs.end_run(run_id=resumed.run.id, boot_id=bench.boot.id, state=RunState.FAILED)
    )
    thread.join(10)
    assert codes == ["outcome_uncertain"]
    eventually(lambda: state_of(approval) == ApprovalState.UNCERTAIN)


def test_a_server_error_without_an_answer_leaves_it_uncertain(bench: Bench) -> None:
    approval, resumed = bench.approved("refund", {"order": 7})
    bench.call(resumed.key, "status", {})
    bench.fake.down = True
    assert bench.code(resumed.key, "refund", {"order": 7}, approval) == "outcome_uncertain"
    assert state_of(approval) == ApprovalState.UNCERTAIN


def test_what_was_never_sent_may_be_claimed_again(bench: Bench) -> None:
    approval, resumed = bench.approved("refund", {"order": 7})
    bench.call(resumed.key, "status", {})
    bench.fake.__exit__(None, None, None)
    code = bench.code(resumed.key, "refund", {"order": 7}, approval)
    assert code == "connector_unreachable"
    assert state_of(approval) == ApprovalState.APPROVED
    operation(
        lambda: runs.end_run(run_id=resumed.run.id, boot_id=bench.boot.id, state=RunState.FAILED)
    )
    assert state_of(approval) == ApprovalState.VOID


def test_a_refused_credential_runs_nothing(bench: Bench) -> None:
    approval, resumed = bench.approved("refund", {"order": 7})
    bench.call(resumed.key, "status", {})
    bench.fake.require_key("another")
    assert bench.code(resumed.key, "refund", {"order": 7}, approval) == "connector_auth"
    assert state_of(approval) == ApprovalState.APPROVED
    assert bench.fake.count("refund") == 0


def test_a_crash_after_the_claim_is_found_by_the_sweep(bench: Bench) -> None:
    """The claim is committed by a boot that dies before anything else happens."""
    approval, resumed = bench.approved("refund", {"order": 7})
    dead = Boot.objects.create(pid=1, host="test", role="web")
    Approval.objects.filter(id=approval).update(
        state=ApprovalState.EXECUTING, executing_boot_id=dead.id
    )
    Boot.objects.filter(id=dead.id).update(heartbeat_at=clock.database_now() - timedelta(minutes=1))
    code = bench.code(resumed.key, "refund", {"order": 7}, approval)
    assert code == "approval_already_decided"
    Boot.objects.filter(id=bench.boot.id).update(heartbeat_at=clock.database_now())
    sweep_control()
    assert state_of(approval) == ApprovalState.UNCERTAIN
    assert bench.fake.total == 0


def test_damaged_arguments_run_nothing(bench: Bench) -> None:
    approval, resumed = bench.approved("refund", {"order": 7})
    digest = Approval.objects.get(id=approval).decided_digest
    Blob.objects.filter(digest=digest).delete()
    assert bench.code(resumed.key, "refund", {"order": 7}, approval) == "content_damaged"
    assert bench.fake.total == 0
    eventually(lambda: state_of(approval) == ApprovalState.APPROVED)
