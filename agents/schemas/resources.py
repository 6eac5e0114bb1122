"""Providers, virtual models, rate cards, connectors and tools."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any
from uuid import UUID

from ninja import Schema
from pydantic import Field

from agents.choices import Classification, OutputLimitParameter, ToolState
from agents.models import Connector, ModelProvider, Tool, VirtualModel
from agents.schemas.base import (
    Address,
    Credential,
    Input,
    ModelId,
    Name,
    OptionalRationale,
    Pricing,
    Rationale,
    Sha256,
    Slug,
)
from agents.schemas.identity import NamedIn, NamedOut

Rate = Annotated[int, Field(ge=0, le=10_000_000_000)]
ContextLimit = Annotated[int, Field(ge=256, le=10_000_000)]
OutputLimit = Annotated[int, Field(ge=1, le=1_000_000)]


class ProviderIn(NamedIn):
    """An upstream of the OpenAI wire; ``base_url`` includes ``/v1``."""

    base_url: Address
    credential: Credential | None = None
    output_limit_parameter: OutputLimitParameter = OutputLimitParameter.MAX_TOKENS


class ProviderPatch(Input):
    """What changes. Another address demands the credential again; an empty one removes it."""

    name: Name | None = None
    base_url: Address | None = None
    credential: Credential | None = None
    enabled: bool | None = None
    output_limit_parameter: OutputLimitParameter | None = None


class ProviderOut(NamedOut):
    base_url: str
    output_limit_parameter: str
    enabled: bool
    has_credential: bool

    @staticmethod
    def resolve_has_credential(row: ModelProvider) -> bool:
        return row.credential is not None


class VirtualModelIn(NamedIn):
    """A governed model. Limits are tokens."""

    provider: Slug
    upstream_model: ModelId
    context_limit: ContextLimit = 32_768
    output_limit: OutputLimit = 2_048
    pricing_reference: Pricing = ""


class VirtualModelPatch(Input):
    name: Name | None = None
    upstream_model: ModelId | None = None
    context_limit: ContextLimit | None = None
    output_limit: OutputLimit | None = None
    pricing_reference: Pricing | None = None
    enabled: bool | None = None


class VirtualModelOut(NamedOut):
    provider: str
    upstream_model: str
    pricing_reference: str
    context_limit: int
    output_limit: int
    enabled: bool

    @staticmethod
    def resolve_provider(row: VirtualModel) -> str:
        return row.provider.slug


class RateCardIn(Input):
    """Micro-dollars per million tokens, all four; zero is a price."""

    input_rate: Rate
    output_rate: Rate
    cache_read_rate: Rate
    cache_write_rate: Rate
    rationale: Annotated[Rationale, Field(max_length=500)]


class RateCardOut(Schema):
    id: UUID
    version: int
    upstream_model: str
    input_rate: int
    output_rate: int
    cache_read_rate: int
    cache_write_rate: int
    rationale: str
    created_at: dt.datetime


class ConnectorIn(NamedIn):
    """An MCP server (streamable HTTP). Its tools arrive with the first refresh."""

    url: Address
    credential: Credential | None = None


class ConnectorPatch(Input):
    """What changes. Another address demands the credential and quarantines accepted tools."""

    name: Name | None = None
    url: Address | None = None
    credential: Credential | None = None
    enabled: bool | None = None


class ConnectorOut(NamedOut):
    url: str
    enabled: bool
    first_party: bool
    has_credential: bool
    last_read_at: dt.datetime | None
    last_error: str

    @staticmethod
    def resolve_has_credential(row: Connector) -> bool:
        return row.credential is not None


class RefreshOut(Schema):
    """What one reading of the server's tools changed."""

    added: int
    changed: int
    gone: int
    refused: int


class ToolSeenOut(Schema):
    """A definition as the server shows it now, while it differs from the accepted one."""

    digest: str
    title: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any]


class ToolOut(Schema):
    """A tool as agents see it, and ``observed``: what an operator would accept instead."""

    id: UUID
    connector: str
    name: str
    exposed_name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any]
    digest: str
    classification: Classification | None
    state: ToolState
    observed: ToolSeenOut | None
    #: What a review must name: the digest of ``observed``, or of the tool itself.
    review_digest: str
    accepted_at: dt.datetime | None

    @staticmethod
    def resolve_connector(row: Tool) -> str:
        return row.connector.slug

    @staticmethod
    def resolve_classification(row: Tool) -> str | None:
        return row.classification or None

    @staticmethod
    def resolve_review_digest(row: Tool) -> str:
        return row.observed["digest"] if row.observed else row.digest


class ToolReviewIn(Input):
    """Accept exactly what was seen, with a class."""

    digest_seen: Sha256
    classification: Classification
    rationale: OptionalRationale = ""


class ToolWithdrawIn(Input):
    rationale: OptionalRationale = ""
