"""Our own tools: handlers inside the product, called through the MCP Gateway like any other tool.

An app registers its handlers when it is ready; ``mandate__<name>`` then exists in every
organization, and a key may call it when its definition lists it and a grant allows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agents.policy import KeyRow, Rights
from agents.services.first_party import define_tool

#: Seconds that a handler may take: a delegated task's 120 and some.
HANDLER_SECONDS = 150.0


@dataclass(frozen=True, slots=True)
class FirstPartyCall:
    """One authorised call. Its task is cancelled when the caller goes away, when the key or the
    grant ends, and after HANDLER_SECONDS; a handler that must finish something shields it.
    """

    key: KeyRow
    #: All that the key may use, read in the hop that authorised the call.
    rights: Rights
    #: Checked against the tool's input schema.
    arguments: dict[str, Any]
    #: The runtime's id of the call, empty when the caller gave none.
    tool_call_id: str
    #: The id of the call's request row.
    request_id: UUID


@dataclass(frozen=True, slots=True)
class FirstPartyResult:
    """What the caller's model reads."""

    text: str
    structured: dict[str, Any] | None = field(default=None)
    is_error: bool = False


class Parked(Exception):
    """Raised by a handler: the result comes in a later run, under this handoff."""

    def __init__(self, handoff_id: UUID) -> None:
        super().__init__("parked")
        self.handoff_id = handoff_id


Handler = Callable[[FirstPartyCall], Awaitable[FirstPartyResult]]

_handlers: dict[str, Handler] = {}


def register(name: str, description: str, input_schema: dict[str, Any], handler: Handler) -> None:
    """Make ``mandate__<name>`` callable. The last registration of a name counts.

    A handler refuses with a DomainError, whose code the caller gets, or parks with Parked.
    """
    define_tool(name, description, input_schema)
    _handlers[name] = handler


def handler_of(name: str) -> Handler | None:
    """The handler of a tool by its plain name."""
    return _handlers.get(name)
