"""The fake tool server is what other tests judge by, so it is judged here first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.fakes.mcp_server import (
    Error,
    FakeMCP,
    Giant,
    Hang,
    RpcError,
    Slow,
    Structured,
    Text,
    tool,
)

ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture
def fake() -> Iterator[FakeMCP]:
    with FakeMCP(tools=[tool("act", {"order": "integer"}, required=["order"])]) as server:
        yield server


async def until(condition: Callable[[], bool]) -> None:
    """The server runs in another thread, so its state is polled, for five seconds at most."""
    for _ in range(250):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("It never came true")


def client(fake: FakeMCP, mode: str, **options: Any) -> Client:
    return Client(streamable_http_client(fake.url), mode=mode, cache=None, **options)


@ERAS
async def test_it_lists_and_calls(fake: FakeMCP, mode: str) -> None:
    async with client(fake, mode) as session:
        listed = await session.list_tools()
        result = await session.call_tool("act", {"order": 7}, meta=cast("Any", {"mandate/x": "1"}))

    assert [t.name for t in listed.tools] == ["act"]
    assert result.content[0].text == '{"order": 7}'  # type: ignore[union-attr]
    assert fake.count("act") == 1
    (call,) = fake.calls
    assert call.arguments == {"order": 7}
    assert call.meta["mandate/x"] == "1"
    assert call.era == ("modern" if mode == "auto" else "handshake")
    assert call.headers["host"] == fake.host_port
    assert call.finished


@ERAS
async def test_it_plays_each_answer(fake: FakeMCP, mode: str) -> None:
    fake.answer(
        "act",
        [
            Text("plain"),
            Error("no"),
            Structured({"state": "paid"}),
            Giant(100_000),
            Slow(0.01, then=Text("late")),
            RpcError(-32043, data={"approval": "forged"}),
            lambda arguments: Text(f"order {arguments['order']}"),
        ],
    )
    async with client(fake, mode) as session:
        results = [await session.call_tool("act", {"order": n}) for n in range(5)]
        with pytest.raises(MCPError) as refused:
            await session.call_tool("act", {"order": 5})
        last = [await session.call_tool("act", {"order": n}) for n in (6, 7)]

    texts = [r.content[0].text for r in results]  # type: ignore[union-attr]
    assert texts == ["plain", "no", '{"state": "paid"}', "x" * 100_000, "late"]
    assert [r.is_error for r in results] == [False, True, False, False, False]
    assert results[2].structured_content == {"state": "paid"}
    assert refused.value.code == -32043
    assert refused.value.data == {"approval": "forged"}
    assert [r.content[0].text for r in last] == ["order 6", "order 7"]  # type: ignore[union-attr]
    assert fake.count("act") == 8


@ERAS
async def test_it_tells_that_the_list_changed(fake: FakeMCP, mode: str) -> None:
    told = asyncio.Event()

    async def hear(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            told.set()

    async with client(fake, mode, message_handler=hear) as session:
        await session.list_tools()
        fake.set_tools([tool("act"), tool("more")])
        if mode == "auto":
            async with session.listen(tools_list_changed=True) as events:
                await asyncio.to_thread(fake.list_changed)
                await asyncio.wait_for(anext(aiter(events)), 5)
        else:
            # The client opens its event stream in the background; before that nobody hears.
            while not told.is_set():
                await asyncio.to_thread(fake.list_changed)
                await asyncio.sleep(0.05)
        assert len((await session.list_tools()).tools) == 2
    assert fake.lists >= 2


async def test_a_hanging_call_ends_with_its_client(fake: FakeMCP) -> None:
    fake.answer("act", Hang())
    async with client(fake, "auto") as session:
        with pytest.raises(MCPError):
            await session.call_tool("act", {"order": 1}, read_timeout_seconds=0.2)
    await until(lambda: fake.calls[0].cancelled)


async def test_a_hanging_call_can_be_released(fake: FakeMCP) -> None:
    fake.answer("act", Hang())
    async with client(fake, "auto") as session:
        call = asyncio.create_task(session.call_tool("act", {"order": 1}))
        await until(lambda: fake.total == 1)
        fake.release()
        result = await call
    assert result.content[0].text == '{"order": 1}'  # type: ignore[union-attr]


@ERAS
async def test_it_refuses_without_the_key(fake: FakeMCP, mode: str) -> None:
    fake.require_key("secret")
    with pytest.raises((MCPError, ExceptionGroup)):
        async with client(fake, mode) as session:
            await session.list_tools()
    assert fake.lists == 0
    assert fake.requests > 0


async def test_it_can_be_down(fake: FakeMCP) -> None:
    fake.down = True
    with pytest.raises((MCPError, ExceptionGroup)):
        async with client(fake, "auto") as session:
            await session.list_tools()
    assert fake.lists == 0
