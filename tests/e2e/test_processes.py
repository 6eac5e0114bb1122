"""What must hold over real processes: containment, crashes, re-attachment, isolation."""

from __future__ import annotations

import contextlib
import io
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from agents.choices import RunState
from agents.models import AgentKey, Approval, Blob, GatewayRequest, Grant, Run
from agents.services.grants import revoke_grant
from agents.services.identity import suspend_agent
from definitions.services.publishing import unpublish
from tests.e2e.stage import Chat, Refused, Stage, approve, interrupts, text_of
from tests.fakes.mcp_server import Slow, Text
from tests.fakes.model_provider import call, calls, text
from tests.processes import Server

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.django_db(transaction=True, databases="__all__"),
]


def until(condition: Callable[[], object], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_a_chat_through_both_gateways_under_one_key(stage: Stage) -> None:
    web = stage.servers.web()
    stage.servers.runtime(web)
    stage.provider.script(calls(call("shop__status", {"order": 7})), text("It is on its way."))
    stage.mcp.answer("status", Text("shipped"))
    chat = Chat(web, stage.chat_token())
    stream = chat.say("Where is order 7?")
    assert stream[0]["type"] == "RUN_STARTED"
    assert stream[0]["protocolVersion"] == "1.0"
    assert stream[-1]["type"] == "RUN_FINISHED"
    assert text_of(stream) == "It is on its way."
    assert [c.arguments for c in stage.mcp.calls] == [{"order": 7}]
    key = AgentKey.objects.get(kind="managed")
    assert key.revoked_at is not None
    rows = GatewayRequest.objects.filter(run_id=key.run_id)
    assert {(r.kind, r.state, r.key_accessor) for r in rows} == {
        ("model", "ok", key.accessor),
        ("tool", "ok", key.accessor),
    }


def test_an_action_waits_is_edited_and_runs_once(stage: Stage) -> None:
    web = stage.servers.web()
    stage.servers.runtime(web)
    stage.provider.script(
        calls(call("shop__refund", {"order": 7, "amount": 100})), text("Refunded 60.")
    )
    chat = Chat(web, stage.chat_token())
    (interrupt,) = interrupts(chat.say("Refund order 7"))
    assert stage.mcp.count("refund") == 0
    assert interrupt["metadata"]["arguments"] == {"order": 7, "amount": 100}
    stream = chat.answer(approve(interrupt, editedArgs={"order": 7, "amount": 60}))
    assert text_of(stream) == "Refunded 60."
    assert [c.arguments for c in stage.mcp.calls if c.name == "refund"] == [
        {"order": 7, "amount": 60}
    ]
    # The model sees what ran, not what it asked for.
    sent = str(stage.provider.completions[-1].json["messages"])
    assert '"amount":60' in sent.replace(" ", "").replace("\\", "")
    assert "100" not in sent


@pytest.mark.parametrize("how", ["unpublish", "suspend", "revoke"])
def test_after_containment_commits_no_call_succeeds_in_any_process(stage: Stage, how: str) -> None:
    """Two web processes, warmed up with the same key, 100 tries; an open stream ends in 2 s."""
    a, b = stage.servers.web(), stage.servers.web()
    headers = stage.world.authorization()
    body = {"model": "standard", "messages": [{"role": "user", "content": "Hi"}]}

    def call_gateway(server: Server) -> int:
        return httpx.post(
            f"{server.url}/gateway/v1/chat/completions", json=body, headers=headers, timeout=10
        ).status_code

    assert [call_gateway(s) for s in (a, b)] == [200, 200]
    stage.provider.default = text("word " * 4000, pace=0.01)
    ended: list[float] = []

    def read_stream() -> None:
        with httpx.stream(
            "POST", f"{b.url}/gateway/v1/chat/completions",
            json={**body, "stream": True}, headers=headers, timeout=30,
        ) as response:  # fmt: skip
            for _ in response.iter_raw():
                pass
        ended.append(time.monotonic())

    reader = threading.Thread(target=read_stream)
    reader.start()
    until(lambda: len(stage.provider.completions) == 3)
    world = stage.world
    if how == "unpublish":
        unpublish(
            actor=world.manager, agent=world.agent, environment=world.production, rationale="x"
        )
    elif how == "suspend":
        suspend_agent(actor=world.manager, agent=world.agent, rationale="x")
    else:
        revoke_grant(actor=world.manager, grant=Grant.objects.get(virtual_model=world.model))
    committed = time.monotonic()
    statuses = {call_gateway(server) for _ in range(50) for server in (a, b)}
    assert statuses == {403}
    assert len(stage.provider.completions) == 3
    reader.join(10)
    assert ended
    assert ended[0] - committed < 2


def test_the_runtime_has_one_token_and_talks_to_the_gateway_only(stage: Stage) -> None:
    web = stage.servers.web()
    runtime = stage.servers.runtime(web)
    stage.provider.script(calls(call("shop__status", {"order": 7})), text("Done."))
    stage.mcp.answer("status", Slow(1.0, Text("shipped")))
    chat = Chat(web, stage.chat_token())
    done = threading.Thread(target=chat.say, args=("Where is order 7?",))
    done.start()
    until(lambda: stage.mcp.count("status") == 1)
    pid = runtime.process.pid
    environment = Path(f"/proc/{pid}/environ").read_text().rstrip("\0").split("\0")
    assert {line.split("=", 1)[0] for line in environment if line} == {
        "RUNTIME_PORT", "GATEWAY_URL", "RUNTIME_TOKEN",
    }  # fmt: skip
    gateway_port, own_port = int(web.url.rsplit(":", 1)[1]), stage.servers.runtime_port
    peers = connections_of(pid)
    outgoing = {remote for local, remote in peers if local != own_port}
    assert outgoing == {gateway_port}
    done.join(20)
    assert b"sk-provider" not in Path(f"/proc/{pid}/environ").read_bytes()


def connections_of(pid: int) -> set[tuple[int, int]]:
    """(local port, remote port) of a process's established TCP connections."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[9] in inodes and fields[3] == "01":
                local, remote = (int(f.rsplit(":", 1)[1], 16) for f in fields[1:3])
                found.add((local, remote))
    return found


def test_kill_9_in_the_middle_of_an_answer_leaves_one_explained_failure(stage: Stage) -> None:
    """A reader on B from event N gets a coded end; each message once; the next message works."""
    a, b = stage.servers.web(), stage.servers.web()
    stage.servers.runtime(b)
    stage.provider.script(text("word " * 400, pace=0.05))
    chat = Chat(a, stage.chat_token())
    body = chat.body("Tell me a story")
    seen = []
    with chat.stream(body) as stream:
        for event in stream:
            seen.append(event)
            if len(seen) == 20:
                break
    run = body["runId"]
    followed: list[dict[str, object]] = []
    reader = threading.Thread(
        target=lambda: followed.extend(chat.follow(run, after=seen[-1]["_id"], server=b))
    )
    reader.start()
    time.sleep(0.5)
    a.kill()
    reader.join(20)
    assert not reader.is_alive()
    assert followed[-1]["type"] == "RUN_ERROR"
    assert followed[-1]["code"] == "interrupted_by_restart"
    numbers = [e["_id"] for e in [*seen, *followed]]
    assert numbers == sorted(set(numbers))
    thread = chat.read(b)
    assert [m["role"] for m in thread["messages"]].count("user") == 1
    assert thread["messages"][-1]["error"]["code"] == "interrupted_by_restart"
    stage.provider.script(text("I am back."))
    chat.server = b
    assert text_of(chat.say("Go on")) == "I am back."
    assert Run.objects.filter(state=RunState.RUNNING).count() == 0


def test_kill_9_between_approval_and_result_runs_the_action_at_most_once(stage: Stage) -> None:
    a, b = stage.servers.web(), stage.servers.web()
    stage.servers.runtime(a)
    stage.provider.script(calls(call("shop__refund", {"order": 7})))
    stage.mcp.answer("refund", Slow(3.0, Text("ok")))
    chat = Chat(a, stage.chat_token())
    (interrupt,) = interrupts(chat.say("Refund order 7"))
    body = chat.body(resume=[approve(interrupt)])
    threading.Thread(target=lambda: _ignore(chat, body)).start()
    until(lambda: stage.mcp.count("refund") == 1)
    a.kill()
    until(lambda: Approval.objects.get().state == "uncertain", 60)
    chat.server = b
    with pytest.raises(Refused):
        chat.answer(approve(interrupt))
    stage.servers.started[-1].stop()  # the runtime knew A alone
    stage.servers.runtime(b)
    stage.provider.script(text("I do not know whether it was refunded."))
    assert "do not know" in text_of(chat.say("And now?"))
    assert stage.mcp.count("refund") == 1
    sent = str(stage.provider.completions[-1].json["messages"])
    assert "unknown" in sent


def _ignore(chat: Chat, body: dict[str, object]) -> None:
    with contextlib.suppress(httpx.HTTPError):
        chat.run(body)


def test_a_run_outlives_its_connection_and_is_read_from_another_process(stage: Stage) -> None:
    a, b = stage.servers.web(), stage.servers.web()
    stage.servers.runtime(a)
    words = " ".join(f"w{n}" for n in range(120))
    stage.provider.script(text(words, pace=0.02))
    chat = Chat(a, stage.chat_token())
    body = chat.body("Count")
    seen = []
    with chat.stream(body) as stream:
        for event in stream:
            seen.append(event)
            if len(seen) == 10:
                break
    rest = chat.follow(body["runId"], after=seen[-1]["_id"], server=b)
    assert text_of([*seen, *rest]) == words
    assert rest[-1]["type"] == "RUN_FINISHED"
    # Posted again with the same body: the same run, from its beginning, on either process.
    again = chat.run(body)
    assert text_of(again) == words
    assert Run.objects.count() == 1
    assert len(stage.provider.completions) == 1


def test_stop_from_another_process_cancels_the_upstream_call(stage: Stage) -> None:
    a, b = stage.servers.web(), stage.servers.web()
    stage.servers.runtime(a)
    stage.provider.script(text("word " * 4000, pace=0.02))
    chat = Chat(a, stage.chat_token())
    body = chat.body("Tell me")
    with chat.stream(body) as stream:
        for _ in range(10):
            next(stream)
        response = httpx.post(
            f"{b.url}/apps/v1/threads/{chat.thread}/runs/{body['runId']}/cancel",
            headers=chat.headers,
            json={},
        )
        assert response.status_code < 300, response.text
        *_, last = stream
    assert last["type"] == "RUN_FINISHED"
    assert last["outcome"]["type"] == "cancelled"
    stage.provider.wait_until_gone()
    until(lambda: GatewayRequest.objects.get().state == "cancelled")


def test_one_flipped_byte_refuses_that_agent_and_nothing_else(stage: Stage) -> None:
    web = stage.servers.web()
    stage.servers.runtime(web)
    chat = Chat(web, stage.chat_token())
    blob = Blob.objects.get(digest=stage.version.digest)
    damaged = bytearray(blob.sealed or b"")
    damaged[-3] ^= 1
    Blob.objects.filter(id=blob.id).update(sealed=bytes(damaged))
    with pytest.raises(Refused) as refusal:
        chat.say("Hello")
    assert refusal.value.code == "content_damaged"
    assert not stage.provider.completions
    with pytest.raises(CommandError):
        call_command("verify_store", stdout=(told := io.StringIO()))
    assert stage.version.digest[:12] in told.getvalue()
    listed = httpx.get(f"{web.url}/apps/v1/threads", headers=chat.headers)
    assert listed.status_code == 200
    stage.publish("Another text.")
    stage.provider.script(text("Hello."))
    assert text_of(chat.say("Hello")) == "Hello."


def test_unpublish_ends_an_open_chat_stream_with_its_code(stage: Stage) -> None:
    web = stage.servers.web()
    stage.servers.runtime(web)
    stage.provider.script(text("word " * 4000, pace=0.02))
    chat = Chat(web, stage.chat_token())
    with chat.stream(chat.body("Tell me")) as stream:
        for _ in range(10):
            next(stream)
        world = stage.world
        unpublish(
            actor=world.manager, agent=world.agent, environment=world.production, rationale="x"
        )
        committed = time.monotonic()
        *_, last = stream
    assert time.monotonic() - committed < 2
    assert (last["type"], last["code"]) == ("RUN_ERROR", "unpublished")
    stage.provider.wait_until_gone()
    with pytest.raises(Refused) as refusal:
        chat.say("Hello?")
    assert refusal.value.code == "not_published"


def test_the_scan_finds_nothing_after_a_governed_conversation(stage: Stage) -> None:
    """And what it would find, it does: a canary planted where nobody would look."""
    canaries = {
        "prompt": "canary-prompt-7f1c about order 7",
        "answer": "canary-answer-22ab it is refunded in full",
        "result": "canary-result-91de the refund went through",
        "reason": "canary-reason-3c4d somebody else pays",
    }
    web = stage.servers.web()
    runtime = stage.servers.runtime(web)
    stage.publish("canary-instructions-5e6f: always be kind to everybody who asks.")
    stage.provider.script(
        calls(call("shop__refund", {"order": 7}), call("shop__refund", {"order": 8}, "call_1")),
        text(canaries["answer"]),
    )
    stage.mcp.answer("refund", Text(canaries["result"]))
    chat = Chat(web, stage.chat_token())
    first, second = interrupts(chat.say(canaries["prompt"]))
    denial = {"approved": False, "reason": canaries["reason"]}
    chat.answer(approve(first), {**approve(second), "payload": denial})
    texts = [*canaries.values(), "canary-instructions-5e6f", "sk-provider-credential-canary"]
    arguments = [word for canary in texts for word in ("--canary", canary)]
    logs = [word for server in (web, runtime) for word in ("--also", str(server.log))]
    call_command("scan_control", *arguments, *logs)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE planted (nobody_looks_here text)")
        cursor.execute("INSERT INTO planted VALUES (%s)", [canaries["answer"]])
    try:
        with pytest.raises(CommandError):
            call_command("scan_control", *arguments)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE planted")
