"""Talks with the demo model's rules: scripted results, or the demo's own tools behind them."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, TextContent

from project.demo.orders import OrderBook
from project.demo.rules.decide import Decision, decide
from project.demo.tools import build_server, tool_definitions

DESK = "You are the order desk of a bookshop."


def offered() -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": f"orders__{t['name']}",
                "description": t["description"],
                "parameters": t["inputSchema"],
            },
        }
        for t in tool_definitions()
    ]


def renamed() -> list[dict[str, Any]]:
    """The same four tools under other names, with other words and other inputs."""
    words = [
        ("find_purchases", "Look up purchases by buyer."),
        ("whereabouts", "Tells where a purchase is."),
        ("give_money_back", "Returns the payment for a purchase."),
        ("drop_line", "Writes a letter to a buyer."),
    ]
    properties = {"order": "purchase_id", "amount": "sum", "to": "recipient"}
    tools = copy.deepcopy(offered())
    for tool, (name, description) in zip(tools, words, strict=True):
        function = tool["function"]
        function["name"], function["description"] = f"shop__{name}", description
        schema = function["parameters"]
        schema["properties"] = {
            properties.get(key, key): {k: v for k, v in value.items() if k != "description"}
            for key, value in schema["properties"].items()
        }
        schema["required"] = [properties.get(key, key) for key in schema.get("required", ())]
    return tools


class Conversation:
    """Plays both sides: asks, and answers calls from a table of results."""

    def __init__(self, instructions: str = DESK, tools: list[dict[str, Any]] | None = None) -> None:
        self.messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}]
        self.tools = offered() if tools is None else tools

    def ask(self, text: str) -> Decision:
        self.messages.append({"role": "user", "content": text})
        return self.step()

    def step(self) -> Decision:
        decision = decide({"messages": self.messages, "tools": self.tools})
        message: dict[str, Any] = {"role": "assistant", "content": decision.text or None}
        if decision.calls:
            message["tool_calls"] = [
                {
                    "id": f"call_{len(self.messages)}_{index}",
                    "type": "function",
                    "function": {"name": c.name, "arguments": json.dumps(c.arguments)},
                }
                for index, c in enumerate(decision.calls)
            ]
        self.messages.append(message)
        return decision

    def result(self, *results: Any) -> Decision:
        calls = self.messages[-1]["tool_calls"]
        for call, result in zip(calls, results, strict=True):
            text = result if isinstance(result, str) else json.dumps(result)
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
        return self.step()


def called(decision: Decision) -> list[tuple[str, dict[str, Any]]]:
    return [(call.name.split("__")[1], call.arguments) for call in decision.calls]


class Shop(Conversation):
    """The same with the demo's own tools: every call runs, the answer is what a visitor reads."""

    def __init__(self, path: Path, instructions: str = DESK) -> None:
        super().__init__(instructions)
        self.book = OrderBook(path / "orders.sqlite3")
        self.server = build_server(self.book)
        #: Every call so far, as name and arguments.
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def say(self, text: str) -> str:
        self.calls = []
        decision = self.ask(text)
        while decision.calls:
            self.calls += called(decision)
            results = [asyncio.run(self._run(*call)) for call in called(decision)]
            decision = self.result(*results)
        return decision.text

    async def _run(self, name: str, arguments: dict[str, Any]) -> str:
        """The text of a result as the runtime hands it on: its blocks, one per line."""
        try:
            result = await self.server.call_tool(name, arguments)
        except ToolError as problem:
            return str(problem)
        assert isinstance(result, CallToolResult)
        blocks = [block.text for block in result.content if isinstance(block, TextContent)]
        return "\n".join(blocks) or json.dumps(result.structured_content)
