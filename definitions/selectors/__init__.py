"""Reads of definitions. Every read of text opens it, recomputes its digest and compares."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from agents import content_store
from agents.errors import DamagedContent
from agents.models import Agent, AgentEnvironment
from agents.services.runs import PinnedDefinition
from definitions.canonical import KIND, Definition
from definitions.models import Draft, Publication, Version


@dataclass(frozen=True, slots=True)
class PublishedDefinition:
    """What an environment runs, from control rows alone; the text is opened separately."""

    version: Version
    pinned: PinnedDefinition

    @property
    def version_number(self) -> int:
        return self.version.number


def published(agent_id: UUID, environment_id: UUID) -> PublishedDefinition | None:
    """The published version, or None.

    Raises DamagedContent when the environment's own row and the version's disagree.
    """
    slot = AgentEnvironment.objects.filter(agent_id=agent_id, environment_id=environment_id).first()
    if slot is None or slot.published_version_id is None:
        return None
    version = Version.objects.filter(id=slot.published_version_id, agent_id=agent_id).first()
    if version is None or version.digest != slot.published_digest:
        raise DamagedContent
    return PublishedDefinition(version, pinned_of(version))


def pinned_of(version: Version) -> PinnedDefinition:
    return PinnedDefinition(
        digest=version.digest,
        virtual_model_id=version.virtual_model_id,
        tool_ids=tuple(UUID(t) for t in version.tool_ids),
        version_id=version.id,
        version_number=version.number,
    )


def open_definition(organization_id: UUID, digest: str) -> Definition:
    """The verified text and rights of one definition. Raises DamagedContent."""
    return Definition.from_bytes(content_store.get(organization_id, KIND, digest))


def open_pinned(organization_id: UUID, pinned: PinnedDefinition) -> Definition:
    """As :func:`open_definition`, and the control row's model and tools must agree with it."""
    definition = open_definition(organization_id, pinned.digest)
    claimed = Definition.of(definition.instructions, pinned.virtual_model_id, pinned.tool_ids)
    if claimed != definition:
        raise DamagedContent
    return definition


def open_version(version: Version) -> Definition:
    """A version's verified definition. Raises DamagedContent."""
    return open_pinned(version.agent.organization_id, pinned_of(version))


def draft_of(agent: Agent) -> Draft:
    return Draft.objects.select_related("updated_by").get(agent=agent)


def open_draft(draft: Draft) -> Definition:
    """A draft's verified definition. Raises DamagedContent."""
    definition = open_definition(draft.agent.organization_id, draft.digest)
    claimed = Definition.of(
        definition.instructions, draft.virtual_model_id, (UUID(t) for t in draft.tool_ids)
    )
    if claimed != definition:
        raise DamagedContent
    return definition


def versions_of(agent: Agent) -> QuerySet[Version]:
    """Newest first, each with its live publications."""
    return (
        Version.objects.filter(agent=agent)
        .select_related("created_by")
        .prefetch_related("publications__environment")
        .order_by("-number")
    )


def publications_of(agent: Agent) -> QuerySet[Publication]:
    return (
        Publication.objects.filter(agent=agent)
        .select_related("environment", "version", "published_by")
        .order_by("environment__slug")
    )
