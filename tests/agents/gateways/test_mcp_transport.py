"""What is known of a call that failed below the protocol: not executed, answered, or unknown."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR

from agents.choices import ApprovalState
from agents.errors import DestinationRefused
from agents.gateways.mcp_transport import Trace, TracingTransport, traced
from agents.gateways.mcp_upstream import (
    Answered,
    CallFailed,
    NotExecuted,
    SessionEnded,
    Unknown,
    Upstream,
    UpstreamSession,
)
from tests.agents.gateways.mcp_support import Bench, state_of

TLS = ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC]")
MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"


class Body(httpx2.AsyncByteStream):
    """Half an answer, and then a failure."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'{"jsonrpc":'
        raise self._error


class Failing(httpx2.AsyncBaseTransport):
    """Fails before an answer, or in its body."""

    def __init__(self, error: Exception, *, later: bool) -> None:
        self._error = error
        self._later = later

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._later:
            return httpx2.Response(200, stream=Body(self._error), request=request)
        raise self._error


async def traced_post(error: Exception, *, later: bool = False) -> Trace:
    """One request through a transport that fails; the failure itself stays below."""
    async with httpx2.AsyncClient(transport=TracingTransport(Failing(error, later=later))) as http:
        with traced(1_000) as trace:
            try:
                answer = await http.post("https://shop.example/mcp")
            except httpx2.StreamError:
                assert later
            else:
                assert answer.status_code == 502
    return trace


@pytest.mark.parametrize(
    "error",
    [
        DestinationRefused(),
        socket.gaierror(socket.EAI_NONAME, "no such name"),
        httpx2.ConnectError("refused"),
        httpx2.ConnectTimeout("slow"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_failed_before_a_connection_stood_was_not_sent(error: Exception) -> None:
    trace = await traced_post(error)
    assert (trace.unsent, trace.broken) == (True, False)


LATER: list[Exception] = [
    TLS,
    ssl.SSLEOFError(8, "EOF"),
    ConnectionResetError(),
    BrokenPipeError(),
    OSError(5, "input/output"),
    httpx2.WriteError("gone"),
    httpx2.ReadError("gone"),
    httpx2.ReadTimeout("slow"),
    httpx2.RemoteProtocolError("nonsense"),
    ValueError("nobody foresaw it"),
]


@pytest.mark.parametrize("later", [False, True], ids=["before the answer", "in its body"])
@pytest.mark.parametrize("error", LATER, ids=lambda error: type(error).__name__)
async def test_what_failed_on_a_connection_may_have_been_sent(
    error: Exception, later: bool
) -> None:
    trace = await traced_post(error, later=later)
    assert (trace.unsent, trace.broken) == (False, True)


def kind_of(status: int, *, version: str = MODERN, **known: bool) -> type[CallFailed]:
    """How a call that the SDK reports as failed is judged, by the status of its answer."""
    session = UpstreamSession(Upstream(uuid4(), uuid4(), "", None), lambda _: None)
    session._client = cast("Any", SimpleNamespace(protocol_version=version))
    trace = Trace(None, status=status, started=True, **known)
    closed = MCPError(CONNECTION_CLOSED if status == 200 else INTERNAL_ERROR, "x")
    return type(session._failure(trace, closed))


@pytest.mark.parametrize("status", [401, 403, 404, 405, 406, 413, 415, 429])
def test_a_call_that_was_turned_away_was_not_executed(status: int) -> None:
    assert kind_of(status) is NotExecuted
    assert kind_of(status, broken=True) is Unknown


def test_a_forgotten_session_was_not_executed_either() -> None:
    assert kind_of(404, version=HANDSHAKE) is SessionEnded


@pytest.mark.parametrize(
    "status",
    [0, 200, 202, 301, 302, 303, 307, 308, 400, 402, 408, 409, 418, 422, 425, 499, 500, 502, 503],
)
def test_after_any_other_answer_nobody_can_tell(status: int) -> None:
    assert kind_of(status) is Unknown
    assert kind_of(status, version=HANDSHAKE) is Unknown


def test_an_answer_that_is_too_large_was_answered_only_if_it_was_an_answer() -> None:
    assert kind_of(200, oversize=True) is Answered
    assert kind_of(500, oversize=True) is Unknown


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_only_a_call_that_was_turned_away_may_be_claimed_again(bench: Bench) -> None:
    expected = {
        403: ("connector_auth", ApprovalState.APPROVED),
        307: ("outcome_uncertain", ApprovalState.UNCERTAIN),
        408: ("outcome_uncertain", ApprovalState.UNCERTAIN),
        499: ("outcome_uncertain", ApprovalState.UNCERTAIN),
    }
    for status, (code, state) in expected.items():
        bench.fake.status = 0
        approval, resumed = bench.approved("refund", {"order": status})
        bench.call(resumed.key, "status", {})
        bench.fake.status = status
        assert bench.code(resumed.key, "refund", {"order": status}, approval) == code
        assert state_of(approval) == state
    assert bench.fake.count("refund") == 0
