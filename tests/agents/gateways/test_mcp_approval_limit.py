"""A run may ask for 32 approvals, which a person can still answer, and not for more."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.backends.utils import CursorWrapper

from agents.choices import ApprovalState
from agents.errors import ApprovalLimit
from agents.models import Approval, Blob
from agents.policy import Rights
from agents.selectors.rights import rights_of_text
from agents.services import approvals
from agents.services.approvals import APPROVALS_PER_RUN, request_approval
from agents.writer import get_writer
from tests.agents.gateways.mcp_support import Bench, RunKey, call_body

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def ask(bench: Bench, key: str, order: int) -> Any:
    """The error of one action call without an approval."""
    return bench.post(call_body("shop__refund", {"order": order}), key=key).json()["error"]


def rights_of(started: RunKey) -> Rights:
    def read(cursor: CursorWrapper) -> Rights:
        return rights_of_text(cursor, started.key, tool_name="shop__refund")

    return get_writer().run_sync(read)


def request(rights: Rights) -> None:
    request_approval(
        key=rights.key, tool=rights.tools[0], arguments_digest="0" * 64, tool_call_id="call"
    )


def test_thirty_two_wait_and_the_next_is_refused_without_a_trace(bench: Bench) -> None:
    assert APPROVALS_PER_RUN == 32
    started = bench.start_run()
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda order: ask(bench, started.key, order), range(36)))
    codes = sorted(answer["data"]["code"] for answer in answers)
    assert codes == ["approval_limit"] * 4 + ["approval_required"] * 32
    assert Approval.objects.filter(state=ApprovalState.REQUESTED).count() == 32

    blobs = Blob.objects.count()
    refused = ask(bench, started.key, 99)
    assert refused["code"] == -32040
    assert refused["data"] == {"code": "approval_limit", "limit": 32}
    assert Blob.objects.count() == blobs
    assert Approval.objects.count() == 32
    # Another run is another matter.
    assert ask(bench, bench.start_run().key, 1)["data"]["code"] == "approval_required"


def test_processes_that_ask_at_once_share_one_count(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads with transactions of their own stand for processes."""
    rights = rights_of(bench.start_run())
    with transaction.atomic():
        for _ in range(APPROVALS_PER_RUN - 1):
            request(rights)
    count = approvals.require_room

    def slowly(run_id: Any) -> None:
        count(run_id)
        time.sleep(0.1)

    monkeypatch.setattr(approvals, "require_room", slowly)
    refused: list[ApprovalLimit] = []

    def process() -> None:
        try:
            with transaction.atomic():
                request(rights)
        except ApprovalLimit as error:
            refused.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=process) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(refused) == 3
    assert Approval.objects.count() == APPROVALS_PER_RUN
