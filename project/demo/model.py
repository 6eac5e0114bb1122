"""The demo's model: an OpenAI-wire server on loopback that answers by rules (see ``rules``).

``python -m project.demo.model`` serves ``POST /v1/chat/completions`` (streaming and not),
``GET /v1/models`` and ``GET /health``. ``DEMO_MODEL_PORT`` sets the port, ``DEMO_MODEL_PACE_MS``
the milliseconds between two pieces of a stream.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from project.demo.addresses import MODEL_ID
from project.demo.rules.decide import Decision, decide
from project.demo.rules.turn import BadRequest

PACE_MS: Final = 12
BODY_LIMIT: Final = 8 * 1024 * 1024
#: Characters that one token stands for: a rule of thumb, good enough to fill usage pages.
CHARACTERS_PER_TOKEN: Final = 4
DEFAULT_OUTPUT_TOKENS: Final = 4_096
_PIECES: Final = re.compile(r"\S+\s*|\s+")


def build_application(pace_ms: float = PACE_MS) -> web.Application:
    """The server; *pace_ms* milliseconds lie between two pieces of a stream."""

    async def complete(request: web.Request) -> web.StreamResponse:
        body = await _read(request)
        if isinstance(body, web.Response):
            return body
        try:
            decision = decide(body)
        except BadRequest as problem:
            return _error(400, "invalid_request_error", str(problem))
        answer = Answer(body, decision)
        if body.get("stream") is not True:
            return web.json_response(answer.whole())
        return await _stream(request, answer, pace_ms / 1000)

    async def models(_request: web.Request) -> web.Response:
        listed = [{"id": MODEL_ID, "object": "model", "created": 0, "owned_by": "mandate"}]
        return web.json_response({"object": "list", "data": listed})

    async def health(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    application = web.Application(client_max_size=BODY_LIMIT)
    application.router.add_post("/v1/chat/completions", complete)
    application.router.add_get("/v1/models", models)
    application.router.add_get("/health", health)
    return application


async def _read(request: web.Request) -> dict[str, Any] | web.Response:
    try:
        body = json.loads(await request.read())
    except ConnectionError:
        return _error(400, "invalid_request_error", "the body ended early")
    except ValueError:
        return _error(400, "invalid_request_error", "the body is not JSON")
    if not isinstance(body, dict):
        return _error(400, "invalid_request_error", "the body is not an object")
    if body.get("model") != MODEL_ID:
        return _error(404, "model_not_found", f"this server has one model, {MODEL_ID}")
    return body


def _error(status: int, code: str, message: str) -> web.Response:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return web.json_response({"error": error}, status=status)


class Answer:
    """One decision in the shapes of the wire. Ids derive from the request, so they repeat."""

    def __init__(self, body: dict[str, Any], decision: Decision) -> None:
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        self.id = f"chatcmpl-{digest[:24]}"
        self.created = int(time.time())
        self.decision, self.is_cut = _bounded(decision, _limit(body))
        self.calls = [
            {
                "id": f"call_{digest[24:44]}{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for number, call in enumerate(decision.calls)
        ]
        prompt = json.dumps([body.get("messages"), body.get("tools")])
        said = self.decision.text + "".join(json.dumps(call["function"]) for call in self.calls)
        self.usage = _usage(tokens(prompt), tokens(said))
        options = body.get("stream_options")
        self.reports_usage = isinstance(options, dict) and options.get("include_usage") is True

    @property
    def finish(self) -> str:
        if self.calls:
            return "tool_calls"
        return "length" if self.is_cut else "stop"

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self.decision.text or None}
        if self.calls:
            message["tool_calls"] = self.calls
        choice = {"index": 0, "message": message, "finish_reason": self.finish, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self.usage}

    def chunks(self) -> Iterator[dict[str, Any]]:
        yield self._chunk({"role": "assistant", "content": ""})
        for piece in _PIECES.findall(self.decision.text):
            yield self._chunk({"content": piece})
        for index, call in enumerate(self.calls):
            function = call["function"]
            assert isinstance(function, dict)
            opened = {**call, "index": index, "function": {**function, "arguments": ""}}
            yield self._chunk({"tool_calls": [opened]})
            arguments = function["arguments"]
            for start in range(0, len(arguments), 12):
                part = {"index": index, "function": {"arguments": arguments[start : start + 12]}}
                yield self._chunk({"tool_calls": [part]})
        yield self._chunk({}, self.finish)
        if self.reports_usage:
            yield {**self._head("chat.completion.chunk"), "choices": [], "usage": self.usage}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": MODEL_ID}


def tokens(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def _usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _limit(body: dict[str, Any]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        if isinstance(body.get(name), int) and body[name] > 0:
            return int(body[name])
    return DEFAULT_OUTPUT_TOKENS


def _bounded(decision: Decision, limit: int) -> tuple[Decision, bool]:
    most = limit * CHARACTERS_PER_TOKEN
    if len(decision.text) <= most:
        return decision, False
    return replace(decision, text=decision.text[:most]), True


async def _stream(request: web.Request, answer: Answer, pace: float) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    # A client that stops a stream goes away in the middle of it: nobody is left to tell.
    with suppress(ConnectionError):
        await response.prepare(request)
        for chunk in answer.chunks():
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
            await asyncio.sleep(pace)
        await response.write(b"data: [DONE]\n\n")
    return response


def main() -> None:
    web.run_app(
        build_application(float(os.environ.get("DEMO_MODEL_PACE_MS") or PACE_MS)),
        host="127.0.0.1",
        port=int(os.environ.get("DEMO_MODEL_PORT") or 8011),
        print=None,
        access_log=None,
        shutdown_timeout=3,
    )


if __name__ == "__main__":
    main()
