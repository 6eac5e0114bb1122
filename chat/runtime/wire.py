"""The private wire between web and the runtime: one JSON request in, JSON lines out.

Web and the runtime share this module and nothing else. Model messages are opaque JSON to web:
only the runtime knows the types of the agent library. Whatever the runtime claims here is
checked: approvals and parked calls are rows that the MCP Gateway made, and web composes
RUN_FINISHED and RUN_ERROR from those rows, never from a frame.

Request: ``POST /runs`` with ``Authorization: Bearer <RUNTIME_TOKEN>`` and a :class:`RunRequest`.
Response: 200 ``application/x-ndjson``, one :class:`Frame` a line, the last one a
:class:`FinalFrame`. A response that ends without it is a crashed run. Closing the connection
cancels the run.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

JSON = dict[str, Any]

#: JSON-RPC error codes of the MCP Gateway (design: both eras carry code and data intact).
CODE_PARKED = -32042
CODE_APPROVAL_REQUIRED = -32043

#: Keys in the ``_meta`` of a ``tools/call`` that the runtime sends.
META_APPROVAL = "mandate/approval"
META_TOOL_CALL = "mandate/toolCallId"


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ToolDefinition(_Wire):
    """A tool as tools/list would show it to the run's key."""

    name: str
    description: str
    input_schema: JSON


class Resolution(_Wire):
    """What became of one call that was open when the previous run of the turn ended.

    ``approved``: call the tool again with ``approval_id`` in ``_meta``; when ``arguments`` is
    given, they replace the pending call's arguments in the model's history first.
    ``denied``: the model gets ``content`` as the reason. ``returned``: ``content`` is the result
    (a parked handoff's outcome, a stored outcome, or the words for an unknown one).
    """

    tool_call_id: str
    kind: Literal["approved", "denied", "returned"]
    approval_id: str | None = None
    arguments: JSON | None = None
    content: str | None = None
    is_error: bool = False


class RunRequest(_Wire):
    """All that a run is. Nothing is kept between two of them."""

    run_id: str
    thread_id: str
    agent_name: str
    instructions: str
    model: str = Field(description="Slug of the virtual model.")
    output_limit: int = Field(ge=1, description="Tokens a single model answer may have.")
    key: str = Field(repr=False, description="The managed agent key: the only credential.")
    tools: list[ToolDefinition]
    history: list[JSON] = Field(description="Model messages, oldest first, opaque to web.")
    prompt: str | None = Field(description="The new user turn; None when the run resumes.")
    resolutions: list[Resolution] = Field(
        default_factory=list,
        description="One for each call in the history that has no return yet.",
    )
    deadline_seconds: float = Field(gt=0, description="The runtime stops by itself after it.")
    max_steps: int = Field(default=40, ge=1, description="Model requests in this run.")


class EventFrame(_Wire):
    """One AG-UI event for people. RUN_STARTED, RUN_FINISHED and RUN_ERROR never come this way."""

    type: Literal["event"] = "event"
    event: JSON


class MessageFrame(_Wire):
    """One completed model message, sent at each step, in history order.

    ``replaces`` counts how many messages at the end of the history that web holds are superseded
    by this frame's message: 0 appends; n > 0 drops the last n first (an edited pending call).
    """

    type: Literal["message"] = "message"
    message: JSON
    replaces: int = 0


class PendingApproval(_Wire):
    tool_call_id: str
    approval_id: str = Field(description="The id that the gateway gave with -32043.")


class ParkedHandoff(_Wire):
    tool_call_id: str
    handoff_id: str = Field(description="The id that the gateway gave with -32042.")


class Usage(_Wire):
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class FinalFrame(_Wire):
    """How the run ended, in the runtime's view. ``code`` is stable, never an exception's text."""

    type: Literal["final"] = "final"
    outcome: Literal["success", "interrupt", "error"]
    code: str | None = None
    approvals: list[PendingApproval] = Field(default_factory=list)
    parked: list[ParkedHandoff] = Field(default_factory=list)
    usage: Usage = Field(default_factory=Usage)


Frame = Annotated[EventFrame | MessageFrame | FinalFrame, Field(discriminator="type")]
FRAME: TypeAdapter[Frame] = TypeAdapter(Frame)


def encode(frame: EventFrame | MessageFrame | FinalFrame) -> bytes:
    """One frame as one line of JSON, newline included."""
    return frame.model_dump_json(exclude_none=True).encode() + b"\n"


def decode(line: bytes) -> EventFrame | MessageFrame | FinalFrame:
    """Read one line. Raises pydantic's ValidationError for anything but a frame."""
    return FRAME.validate_json(line)
