"""The tools that a key may call now, as its holder sees them.

``tools/list`` and the request that starts a run both take them from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agents.policy import Rights, ToolRow


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """One callable tool under its exposed name, exactly as an operator accepted it."""

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    #: The operator's class; what the tool server says of itself only suggests.
    is_action: bool


def tool_definitions(rights: Rights) -> list[ToolDefinition]:
    """Every tool of *rights*, which were read whole (``everything=True``), sorted by name."""
    return [_definition(tool) for tool in rights.tools if _takes_objects(tool)]


def _definition(tool: ToolRow) -> ToolDefinition:
    return ToolDefinition(
        name=tool.exposed_name,
        title=tool.title,
        description=tool.description,
        input_schema={"type": "object", **tool.input_schema},
        is_action=tool.is_action,
    )


def _takes_objects(tool: ToolRow) -> bool:
    """Arguments are an object on the wire; a schema that refuses objects cannot be called."""
    return bool(tool.input_schema.get("type", "object") == "object")
