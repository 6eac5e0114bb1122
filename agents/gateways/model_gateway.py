"""The Model Gateway: the OpenAI wire under ``/gateway/v1``, raw ASGI, for agent keys alone.

A call takes one visit to the database, goes upstream once and never again, and passes its answer
through as it comes. What it refuses carries a stable code in the problem document and, for the
wire's own clients, in an ``error`` member.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from agents.choices import RequestKind, RequestState
from agents.errors import DomainError, MethodNotAllowed, NotFound, ProviderError, ShuttingDown
from agents.gateways import prices
from agents.gateways.auth import bearer
from agents.gateways.body import ClientGone, parse_json, read_body
from agents.gateways.calls import CallCut, open_call
from agents.gateways.model_hop import Admission, admit, refuse, rights_for_listing
from agents.gateways.model_request import MAX_BODY_BYTES, ChatRequest, read_chat, upstream_body
from agents.gateways.model_upstream import MAX_ANSWER_BYTES, upstream, whole_answer
from agents.gateways.request_rows import CallRecord
from agents.gateways.responses import Receive, Scope, Send, guard, send_json
from agents.gateways.sse import ErrorEvent, EventRelay, EventTooLong

PREFIX = "/gateway/v1"
#: Seconds that a client may leave one piece of the answer unread.
SEND_SECONDS = 30.0
#: Seconds for the last event of a stream that the end of the process cuts off.
LAST_WORD_SECONDS = 0.5
#: Seconds to wait for the provider's end of the connection after its last event.
EOF_SECONDS = 0.5


def openai_shape(document: dict[str, Any]) -> dict[str, Any]:
    """A problem document that clients of the OpenAI wire understand too."""
    kind = "invalid_request_error" if document["status"] < 500 else "server_error"
    error = {
        "message": document["detail"],
        "type": kind,
        "code": document["code"],
        "param": document.get("field"),
    }
    return {**document, "error": error}


async def _route(scope: Scope, receive: Receive, send: Send) -> None:
    path, method = scope["path"], scope["method"]
    if path == f"{PREFIX}/chat/completions":
        if method != "POST":
            raise MethodNotAllowed(allow="POST")
        await _complete(scope, receive, send)
    elif path == f"{PREFIX}/models":
        if method != "GET":
            raise MethodNotAllowed(allow="GET")
        await _list_models(scope, send)
    else:
        raise NotFound


app = guard(_route, shape=openai_shape)


async def _list_models(scope: Scope, send: Send) -> None:
    rights = await rights_for_listing(bearer(scope))
    models = [
        {"id": model.slug, "object": "model", "created": 0, "owned_by": "mandate"}
        for model in sorted(rights.models, key=lambda m: m.slug)
    ]
    await send_json(send, {"object": "list", "data": models}, headers=[_NO_STORE])


_NO_STORE = (b"cache-control", b"no-store")


async def _complete(scope: Scope, receive: Receive, send: Send) -> None:
    key_text = bearer(scope)
    record = CallRecord(RequestKind.MODEL)
    try:
        request = await _read(scope, receive, key_text, record)
        admission = await admit(key_text, request, record)
        await _Exchange(admission, request, send).run(receive)
    except DomainError as error:
        error.extra.setdefault("request_id", str(record.id))
        raise


async def _read(scope: Scope, receive: Receive, key_text: str, record: CallRecord) -> ChatRequest:
    try:
        body = await read_body(scope, receive, limit=MAX_BODY_BYTES)
        return read_chat(parse_json(body), len(body))
    except DomainError as error:
        raise await refuse(key_text, error, record) from None


class _Exchange:
    """One admitted call, from the provider's first byte to the closing of its row."""

    def __init__(self, admission: Admission, request: ChatRequest, send: Send) -> None:
        self.admission = admission
        self.request = request
        self.record = admission.record
        self.usage: prices.Usage | None = None
        self._send = send
        self._streaming = False

    async def run(self, receive: Receive) -> None:
        """Forward the call and close the row, however it ends."""
        key, model = self.admission.key, self.admission.model
        forward = self._stream if self.request.stream else self._answer
        try:
            async with open_call(
                receive,
                key_id=None if key is None else key.id,
                model_slug=model.slug,
                resource_id=model.id,
            ):
                await forward()
        except CallCut as cut:
            await self._fail(cut.error)
        except (DomainError, ClientGone) as error:
            await self._fail(error)
        except asyncio.CancelledError:
            self._close(RequestState.CANCELLED, "shutdown")
            if self._streaming:
                await self._end_stream(ShuttingDown(), seconds=LAST_WORD_SECONDS)
            raise
        except BaseException:
            self._close(RequestState.FAILED, "internal")
            raise

    def _close(self, state: RequestState, code: str = "") -> None:
        """Close the row; the first call counts, so a complete answer stays one."""
        self.record.close(state, code, spending=prices.spending(self.admission.model, self.usage))

    async def _fail(self, error: DomainError | ClientGone) -> None:
        if isinstance(error, ClientGone):
            self._close(RequestState.CANCELLED, "client_gone")
            raise error
        self._close(RequestState.FAILED, error.code)
        if not self._streaming:
            raise error
        await self._end_stream(error)

    async def _end_stream(self, error: DomainError, seconds: float | None = None) -> None:
        """Say as the last event why the answer is not complete."""
        document = openai_shape(
            {"status": error.status, "detail": error.detail, "code": error.code}
        )
        event = b"data: " + orjson.dumps({"error": document["error"]}) + b"\n\n"
        try:
            await self._push(event, more=False, seconds=seconds)
        except ClientGone:
            return

    async def _answer(self) -> None:
        body = upstream_body(self.request, self.admission.model)
        async with upstream(self.admission, body, stream=False) as response:
            self.record.first_byte()
            data, document = await whole_answer(response)
        self.usage = prices.read_usage(document.get("usage"), had_output=bool(document["choices"]))
        self._close(RequestState.OK)
        await send_json(self._send, data, headers=[self._request_id(), _NO_STORE])

    async def _stream(self) -> None:
        body = upstream_body(self.request, self.admission.model)
        relay = EventRelay(hide_usage=not self.request.wants_usage)
        async with upstream(self.admission, body, stream=True) as response:
            self.record.first_byte()
            await self._start_stream()
            size = 0
            try:
                async for chunk in response.content.iter_any():
                    size += len(chunk)
                    if size > MAX_ANSWER_BYTES:
                        raise ProviderError("The provider's answer exceeds the limit.")
                    if ready := relay.feed(chunk):
                        await self._push(ready)
                    if relay.done:
                        break
                else:
                    if ready := relay.finish():
                        await self._push(ready)
            except (ErrorEvent, EventTooLong):
                raise ProviderError from None
            finally:
                self.usage = prices.read_usage(relay.usage, had_output=relay.had_output)
            if not relay.done:
                raise ProviderError("The provider's answer was cut off.")
            self._close(RequestState.OK)
            await self._push(b"", more=False)
            await _await_eof(response)

    async def _start_stream(self) -> None:
        self._streaming = True
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
            self._request_id(),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _push(self, data: bytes, *, more: bool = True, seconds: float | None = None) -> None:
        try:
            async with asyncio.timeout(SEND_SECONDS if seconds is None else seconds):
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:  # The client does not read: for us it is gone.
            raise ClientGone from None

    def _request_id(self) -> tuple[bytes, bytes]:
        return b"x-request-id", str(self.record.id).encode()


async def _await_eof(response: Any) -> None:
    """Let the connection be used again: it can, once the provider has ended its answer."""
    try:
        async with asyncio.timeout(EOF_SECONDS):
            await response.content.readany()
    except TimeoutError:
        return
