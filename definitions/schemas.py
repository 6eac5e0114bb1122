"""What the definitions' API takes and gives."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

from ninja import Schema
from pydantic import Field, StringConstraints

from agents.schemas.base import Input, RationaleIn, Sha256, Slug, Storable
from agents.schemas.rights import ToolName
from definitions.canonical import TOOLS_LIMIT
from definitions.models import Publication, Version

#: What a whole body may be; the definition's own bound is the service's.
TEXT_LIMIT = 1_048_576


class DraftIn(Input):
    """A whole draft: it replaces the one that ``If-Match`` names."""

    #: At most 64 KiB of UTF-8; more is 413 ``instructions_too_large``.
    instructions: Annotated[str, StringConstraints(max_length=TEXT_LIMIT), Storable]
    #: Slug of a virtual model; null while none is chosen.
    model: Slug | None = None
    #: Exposed names (``connector__tool``) of the tools that the agent may use.
    tools: Annotated[list[ToolName], Field(max_length=TOOLS_LIMIT)] = []


class DefinitionOut(Schema):
    """Exactly instructions, one model, a tool allowlist, and the digest over the three."""

    digest: str
    instructions: str
    model: str | None
    tools: list[str]


class DraftOut(DefinitionOut):
    updated_at: dt.datetime
    updated_by: str | None


class PublicationOut(Schema):
    environment: str
    version: int
    published_at: dt.datetime
    published_by: str | None
    rationale: str

    @staticmethod
    def resolve_environment(row: Publication) -> str:
        return row.environment.slug

    @staticmethod
    def resolve_version(row: Publication) -> int:
        return row.version.number

    @staticmethod
    def resolve_published_by(row: Publication) -> str | None:
        return row.published_by.get_username() if row.published_by else None


class VersionOut(Schema):
    """A version's metadata; ``published_in`` are the environments that run it now."""

    number: int
    digest: str
    rationale: str
    created_at: dt.datetime
    created_by: str | None
    published_in: list[str]

    @staticmethod
    def resolve_created_by(row: Version) -> str | None:
        return row.created_by.get_username() if row.created_by else None

    @staticmethod
    def resolve_published_in(row: Version) -> list[str]:
        return sorted(p.environment.slug for p in row.publications.all())


class VersionDetailOut(Schema):
    """A version; ``definition`` is null for whoever may not read the owning team's content."""

    version: VersionOut
    definition: DefinitionOut | None


class PublishIn(RationaleIn):
    """Publish exactly the draft that was seen."""

    environment: Slug
    draft_digest: Sha256


class PublishVersionIn(RationaleIn):
    environment: Slug


class UnpublishIn(RationaleIn):
    environment: Slug


class PublishedOut(Schema):
    """What runs in the environment from the next turn on."""

    environment: str
    version: VersionOut
