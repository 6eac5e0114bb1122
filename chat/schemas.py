"""Bodies and answers of ``/apps/v1``."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any

from ninja import Schema
from pydantic import Field

from agents.schemas.base import Input, Storable


class TokenIn(Input):
    """A session names environment and agent; an agent key names the end user."""

    environment: Annotated[str, Field(max_length=40), Storable] | None = None
    agent: Annotated[str, Field(max_length=60), Storable] | None = None
    subject: Annotated[str, Field(max_length=200), Storable] | None = None
    ttl_seconds: Annotated[int, Field(strict=True)] | None = None
    display_name: Annotated[str, Field(max_length=120), Storable] = ""


class TokenOut(Schema):
    token: str = Field(description="Shown once; a bearer credential of this surface alone.")
    expires_at: dt.datetime
    environment: str
    agent: str | None = Field(description="Slug; null when the token may name any agent.")


class AgentItem(Schema):
    slug: str
    name: str
    environment: str
    version: int = Field(description="Number of the version that is published there.")


class AgentList(Schema):
    items: list[AgentItem]


class ThreadItem(Schema):
    id: str
    thread_id: str = Field(alias="threadId", description="The id as its client spells it.")
    title: str
    agent: str
    environment: str
    active_at: dt.datetime
    state: str = Field(description="`running`, `waiting` (for a decision) or `idle`.")
    open_approvals: int


class ThreadList(Schema):
    items: list[ThreadItem]
    next: str | None = Field(description="Send it as `before` for the next page.")


class ThreadPatch(Input):
    title: Annotated[str, Field(min_length=1, max_length=200), Storable]


class RunState(Schema):
    id: str
    run_id: str = Field(alias="runId", description="The id that the client gave the run.")
    state: str
    last_seq: int = Field(
        alias="lastSeq", description="Number of the last event that `messages` contain."
    )


class RunFailure(Schema):
    code: str
    message: str


class ThreadOut(Schema):
    """``messages`` and ``interrupts`` have AG-UI's shapes, with a few members of ours."""

    id: str
    thread_id: str = Field(alias="threadId")
    title: str
    agent: str
    environment: str
    messages: list[dict[str, Any]]
    interrupts: list[dict[str, Any]] = Field(description="What waits for a decision now.")
    approvals: list[dict[str, Any]] = Field(description="What was decided, or ended by itself.")
    run: RunState | None = Field(description="The last run of the thread.")
    error: RunFailure | None = Field(description="How the last run failed.")


class CancelOut(Schema):
    id: str
    cancelling: bool = Field(description="False when the run had ended already.")
