"""Whatever a run may ask for at once can also be answered at once: no thread is locked."""

from __future__ import annotations

import pytest

from agents.services.approvals import APPROVALS_PER_RUN
from chat.services.approvals import MAX_ANSWERS
from tests.chat.desk import Desk, approve, new_thread
from tests.fakes.model_provider import call, calls, text

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def test_as_many_answers_are_taken_as_a_run_may_ask_for() -> None:
    assert MAX_ANSWERS >= APPROVALS_PER_RUN


def test_a_run_that_asks_for_too_much_is_answered_and_goes_on(desk: Desk) -> None:
    asked = [
        call("shop__refund", {"order": order, "amount": 1}, f"call_{order}")
        for order in range(APPROVALS_PER_RUN + 1)
    ]
    desk.provider.script(calls(*asked), text("Done."))
    front, thread = desk.member(), new_thread()
    interrupts = front.send("Refund them all", thread=thread).interrupts
    assert len(interrupts) == APPROVALS_PER_RUN
    done = front.send(thread=thread, resume=[approve(each) for each in interrupts])
    assert done.last["outcome"] == {"type": "success"}
    assert desk.fake.count("refund") == APPROVALS_PER_RUN
    assert {desk.state(each) for each in interrupts} == {"executed"}
