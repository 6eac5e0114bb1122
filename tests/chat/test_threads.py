"""A principal's threads: list, rename, erase; what is somebody else's does not exist."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from ag_ui.core import AgentCapabilities
from django.core.management import call_command

from agents import content_store
from agents.models import Approval, AuditEvent, Blob, Run
from agents.services.scanning import scan_control
from chat.models import SessionEvent, Thread, ThreadText
from chat.selectors.conversation import _Fold
from chat.selectors.erased import content_of_erased
from chat.selectors.log import Entry
from chat.services import log, threads
from chat.services.threads import erase_content, sweep_erased
from chat.services.titles import title_from
from tests.chat.desk import Desk, approve, deny, new_thread
from tests.fakes.mcp_server import Text
from tests.fakes.model_provider import call, calls, text

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

REFUND = {"order": 1042, "amount": 20}


def test_the_list_is_the_callers_own_newest_first(desk: Desk) -> None:
    desk.provider.default = text("ok")
    front, other = desk.member(), desk.end_user()
    first, second = new_thread(), new_thread()
    front.send("First question", thread=first)
    front.send("Second question", thread=second)
    other.send("Not yours", thread=new_thread())
    items = front.http.get("/apps/v1/threads").json()["items"]
    assert [(i["id"], i["title"], i["state"]) for i in items] == [
        (second, "Second question", "idle"),
        (first, "First question", "idle"),
    ]
    assert (items[0]["agent"], items[0]["environment"]) == ("order-desk", "production")
    front.send("Once more", thread=first)
    assert front.http.get("/apps/v1/threads").json()["items"][0]["id"] == first


def test_the_list_has_pages(desk: Desk) -> None:
    desk.provider.default = text("ok")
    front = desk.member()
    threads = [new_thread() for _ in range(3)]
    for thread in threads:
        front.send("Hi", thread=thread)
    page = front.http.get("/apps/v1/threads?limit=2").json()
    rest = front.http.get("/apps/v1/threads", params={"limit": 2, "before": page["next"]}).json()
    assert [i["id"] for i in [*page["items"], *rest["items"]]] == threads[::-1]
    assert rest["next"] is None
    for query in ({"limit": 0}, {"limit": 201}, {"before": "x"}):
        assert front.http.get("/apps/v1/threads", params=query).status_code == 422


def test_states_say_who_waits(desk: Desk) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)), text("Hello", pace=0.3, chunk=1))
    front, waiting, running = desk.member(), new_thread(), new_thread()
    front.send("Refund", thread=waiting)
    stream = front.begin("Hi", thread=running, run="r")
    stream.wait_for("RUN_STARTED")
    items = {i["id"]: i for i in front.http.get("/apps/v1/threads").json()["items"]}
    assert (items[waiting]["state"], items[waiting]["open_approvals"]) == ("waiting", 1)
    assert (items[running]["state"], items[running]["open_approvals"]) == ("running", 0)
    run = front.thread(running)["run"]
    assert (run["runId"], run["state"]) == ("r", "running")
    stream.finish()


def test_a_title_can_be_changed(desk: Desk) -> None:
    desk.provider.script(text("ok"))
    front, thread = desk.member(), new_thread()
    front.send("Hi", thread=thread)
    path = f"/apps/v1/threads/{thread}"
    assert front.http.patch(path, json={"title": " Trip "}).json()["title"] == "Trip"
    assert front.thread(thread)["title"] == "Trip"
    for bad in ({"title": ""}, {"title": "  "}, {"title": "x" * 201}, {"title": "a\nb"}, {}):
        assert front.http.patch(path, json=bad).status_code == 422
    assert desk.end_user().http.patch(path, json={"title": "Mine"}).status_code == 404


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("Hello\n\n  world", "Hello world"),
        ("x" * 100, "x" * 79 + "…"),
        ("word " * 40, ("word " * 15).strip() + "…"),
        ("a\x00b\u202ec", "a b c"),
    ],
)
def test_a_title_is_the_first_words(said: str, title: str) -> None:
    assert title_from(said) == title
    assert len(title_from(said)) <= 80


def test_erasing_leaves_rows_and_digests_and_no_text(desk: Desk) -> None:
    desk.fake.answer("refund", Text("outcome canary 7f31"))
    desk.provider.script(
        calls(call("shop__refund", {"order": 31337, "amount": 1})),
        text("done canary"),
        calls(call("shop__refund", {"order": 31338, "amount": 2})),
        text("then not"),
    )
    front, thread = desk.end_user(), new_thread()
    (first,) = front.send("Question canary", thread=thread).interrupts
    front.send(thread=thread, resume=[approve(first)])
    (second,) = front.send("Another canary", thread=thread).interrupts
    front.send(thread=thread, resume=[deny(second, "reason canary")])
    instructions = Blob.objects.filter(kind="definition").count() or Blob.objects.count()
    assert front.http.delete(f"/apps/v1/threads/{thread}").status_code == 204

    assert SessionEvent.objects.count() == 0
    assert ThreadText.objects.count() == 0
    assert not Blob.objects.filter(kind__in=["arguments", "outcome", "deny_reason"]).exists()
    assert Blob.objects.count() <= instructions
    assert Run.objects.count() == 4
    assert Thread.objects.get().deleted_at is not None
    event = AuditEvent.objects.get(action="thread.erase")
    assert (event.target_id, event.actor_kind) == (thread, "principal")
    out = StringIO()
    call_command("verify_store", stdout=out)

    assert front.http.get(f"/apps/v1/threads/{thread}").status_code == 404
    assert front.http.delete(f"/apps/v1/threads/{thread}").status_code == 404
    assert front.attach(thread, first["id"]).status == 404
    assert front.send("Hello?", thread=thread).status == 404
    assert front.http.get("/apps/v1/threads").json()["items"] == []


def test_content_that_another_thread_shares_stays(desk: Desk) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)), calls(call("shop__refund", REFUND)))
    front, one, two = desk.member(), new_thread(), new_thread()
    (first,) = front.send("Refund", thread=one).interrupts
    (second,) = front.send("Refund", thread=two).interrupts
    front.http.delete(f"/apps/v1/threads/{one}")
    desk.provider.script(text("Done."))
    assert front.send(thread=two, resume=[approve(second)]).text == "Done."
    assert desk.state(first) == "void"
    assert desk.fake.count("refund") == 1


def test_content_that_is_stored_during_an_erasure_stays(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread may be about to name it."""
    desk.provider.script(calls(call("shop__refund", REFUND)))
    front, thread = desk.member(), new_thread()
    front.send("Refund", thread=thread)
    blob = Blob.objects.get(kind="arguments")
    names = content_of_erased

    def and_meanwhile(ids: Sequence[UUID]) -> dict[str, set[tuple[UUID, str]]]:
        found = names(ids)
        content_store.touch(blob.organization_id, blob.kind, blob.digest)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(threads, "content_of_erased", and_meanwhile)
        assert front.http.delete(f"/apps/v1/threads/{thread}").status_code == 204
    assert Blob.objects.filter(id=blob.id).exists()
    assert (sweep_erased(), sweep_erased()) == (True, False)
    assert not Blob.objects.filter(id=blob.id).exists()


def test_an_outcome_that_came_after_the_erasure_is_swept(desk: Desk) -> None:
    desk.provider.script(calls(call("shop__refund", REFUND)), text("Done."))
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund", thread=thread).interrupts
    front.send(thread=thread, resume=[approve(interrupt)])
    front.http.delete(f"/apps/v1/threads/{thread}")
    digest = content_store.put(desk.world.organization.id, "outcome", b"late")
    Approval.objects.update(outcome_digest=digest)
    assert (sweep_erased(), sweep_erased()) == (True, False)
    assert not Blob.objects.filter(kind="outcome").exists()


def test_an_approved_call_took_its_own_time_not_the_persons() -> None:
    asking, resuming = uuid.uuid4(), uuid.uuid4()
    fold = _Fold()
    for seq, (run_id, kind, seconds, members) in enumerate(
        [
            (asking, "RUN_STARTED", 1, {}),
            (asking, "TOOL_CALL_START", 2, {"toolCallId": "c", "toolCallName": "shop__refund"}),
            (resuming, "RUN_STARTED", 600, {}),
            (
                resuming,
                "TOOL_CALL_RESULT",
                600.4,
                {"toolCallId": "c", "messageId": "m", "content": "ok"},
            ),
        ]
    ):
        payload = {"type": kind, "timestamp": round(seconds * 1000), **members}
        fold.add(Entry(seq, kind, run_id, log.encode(payload)))
    assert fold.calls["c"]["seconds"] == 0.4


def test_a_crash_between_the_stores_is_swept(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.provider.script(text("ok"))
    front, thread = desk.member(), new_thread()
    front.send("Hi", thread=thread)
    with monkeypatch.context() as patch:
        patch.setattr("chat.services.threads.erase_content", lambda _: None)
        front.http.delete(f"/apps/v1/threads/{thread}")
    assert SessionEvent.objects.exists()
    assert (sweep_erased(), sweep_erased()) == (True, False)
    assert not SessionEvent.objects.exists()
    erase_content([])


def test_ids_of_others_are_all_the_same_404(desk: Desk) -> None:
    desk.provider.default = text("ok")
    front, thread = desk.member(), new_thread()
    front.send("Hi", thread=thread, run="r")
    mallory = desk.end_user("mallory")
    bodies = set()
    for wanted in (thread, str(uuid.uuid4()), "1", "x" * 200, "%00", "..%2f"):
        answer = mallory.http.get(f"/apps/v1/threads/{wanted}")
        assert answer.status_code == 404
        bodies.add(answer.json()["code"])
    assert bodies == {"not_found"}
    assert mallory.send("Hi", thread=thread).status == 404
    with_staging = mallory.http.get("/apps/v1/threads").json()
    assert with_staging["items"] == []


def test_agents_and_capabilities(desk: Desk) -> None:
    front = desk.member()
    assert front.http.get("/apps/v1/agents").json() == {
        "items": [
            {
                "slug": "order-desk",
                "name": "Order desk",
                "environment": "production",
                "version": 1,
            }
        ]
    }
    answer = front.http.get("/apps/v1/agents/order-desk/capabilities")
    declared = AgentCapabilities.model_validate(answer.json())
    assert declared.tools is not None
    assert [t.name for t in declared.tools.items or []] == ["shop__refund", "shop__status"]
    assert declared.tools.client_provided is False
    assert declared.human_in_the_loop is not None
    assert declared.human_in_the_loop.approve_with_edits is True
    assert None not in answer.json().values()
    assert front.http.get("/apps/v1/agents/nobody/capabilities").status_code == 404
    desk.unpublish()
    assert front.http.get("/apps/v1/agents").json() == {"items": []}
    assert front.http.get("/apps/v1/agents/order-desk/capabilities").status_code == 404


def test_the_control_store_learns_no_content(desk: Desk) -> None:
    desk.fake.answer("refund", Text("OUTCOME-CANARY-4417 refunded to the customer's account"))
    desk.provider.script(
        calls(call("shop__refund", {"order": 99887766, "amount": 1})),
        text("ANSWER-CANARY-4417 it was refunded as you wished"),
    )
    front, thread = desk.end_user(), new_thread()
    (asked,) = front.send("QUESTION-CANARY-4417 please", thread=thread).interrupts
    front.send(thread=thread, resume=[approve(asked)])
    canaries = ["QUESTION-CANARY-4417", "ANSWER-CANARY-4417", "OUTCOME-CANARY-4417"]
    assert scan_control(canaries=canaries) == []


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "https://good.example.evil",
                                    "http://good.example", "https://good.example:444"])  # fmt: skip
def test_other_origins_are_told_nothing(desk: Desk, settings: Any, origin: str) -> None:
    settings.CHAT_ORIGINS = frozenset({"https://good.example"})
    front = desk.member()
    headers = {"origin": origin, "access-control-request-method": "POST"}
    for path in ("/apps/v1/agents/order-desk", "/apps/v1/threads", "/apps/v1/tokens"):
        answer = front.http.options(path, headers=headers)
        assert "access-control-allow-origin" not in answer.headers
        answer = front.http.get(path, headers=headers)
        assert "access-control-allow-origin" not in answer.headers


def test_a_listed_origin_may_call_without_cookies(desk: Desk, settings: Any) -> None:
    settings.CHAT_ORIGINS = frozenset({"https://good.example"})
    desk.provider.script(text("ok"))
    front = desk.member()
    front.http.headers["origin"] = "https://good.example"
    for path in ("/apps/v1/agents/order-desk", "/apps/v1/threads", "/apps/v1/tokens"):
        answer = front.http.options(path, headers={"access-control-request-method": "POST"})
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == "https://good.example"
        assert "authorization" in answer.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in answer.headers
    answers = [
        front.send("Hi", thread=new_thread()).headers,
        front.http.get("/apps/v1/threads").headers,
        front.http.post("/apps/v1/agents/order-desk", content=b"").headers,
    ]
    for headers in answers:
        assert headers["access-control-allow-origin"] == "https://good.example"
        assert "origin" in headers["vary"].lower()


def test_no_origin_is_listed_by_default(desk: Desk, settings: Any) -> None:
    assert frozenset() == settings.CHAT_ORIGINS
    answer = desk.member().http.get("/apps/v1/agents", headers={"origin": "https://good.example"})
    assert "access-control-allow-origin" not in answer.headers
