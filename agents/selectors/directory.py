"""Find what an API request names, inside what its actor may see.

Operators belong to no tenant and name one; people have their own, and a foreign name does not
exist for them. Every function raises NotFound for what is absent or somebody else's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

from django.db.models import Model, Prefetch, QuerySet

from agents.choices import KeyKind
from agents.errors import Forbidden, Invalid, NotFound
from agents.models import (
    Agent,
    AgentEnvironment,
    AgentKey,
    AuditEvent,
    Connector,
    Environment,
    Grant,
    Membership,
    ModelProvider,
    Organization,
    RateCard,
    Run,
    Team,
    Tool,
    VirtualModel,
)
from agents.policy import Actor, require_contain, require_operator

Row = TypeVar("Row", bound=Model)


def found(row: Row | None, what: str) -> Row:
    """*row*, or NotFound."""
    if row is None:
        msg = f"There is no such {what}."
        raise NotFound(msg)
    return row


def organization_of(actor: Actor, slug: str | None) -> Organization:
    """The tenant a request is about: the named one for operators, else the actor's own."""
    if slug is None:
        if actor.organization_id is None:
            raise Invalid("Operators name the organization.", field="organization")
        return Organization.objects.get(id=actor.organization_id)
    row = found(Organization.objects.filter(slug=slug).first(), "organization")
    if not actor.is_operator and row.id != actor.organization_id:
        raise NotFound("There is no such organization.")
    return row


def organizations_seen_by(actor: Actor) -> QuerySet[Organization]:
    """Every tenant for operators, their own for people."""
    rows = Organization.objects.order_by("slug")
    if actor.is_operator:
        return rows
    return rows.none() if actor.organization_id is None else rows.filter(id=actor.organization_id)


def require_resource_reader(actor: Actor) -> None:
    """Operators and managers look at models and tools; members have no use for them."""
    if not (actor.is_operator or actor.is_manager):
        raise Forbidden("Only operators and agent managers may see this.")


def teams_of(organization: Organization) -> QuerySet[Team]:
    return Team.objects.filter(organization=organization).order_by("slug")


def team_named(organization: Organization, slug: str) -> Team:
    return found(teams_of(organization).filter(slug=slug).first(), "team")


def teams_named(organization: Organization, slugs: Sequence[str]) -> list[Team]:
    """The teams with these slugs. Raises Invalid when one does not exist."""
    rows = list(teams_of(organization).filter(slug__in=slugs))
    if len(rows) != len(set(slugs)):
        raise Invalid("One of the teams does not exist.", field="teams")
    return rows


def environments_of(organization: Organization) -> QuerySet[Environment]:
    return Environment.objects.filter(organization=organization).order_by("slug")


def environment_named(organization_id: UUID, slug: str) -> Environment:
    rows = Environment.objects.filter(organization_id=organization_id, slug=slug)
    return found(rows.first(), "environment")


def members_of(actor: Actor, organization: Organization) -> QuerySet[Membership]:
    require_operator(actor)
    rows = Membership.objects.filter(organization=organization)
    return rows.select_related("user").prefetch_related("teams").order_by("user__username", "id")


def member_of(actor: Actor, organization: Organization, user_id: UUID) -> Membership:
    return found(members_of(actor, organization).filter(user_id=user_id).first(), "member")


def agents_of(organization: Organization) -> QuerySet[Agent]:
    """A tenant's agents with their team and where they are open."""
    slots = AgentEnvironment.objects.select_related("environment")
    return (
        Agent.objects.filter(organization=organization)
        .select_related("team", "organization")
        .prefetch_related(Prefetch("environments", slots))
        .order_by("slug")
    )


def agent_named(actor: Actor, organization: str | None, slug: str) -> Agent:
    rows = agents_of(organization_of(actor, organization))
    return found(rows.filter(slug=slug).first(), "agent")


def providers_of(actor: Actor, organization: Organization) -> QuerySet[ModelProvider]:
    require_operator(actor)
    return ModelProvider.objects.filter(organization=organization).order_by("slug")


def provider_named(actor: Actor, organization: Organization, slug: str) -> ModelProvider:
    return found(providers_of(actor, organization).filter(slug=slug).first(), "provider")


def virtual_models_of(actor: Actor, organization: Organization) -> QuerySet[VirtualModel]:
    require_resource_reader(actor)
    rows = VirtualModel.objects.filter(organization=organization)
    return rows.select_related("provider").order_by("slug")


def virtual_model_named(actor: Actor, organization: Organization, slug: str) -> VirtualModel:
    rows = virtual_models_of(actor, organization)
    return found(rows.filter(slug=slug).first(), "virtual model")


def rate_cards_of(model: VirtualModel) -> QuerySet[RateCard]:
    """Newest first: the first one counts."""
    return RateCard.objects.filter(virtual_model=model).order_by("-version")


def connectors_of(actor: Actor, organization: Organization) -> QuerySet[Connector]:
    require_operator(actor)
    return Connector.objects.filter(organization=organization).order_by("slug")


def connector_named(actor: Actor, organization: Organization, slug: str) -> Connector:
    return found(connectors_of(actor, organization).filter(slug=slug).first(), "connector")


def tools_of(
    actor: Actor, organization: Organization, connector: str | None = None
) -> QuerySet[Tool]:
    """A tenant's tools, of one connector when it is named."""
    require_resource_reader(actor)
    rows = Tool.objects.filter(connector__organization=organization)
    if connector is not None:
        rows = rows.filter(connector__slug=connector)
    return rows.select_related("connector").order_by("exposed_name", "id")


def tool_with_id(actor: Actor, organization: Organization, tool_id: UUID) -> Tool:
    return found(tools_of(actor, organization).filter(id=tool_id).first(), "tool")


def tool_named(actor: Actor, organization: Organization, exposed_name: str) -> Tool:
    rows = tools_of(actor, organization).filter(exposed_name=exposed_name)
    return found(rows.first(), "tool")


def grants_of(
    actor: Actor, agent: Agent, *, environment: str | None = None, revoked: bool = False
) -> QuerySet[Grant]:
    """An agent's grants, live ones alone unless *revoked*."""
    require_contain(actor, agent)
    rows = Grant.objects.filter(agent=agent)
    if environment is not None:
        rows = rows.filter(environment__slug=environment)
    if not revoked:
        rows = rows.filter(revoked_at__isnull=True)
    return rows.select_related(
        "agent", "environment", "virtual_model", "tool", "target_agent"
    ).order_by("created_at", "id")


def external_keys_of(actor: Actor, agent: Agent) -> QuerySet[AgentKey]:
    """Newest first. Managed keys belong to runs and are nobody's to list here."""
    require_contain(actor, agent)
    rows = AgentKey.objects.filter(agent=agent, kind=KeyKind.EXTERNAL)
    return rows.select_related("agent", "environment").order_by("-created_at", "id")


def audit_of(actor: Actor, agent: Agent) -> QuerySet[AuditEvent]:
    """Newest first."""
    require_contain(actor, agent)
    rows = AuditEvent.objects.filter(organization_id=agent.organization_id, agent_id=agent.id)
    return rows.order_by("-seq")


def runs_of(actor: Actor, agent: Agent) -> QuerySet[Run]:
    """Newest first, metadata only."""
    require_contain(actor, agent)
    rows = Run.objects.filter(agent=agent)
    return rows.select_related("environment", "initiator").order_by("-created_at", "id")
