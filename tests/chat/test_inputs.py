"""What bad input gets: a problem document with a code, before anything begins."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pytest

from agents.models import Run
from definitions.services import drafts
from tests.chat.desk import Desk, new_thread, run_input
from tests.fakes.model_provider import text

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

PATH = "/apps/v1/agents/order-desk"


def body(**changes: Any) -> dict[str, Any]:
    return {**run_input("Hi", new_thread(), "r", (), None), **changes}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in body().items() if key != name}


@pytest.fixture
def http(desk: Desk) -> httpx.Client:
    return desk.member().http


def refused(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["code"] == code
    assert Run.objects.count() == 0
    return document


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "malformed_body"),
        (b"{", 400, "malformed_body"),
        (b'{"threadId": "\xff"}', 400, "malformed_body"),
        (b'{"threadId": "\\ud800"}', 400, "malformed_body"),
        (b'{"a": NaN}', 400, "malformed_body"),
        (b"[]", 422, "invalid"),
        (b'"text"', 422, "invalid"),
        (b"[" * 5000 + b"]" * 5000, 400, "malformed_body"),
        (b"[" * 200 + b"]" * 200, 413, "too_deep"),
        (b'"' + b"x" * 2**20 + b'"', 413, "too_large"),
    ],
)
def test_malformed_bodies(http: httpx.Client, content: bytes, status: int, code: str) -> None:
    response = http.post(PATH, content=content, headers={"content-type": "application/json"})
    refused(response, status, code)


@pytest.mark.parametrize(
    "value",
    [
        without("threadId"),
        without("runId"),
        without("messages"),
        body(threadId=7),
        body(threadId=""),
        body(threadId="x" * 129),
        body(threadId="a\x00b"),
        body(threadId="a\nb"),
        body(threadId="some words"),
        body(threadId="caf\u00e9"),
        body(runId="some words"),
        body(runId="x" * 129),
        body(messages="hi"),
        body(messages=[{"role": "user", "content": "no id"}]),
        body(messages=[{"id": "1", "role": "wizard", "content": "hi"}]),
        body(messages=[{"id": "1", "role": "user", "content": 7}]),
        body(messages=[{"id": "", "role": "user", "content": "hi"}]),
        body(messages=[]),
        body(messages=[{"id": "1", "role": "user", "content": "  \n"}]),
        body(messages=[{"id": "1", "role": "user", "content": [{"type": "text"}]}]),
        body(resume="all"),
        body(resume=[{"interruptId": "x", "status": "approved"}]),
        body(resume=[{"status": "resolved"}]),
        body(protocolVersion="2.0"),
        body(protocolVersion=1),
    ],
)
def test_wrong_fields(http: httpx.Client, value: Any) -> None:
    response = http.post(PATH, json=value)
    assert response.status_code == 422, response.text
    assert response.json()["code"] in {"invalid", "nothing_to_run"}
    assert Run.objects.count() == 0


def test_nothing_of_the_input_is_repeated(http: httpx.Client) -> None:
    canary = "a very secret question"
    for value in (body(threadId=[canary]), body(messages=[{"id": canary, "role": canary}])):
        assert canary not in http.post(PATH, json=value).text


def test_a_message_of_more_than_64_kib_is_too_large(http: httpx.Client, desk: Desk) -> None:
    message = {"id": "1", "role": "user", "content": "\u00e9" * (32 * 1024 + 1)}
    refused(http.post(PATH, json=body(messages=[message])), 413, "too_large")
    desk.provider.script(text("ok"))
    message["content"] = "\u00e9" * (32 * 1024)
    assert http.post(PATH, json=body(messages=[message])).status_code == 200


def test_media_types_and_methods(http: httpx.Client) -> None:
    content = json.dumps(body()).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        response = http.post(PATH, content=content, headers={"content-type": kind})
        refused(response, 415, "unsupported_media_type")
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    refused(http.post(PATH, content=content, headers=headers), 415, "unsupported_media_type")
    refused(http.get(PATH), 405, "method_not_allowed")
    refused(http.put(PATH, json=body()), 405, "method_not_allowed")
    refused(http.post("/apps/v1/threads/x/runs/y/events"), 405, "method_not_allowed")


def test_credentials(desk: Desk, http: httpx.Client) -> None:
    url = desk.stage.server.url + PATH
    token = http.headers["authorization"].removeprefix("Bearer ")
    for authorization in (None, "Bearer", "Bearer nothing", f"Basic {token}", f"Bearer {token}x",
                          f"Bearer {desk.world.key_text}"):  # fmt: skip
        headers = {} if authorization is None else {"authorization": authorization}
        document = httpx.post(url, json=body(), headers=headers)
        assert document.status_code == 401
        assert document.json()["code"] in {"unauthenticated", "token_invalid"}
        assert document.headers["www-authenticate"] == "Bearer"
    refused(http.post(f"{PATH}?token={token}", json=body()), 400, "credential_in_url")


def test_agents_that_are_none_of_the_callers(desk: Desk, http: httpx.Client) -> None:
    for slug in ("nobody", "Order-Desk", "..", "%2e%2e", "a" * 500):
        assert http.post(f"/apps/v1/agents/{slug}", json=body()).status_code == 404
    other = drafts.create_agent(
        actor=desk.world.manager, team=desk.world.team, name="Other", slug="other"
    )
    desk.publish(other)
    front = desk.end_user()
    refused(front.http.post("/apps/v1/agents/other", json=body()), 404, "not_found")


def test_an_unpublished_agent_is_refused(desk: Desk) -> None:
    desk.unpublish()
    refused(desk.member().http.post(PATH, json=body()), 403, "not_published")


def test_parts_that_are_not_text_are_skipped(desk: Desk) -> None:
    desk.provider.script(text("ok"))
    content = [
        {"type": "text", "text": "Look at"},
        {"type": "image", "source": {"type": "url", "value": "http://169.254.169.254/x.png"}},
        {"type": "text", "text": "this"},
    ]
    message = {"id": "1", "role": "user", "content": content}
    answer = desk.member().post(body(messages=[message]))
    assert answer.text == "ok"
    assert desk.provider.completions[0].json["messages"][-1]["content"] == "Look at\nthis"


def test_tools_state_and_context_of_the_client_reach_no_model(desk: Desk) -> None:
    desk.provider.script(text("ok"))
    canary = "client canary"
    answer = desk.member().post(
        body(
            tools=[{"name": "canary", "description": canary, "parameters": {"type": "object"}}],
            state={"a": canary},
            context=[{"description": canary, "value": canary}],
            forwardedProps={"a": canary},
            messages=[
                {"id": "0", "role": "system", "content": canary},
                {"id": "1", "role": "user", "content": "Hi"},
            ],
        )
    )
    assert answer.text == "ok"
    sent = desk.provider.completions[0].json
    assert canary not in json.dumps(sent)
    assert [t["function"]["name"] for t in sent["tools"]] == ["shop__refund", "shop__status"]


def test_a_thread_id_of_any_spelling_is_the_principals_own(desk: Desk) -> None:
    """Ids that are no UUIDs are mapped per principal and echoed as they came."""
    desk.provider.script(text("to alice"), text("to bob"), text("again"))
    alice, bob = desk.end_user("alice"), desk.end_user("bob")
    mine = alice.send("Hi", thread="chat-1", run="r")
    his = bob.send("Hi", thread="chat-1", run="r")
    assert mine.last["threadId"] == his.last["threadId"] == "chat-1"
    assert alice.thread("chat-1")["id"] != bob.thread("chat-1")["id"]
    assert alice.send("More", thread="chat-1").text == "again"
    assert len(alice.thread("chat-1")["messages"]) == 4
    ours = alice.thread("chat-1")["id"]
    desk.provider.script(text("by our id"))
    assert alice.send("More", thread=ours).last["threadId"] == ours
    upper = str(uuid.uuid4()).upper()
    desk.provider.script(text("ok"))
    assert alice.send("Hi", thread=upper).last["threadId"] == upper


@pytest.mark.parametrize("said", ["a\x00b", "a\u2028b", "\u202eabc", "\U0001f600" * 3, "e\u0301"])
def test_any_text_is_stored_or_cleanly_refused(desk: Desk, said: str) -> None:
    desk.provider.script(text("Echo: " + said.replace("\x00", ""), chunk=1))
    front, thread = desk.member(), new_thread()
    answer = front.send(said, thread=thread)
    assert answer.text == "Echo: " + said.replace("\x00", "")
    user, assistant = front.thread(thread)["messages"]
    assert user["content"] == said.replace("\x00", "")
    assert assistant["content"] == answer.text
