"""Decisions from the inbox: one by one; the last one lets the run go on by itself."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agents.choices import InitiatorKind, RunState
from agents.errors import ApprovalConflict, ArgumentsInvalid, DomainError, NotFound
from agents.models import Run
from agents.services.runs import Principal
from chat.services.approvals import Answer
from chat.services.deciding import Decision, decide
from tests.chat.desk import Desk, approve, new_thread
from tests.fakes.model_provider import call, calls, text

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

REFUND = {"order": 1042, "amount": 20}
OTHER = {"order": 7, "amount": 3}

Decide = Callable[..., Decision]


@pytest.fixture
def by_member(desk: Desk) -> Decide:
    member = Principal(InitiatorKind.MEMBER, "mandate", str(desk.world.member_user.id))

    def decide_one(
        interrupt: dict[str, Any], decision: Any = "approve", **options: Any
    ) -> Decision:
        who = options.pop("principal", member)
        answer = Answer(interrupt["id"], decision, **options)
        return desk.stage.server.run(lambda: decide(who, answer))

    return decide_one


def two(desk: Desk, thread: str) -> list[dict[str, Any]]:
    desk.provider.script(calls(call("shop__refund", REFUND, "a"), call("shop__refund", OTHER, "b")))
    found = desk.member().send("Refund both", thread=thread).interrupts
    return sorted(found, key=lambda i: -i["metadata"]["arguments"]["order"])


def test_the_last_decision_starts_the_run_that_goes_on(desk: Desk, by_member: Decide) -> None:
    thread = new_thread()
    first, second = two(desk, thread)
    desk.provider.script(text("Done."))
    assert by_member(first, "deny", reason="no").run is None
    assert desk.fake.total == 0
    assert Run.objects.get().state == RunState.INTERRUPTED
    decided = by_member(second, edited={"order": 7, "amount": 1})
    assert decided.run is not None
    assert desk.member().attach(thread, decided.run.client_run_id).text == "Done."
    assert [c.arguments for c in desk.fake.calls] == [{"order": 7, "amount": 1}]


def test_one_from_the_inbox_and_the_rest_from_the_thread(desk: Desk, by_member: Decide) -> None:
    thread = new_thread()
    first, second = two(desk, thread)
    by_member(first)
    desk.provider.script(text("Done."))
    assert [i["id"] for i in desk.member().thread(thread)["interrupts"]] == [second["id"]]
    assert desk.member().send(thread=thread, resume=[approve(second)]).text == "Done."
    assert sorted(c.arguments["order"] for c in desk.fake.calls) == [7, 1042]


def test_both_at_once_start_one_run(desk: Desk, by_member: Decide) -> None:
    first, second = two(desk, thread := new_thread())
    desk.provider.script(text("Done."))
    with ThreadPoolExecutor(2) as pool:
        decided = list(pool.map(by_member, [first, second]))
    (run,) = [d.run for d in decided if d.run is not None]
    assert desk.member().attach(thread, run.client_run_id).text == "Done."
    assert sorted(c.arguments["order"] for c in desk.fake.calls) == [7, 1042]


def test_the_same_decision_five_times_counts_once(desk: Desk, by_member: Decide) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)), text("Done."))
    thread = new_thread()
    (interrupt,) = desk.member().send("Refund", thread=thread).interrupts

    def attempt(_: int) -> str:
        try:
            by_member(interrupt)
        except DomainError as refused:
            return refused.code
        return "decided"

    with ThreadPoolExecutor(5) as pool:
        results = sorted(pool.map(attempt, range(5)))
    assert results.count("decided") == 1
    assert set(results) <= {"decided", "approval_already_decided", "run_active"}
    run = Run.objects.get(resumes__isnull=False)
    assert desk.member().attach(thread, run.client_run_id).text == "Done."
    assert desk.fake.count("refund") == 1


def test_refusals_decide_nothing(desk: Desk, by_member: Decide) -> None:
    first, second = two(desk, new_thread())
    for principal in (
        Principal(InitiatorKind.MEMBER, "mandate", str(desk.world.manager_user.id)),
        Principal(InitiatorKind.END_USER, "mandate", str(desk.world.member_user.id)),
    ):
        with pytest.raises(NotFound):
            by_member(first, principal=principal)
    with pytest.raises(ArgumentsInvalid):
        by_member(first, edited={"order": "x"})
    for stranger in ("", "x", new_thread()):
        with pytest.raises(NotFound):
            by_member({"id": stranger})
    assert (desk.state(first), desk.state(second), desk.fake.total) == ("open", "open", 0)
    by_member(first, "deny")
    with pytest.raises(ApprovalConflict):
        by_member(first)
    desk.unpublish()
    with pytest.raises(ApprovalConflict) as refused:
        by_member(second)
    assert refused.value.extra["reason"] == "unpublished"
