"""Definitions with the names that people use for what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents.errors import DamagedContent, Invalid, NotFound
from agents.models import Agent, Organization, Tool, VirtualModel
from agents.policy import Actor, may_manage_agent, require_manage
from definitions.canonical import Definition
from definitions.models import Draft, Version
from definitions.selectors import draft_of, open_draft, open_version, versions_of


@dataclass(frozen=True, slots=True)
class NamedDefinition:
    """A definition, with slugs and exposed names in the place of ids."""

    digest: str
    instructions: str
    model: str | None
    tools: list[str]


def named(digest: str, definition: Definition) -> NamedDefinition:
    """Resolve the ids of *definition*. Rows are never deleted: a missing one is damage."""
    model = None
    if definition.virtual_model_id is not None:
        row = VirtualModel.objects.filter(id=definition.virtual_model_id).first()
        if row is None:
            raise DamagedContent
        model = row.slug
    tools = Tool.objects.filter(id__in=definition.tool_ids).values_list("exposed_name", flat=True)
    return NamedDefinition(digest, definition.instructions, model, sorted(tools))


def readable_draft(actor: Actor, agent: Agent) -> tuple[Draft, NamedDefinition]:
    """The draft with its text, for managers of the owning team alone."""
    require_manage(actor, agent)
    draft = draft_of(agent)
    return draft, named(draft.digest, open_draft(draft))


def version_numbered(agent: Agent, number: int) -> Version:
    version = versions_of(agent).select_related("agent__organization").filter(number=number).first()
    if version is None:
        raise NotFound("There is no such version.")
    return version


def readable_version(actor: Actor, version: Version) -> NamedDefinition | None:
    """A version's text for managers of the owning team; None for everybody else."""
    if not may_manage_agent(actor, version.agent):
        return None
    return named(version.digest, open_version(version))


def chosen_resources(
    organization: Organization, model: str | None, tools: Sequence[str]
) -> tuple[VirtualModel | None, list[Tool]]:
    """The rows that a draft names. Raises Invalid for a name that does not exist."""
    row = None
    if model is not None:
        row = VirtualModel.objects.filter(organization=organization, slug=model).first()
        if row is None:
            raise Invalid("There is no such virtual model.", field="model")
    found = list(
        Tool.objects.filter(
            connector__organization=organization, exposed_name__in=tools
        ).select_related("connector")
    )
    if len(found) != len(set(tools)):
        raise Invalid("One of the tools does not exist.", field="tools")
    return row, found
