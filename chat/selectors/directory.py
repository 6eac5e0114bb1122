"""The agents that members can chat with in an environment."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agents.choices import EnvironmentState, Status
from agents.models import Agent, AgentEnvironment, Environment
from definitions.selectors.history import places_published


@dataclass(frozen=True, slots=True)
class Partner:
    """One agent as chat pages name it; without a version nothing of it runs there."""

    name: str
    slug: str
    team: str
    version: int | None
    suspended: bool
    #: Something was published there, and nothing runs any more.
    contained: bool = False


def partners(environment: Environment) -> list[Partner]:
    """Published, active agents by name."""
    slots = AgentEnvironment.objects.filter(
        environment=environment,
        state=EnvironmentState.OPEN,
        published_number__isnull=False,
        agent__status=Status.ACTIVE,
    ).select_related("agent__team")
    return [_partner(slot.agent, slot) for slot in slots.order_by("agent__name")]


def partner(agent: Agent, environment: Environment) -> Partner:
    """One agent, published or not: its old conversations stay readable."""
    slot = AgentEnvironment.objects.filter(agent=agent, environment=environment).first()
    found = _partner(agent, slot)
    if found.version is not None:
        return found
    return replace(found, contained=(agent.id, environment.id) in places_published([agent.id]))


def _partner(agent: Agent, slot: AgentEnvironment | None) -> Partner:
    return Partner(
        name=agent.name,
        slug=agent.slug,
        team=agent.team.name,
        version=None if slot is None else slot.published_number,
        suspended=agent.status == Status.SUSPENDED,
    )
