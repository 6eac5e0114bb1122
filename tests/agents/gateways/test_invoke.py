"""The gateway's path inside the process: the same rights and rows, and one caller without a key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from agents.errors import (
    Forbidden,
    Invalid,
    KeyDead,
    ModelDisabled,
    NotFound,
    OutOfScope,
    ProviderRateLimited,
)
from agents.gateways import outgoing
from agents.gateways.invoke import SystemCall, invoke
from agents.gateways.prices import Usage
from agents.models import Boot, GatewayRequest, Organization
from agents.policy import system_actor
from tests.fakes.model_provider import FakeProvider, hang, rate_limited, text
from tests.serving import aside
from tests.world import World, make_world

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

Rows = Callable[[], list[GatewayRequest]]
ASK: dict[str, Any] = {"model": "standard", "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture(autouse=True)
async def _closed_clients(boot: Boot) -> AsyncIterator[None]:
    yield
    await outgoing.close()


def advertisement(world: World, **changes: Any) -> SystemCall:
    values = {
        "actor": system_actor("advertisement"),
        "organization_id": world.organization.id,
        "virtual_model_id": world.model.id,
        "agent_id": world.agent.id,
        "environment_id": world.production.id,
        **changes,
    }
    return SystemCall(**values)


async def test_a_key_gets_what_it_would_get_over_http(
    world: World, provider: FakeProvider, rows: Rows
) -> None:
    provider.script(text("Hello."))
    answer = await invoke(ASK, key_text=world.key_text)
    assert answer.document["choices"][0]["message"]["content"] == "Hello."
    assert answer.usage == Usage(input=11, output=7)
    [row] = await aside(rows)
    assert (row.id, row.state, row.purpose, row.cost) == (answer.request_id, "ok", "agent", 25)
    assert row.key_accessor == world.key.accessor


async def test_the_advertisement_worker_needs_no_key(
    world: World, provider: FakeProvider, rows: Rows
) -> None:
    answer = await invoke(ASK, system=advertisement(world))
    assert provider.requests[0].json["model"] == "gpt-test"
    assert provider.requests[0].json["max_tokens"] == 256
    [row] = await aside(rows)
    assert (row.id, row.state, row.purpose) == (answer.request_id, "ok", "advertisement")
    assert (row.organization_id, row.agent_id) == (world.organization.id, world.agent.id)
    assert (row.key_accessor, row.run_id) == ("", None)


async def test_nobody_else_does(world: World, provider: FakeProvider) -> None:
    with pytest.raises(Forbidden):
        await invoke(ASK)
    for actor in (system_actor("demo"), await aside(lambda: world.operator)):
        with pytest.raises(Forbidden):
            await invoke(ASK, system=advertisement(world, actor=actor))
    with pytest.raises(Forbidden):
        await invoke(ASK, key_text=world.key_text, system=advertisement(world))
    assert provider.requests == []


async def test_a_call_without_a_key_has_no_tools_and_no_stream(
    world: World, provider: FakeProvider
) -> None:
    tools = [{"type": "function", "function": {"name": "x"}}]
    for change in ({"tools": tools}, {"functions": [{"name": "x"}]}, {"stream": True}):
        with pytest.raises(Invalid):
            await invoke({**ASK, **change}, system=advertisement(world))
    assert provider.requests == []


async def test_a_call_without_a_key_stays_in_its_organization(
    world: World, provider: FakeProvider
) -> None:
    other = await aside(lambda: make_world(name="globex", provider_url=provider.base_url))
    with pytest.raises(NotFound):
        await invoke(ASK, system=advertisement(world, virtual_model_id=other.model.id))
    await aside(
        lambda: Organization.objects.filter(id=world.organization.id).update(status="suspended")
    )
    with pytest.raises(ModelDisabled):
        await invoke(ASK, system=advertisement(world))
    assert provider.requests == []


async def test_refusals_and_failures_are_the_gateways(
    world: World, provider: FakeProvider, rows: Rows
) -> None:
    with pytest.raises(KeyDead):
        await invoke(ASK, key_text="mk_nobody")
    with pytest.raises(OutOfScope):
        await invoke({**ASK, "model": "other"}, key_text=world.key_text)
    provider.script(rate_limited())
    with pytest.raises(ProviderRateLimited):
        await invoke(ASK, key_text=world.key_text)
    states = [(row.state, row.code) for row in await aside(rows)]
    assert states == [("refused", "out_of_scope"), ("failed", "provider_rate_limited")]


async def test_cancelling_it_cancels_the_call_upstream(
    world: World, provider: FakeProvider, rows: Rows
) -> None:
    provider.script(hang())
    task = asyncio.create_task(invoke(ASK, system=advertisement(world)))
    await asyncio.to_thread(provider.wait_for_requests, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(provider.wait_until_gone)
    assert [row.state for row in await aside(rows)] == ["cancelled"]
