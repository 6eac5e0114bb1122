"""The demo tools, called by the stock MCP client over a real socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
import uvicorn
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from project.demo.orders import OrderBook, OrderProblem
from project.demo.tools import build_application, tool_definitions

KEY = "demo-credential"


@dataclass(frozen=True)
class Running:
    address: str
    book: OrderBook

    def client(self, mode: str = "auto", key: str = KEY) -> Client:
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"})
        transport = streamable_http_client(f"{self.address}/mcp", http_client=http)
        return Client(transport, mode=mode, cache=None)


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[Running]:
    book = OrderBook(tmp_path / "orders.sqlite3")
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        build_application(book, KEY), log_level="error", ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", book)
    server.should_exit = True
    thread.join(10)
    listener.close()


def structured(result: Any) -> Any:
    assert not result.is_error, result.content
    return result.structured_content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_it_offers_two_reads_and_two_actions(tools: Running, mode: str) -> None:
    async with tools.client(mode) as client:
        listed = (await client.list_tools()).tools

    hints = {t.name: t.annotations.read_only_hint for t in listed if t.annotations}
    assert hints == {
        "search_orders": True,
        "order_status": True,
        "refund_order": False,
        "send_email": False,
    }
    wire = [t.model_dump(mode="json", by_alias=True, exclude_none=True) for t in listed]
    assert wire == tool_definitions()


async def test_a_refund_changes_the_order_and_an_email_the_outbox(tools: Running) -> None:
    async with tools.client() as client:
        before = structured(await client.call_tool("order_status", {"order": 1003}))
        part = structured(await client.call_tool("refund_order", {"order": 1003, "amount": 4.5}))
        whole = structured(await client.call_tool("refund_order", {"order": 1003}))
        mail = structured(
            await client.call_tool(
                "send_email", {"to": "chloe@example.com", "subject": "Refund", "body": "Done."}
            )
        )

    assert (before["state"], before["refunded"]) == ("delivered", 0)
    assert (part["state"], part["refunded"]) == ("partly refunded", 4.5)
    assert (whole["state"], whole["refunded"]) == ("refunded", 34.5)
    assert mail["to"] == "chloe@example.com"
    assert tools.book.get(1003).refunded == 34.5
    assert [m.subject for m in tools.book.outbox()] == ["Refund"]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("refund_order", {"order": 1012, "amount": 12.51}, "Only 12.50 EUR"),
        ("refund_order", {"order": 1012, "amount": 0}, "more than zero"),
        ("refund_order", {"order": 9999}, "no order 9999"),
        ("order_status", {"order": 9999}, "no order 9999"),
        ("send_email", {"to": "nobody", "subject": "x", "body": "y"}, "to"),
    ],
)
async def test_a_refusal_is_a_tool_error_and_changes_nothing(
    tools: Running, name: str, arguments: dict[str, Any], words: str
) -> None:
    before = (tools.book.orders(), tools.book.outbox())
    async with tools.client() as client:
        result = await client.call_tool(name, arguments)

    assert result.is_error
    assert words in result.content[0].text  # type: ignore[union-attr]
    assert (tools.book.orders(), tools.book.outbox()) == before


async def test_search_finds_by_customer_title_and_state(tools: Running) -> None:
    async with tools.client() as client:

        async def found(query: str) -> list[int]:
            result = structured(await client.call_tool("search_orders", {"query": query}))
            return [order["order"] for order in result["result"]]

        assert await found("ada marsh") == [1001, 1005]
        assert await found("shipped pier") == [1002]
        assert len(await found("")) == 12
        assert await found("no such thing") == []


async def test_it_wants_its_credential(tools: Running) -> None:
    with pytest.raises((MCPError, ExceptionGroup)):
        async with tools.client(key="wrong") as client:
            await client.list_tools()


async def test_people_see_orders_and_outbox_escaped(tools: Running) -> None:
    tools.book.send("ada@example.com", "<b>Hello</b>", "Text")
    async with httpx.AsyncClient(base_url=tools.address) as client:
        page = (await client.get("/")).text
        orders = (await client.get("/orders")).json()
        outbox = (await client.get("/outbox")).json()
        health = await client.get("/health")

    assert "Ada Marsh" in page
    assert "&lt;b&gt;Hello" in page
    assert len(orders) == 12
    assert outbox[0]["subject"] == "<b>Hello</b>"
    assert health.status_code == 200


def test_parallel_refunds_never_pay_back_more_than_was_paid(tmp_path: Path) -> None:
    book = OrderBook(tmp_path / "orders.sqlite3")
    barrier = threading.Barrier(6)
    refused: list[str] = []

    def refund() -> None:
        barrier.wait()
        try:
            book.refund(1012, 5.0, "")
        except OrderProblem as problem:
            refused.append(str(problem))

    threads = [threading.Thread(target=refund) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert book.get(1012).refunded == 10.0
    assert len(refused) == 4


def test_a_second_start_keeps_what_happened(tmp_path: Path) -> None:
    OrderBook(tmp_path / "orders.sqlite3").refund(1001, None, "late")
    assert OrderBook(tmp_path / "orders.sqlite3").get(1001).state == "refunded"
