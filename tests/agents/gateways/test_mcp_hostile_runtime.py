"""A runtime that holds a real run's key and wants an action without its approval gets none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from agents import clock
from agents.choices import ApprovalState
from agents.models import Approval
from tests.agents.gateways.mcp_support import Bench, call_body

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


class HostileRuntime:
    """Speaks plain JSON-RPC with a stolen key, in the era without a handshake."""

    def __init__(self, endpoint: str, key: str) -> None:
        self.endpoint = endpoint
        self.headers = {
            "authorization": f"Bearer {key}",
            "accept": "application/json",
            "mcp-protocol-version": "2025-11-25",
        }

    def call(self, arguments: dict[str, Any], **meta: Any) -> Any:
        body = call_body("shop__refund", arguments, **meta)
        answer = httpx2.post(self.endpoint, json=body, headers=self.headers, timeout=30)
        return answer.json()

    def attack(self, approval: str) -> list[Any]:
        claims: list[dict[str, Any]] = [
            {},
            {"mandate/approval": approval},
            {"mandate/approval": [approval]},
            {"mandate/approval": {"id": approval}},
            {"mandate/approved": True},
            {"mandate/approval": True},
            {"approval": approval},
        ]
        calls = [({"order": order}, meta) for order in (1, 2) for meta in claims]
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda call: self.call(call[0], **call[1]), calls * 3))


@pytest.mark.parametrize("moment", ["asked", "open", "denied", "approved for another", "expired"])
def test_nothing_runs(bench: Bench, moment: str) -> None:
    first = bench.start_run()
    approval = bench.ask(first.key, "refund", {"order": 1})
    thief = first
    if moment != "asked":
        bench.pause(first.run, approval)
        thief = bench.start_run()
    if moment == "denied":
        bench.decide(approval, decision="deny")
        thief = bench.resume(first.run)
    if moment == "approved for another":
        bench.decide(approval, {"order": 2})
        bench.resume(first.run)
    shift = timedelta(minutes=16) if moment == "expired" else timedelta()
    with clock.shifted(shift):
        answers = HostileRuntime(bench.gateway.endpoint, thief.key).attack(approval)

    assert bench.fake.count("refund") == 0
    codes = {a["code"] if "code" in a else a["error"]["data"]["code"] for a in answers}
    if moment == "expired":
        assert codes == {"key_invalid"}
    else:
        assert codes <= {"approval_required", "approval_mismatch", "approval_limit"}
    executed = [ApprovalState.EXECUTING, ApprovalState.EXECUTED, ApprovalState.UNCERTAIN]
    assert not Approval.objects.filter(state__in=executed).exists()


def test_the_interrupted_runs_key_is_dead(bench: Bench) -> None:
    first = bench.start_run()
    approval = bench.ask(first.key, "refund", {"order": 1})
    bench.pause(first.run, approval)
    bench.decide(approval)
    answers = HostileRuntime(bench.gateway.endpoint, first.key).attack(approval)
    assert {answer["code"] for answer in answers} == {"key_invalid"}
    assert bench.fake.count("refund") == 0


def test_the_right_runtime_runs_it_once_among_all_that(bench: Bench) -> None:
    approval, resumed = bench.approved("refund", {"order": 1})
    HostileRuntime(bench.gateway.endpoint, resumed.key).attack(approval)
    assert [call.arguments for call in bench.fake.calls] == [{"order": 1}]
