"""A model call through the gateway: what goes upstream, what comes back, what is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from agents.models import GatewayRequest
from agents.services import resources
from tests.fakes.model_provider import FakeProvider, call, calls, echo, text
from tests.serving import Served
from tests.world import PROVIDER_CREDENTIAL, World

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

Rows = Callable[[], list[GatewayRequest]]
ASK: dict[str, Any] = {"model": "standard", "messages": [{"role": "user", "content": "Hi"}]}


def client_of(gateway: Served, world: World, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{gateway.url}/gateway/v1", api_key=world.key_text, max_retries=0, **options
    )


def post(gateway: Served, world: World, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(
        f"{gateway.url}/gateway/v1/chat/completions", json=body, headers=world.authorization()
    )


def test_the_stock_client_gets_an_answer(
    gateway: Served, world: World, provider: FakeProvider, rows: Rows
) -> None:
    provider.script(text("Your order is on its way."))
    with client_of(gateway, world) as client:
        answer = client.chat.completions.create(**ASK)
    assert answer.choices[0].message.content == "Your order is on its way."
    [row] = rows()
    assert (row.state, row.code, row.kind, row.purpose) == ("ok", "", "model", "agent")
    assert (row.agent_id, row.environment_id) == (world.agent.id, world.production.id)
    assert (row.key_accessor, row.resource_id) == (world.key.accessor, world.model.id)
    assert (row.input_tokens, row.output_tokens) == (11, 7)
    assert row.cost == 11 * 1 + 7 * 2
    assert row.closed_at is not None
    assert row.closed_at >= row.opened_at
    assert row.first_byte_ms is not None
    assert row.first_byte_ms <= (row.duration_ms or 0)


def test_the_provider_gets_its_own_credential_and_name_of_the_model(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    assert post(gateway, world, {**ASK, "temperature": 0.5, "max_tokens": 9_999}).is_success
    [sent] = provider.requests
    assert sent.headers["authorization"] == f"Bearer {PROVIDER_CREDENTIAL}"
    assert world.key_text not in str(sent.headers)
    assert sent.json == {
        "model": "gpt-test", "messages": ASK["messages"], "temperature": 0.5, "max_tokens": 256,
    }  # fmt: skip


@pytest.mark.parametrize("known", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize(
    ("asked", "limit"),
    [
        ({}, 256),
        ({"max_tokens": 10}, 10),
        ({"max_tokens": None}, 256),
        ({"max_completion_tokens": 10}, 10),
        ({"max_completion_tokens": 10_000}, 256),
        ({"max_tokens": 5, "max_completion_tokens": 900}, 5),
        ({"max_tokens": 900, "max_completion_tokens": 5}, 5),
    ],
)
def test_the_output_limit_is_forced_under_the_name_that_the_provider_knows(
    gateway: Served,
    world: World,
    provider: FakeProvider,
    asked: dict[str, Any],
    limit: int,
    known: str,
) -> None:
    resources.change_provider(
        actor=world.operator, provider=world.provider, output_limit_parameter=known
    )
    assert post(gateway, world, {**ASK, **asked}).is_success
    body = provider.requests[0].json
    assert {k: v for k, v in body.items() if k.endswith("tokens")} == {known: limit}


def test_tool_calls_and_reasoning_pass_in_both_ways(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    provider.script(*2 * [calls(call("orders__refund", {"order": 7}), say="One moment.")])
    tools: Any = [{"type": "function", "function": {"name": "orders__refund", "parameters": {}}}]
    with client_of(gateway, world) as client:
        whole = client.chat.completions.create(**ASK, tools=tools)
        pieces = list(client.chat.completions.create(**ASK, tools=tools, stream=True))
    [asked] = whole.choices[0].message.tool_calls or []
    assert asked.type == "function"
    assert json.loads(asked.function.arguments) == {"order": 7}
    arguments = "".join(
        part.function.arguments or ""
        for piece in pieces
        for part in piece.choices[0].delta.tool_calls or []
        if part.function
    )
    assert json.loads(arguments) == {"order": 7}
    assert provider.requests[0].json["tools"] == tools


def test_text_of_any_script_passes_unchanged(gateway: Served, world: World) -> None:
    said = 'naïve 🙂 \u2028 \u202e end " \\ \x01'
    gateway_body = {**ASK, "messages": [{"role": "user", "content": said}]}
    assert post(gateway, world, gateway_body).is_success


def test_what_the_model_says_is_what_was_sent(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    said = 'naïve 🙂 \u2028 \u202e end " \\ \x01 <b>'
    provider.script(echo())
    answer = post(gateway, world, {**ASK, "messages": [{"role": "user", "content": said}]})
    assert answer.json()["choices"][0]["message"]["content"] == said


def test_only_the_keys_own_models_are_listed(gateway: Served, world: World) -> None:
    world.add_model("large")
    world.add_model("secret", granted=False)
    with client_of(gateway, world) as client:
        assert [model.id for model in client.models.list()] == ["large", "standard"]
    scoped = world.mint_key({"models": [str(world.model.id)]})
    with openai.OpenAI(base_url=f"{gateway.url}/gateway/v1", api_key=scoped.text) as client:
        assert [model.id for model in client.models.list()] == ["standard"]


async def test_the_stock_async_client_streams(
    gateway: Served, world: World, provider: FakeProvider
) -> None:
    provider.script(text("A longer answer, in pieces."))
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/gateway/v1", api_key=world.key_text
    ) as client:
        stream = await client.chat.completions.create(**ASK, stream=True)
        said = [piece.choices[0].delta.content or "" async for piece in stream]
    assert "".join(said) == "A longer answer, in pieces."
    assert len(said) > 5
