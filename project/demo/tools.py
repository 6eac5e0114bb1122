"""The demo's tool server: a real MCP server over a small order book, loopback only.

``python -m project.demo.tools`` serves ``/mcp`` (streamable HTTP, both protocol eras), a page for
people at ``/``, and the same as JSON at ``/orders`` and ``/outbox``. Its settings:
``DEMO_TOOLS_PORT``, ``DEMO_TOOLS_DB`` (the order file) and ``DEMO_TOOLS_KEY`` (when set, ``/mcp``
wants it as a bearer credential).
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path
from typing import Annotated, Any, Final

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from project.demo.orders import CURRENCY, Mail, Order, OrderBook, OrderProblem

READ: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
CHANGE: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

OrderNumber = Annotated[int, Field(description="The order number, for example 1003.", ge=1)]


def build_server(book: OrderBook) -> MCPServer:
    """The four tools over one order book."""
    server = MCPServer("mandate-demo-tools", version="1", log_level="WARNING")

    @server.tool(annotations=READ)
    def search_orders(
        query: Annotated[
            str, Field(description="Words of a customer, title or state; empty lists all orders.")
        ] = "",
    ) -> list[Order]:
        """Search the orders by customer, title or state, or list them all."""
        return book.search(query)

    @server.tool(annotations=READ)
    def order_status(order: OrderNumber) -> Order:
        """Show the state of one order, with its customer, title and amounts."""
        try:
            return book.get(order)
        except OrderProblem as problem:
            raise ToolError(str(problem)) from problem

    @server.tool(annotations=CHANGE)
    def refund_order(
        order: OrderNumber,
        amount: Annotated[
            float | None,
            Field(description=f"Amount in {CURRENCY} to pay back; without it, all that is left."),
        ] = None,
        reason: Annotated[str | None, Field(description="Why, in a few words.")] = None,
    ) -> Order:
        """Refund an order: pay the customer back, in full or in part."""
        try:
            return book.refund(order, amount, reason or "")
        except OrderProblem as problem:
            raise ToolError(str(problem)) from problem

    @server.tool(annotations=CHANGE)
    def send_email(
        to: Annotated[
            str, Field(description="The recipient's email address.", pattern=r"^\S+@\S+$")
        ],
        subject: Annotated[str, Field(description="The subject line.", max_length=200)],
        body: Annotated[str, Field(description="The text of the email.", max_length=10_000)],
    ) -> Mail:
        """Send an email to a customer. It lands in the demo's outbox and leaves no machine."""
        return book.send(to, subject, body)

    return server


def build_pages(book: OrderBook) -> Starlette:
    """The page for people, the same as JSON, and the health check."""

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def orders(_request: Request) -> Response:
        found = await asyncio.to_thread(book.orders)
        return JSONResponse([order.model_dump() for order in found])

    async def outbox(_request: Request) -> Response:
        found = await asyncio.to_thread(book.outbox)
        return JSONResponse([mail.model_dump() for mail in found])

    async def page(_request: Request) -> Response:
        orders, mails = await asyncio.to_thread(lambda: (book.orders(), book.outbox()))
        return HTMLResponse(render_page(orders, mails))

    return Starlette(
        routes=[
            Route("/", page),
            Route("/health", health),
            Route("/orders", orders),
            Route("/outbox", outbox),
        ]
    )


def render_page(orders: list[Order], mails: list[Mail]) -> str:
    """The order book and the outbox as one plain page, newest email first."""
    order_rows = [
        (o.order, o.customer, o.item, f"{o.amount:.2f}", f"{o.refunded:.2f}", o.state)
        for o in orders
    ]
    mail_rows = [(m.sent_at, m.to, m.subject, m.body) for m in reversed(mails)]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Demo orders</title><style>"
        ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;"
        "max-width:60rem;padding:0 1rem}table{border-collapse:collapse;width:100%}"
        "th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884}"
        "td{vertical-align:top;white-space:pre-line}</style>"
        f"<h1>Demo orders</h1><p>What the demo tools see and change. Amounts in {CURRENCY}.</p>"
        + _table("orders", ("Order", "Customer", "Title", "Paid", "Paid back", "State"), order_rows)
        + "<h2>Outbox</h2>"
        + (
            _table("outbox", ("Sent", "To", "Subject", "Text"), mail_rows)
            if mail_rows
            else "<p id=outbox>No email was sent yet.</p>"
        )
        + "</html>"
    )


def _table(name: str, heads: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table id={name}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def build_application(book: OrderBook, key: str = "") -> Callable[[Scope, Receive, Send], Any]:
    """The server as an ASGI application; with *key*, ``/mcp`` wants it as bearer credential."""
    tools = build_server(book).streamable_http_app(stateless_http=True, json_response=True)
    pages = build_pages(book)
    expected = f"Bearer {key}".encode()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/mcp":
            await pages(scope, receive, send)
            return
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if key and scope["type"] == "http" and not hmac.compare_digest(given, expected):
            await JSONResponse({"error": "unauthorized"}, status_code=401)(scope, receive, send)
            return
        await tools(scope, receive, send)

    return application


def tool_definitions() -> list[dict[str, Any]]:
    """What ``tools/list`` gives, without a running server: for the seed of an installation."""
    # The tools close over the book and touch it only when called.
    server = build_server(OrderBook.__new__(OrderBook))
    with ThreadPoolExecutor(1) as apart:  # The caller may run an event loop of its own.
        tools = apart.submit(lambda: asyncio.run(server.list_tools())).result()
    return [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]


def default_path() -> Path:
    """``DEMO_TOOLS_DB``, or a file in the data directory."""
    given = os.environ.get("DEMO_TOOLS_DB")
    if given:
        return Path(given)
    root = Path(__file__).resolve().parent.parent.parent
    return Path(os.environ.get("DATA_DIR") or root / "var") / "demo-orders.sqlite3"


def main() -> None:
    uvicorn.run(
        build_application(OrderBook(default_path()), os.environ.get("DEMO_TOOLS_KEY", "")),
        host="127.0.0.1",
        port=int(os.environ.get("DEMO_TOOLS_PORT") or 8012),
        log_level="warning",
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=3,
    )


if __name__ == "__main__":
    main()
