"""One message and its answer, over the real wire."""

from __future__ import annotations

import pytest

from tests.chat.desk import Desk, new_thread
from tests.fakes.model_provider import text

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def test_it_works(desk: Desk) -> None:
    desk.provider.script(text("Hello, how can I help?"))
    thread = new_thread()
    answer = desk.member().send("Hi", thread=thread, run="run-1")
    assert answer.status == 200, answer.body
    assert answer.kinds[0] == "RUN_STARTED"
    assert answer.text == "Hello, how can I help?"
    assert answer.last == {
        "type": "RUN_FINISHED",
        "threadId": thread,
        "runId": "run-1",
        "outcome": {"type": "success"},
        "usage": answer.last["usage"],
    }
