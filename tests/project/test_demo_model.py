"""The demo model: rules over the prompt alone, and the OpenAI wire around them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema
import pytest
import pytest_asyncio
from aiohttp.test_utils import BaseTestServer, TestClient, TestServer
from openai import AsyncOpenAI, NotFoundError
from openai.types.chat import ChatCompletionChunk

from project.demo.addresses import MODEL_ID
from project.demo.model import build_application
from project.demo.rules.decide import decide
from tests.project.demo_talk import DESK, Conversation, called, offered, renamed

ORDER = {"order": 1003, "customer": "Chloe Okafor", "email": "chloe@example.com", "state": "sent"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What's the state of order 1003?", [("order_status", {"order": 1003})]),
        ("where is #1003", [("order_status", {"order": 1003})]),
        ("Has order 1003 been refunded?", [("order_status", {"order": 1003})]),
        ("Please refund order 1003", [("refund_order", {"order": 1003})]),
        ("I want my money back for order 1003", [("refund_order", {"order": 1003})]),
        (
            "Reimburse 12,50 € of purchase 1012 because it came late.",
            [("refund_order", {"order": 1012, "amount": 12.5, "reason": "it came late"})],
        ),
        (
            "refund orders 1001 and 1003",
            [("refund_order", {"order": 1001}), ("refund_order", {"order": 1003})],
        ),
        ("find the orders of Ada Marsh", [("search_orders", {"query": "Ada Marsh"})]),
        ("Which orders are shipped?", [("search_orders", {"query": "shipped"})]),
        ("list all orders", [("search_orders", {})]),
        (
            'Email ada@example.com that says "Order 7 is lost."',
            [
                (
                    "send_email",
                    {
                        "to": "ada@example.com",
                        "subject": "A message from us",
                        "body": "Order 7 is lost.",
                    },
                )
            ],
        ),
    ],
)
def test_it_calls_what_the_words_ask_for(
    text: str, expected: list[tuple[str, dict[str, Any]]]
) -> None:
    assert called(Conversation().ask(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("How far is purchase 1003?", [("whereabouts", {"purchase_id": 1003})]),
        ("Track 1003 for me", [("whereabouts", {"purchase_id": 1003})]),
        (
            "Could you compensate the client with 5 euros for purchase 1003",
            [("give_money_back", {"purchase_id": 1003, "sum": 5.0})],
        ),
        ("look up what Ada Marsh purchased", [("find_purchases", {"query": "Ada Marsh"})]),
        (
            "Notify ada@example.com that her book ships tomorrow",
            [
                (
                    "drop_line",
                    {
                        "recipient": "ada@example.com",
                        "subject": "A message from us",
                        "body": "Her book ships tomorrow.",
                    },
                )
            ],
        ),
    ],
)
def test_renamed_tools_and_other_wording_work_as_well(
    text: str, expected: list[tuple[str, dict[str, Any]]]
) -> None:
    assert called(Conversation(tools=renamed()).ask(text)) == expected


def test_it_calls_only_what_is_offered() -> None:
    reads = [tool for tool in offered() if "refund" not in tool["function"]["name"]]
    decision = Conversation(tools=reads).ask("Refund order 1003")
    assert all(name != "refund_order" for name, _ in called(decision))


def test_it_asks_for_what_it_lacks_and_goes_on_with_the_reply() -> None:
    talk = Conversation()
    question = talk.ask("I want a refund")
    assert not question.calls
    assert "order number" in question.text
    assert called(talk.ask("1012, but only 5 EUR")) == [
        ("refund_order", {"order": 1012, "amount": 5.0})
    ]


def test_it_asks_which_when_several_fit() -> None:
    talk = Conversation()
    assert called(talk.ask("Refund Ada Marsh's order")) == [
        ("search_orders", {"query": "Ada Marsh"})
    ]
    question = talk.result({"result": [{"order": 1001}, {"order": 1005}]})
    assert "1001, 1005" in question.text
    assert not question.calls
    assert called(talk.ask("1005")) == [("refund_order", {"order": 1005})]
    assert "Which one do you mean" in Conversation().ask("refund 1001 or 1003").text


def test_it_remembers_what_was_spoken_of() -> None:
    talk = Conversation()
    talk.ask("Where is order 1003?")
    talk.result(ORDER)
    assert called(talk.ask("Please refund it")) == [("refund_order", {"order": 1003})]


def test_it_looks_up_what_an_action_needs() -> None:
    talk = Conversation()
    first = talk.ask("Send an email to the customer of order 1003 saying it ships tomorrow")
    assert called(first) == [("order_status", {"order": 1003})]
    assert called(talk.result(ORDER)) == [
        (
            "send_email",
            {"to": "chloe@example.com", "subject": "Your order 1003", "body": "It ships tomorrow."},
        )
    ]
    last = talk.result({"id": 1})
    assert not last.calls
    assert last.text.startswith("Done: send email")


def test_it_does_two_things_one_after_the_other_and_never_twice() -> None:
    talk = Conversation()
    assert called(talk.ask("refund order 1003 and email the customer about it")) == [
        ("refund_order", {"order": 1003})
    ]
    ((name, arguments),) = called(talk.result({**ORDER, "state": "refunded"}))
    assert (name, arguments["to"]) == ("send_email", "chloe@example.com")
    assert "refunded" in arguments["body"]
    last = talk.result({"id": 1})
    assert not last.calls


def test_it_tells_results_as_they_are() -> None:
    talk = Conversation()
    talk.ask("Where is order 1003?")
    answer = talk.result(ORDER)
    assert not answer.calls
    assert answer.text.startswith("Order 1003 is sent: customer Chloe Okafor")

    talk.ask("Where is order 9999?")
    assert "There is no order 9999." in talk.result("There is no order 9999.").text


def test_after_a_denial_it_says_so_and_tries_nothing_else() -> None:
    talk = Conversation()
    talk.ask("refund order 1003 and email the customer about it")
    answer = talk.result("Denied by the user: wrong customer")
    assert not answer.calls
    assert "did not allow" in answer.text
    assert "wrong customer" in answer.text


def test_an_unknown_outcome_is_not_called_done() -> None:
    talk = Conversation()
    talk.ask("refund order 1003")
    answer = talk.result("outcome unknown")
    assert not answer.calls
    assert "do not know" in answer.text
    assert "Done" not in answer.text


@pytest.mark.parametrize("text", ["Hello!", "Who are you?", "what can you do", "sing me a song"])
def test_it_says_that_it_is_a_demo(text: str) -> None:
    answer = Conversation().ask(text).text
    assert "Mandate's demo model" in answer
    assert "refund order" in answer


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("Always sign as Captain Hook.", "\n\n— Captain Hook"),
        ('Start every answer with "Ahoy".', "Ahoy I found"),
        ('End each reply with "Farewell!"', "Farewell!"),
        ('Always mention "Parcels leave at noon."', "Parcels leave at noon."),
        ("Be formal.", "Dear customer, "),
        ("Be friendly.", "anything else"),
        ("Answer in upper case.", "BRUNO"),
    ],
)
def test_edited_instructions_change_the_answer(rule: str, expected: str) -> None:
    answers = []
    for instructions in (DESK, f"{DESK}\n- {rule}"):
        talk = Conversation(instructions)
        talk.ask("find the orders of Bruno Keller")
        answers.append(talk.result({"result": [{"order": 1002, "customer": "Bruno"}]}).text)
    assert expected not in answers[0]
    assert expected in answers[1]


def test_one_sentence_means_one() -> None:
    talk = Conversation(f"{DESK} Answer in one sentence.")
    assert talk.ask("hello").text == "Hello!"


@pytest.mark.parametrize(
    ("rule", "request_text", "allowed"),
    [
        ("Do not refund anything.", "refund order 1003", False),
        ("Never refund more than 10 EUR.", "refund 12 EUR of order 1003", False),
        ("Never refund more than 10 EUR.", "refund 9 EUR of order 1003", True),
        ("Never refund more than 10 EUR.", "refund order 1003", False),
        ("Never guess a state.", "refund order 1003", True),
    ],
)
def test_instructions_can_forbid(rule: str, request_text: str, allowed: bool) -> None:
    decision = Conversation(f"{DESK} {rule}").ask(request_text)
    assert bool(decision.calls) is allowed
    assert allowed or rule in decision.text


def test_it_quotes_what_its_instructions_know() -> None:
    talk = Conversation("You are a shop. The opening hours are 9 to 17.", tools=[])
    assert "9 to 17" in talk.ask("What are your opening hours?").text


SCHEMAS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {
            "summary": {"type": "string", "maxLength": 20},
            "specialties": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "capabilities": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "score": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
            "kind": {"enum": ["billing", "orders"]},
            "extra": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 3}]},
        },
        "required": ["summary", "specialties", "capabilities", "score", "kind", "extra"],
        "additionalProperties": False,
    },
    {
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 40},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                },
                "required": ["name", "children"],
            }
        },
        "$ref": "#/$defs/Node",
    },
    {"type": "array", "items": {"type": "string"}, "minItems": 5, "uniqueItems": True},
    {
        "type": "object",
        "allOf": [
            {"properties": {"when": {"type": "string", "format": "date"}}, "required": ["when"]},
        ],
        "properties": {"on": {"type": "boolean"}, "mail": {"type": "string", "format": "email"}},
        "required": ["on", "mail"],
    },
    {"type": "integer", "multipleOf": 7, "minimum": 8},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_it_obeys_a_json_schema(schema: dict[str, Any]) -> None:
    body = {
        "messages": [{"role": "user", "content": "Describe orders__search_orders and refunds."}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
    }
    value = json.loads(decide(body).text)
    jsonschema.validate(value, schema, format_checker=jsonschema.FormatChecker())
    if "capabilities" in schema.get("properties", {}):
        assert value["capabilities"] == ["orders__search_orders"]
        assert value["kind"] == "orders"


def test_tool_choice_is_obeyed() -> None:
    messages = [{"role": "user", "content": "hello"}]
    named = {"type": "function", "function": {"name": "orders__order_status"}}
    forced = decide({"messages": messages, "tools": offered(), "tool_choice": named})
    assert called(forced)[0][0] == "order_status"
    asked = [{"role": "user", "content": "refund order 1003"}]
    none = decide({"messages": asked, "tools": offered(), "tool_choice": "none"})
    assert not none.calls


# --- the wire ---------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def server() -> AsyncIterator[BaseTestServer]:
    async with TestServer(build_application(pace_ms=0)) as running:
        yield running


@pytest_asyncio.fixture
async def client(server: BaseTestServer) -> AsyncIterator[AsyncOpenAI]:
    address = str(server.make_url("/v1"))
    async with AsyncOpenAI(base_url=address, api_key="any", max_retries=0) as made:
        yield made


def request(text: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL_ID, "messages": [{"role": "user", "content": text}], **more}


async def test_the_stock_client_gets_the_same_answer_whole_and_streamed(
    client: AsyncOpenAI,
) -> None:
    whole = await client.chat.completions.create(**request("count to 30"))
    chunks: list[ChatCompletionChunk] = [
        chunk
        async for chunk in await client.chat.completions.create(
            **request("count to 30", stream=True, stream_options={"include_usage": True})
        )
    ]
    pieces = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(pieces) == whole.choices[0].message.content
    assert len([p for p in pieces if p]) == 30
    assert whole.choices[0].finish_reason == "stop"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert not chunks[-1].choices
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens > 0
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens


async def test_usage_comes_only_when_asked_for(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(**request("hello", stream=True))
    assert all(chunk.usage is None for chunk in [chunk async for chunk in stream])


async def test_tool_calls_stream_in_pieces_that_join_to_json(client: AsyncOpenAI) -> None:
    body = request("refund orders 1001 and 1003 because it rained", tools=offered())
    arguments: dict[int, str] = {}
    names: dict[int, str] = {}
    ids = set()
    finish = None
    async for chunk in await client.chat.completions.create(**body, stream=True):
        choice = chunk.choices[0]
        finish = choice.finish_reason or finish
        for call in choice.delta.tool_calls or []:
            assert call.function is not None
            if call.id:
                ids.add(call.id)
            names[call.index] = names.get(call.index) or call.function.name or ""
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    assert finish == "tool_calls"
    assert names == {0: "orders__refund_order", 1: "orders__refund_order"}
    assert len(ids) == 2
    assert [json.loads(a)["order"] for a in arguments.values()] == [1001, 1003]


async def test_the_output_limit_cuts_and_says_so(client: AsyncOpenAI) -> None:
    cut = await client.chat.completions.create(**request("count to 99", max_completion_tokens=5))
    assert cut.choices[0].finish_reason == "length"
    assert cut.usage is not None
    assert cut.usage.completion_tokens == 5


@pytest.mark.parametrize("sent", ["whole", "half"])
def test_a_client_that_goes_away_leaves_no_trace(sent: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {**os.environ, "DEMO_MODEL_PORT": str(port), "DEMO_MODEL_PACE_MS": "1"}
    command = [sys.executable, "-m", "project.demo.model"]
    with subprocess.Popen(command, env=settings, stderr=subprocess.PIPE, text=True) as process:
        client = _connected(port)
        body = json.dumps(request("count to 900", stream=True)).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        client.sendall(head.encode() + (body if sent == "whole" else body[:9]))
        if sent == "whole":
            assert b"chunk" in client.recv(4096) + client.recv(4096)
        client.close()
        for _ in range(30):  # Longer than the server needs to find out.
            assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
        process.terminate()
        _, errors = process.communicate(timeout=20)
    assert errors == ""


def _connected(port: int) -> socket.socket:
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=10)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


async def test_models_health_and_unknown_model(client: AsyncOpenAI, server: BaseTestServer) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL_ID]
    with pytest.raises(NotFoundError):
        await client.chat.completions.create(**{**request("hi"), "model": "other"})
    http: TestClient[Any, Any] = TestClient(server)
    async with http:
        assert (await http.get("/health")).status == 200


@pytest.mark.parametrize(
    "body", ["{", "[]", '{"model": "mandate-demo"}', '{"model": "mandate-demo", "messages": [1]}']
)
async def test_malformed_bodies_are_refused(server: BaseTestServer, body: str) -> None:
    http: TestClient[Any, Any] = TestClient(server)
    async with http:
        response = await http.post("/v1/chat/completions", data=body)
        assert response.status == 400
        assert (await response.json())["error"]["message"]
