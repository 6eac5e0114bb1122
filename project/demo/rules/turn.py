"""The conversation as the rules see it: what was asked last, and what is known by now."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, Final

from project.demo.rules.words import split_name

#: Every question of ours holds one of these; the reply to it continues the request before it.
QUESTIONS: Final = ("I still need", "Which one do you mean")


class BadRequest(ValueError):
    """The body is not a chat completion request. The message names the field."""


@dataclass(frozen=True)
class Tool:
    """One tool that was offered."""

    name: str
    description: str
    schema: dict[str, Any]

    @property
    def title(self) -> str:
        return split_name(self.name).lower() or self.name

    @property
    def properties(self) -> dict[str, dict[str, Any]]:
        found = self.schema.get("properties")
        return found if isinstance(found, dict) else {}

    @property
    def required(self) -> list[str]:
        return [name for name in self.schema.get("required", []) if name in self.properties]


@dataclass(frozen=True)
class Result:
    """One answered tool call."""

    tool: str
    arguments: dict[str, Any]
    text: str

    @property
    def value(self) -> Any:
        """The JSON that the text is, or None. A list comes as one text per item, joined."""
        found = _documents(self.text)
        if len(found) > 1:
            return found
        value = found[0] if found else None
        if isinstance(value, dict) and set(value) == {"result"}:
            return value["result"]
        return value if isinstance(value, (dict, list)) else None


@dataclass(frozen=True)
class Turn:
    """The request that is being answered and all that bears on it."""

    instructions: str
    #: What the person wants, with the requests that our own questions interrupted.
    request: str
    #: The last message alone.
    message: str
    #: What the tools answered since then, oldest first.
    results: list[Result]
    #: Older results and texts, newest first.
    earlier: list[Result | str] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    #: The messages that make up the request, oldest first.
    parts: list[str] = field(default_factory=list)
    #: Our question that the last message replies to, or nothing.
    question: str = ""

    def tool(self, name: str) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == name), None)


def read_turn(body: dict[str, Any]) -> Turn:
    """Raise BadRequest unless the body holds messages and well-formed tools."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list that is not empty")
    if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        raise BadRequest("messages: each needs a role")
    last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    calls = _calls(messages)
    texts = [_text(m) for m in messages]
    message = texts[last] if last >= 0 else ""
    parts, question = _with_interrupted(messages, texts, last)
    return Turn(
        instructions="\n".join(
            t for t, m in zip(texts, messages, strict=True) if m["role"] in {"system", "developer"}
        ),
        request="\n".join(parts),
        message=message,
        results=[
            Result(*calls.get(m.get("tool_call_id"), ("", {})), text=texts[i])
            for i, m in enumerate(messages)
            if m["role"] == "tool" and i > last
        ],
        earlier=[
            Result(*calls.get(m.get("tool_call_id"), ("", {})), text=texts[i])
            if m["role"] == "tool"
            else texts[i]
            for i, m in reversed(list(enumerate(messages[: max(last, 0)])))
            if m["role"] in {"tool", "user"}
        ],
        tools=_tools(body.get("tools") or []),
        parts=parts,
        question=question,
    )


def without_question(turn: Turn) -> Turn:
    """The turn as if the last message stood alone, for one that does not reply to our question."""
    return replace(turn, request=turn.message, parts=[turn.message], question="")


def _documents(text: str) -> list[Any]:
    """The JSON objects and lists that a text is made of; none when anything else is in it."""
    found: list[Any] = []
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        try:
            value, end = decoder.raw_decode(rest)
        except ValueError:
            return []
        if not isinstance(value, (dict, list)):
            return []
        found.append(value)
        rest = rest[end:].lstrip()
    return found


def _with_interrupted(
    messages: list[dict[str, Any]], texts: list[str], last: int
) -> tuple[list[str], str]:
    """The last message after those that our questions before it asked to complete."""
    parts: list[str] = []
    question = ""
    index = last
    while index >= 0:
        parts.insert(0, texts[index])
        before = index - 1
        if before < 0 or messages[before]["role"] != "assistant":
            break
        if not any(words in texts[before] for words in QUESTIONS):
            break
        question = question or texts[before]
        index = max((i for i in range(before) if messages[i]["role"] == "user"), default=-1)
    return parts, question


def _calls(messages: list[dict[str, Any]]) -> dict[Any, tuple[str, dict[str, Any]]]:
    found: dict[Any, tuple[str, dict[str, Any]]] = {}
    for message in messages:
        for call in message.get("tool_calls") or []:
            function = call.get("function") or {}
            try:
                arguments = json.loads(function.get("arguments") or "{}")
            except ValueError:
                arguments = {}
            found[call.get("id")] = (
                str(function.get("name", "")),
                arguments if isinstance(arguments, dict) else {},
            )
    return found


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(p.get("text", "")) for p in content if isinstance(p, dict))
    return ""


def _tools(listed: Any) -> list[Tool]:
    if not isinstance(listed, list):
        raise BadRequest("tools must be a list")
    tools = []
    for entry in listed:
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRequest("tools: each needs a function with a name")
        schema = function.get("parameters")
        tools.append(
            Tool(
                name=function["name"],
                description=str(function.get("description") or ""),
                schema=schema if isinstance(schema, dict) else {},
            )
        )
    return tools
