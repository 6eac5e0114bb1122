"""Grants and external keys."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal
from uuid import UUID

from ninja import Schema
from pydantic import Field, StringConstraints, model_validator

from agents.models import AgentKey, Grant, Tool
from agents.schemas.base import Input, Slug, Storable

ToolName = Annotated[str, StringConstraints(min_length=1, max_length=64), Storable]
ResourceIds = Annotated[list[UUID], Field(max_length=500)]
#: Ten years: longer lives are spelled as none.
LIFETIME_LIMIT = 315_360_000


class GrantIn(Input):
    """One edge: an environment and exactly one of virtual model, tool (exposed name) or agent."""

    environment: Slug
    virtual_model: Slug | None = None
    tool: ToolName | None = None
    target_agent: Slug | None = None

    @model_validator(mode="after")
    def _names_one_resource(self) -> GrantIn:
        named = [self.virtual_model, self.tool, self.target_agent]
        if sum(one is not None for one in named) != 1:
            msg = "Name exactly one of virtual_model, tool, target_agent"
            raise ValueError(msg)
        return self


class GrantOut(Schema):
    id: UUID
    environment: str
    kind: Literal["virtual_model", "tool", "target_agent"]
    resource: str
    created_at: dt.datetime
    revoked_at: dt.datetime | None

    @staticmethod
    def resolve_environment(row: Grant) -> str:
        return row.environment.slug

    @staticmethod
    def resolve_kind(row: Grant) -> str:
        if row.virtual_model_id is not None:
            return "virtual_model"
        return "tool" if row.tool_id is not None else "target_agent"

    @staticmethod
    def resolve_resource(row: Grant) -> str:
        found = row.resource
        return found.exposed_name if isinstance(found, Tool) else found.slug


class ScopeIn(Input):
    """``all_grants``, said explicitly, or lists of resource ids; a missing list means none."""

    all_grants: Literal[True] | None = None
    models: ResourceIds | None = None
    tools: ResourceIds | None = None
    agents: ResourceIds | None = None

    def as_scope(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)


class KeyIn(Input):
    """A key for a runtime outside. ``lifetime`` is seconds; null never expires."""

    environment: Slug
    name: Annotated[str, StringConstraints(min_length=1, max_length=80), Storable]
    scope: ScopeIn
    lifetime: Annotated[int, Field(ge=1, le=LIFETIME_LIMIT)] | None = None


class KeyOut(Schema):
    """A key without its text, of which the database holds a keyed digest only."""

    id: UUID
    accessor: str
    name: str
    environment: str
    scope: dict[str, Any]
    created_at: dt.datetime
    expires_at: dt.datetime | None
    revoked_at: dt.datetime | None

    @staticmethod
    def resolve_environment(row: AgentKey) -> str:
        return row.environment.slug


class MintedKeyOut(Schema):
    """The one answer that ever holds a key's text."""

    key: KeyOut
    text: str
