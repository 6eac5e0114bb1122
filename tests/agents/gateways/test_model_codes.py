"""What is refused, and with which code: stable for programs, free of the provider's own words."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import logging
import socket
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from agents import clock, writer
from agents.errors import Invalid, ParameterNotAllowed
from agents.gateways import model_gateway, model_upstream
from agents.gateways.model_request import read_chat
from agents.models import Boot, GatewayRequest, ModelProvider
from agents.services import grants, identity, keys, resources
from tests.fakes.model_provider import (
    FakeProvider,
    Reply,
    failure,
    hang,
    rate_limited,
    raw,
    redirect,
    text,
)
from tests.serving import Served
from tests.world import PROVIDER_CREDENTIAL, World, allow, make_world

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

Rows = Callable[[], list[GatewayRequest]]
ASK: dict[str, Any] = {"model": "standard", "messages": [{"role": "user", "content": "Hi"}]}
CHAT = "/gateway/v1/chat/completions"
CANARY = "SECRET provider text"


def post(gateway: Served, key: str, body: Any = ASK, **options: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}", **options.pop("headers", {})}
    return httpx.post(f"{gateway.url}{CHAT}", json=body, headers=headers, **options)


def refusal(response: httpx.Response) -> tuple[int, str]:
    """Status and code; every refusal is a problem that clients of the wire understand too."""
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == response.status_code
    assert document["error"]["code"] == document["code"]
    assert document["error"]["message"] == document["detail"]
    return response.status_code, document["code"]


# --- providers ------------------------------------------------------------------------------

FAILURES = [
    (failure(400), 502, "provider_refused"),
    (failure(401), 502, "provider_auth"),
    (failure(403), 502, "provider_auth"),
    (failure(404), 502, "provider_refused"),
    (failure(408), 504, "provider_timeout"),
    (failure(422), 502, "provider_refused"),
    (rate_limited(), 503, "provider_rate_limited"),
    (failure(500), 502, "provider_error"),
    (failure(503), 502, "provider_error"),
    (failure(504), 504, "provider_timeout"),
    (redirect("http://169.254.169.254/latest"), 502, "provider_error"),
    (raw(b"<html>sign in</html>", "text/html"), 502, "provider_error"),
    (raw(b"{broken", "application/json"), 502, "provider_error"),
    (raw(b'{"error": {"message": "SECRET provider text"}}'), 502, "provider_error"),
    (raw(b'{"choices": [], "error": {"message": "SECRET provider text"}}'), 502, "provider_error"),
    (raw(b"[]"), 502, "provider_error"),
    (raw(b'{"choices": "SECRET provider text"}'), 502, "provider_error"),
    (raw(b'{"choices": ["SECRET provider text"]}'), 502, "provider_error"),
    (raw(b'{"object": "error", "message": "SECRET provider text"}'), 502, "provider_error"),
    (raw(b'{"object": "error", "choices": [], "x": "SECRET"}'), 502, "provider_error"),
    (raw(b'{"choices": [{"error": {"message": "SECRET provider text"}}]}'), 502, "provider_error"),
    (Reply(status=204, body=b""), 502, "provider_error"),
]


@pytest.mark.parametrize(("reply", "status", "code"), FAILURES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failing_provider_is_a_stable_code(
    gateway: Served,
    world: World,
    provider: FakeProvider,
    rows: Rows,
    caplog: pytest.LogCaptureFixture,
    reply: Reply,
    status: int,
    code: str,
    stream: bool,
) -> None:
    provider.script(reply)
    with caplog.at_level(logging.DEBUG), pytest.raises(openai.APIStatusError) as caught:
        openai.OpenAI(
            base_url=f"{gateway.url}/gateway/v1", api_key=world.key_text, max_retries=0
        ).chat.completions.create(**ASK, stream=stream)
    assert (caught.value.status_code, caught.value.code) == (status, code)
    assert len(provider.requests) == 1
    answer = caught.value.response
    assert CANARY not in answer.text + str(answer.headers)
    assert not [r for r in caplog.records if CANARY in r.getMessage() and r.name[:6] == "agents"]
    [row] = rows()
    assert (row.state, row.code) == ("failed", code)
    assert str(row.id) == answer.headers["x-request-id"] == answer.json()["request_id"]


def test_a_provider_that_stays_silent_times_out(
    gateway: Served, world: World, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_upstream, "SILENCE_SECONDS", 0.2)
    provider.script(hang())
    assert refusal(post(gateway, world.key_text)) == (504, "provider_timeout")
    provider.wait_until_gone()


def test_a_provider_that_is_not_there_is_an_error(
    gateway: Served, world: World, settings: Any, rows: Rows
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    allow(settings, address)
    resources.change_provider(
        actor=world.operator, provider=world.provider, base_url=address, credential="other"
    )
    assert refusal(post(gateway, world.key_text)) == (502, "provider_error")
    assert rows()[0].code == "provider_error"


def test_an_answer_over_the_bound_is_an_error(
    gateway: Served, world: World, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_upstream, "MAX_ANSWER_BYTES", 1_000)
    provider.script(text("x" * 2_000))
    assert refusal(post(gateway, world.key_text)) == (502, "provider_error")


def test_a_compressed_answer_is_an_error(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    packed = gzip.compress(json.dumps({"choices": []}).encode())
    provider.script(raw(packed).but(headers=(("content-encoding", "gzip"),)))
    assert refusal(post(gateway, world.key_text)) == (502, "provider_error")
    assert provider.requests[0].headers["accept-encoding"] == "identity"


def test_a_credential_that_does_not_open_stops_the_call(
    gateway: Served, world: World, provider: FakeProvider, rows: Rows
) -> None:
    sealed = bytearray(world.provider.credential or b"")
    sealed[-1] ^= 1
    ModelProvider.objects.filter(id=world.provider.id).update(credential=bytes(sealed))
    assert refusal(post(gateway, world.key_text)) == (409, "content_damaged")
    assert provider.requests == []
    assert rows()[0].code == "content_damaged"


def test_an_address_that_became_forbidden_is_not_connected_to(
    gateway: Served, world: World, provider: FakeProvider, settings: Any, rows: Rows
) -> None:
    settings.OUTGOING_ALLOWED = []
    assert refusal(post(gateway, world.key_text)) == (422, "destination_refused")
    assert provider.requests == []
    assert rows()[0].code == "destination_refused"


# --- keys and rights ------------------------------------------------------------------------


def test_no_key_gets_nothing(gateway: Served, provider: FakeProvider, rows: Rows) -> None:
    for headers in (
        {},
        {"authorization": "Basic bWs6"},
        {"authorization": "Bearer"},
        {"authorization": "Bearer mk_unknown_" + "x" * 43},
        {"authorization": "Bearer eyJhbGciOiJub25lIn0.e30."},
        {"x-api-key": "mk_unknown"},
    ):
        answer = httpx.post(f"{gateway.url}{CHAT}", json=ASK, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert refusal(answer)[1] in {"unauthenticated", "key_invalid"}
    assert rows() == []
    assert provider.requests == []


@pytest.mark.parametrize("name", ["key", "api_key", "token", "access_token", "whatever"])
def test_a_key_in_the_address_is_refused_even_beside_a_good_header(
    gateway: Served, world: World, provider: FakeProvider, name: str
) -> None:
    for path in (CHAT, "/gateway/v1/models"):
        method = "POST" if path == CHAT else "GET"
        answer = httpx.request(
            method,
            f"{gateway.url}{path}",
            params={name: world.key_text},
            headers=world.authorization(),
            json=ASK if method == "POST" else None,
        )
        assert refusal(answer) == (400, "credential_in_url")
        assert world.key_text not in answer.text
    assert provider.requests == []


def kill_by_revoking(world: World) -> None:
    keys.revoke_key(actor=world.manager, key=world.key)


def kill_by_suspending(world: World) -> None:
    identity.suspend_agent(actor=world.manager, agent=world.agent, rationale="Stop.")


def kill_by_suspending_the_organization(world: World) -> None:
    identity.suspend_organization(
        actor=world.operator, organization=world.organization, rationale="Stop."
    )


def kill_by_revoking_the_grant(world: World) -> None:
    grants.revoke_grant(actor=world.manager, grant=world.model_grant)


def kill_by_disabling_the_model(world: World) -> None:
    resources.change_virtual_model(actor=world.operator, model=world.model, enabled=False)


def kill_by_disabling_the_provider(world: World) -> None:
    resources.change_provider(actor=world.operator, provider=world.provider, enabled=False)


@pytest.mark.parametrize(
    ("kill", "status", "code"),
    [
        (kill_by_revoking, 401, "key_invalid"),
        (kill_by_suspending, 403, "suspended"),
        (kill_by_suspending_the_organization, 403, "suspended"),
        (kill_by_revoking_the_grant, 403, "out_of_scope"),
        (kill_by_disabling_the_model, 403, "out_of_scope"),
        (kill_by_disabling_the_provider, 403, "out_of_scope"),
    ],
)
def test_what_is_taken_away_is_refused_at_the_next_call(
    gateway: Served,
    world: World,
    provider: FakeProvider,
    rows: Rows,
    kill: Callable[[World], None],
    status: int,
    code: str,
) -> None:
    assert post(gateway, world.key_text).is_success
    kill(world)
    assert refusal(post(gateway, world.key_text)) == (status, code)
    assert len(provider.requests) == 1
    assert [(row.state, row.code) for row in rows()] == [("ok", ""), ("refused", code)]


def test_a_key_lives_to_the_second_it_expires_by_the_databases_clock(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    short = world.mint_key(lifetime=dt.timedelta(minutes=15))
    with clock.shifted(dt.timedelta(minutes=14, seconds=59)):
        assert post(gateway, short.text).is_success
    with clock.shifted(dt.timedelta(minutes=15, seconds=1)):
        assert refusal(post(gateway, short.text)) == (401, "key_invalid")
    assert len(provider.requests) == 1


def test_an_agent_that_is_not_open_has_no_models(
    settings: Any, boot: Boot, gateway: Served, provider: FakeProvider
) -> None:
    closed = make_world(name="closed", provider_url=provider.base_url, open_agent=False)
    assert refusal(post(gateway, closed.key_text)) == (403, "not_published")
    assert provider.requests == []


@pytest.mark.parametrize("slug", ["secret", "unknown", "STANDARD", "standard ", "gpt-test", "*"])
def test_a_model_outside_the_scope_is_out_of_scope(
    gateway: Served, world: World, provider: FakeProvider, rows: Rows, slug: str
) -> None:
    world.add_model("secret", granted=False)
    assert refusal(post(gateway, world.key_text, {**ASK, "model": slug})) == (403, "out_of_scope")
    assert provider.requests == []
    [row] = rows()
    assert (row.state, row.code, row.resource_name) == ("refused", "out_of_scope", "")


def test_a_key_reaches_no_model_beyond_its_own_scope(gateway: Served, world: World) -> None:
    large = world.add_model("large")
    scoped = world.mint_key({"models": [str(large.id)]})
    assert refusal(post(gateway, scoped.text)) == (403, "out_of_scope")
    assert post(gateway, scoped.text, {**ASK, "model": "large"}).is_success
    nothing = world.mint_key({"models": []})
    assert refusal(post(gateway, nothing.text)) == (403, "out_of_scope")


def test_another_organizations_key_reaches_nothing_of_ours(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    other = make_world(name="globex", provider_url=provider.base_url)
    world.add_model("ours")
    answer = post(gateway, other.key_text, {**ASK, "model": "ours"})
    assert refusal(answer) == (403, "out_of_scope")


# --- bodies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": 7}, "model"),
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": ["Hi"]}, "messages"),
        ({"n": 2}, "n"),
        ({"n": "1"}, "n"),
        ({"n": [1]}, "n"),
        ({"stream": "yes"}, "stream"),
        ({"stream": True, "stream_options": []}, "stream_options"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": "10"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": 1e308}, "max_completion_tokens"),
        ({"tools": "all"}, "tools"),
        ({"tools": [{"type": "web_search_preview"}]}, "tools"),
        ({"tools": [{"type": "mcp", "server_url": "https://evil.example"}]}, "tools"),
        ({"tools": [{"type": ["function"]}]}, "tools"),
    ],
)
def test_a_body_that_cannot_be_served_is_refused_by_name(
    gateway: Served,
    world: World,
    provider: FakeProvider,
    rows: Rows,
    change: dict[str, Any],
    field: str,
) -> None:
    answer = post(gateway, world.key_text, {**ASK, **change})
    assert refusal(answer) == (422, "invalid")
    assert answer.json()["error"]["param"] == field
    assert provider.requests == []
    assert [(row.state, row.code) for row in rows()] == [("refused", "invalid")]


#: Found in servers of the wire: they lift the limit, fetch, keep, run or cost something.
BEYOND = {
    "background": True, "best_of": 20, "cache_prompt": True, "chat_template_kwargs": {},
    "extra_body": {"n_predict": -1}, "ignore_eos": True, "max_new_tokens": 9, "metadata": {"a": "b"},
    "min_tokens": 5, "models": ["another"], "n_predict": -1, "num_predict": 9, "options": {},
    "plugins": [{"id": "web"}], "prediction": {}, "service_tier": "priority", "store": True,
    "thinking": False, "top_k": 0, "web_search_options": {}, "modalities": ["audio"],
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_a_parameter_that_is_not_known_to_be_harmless_is_refused_by_name(
    gateway: Served, world: World, provider: FakeProvider, rows: Rows, name: str
) -> None:
    answer = post(gateway, world.key_text, {**ASK, name: BEYOND[name]})
    assert refusal(answer) == (422, "parameter_not_allowed")
    assert answer.json()["error"]["param"] == name
    assert provider.requests == []
    assert [(row.state, row.code) for row in rows()] == [("refused", "parameter_not_allowed")]


@pytest.mark.parametrize("name", ["x" * 41, "a b", "SECRET\n", "naïve", "", "<b>", "1a"])
def test_a_name_that_is_not_plain_is_not_repeated(name: str) -> None:
    with pytest.raises(ParameterNotAllowed) as caught:
        read_chat({**ASK, name: 1}, 10)
    assert caught.value.extra == {}
    assert not name or name not in caught.value.detail


def test_every_other_parameter_of_the_wire_passes_and_null_is_not_sent(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    kept = {
        "temperature": 0.5, "top_p": 0.9, "frequency_penalty": 0.1, "presence_penalty": 0.1,
        "seed": 7, "stop": ["."], "logit_bias": {"50": 1}, "logprobs": True, "top_logprobs": 2,
        "tools": [{"type": "function", "function": {"name": "look"}}], "tool_choice": "auto",
        "parallel_tool_calls": False, "response_format": {"type": "json_object"}, "n": 1,
        "reasoning_effort": "low", "verbosity": "low", "store": False, "stream": False,
    }  # fmt: skip
    body = {**ASK, **kept, "user": "u-17", "web_search_options": None, "n_predict": None}
    assert post(gateway, world.key_text, body).is_success
    sent = provider.requests[0].json
    assert sent == {**kept, "model": "gpt-test", "messages": ASK["messages"], "max_tokens": 256}


PIXEL = "data:image/png;base64,iVBORw0KGgo="
AWAY = "http://169.254.169.254/latest/meta-data"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": AWAY}},
        {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
        {"type": "image_url", "image_url": {"url": " data:,"}},
        {"type": "image_url", "image_url": AWAY},
        {"type": "image_url", "image_url": {"url": PIXEL, "uri": AWAY}},
        {"type": "image_url", "image_url": {"url": PIXEL}, "video_url": {"url": AWAY}},
        {"type": "text", "text": "Hi", "image_url": {"url": AWAY}},
        {"type": "video_url", "video_url": {"url": AWAY}},
        {"type": "audio_url", "audio_url": {"url": AWAY}},
        {"type": "input_audio", "input_audio": {"data": AWAY, "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-7"}},
        {"type": "file", "file": {"file_data": AWAY}},
        {"type": ["text"], "text": "Hi"},
        {"image_url": {"url": AWAY}},
        AWAY,
    ],
)
@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_provider_is_never_sent_to_fetch_something(part: Any, role: str) -> None:
    message = {"role": role, "content": [{"type": "text", "text": "Look:"}, part]}
    for messages in ([message], [{"role": "user", "content": "Hi"}, message]):
        with pytest.raises(Invalid) as caught:
            read_chat({**ASK, "messages": messages}, 10)
        assert caught.value.extra == {"field": "messages"}


def test_what_travels_inside_the_request_passes(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    content = [
        {"type": "text", "text": f"What is at {AWAY}?"},
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:text/plain,Hi", "filename": "hi.txt"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": None}]
    assert post(gateway, world.key_text, {**ASK, "messages": messages}).is_success
    assert provider.requests[0].json["messages"] == messages


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"", 400, "malformed_body"),
        (b"{", 400, "malformed_body"),
        (b'{"a": NaN}', 400, "malformed_body"),
        (b'{"a": "\\ud800"}', 400, "malformed_body"),
        (b'{"a": "\xff"}', 400, "malformed_body"),
        (b"[]", 422, "invalid"),
        (b"null", 422, "invalid"),
        (b'{"messages": ' + b"[" * 100 + b"]" * 100 + b"}", 413, "too_deep"),
        (b"[" * 100_000, 400, "malformed_body"),
    ],
)
def test_a_malformed_body_is_refused(
    gateway: Served, world: World, provider: FakeProvider, content: bytes, status: int, code: str
) -> None:
    headers = {**world.authorization(), "content-type": "application/json"}
    answer = httpx.post(f"{gateway.url}{CHAT}", content=content, headers=headers)
    assert refusal(answer) == (status, code)
    assert provider.requests == []


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"content-type": "application/jsonp"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_another_media_type_is_refused(
    gateway: Served, world: World, headers: dict[str, str]
) -> None:
    answer = httpx.post(
        f"{gateway.url}{CHAT}",
        content=json.dumps(ASK),
        headers={**world.authorization(), **headers},
    )
    assert refusal(answer) == (415, "unsupported_media_type")


def test_a_body_over_four_mebibytes_is_refused(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    body = {**ASK, "messages": [{"role": "user", "content": "x" * (4 * 2**20)}]}
    assert refusal(post(gateway, world.key_text, body)) == (413, "too_large")
    assert provider.requests == []


def test_an_input_over_the_context_limit_is_refused(
    gateway: Served, world: World, provider: FakeProvider, rows: Rows
) -> None:
    world.add_model("small", context_limit=256, output_limit=16)
    messages = [{"role": "user", "content": "x" * 256 * 8}]
    answer = post(gateway, world.key_text, {"model": "small", "messages": messages})
    assert refusal(answer) == (413, "input_too_large")
    assert provider.requests == []
    assert [(row.state, row.code) for row in rows()] == [("refused", "input_too_large")]


def test_a_dead_key_with_a_broken_body_is_told_about_the_key(gateway: Served, world: World) -> None:
    keys.revoke_key(actor=world.manager, key=world.key)
    assert refusal(post(gateway, world.key_text, {})) == (401, "key_invalid")
    assert refusal(post(gateway, "mk_nobody", {})) == (401, "key_invalid")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", CHAT, 405, "method_not_allowed"),
        ("POST", "/gateway/v1/models", 405, "method_not_allowed"),
        ("POST", "/gateway/v1/embeddings", 404, "not_found"),
        ("GET", "/gateway/v1/", 404, "not_found"),
        ("POST", f"{CHAT}/", 404, "not_found"),
    ],
)
def test_other_routes_are_problems_too(
    gateway: Served, world: World, method: str, path: str, status: int, code: str
) -> None:
    answer = httpx.request(method, f"{gateway.url}{path}", headers=world.authorization())
    assert refusal(answer) == (status, code)
    if status == 405:
        assert answer.headers["allow"] == {"GET": "POST", "POST": "GET"}[method]


# --- ourselves ------------------------------------------------------------------------------


def test_an_overloaded_writer_sends_nothing_upstream(
    gateway: Served, world: World, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer.get_writer(), "limit", 0)
    answer = post(gateway, world.key_text)
    assert refusal(answer) == (503, "overloaded")
    assert answer.headers["retry-after"] == "1"
    assert provider.requests == []


def test_a_store_that_fails_sends_nothing_upstream(
    gateway: Served, world: World, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError

    monkeypatch.setattr(writer.Writer, "_set_sync", broken)
    assert refusal(post(gateway, world.key_text)) == (503, "store_unavailable")
    assert provider.requests == []


def test_a_failure_of_ours_is_a_problem_with_a_request_id_and_no_text(
    gateway: Served,
    world: World,
    provider: FakeProvider,
    rows: Rows,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: Any) -> bytes:
        raise KeyError(PROVIDER_CREDENTIAL)

    monkeypatch.setattr(model_gateway, "upstream_body", broken)
    answer = post(gateway, world.key_text)
    assert refusal(answer) == (500, "internal")
    assert answer.json()["request_id"] in caplog.text
    assert "KeyError" in caplog.text
    assert PROVIDER_CREDENTIAL not in answer.text + caplog.text
    assert (rows()[0].state, rows()[0].code) == ("failed", "internal")
