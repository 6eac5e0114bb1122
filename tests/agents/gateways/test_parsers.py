"""Credentials, bodies and event streams: parsers that strangers feed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, MutableMapping
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.errors import (
    CredentialInUrl,
    DomainError,
    MalformedBody,
    RequestTimeout,
    TooDeep,
    TooLarge,
    Unauthenticated,
)
from agents.gateways import body as body_module
from agents.gateways.auth import bearer
from agents.gateways.body import MAX_DEPTH, ClientGone, parse_json, read_body
from agents.gateways.responses import guard
from agents.gateways.sse import ErrorEvent, EventRelay

KEY = "mk_abcdefgh_" + "s" * 43
JSON = (b"content-type", b"application/json")


def scope(
    *headers: tuple[bytes, bytes], path: str = "/gateway/v1/models", query: bytes = b""
) -> dict[str, Any]:
    return {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "query_string": query, "headers": list(headers),
    }  # fmt: skip


def authorization(value: bytes) -> tuple[bytes, bytes]:
    return b"authorization", value


class Client:
    """The receiving end of a request whose body arrives in these pieces."""

    def __init__(self, *pieces: bytes, pause: float = 0, goes: bool = False) -> None:
        self.pieces = list(pieces)
        self.pause = pause
        self.goes = goes
        self.received = 0

    async def __call__(self) -> MutableMapping[str, Any]:
        await asyncio.sleep(self.pause)
        self.received += 1
        if not self.pieces:
            return {"type": "http.disconnect"}
        piece = self.pieces.pop(0)
        more = bool(self.pieces) or self.goes
        return {"type": "http.request", "body": piece, "more_body": more}


# --- credentials ----------------------------------------------------------------------------


def test_the_bearer_credential_is_found() -> None:
    assert bearer(scope(authorization(b"Bearer " + KEY.encode()))) == KEY
    assert bearer(scope(authorization(b"bearer   " + KEY.encode()))) == KEY


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [authorization(b"")],
        [authorization(b"Bearer")],
        [authorization(b"Bearer ")],
        [authorization(b"Basic abc")],
        [authorization(KEY.encode())],
        [authorization(b"Bearer a b")],
        [authorization(b"Bearer \xff\xfe")],
        [authorization(b"Bearer " + b"x" * 201)],
        [authorization(b"Bearer a"), authorization(b"Bearer b")],
        [(b"x-api-key", KEY.encode())],
    ],
)
def test_anything_else_is_no_credential(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Unauthenticated):
        bearer(scope(*headers))


@pytest.mark.parametrize(
    "query",
    [
        b"key=anything",
        b"api_key=",
        b"a=1&Access_Token=x",
        b"x=" + KEY.encode(),
        b"x=%6dk_abcdefgh_secret",
        KEY.encode(),
        b"x=ct_abcdefgh_" + b"s" * 43,
    ],
)
def test_a_credential_in_the_query_is_refused_and_not_repeated(query: bytes) -> None:
    with pytest.raises(CredentialInUrl) as caught:
        bearer(scope(authorization(b"Bearer " + KEY.encode()), query=query))
    assert "mk_" not in str(caught.value)


def test_a_credential_in_the_path_is_refused() -> None:
    with pytest.raises(CredentialInUrl):
        bearer(scope(authorization(b"Bearer x"), path=f"/gateway/v1/{KEY}"))


def test_ordinary_queries_pass() -> None:
    assert bearer(scope(authorization(b"Bearer x"), query=b"after=12&limit=5&q=mark_up")) == "x"


# --- bodies ---------------------------------------------------------------------------------


async def test_a_body_in_pieces_is_joined() -> None:
    assert await read_body(scope(JSON), Client(b"a", b"", b"bc"), limit=3) == b"abc"


async def test_the_bound_holds_for_announced_and_for_chunked_bodies() -> None:
    announced = Client(b"xxxx")
    with pytest.raises(TooLarge):
        await read_body(scope(JSON, (b"content-length", b"4")), announced, limit=3)
    assert announced.received == 0
    endless = Client(*[b"x" * 1_000] * 1_000)
    with pytest.raises(TooLarge):
        await read_body(scope(JSON), endless, limit=10_000)
    assert endless.received == 11


async def test_a_trickled_body_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "BODY_SECONDS", 0.1)
    with pytest.raises(RequestTimeout):
        await read_body(scope(JSON), Client(*[b"x"] * 1_000, pause=0.02), limit=10_000)


async def test_a_client_that_goes_while_sending_is_gone() -> None:
    with pytest.raises(ClientGone):
        await read_body(scope(JSON), Client(b"half", goes=True), limit=100)


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_depth_is_bounded() -> None:
    parse_json(nested(MAX_DEPTH))
    parse_json(b"[" + b"[],{}," * 1_000 + b"[]]")
    with pytest.raises(TooDeep):
        parse_json(nested(MAX_DEPTH + 1))
    with pytest.raises(MalformedBody):
        parse_json(nested(100_000))


@given(st.binary(max_size=300))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    try:
        value = parse_json(data)
    except DomainError:
        return
    orjson.dumps(value)


def test_the_last_of_a_repeated_name_counts() -> None:
    assert parse_json(b'{"model": "a", "model": "b"}') == {"model": "b"}


# --- the last resort ------------------------------------------------------------------------


async def test_the_guard_answers_for_a_program_that_fails() -> None:
    sent: list[Any] = []

    async def failing(*_: Any) -> None:
        raise RuntimeError(KEY)

    async def send(message: Any) -> None:
        sent.append(message)

    await guard(failing)(scope(), Client(), send)
    document = orjson.loads(sent[1]["body"])
    assert (sent[0]["status"], document["code"]) == (500, "internal")
    assert document["request_id"]
    assert KEY not in str(sent)


# --- event streams --------------------------------------------------------------------------

EVENT = st.one_of(
    st.text(max_size=40).map(lambda t: b"data: " + orjson.dumps({"choices": [{"text": t}]})),
    st.sampled_from(
        [
            b'data: {"choices":[{"delta":{"content":"\\"error\\" \\"usage\\""}}]}',
            b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}',
            b'data: {"choices":[{"delta":{}}],"usage":null}',
            b'data: {"choices":\ndata: []}',
        ]
    ),
)
END = st.sampled_from([b"\n\n", b"\r\n\r\n"])


def pieces_of(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in pairwise(places)]


@given(
    st.lists(st.tuples(EVENT, END), max_size=12),
    st.lists(st.integers(min_value=0), max_size=20),
    st.booleans(),
)
def test_a_stream_passes_unchanged_however_it_is_cut(
    parts: list[tuple[bytes, bytes]], cuts: list[int], hide: bool
) -> None:
    stream = b"".join(event + end for event, end in parts) + b"data: [DONE]\n\n"
    relay = EventRelay(hide_usage=hide)
    out = b"".join(relay.feed(piece) for piece in pieces_of(stream, cuts)) + relay.finish()
    usage_only = b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}'
    expected = b"".join(e + end for e, end in parts if not (hide and e == usage_only))
    assert out == expected + b"data: [DONE]\n\n"
    assert relay.done
    assert (relay.usage is not None) == any(event == usage_only for event, _ in parts)


@given(st.lists(st.integers(min_value=0), max_size=6))
def test_an_error_event_is_seen_however_it_is_cut(cuts: list[int]) -> None:
    stream = b'data: {"choices":[{}]}\n\ndata: {"error":{"message":"SECRET"}}\n\n'
    relay = EventRelay(hide_usage=False)
    out = b""

    def feed() -> None:
        nonlocal out
        for piece in pieces_of(stream, cuts):
            out += relay.feed(piece)
        out += relay.finish()

    with pytest.raises(ErrorEvent):
        feed()
    assert b"SECRET" not in out


def test_nothing_follows_the_end() -> None:
    relay = EventRelay(hide_usage=False)
    assert relay.feed(b"data: [DONE]\n\ndata: more\n\n") == b"data: [DONE]\n\n"
    assert relay.feed(b"data: more\n\n") == b""
