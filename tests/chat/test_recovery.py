"""Whatever breaks, a run comes to a told end soon, and hinders no other thread or run."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError

from agents.choices import RunState
from agents.clock import database_now
from agents.errors import StoreUnavailable
from agents.models import Boot, Run
from agents.services.boots import start_boot
from agents.services.runs import end_run
from chat.models import SessionEvent
from chat.services import children, execution, fences, log, stores, turns
from chat.services.jobs import Job
from chat.services.terminal import sweep_ends
from tests.chat.desk import Desk, Front, Streaming, eventually, new_thread, settle_writes
from tests.fakes.model_provider import hang, text

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody executes is ended soon."""
    monkeypatch.setattr(fences, "STRAY_SECONDS", 0.5)
    monkeypatch.setattr(fences, "STRAY_INTERVAL", 0.1)


def begin_hanging(desk: Desk, front: Front, thread: str) -> Streaming:
    desk.provider.script(hang(after_chunks=3, content="one two three four five six seven"))
    stream = front.begin("Hi", thread=thread, run="r")
    stream.wait_for("TEXT_MESSAGE_CONTENT")
    return stream


def untell() -> None:
    """As after a crash between the ends of all runs and their telling."""
    eventually(lambda: not execution.executor._active)
    settle_writes()
    SessionEvent.objects.filter(type="RUN_FINISHED").delete()
    Run.objects.update(terminal_logged=False)


# --- ends that could not be written ---------------------------------------------------------


def test_an_end_that_the_database_refuses_at_first_is_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    def failing(**end: Any) -> bool:
        attempts.append(end)
        if len(attempts) <= 2:
            raise OperationalError
        return end_run(**end)

    monkeypatch.setattr(execution, "end_run", failing)
    desk.provider.script(text("Hello"))
    answer = desk.member().send("Hi", thread=new_thread())
    assert answer.last["outcome"] == {"type": "success"}
    assert len(attempts) == 3


def test_a_run_whose_end_was_given_up_is_ended_by_its_own_process(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, soon: None
) -> None:
    def failing(**_end: Any) -> bool:
        raise OperationalError

    desk.provider.script(text("Hello"), text("Back."))
    front, thread = desk.member(), new_thread()
    with monkeypatch.context() as patch:
        patch.setattr(execution, "end_run", failing)
        patch.setattr(execution, "END_ATTEMPTS", 1)
        assert front.send("Hi", thread=thread).code == "store_unavailable"
    assert front.send("Again", thread=thread).text == "Back."


def test_a_run_that_began_although_the_commit_was_unclear_is_ended(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, soon: None
) -> None:
    async def unclear(step: Callable[[], Any], **options: Any) -> Any:
        await stores.control(step, **options)
        raise StoreUnavailable

    monkeypatch.setattr(turns, "control", unclear)
    front, thread = desk.member(), new_thread()
    assert front.send("Hi", thread=thread, run="r").code == "store_unavailable"
    eventually(lambda: Run.objects.get().terminal_logged)
    assert Run.objects.get().state == RunState.FAILED
    answer = front.attach(thread, "r")
    assert answer.code == "store_unavailable"


def test_a_child_whose_caller_left_while_it_began_does_not_stay(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    front, thread = desk.member(), new_thread()
    stream = begin_hanging(desk, front, thread)
    root = Run.objects.get()
    committed, go_on = threading.Event(), threading.Event()
    begin = children._begin

    def slowly(*given: Any) -> Job:
        job = begin(*given)
        committed.set()
        go_on.wait(5)
        return job

    monkeypatch.setattr(children, "_begin", slowly)

    async def leave() -> None:
        calling = asyncio.create_task(
            children.run_child(
                parent_run_id=root.id, agent_id=root.agent_id, tool_name="t", prompt="Hello?"
            )
        )
        await asyncio.to_thread(committed.wait, 5)
        calling.cancel()
        go_on.set()
        await asyncio.wait({calling})

    desk.stage.server.run(leave)
    eventually(lambda: Run.objects.filter(depth=1, state=RunState.CANCELLED).exists())
    front.cancel(thread, "r")
    stream.finish()


# --- ends that could not be told ------------------------------------------------------------


def test_a_damaged_event_hinders_no_end(desk: Desk) -> None:
    desk.provider.script(text("a"), text("b"))
    front = desk.member()
    front.send("Hi", thread="my-own-id")
    front.send("Hi", thread=new_thread())
    untell()
    started = SessionEvent.objects.get(
        run_id=Run.objects.order_by("created_at")[0].id, type="RUN_STARTED"
    )
    assert started.payload is not None
    started.payload = bytes([*started.payload[:-1], started.payload[-1] ^ 1])
    started.save(update_fields=["payload"])
    assert sweep_ends() == 2
    settle_writes()
    told = SessionEvent.objects.filter(type="RUN_FINISHED")
    assert told.count() == 2
    assert not Run.objects.filter(terminal_logged=False).exists()


def test_an_end_that_cannot_be_told_hinders_no_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.provider.script(text("a"), text("b"))
    front = desk.member()
    front.send("Hi", thread=new_thread())
    front.send("Hi", thread=new_thread())
    untell()
    first = Run.objects.order_by("created_at")[0]
    append = log.append_sync

    def failing(place: log.Place, *rest: Any) -> Any:
        if place.run_id == first.id:
            raise OperationalError
        return append(place, *rest)

    monkeypatch.setattr(log, "append_sync", failing)
    assert sweep_ends() == 1
    assert Run.objects.get(terminal_logged=False) == first


# --- processes that died --------------------------------------------------------------------


def test_the_next_message_after_a_kill_waits_for_no_sweep(desk: Desk) -> None:
    desk.provider.script(text("a"), text("Here again."))
    front, thread = desk.member(), new_thread()
    front.send("Hi", thread=thread)
    dead = start_boot(role="web")
    Boot.objects.filter(id=dead.id).update(heartbeat_at=database_now() - dt.timedelta(seconds=6))
    untell()
    Run.objects.update(state=RunState.RUNNING, boot=dead)
    assert front.send("Hello?", thread=thread).text == "Here again."
    first = Run.objects.order_by("created_at")[0]
    assert (first.state, first.error_code) == (RunState.FAILED, "interrupted_by_restart")
    assert SessionEvent.objects.get(type="RUN_ERROR").run_id == first.id


# --- fences ---------------------------------------------------------------------------------


@pytest.fixture
def blocked() -> Iterator[threading.Event]:
    """Blocks whoever waits for it until the test ends."""
    event = threading.Event()
    yield event
    event.set()


def test_fences_wait_for_no_reader(desk: Desk, blocked: threading.Event) -> None:
    front, thread = desk.member(), new_thread()
    stream = begin_hanging(desk, front, thread)

    occupied: list[asyncio.Future[bool]] = []

    async def occupy() -> None:
        readers = [stores.read(blocked.wait, 10) for _ in range(stores.READERS)]
        occupied.extend(map(asyncio.ensure_future, readers))

    desk.stage.server.run(occupy)
    Run.objects.update(cancel_requested=True)
    desk.provider.wait_until_gone()
    blocked.set()
    assert stream.finish()[-1]["outcome"] == {"type": "cancelled"}


def test_a_store_that_does_not_answer_the_fences_stops_the_work(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, blocked: threading.Event
) -> None:
    monkeypatch.setattr(fences, "BLIND_SECONDS", 0.5)
    front, thread = desk.member(), str(uuid.uuid4())
    stream = begin_hanging(desk, front, thread)

    def silent(*_: Any) -> list[fences.Verdict]:
        blocked.wait(10)
        return []

    monkeypatch.setattr(fences, "verdicts", silent)
    desk.provider.wait_until_gone()
    blocked.set()
    assert stream.finish()[-1]["type"] == "RUN_ERROR"
