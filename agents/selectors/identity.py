"""Read who people are, from live rows, at every request."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from agents.errors import NotFound, Unauthenticated
from agents.models import Agent, Environment, Membership, User
from agents.policy import Actor, may_see_agent


def actor_of(user: User | AnonymousUser | Any) -> Actor:
    """The actor a signed-in user is now. Raises Unauthenticated for nobody or the inactive."""
    if not isinstance(user, User) or not user.is_active:
        raise Unauthenticated
    if user.is_staff:
        # An operator has no product role, whatever other rows say.
        return Actor(kind="operator", id=str(user.id), user_id=user.id, is_operator=True)
    membership = Membership.objects.filter(user=user, active=True).prefetch_related("teams").first()
    if membership is None:
        raise Unauthenticated("This account has no active membership.")
    return Actor(
        kind="user",
        id=str(user.id),
        organization_id=membership.organization_id,
        role=membership.role,
        team_ids=frozenset(team.id for team in membership.teams.all()),
        user_id=user.id,
    )


def membership_of(user_id: UUID) -> Membership | None:
    """The active membership of an active user who is no operator, or None."""
    return (
        Membership.objects.filter(
            user_id=user_id, active=True, user__is_active=True, user__is_staff=False
        )
        .select_related("organization", "user")
        .first()
    )


def visible_agents(actor: Actor) -> QuerySet[Agent]:
    """Agents whose metadata this actor may see."""
    agents = Agent.objects.select_related("team", "organization")
    if actor.organization_id is None:
        return agents if actor.is_operator else agents.none()
    return agents.filter(organization_id=actor.organization_id)


def agent_by_slug(actor: Actor, slug: str) -> Agent:
    """One agent of the actor's organization. Raises NotFound."""
    agent = visible_agents(actor).filter(slug=slug).first()
    if agent is None or not may_see_agent(actor, agent):
        raise NotFound("There is no such agent.")
    return agent


def environment_by_slug(organization_id: UUID, slug: str) -> Environment:
    found = Environment.objects.filter(organization_id=organization_id, slug=slug).first()
    if found is None:
        raise NotFound("There is no such environment.")
    return found
