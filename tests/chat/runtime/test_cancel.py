"""Web closes the connection: the run stops, and so does everything it waits for."""

import asyncio

import pytest

from tests.chat.runtime.conftest import Web, run_request
from tests.chat.runtime.gateway import FakeGateway, ToolReply
from tests.fakes.model_provider import call, calls, hang, text


async def start_and_drop(web: Web, ready: asyncio.Future[None]) -> None:
    """Start a run, wait until ``ready``, then close the connection."""
    async with web.post(run_request("Hi").model_dump_json().encode()) as response:
        assert response.status == 200
        await ready
        response.close()


@pytest.mark.parametrize("after_chunks", [0, 2])
async def test_the_call_of_the_model_is_cancelled(
    web: Web, gateway: FakeGateway, after_chunks: int
) -> None:
    gateway.script(hang(after_chunks).but(pace=0.01))

    ready = asyncio.ensure_future(asyncio.to_thread(gateway.wait_for_requests, 1))
    await start_and_drop(web, ready)

    assert await asyncio.to_thread(gateway.wait_until_gone) < 2
    # The runtime serves on.
    assert (await web.turn("Hi")).final.outcome == "success"


async def test_a_long_answer_is_cancelled_in_its_middle(web: Web, gateway: FakeGateway) -> None:
    gateway.script(text("word " * 500, pace=0.01))

    ready = asyncio.ensure_future(asyncio.to_thread(gateway.wait_for_requests, 1))
    await start_and_drop(web, ready)

    assert await asyncio.to_thread(gateway.wait_until_gone) < 2


async def test_calls_of_tools_are_cancelled_all_of_them(web: Web, gateway: FakeGateway) -> None:
    gateway.script(calls(call("orders__status", {}, "a"), call("orders__refund", {}, "b")))
    gateway.on_tool("orders__status", ToolReply(hang=True))
    gateway.on_tool("orders__refund", ToolReply(hang=True))

    ready = asyncio.ensure_future(asyncio.to_thread(gateway.wait_for_tool_calls, 2))
    await start_and_drop(web, ready)

    for made in (1, 2):
        assert await asyncio.to_thread(gateway.wait_until_gone, made) < 2
    assert len(gateway.completions) == 1
