"""Organizations, people, teams, environments and agents; suspension."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from agents.choices import EnvironmentState, Role, Status
from agents.errors import Conflict, Invalid
from agents.models import (
    Agent,
    AgentEnvironment,
    Environment,
    Membership,
    Organization,
    Team,
    User,
)
from agents.policy import (
    Actor,
    require_contain,
    require_manage,
    require_operator,
)
from agents.services.audit import append_audit
from agents.services.containment import Containment, contain
from agents.services.first_party import ensure_first_party
from agents.transactions import durable

SLUG = re.compile(r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$")


def clean_slug(value: str) -> str:
    """A slug of 1 to 40 of ``a-z 0-9 -``, which does not begin or end with a hyphen."""
    if not SLUG.fullmatch(value) or "--" in value:
        raise Invalid("A slug has 1 to 40 of a-z, 0-9 and single hyphens.", field="slug")
    return value


def clean_name(value: str, field: str = "name") -> str:
    """A trimmed, printable name of 1 to 120 characters."""
    value = value.strip()
    if not 1 <= len(value) <= 120 or not value.isprintable():
        raise Invalid(f"The {field} needs 1 to 120 printable characters.", field=field)
    return value


def clean_rationale(value: str) -> str:
    """Why somebody did this: trimmed, 1 to 2,000 characters, no control characters but breaks."""
    value = value.strip()
    if not 1 <= len(value) <= 2_000 or "\x00" in value:
        raise Invalid("A rationale of 1 to 2,000 characters is needed.", field="rationale")
    return value


@durable()
def create_organization(*, actor: Actor, name: str, slug: str) -> Organization:
    """Make a tenant. Its first-party tools exist from the start."""
    require_operator(actor)
    return _create_organization(actor, name, slug)


def _create_organization(actor: Actor, name: str, slug: str) -> Organization:
    slug = clean_slug(slug)
    if Organization.objects.filter(slug=slug).exists():
        raise Conflict("An organization with this slug exists.", field="slug")
    organization = Organization.objects.create(name=clean_name(name), slug=slug)
    ensure_first_party(organization)
    _audit(actor, organization.id, "organization.create", "organization", organization.id)
    return organization


@durable()
def create_team(*, actor: Actor, organization: Organization, name: str, slug: str) -> Team:
    require_operator(actor)
    slug = clean_slug(slug)
    if organization.teams.filter(slug=slug).exists():
        raise Conflict("A team with this slug exists.", field="slug")
    team = Team.objects.create(organization=organization, name=clean_name(name), slug=slug)
    _audit(actor, organization.id, "team.create", "team", team.id)
    return team


@durable()
def create_environment(
    *, actor: Actor, organization: Organization, name: str, slug: str
) -> Environment:
    require_operator(actor)
    slug = clean_slug(slug)
    if organization.environments.filter(slug=slug).exists():
        raise Conflict("An environment with this slug exists.", field="slug")
    environment = Environment.objects.create(
        organization=organization, name=clean_name(name), slug=slug
    )
    for agent in organization.agents.all():
        AgentEnvironment.objects.create(agent=agent, environment=environment)
    _audit(actor, organization.id, "environment.create", "environment", environment.id)
    return environment


@durable()
def add_member(
    *,
    actor: Actor,
    organization: Organization,
    user: User,
    role: str,
    teams: list[Team] | None = None,
) -> Membership:
    """Give a user its one membership. Raises Conflict when it has one already."""
    return add_member_step(actor, organization, user, role, teams or [])


def add_member_step(
    actor: Actor, organization: Organization, user: User, role: str, teams: list[Team]
) -> Membership:
    """:func:`add_member` inside the caller's transaction. A step."""
    require_operator(actor)
    if role not in Role.values:
        raise Invalid("The role is member or agent_manager.", field="role")
    if user.is_staff:
        raise Invalid("An operator has no product role; make another account.", field="user")
    if Membership.objects.filter(user=user).exists():
        raise Conflict("This user belongs to an organization already.")
    membership = Membership.objects.create(user=user, organization=organization, role=role)
    _set_teams(membership, teams)
    _audit(
        actor, organization.id, "member.add", "user", user.id,
        role=role, teams=[str(t.id) for t in teams],
    )  # fmt: skip
    return membership


@durable(full=True)
def change_member(
    *,
    actor: Actor,
    membership: Membership,
    role: str | None = None,
    active: bool | None = None,
    teams: list[Team] | None = None,
) -> Membership:
    """Change role, activity or teams. It counts from the next request of that person."""
    require_operator(actor)
    membership = Membership.objects.select_for_update().get(id=membership.id)
    if role is not None:
        if role not in Role.values:
            raise Invalid("The role is member or agent_manager.", field="role")
        membership.role = role
    if active is not None:
        membership.active = active
    membership.save(update_fields=["role", "active"])
    if teams is not None:
        _set_teams(membership, teams)
    _audit(
        actor, membership.organization_id, "member.change", "user", membership.user_id,
        role=membership.role, active=membership.active,
    )  # fmt: skip
    return membership


def _set_teams(membership: Membership, teams: list[Team]) -> None:
    if any(team.organization_id != membership.organization_id for team in teams):
        raise Invalid("Teams must be of the member's organization.", field="teams")
    membership.teams.set(teams)


def create_agent_step(actor: Actor, team: Team, name: str, slug: str) -> Agent:
    """Make an identity in a team: contained everywhere, with no rights. A step.

    Callers use :func:`definitions.services.drafts.create_agent`, which adds the empty draft.
    """
    agent = Agent(
        organization_id=team.organization_id,
        team=team,
        name=clean_name(name),
        slug=clean_slug(slug),
    )
    require_manage(actor, agent)
    if Agent.objects.filter(organization_id=agent.organization_id, slug=slug).exists():
        raise Conflict("An agent with this slug exists.", field="slug")
    agent.save(force_insert=True)
    for environment in Environment.objects.filter(organization_id=agent.organization_id):
        AgentEnvironment.objects.create(agent=agent, environment=environment)
    _audit(actor, agent.organization_id, "agent.create", "agent", agent.id, agent_id=agent.id)
    return agent


@durable()
def rename_agent(*, actor: Actor, agent: Agent, name: str) -> Agent:
    require_manage(actor, agent)
    agent.name = clean_name(name)
    agent.save(update_fields=["name"])
    _audit(actor, agent.organization_id, "agent.rename", "agent", agent.id, agent_id=agent.id)
    return agent


@durable(full=True)
def suspend_agent(*, actor: Actor, agent: Agent, rationale: str) -> Containment:
    """Stop the agent in every environment. Publications stay; resuming needs no new publish."""
    require_contain(actor, agent)
    rationale = clean_rationale(rationale)
    changed = Agent.objects.filter(id=agent.id, status=Status.ACTIVE).update(
        status=Status.SUSPENDED
    )
    if not changed:
        raise Conflict("The agent is suspended already.")
    agent.status = Status.SUSPENDED
    ended = contain(agent_ids=[agent.id], reason="suspended")
    append_audit(
        actor=actor,
        organization_id=agent.organization_id,
        action="agent.suspend",
        target_kind="agent",
        target_id=agent.id,
        agent_id=agent.id,
        rationale=rationale,
        **ended.as_data(),
    )
    return ended


@durable()
def resume_agent(*, actor: Actor, agent: Agent, rationale: str) -> Agent:
    """Let a suspended agent work again where it is published or open."""
    require_manage(actor, agent)
    changed = Agent.objects.filter(id=agent.id, status=Status.SUSPENDED).update(
        status=Status.ACTIVE
    )
    if not changed:
        raise Conflict("The agent is not suspended.")
    agent.status = Status.ACTIVE
    append_audit(
        actor=actor,
        organization_id=agent.organization_id,
        action="agent.resume",
        target_kind="agent",
        target_id=agent.id,
        agent_id=agent.id,
        rationale=clean_rationale(rationale),
    )
    return agent


@durable(full=True)
def suspend_organization(
    *, actor: Actor, organization: Organization, rationale: str
) -> Containment:
    """Stop every agent of a tenant."""
    require_operator(actor)
    changed = Organization.objects.filter(id=organization.id, status=Status.ACTIVE).update(
        status=Status.SUSPENDED
    )
    if not changed:
        raise Conflict("The organization is suspended already.")
    organization.status = Status.SUSPENDED
    agent_ids = list(organization.agents.values_list("id", flat=True))
    ended = contain(agent_ids=agent_ids, reason="suspended")
    append_audit(
        actor=actor,
        organization_id=organization.id,
        action="organization.suspend",
        target_kind="organization",
        target_id=organization.id,
        rationale=clean_rationale(rationale),
        **ended.as_data(),
    )
    return ended


@durable()
def resume_organization(
    *, actor: Actor, organization: Organization, rationale: str
) -> Organization:
    require_operator(actor)
    changed = Organization.objects.filter(id=organization.id, status=Status.SUSPENDED).update(
        status=Status.ACTIVE
    )
    if not changed:
        raise Conflict("The organization is not suspended.")
    organization.status = Status.ACTIVE
    append_audit(
        actor=actor,
        organization_id=organization.id,
        action="organization.resume",
        target_kind="organization",
        target_id=organization.id,
        rationale=clean_rationale(rationale),
    )
    return organization


@durable()
def open_agent_environment(
    *, actor: Actor, agent: Agent, environment: Environment, rationale: str
) -> AgentEnvironment:
    """Let external keys of an agent work without a publication: it is a runtime outside."""
    require_manage(actor, agent)
    slot = AgentEnvironment.objects.select_for_update().get(agent=agent, environment=environment)
    if slot.state == EnvironmentState.OPEN:
        raise Conflict("The agent is open in this environment already.")
    slot.state = EnvironmentState.OPEN
    slot.generation += 1
    slot.save(update_fields=["state", "generation"])
    append_audit(
        actor=actor,
        organization_id=agent.organization_id,
        action="agent.open",
        target_kind="agent",
        target_id=agent.id,
        agent_id=agent.id,
        environment_id=environment.id,
        rationale=clean_rationale(rationale),
    )
    return slot


def _audit(
    actor: Actor,
    organization_id: UUID,
    action: str,
    target_kind: str,
    target_id: UUID,
    *,
    agent_id: UUID | None = None,
    **data: Any,
) -> None:
    append_audit(
        actor=actor,
        organization_id=organization_id,
        action=action,
        target_kind=target_kind,
        target_id=target_id,
        agent_id=agent_id,
        **data,
    )
