"""What the agent pages show: states per environment, choices of model and tools, the versions."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from agents.choices import EnvironmentState, RunState, Status, ToolState
from agents.models import (
    Agent,
    AgentEnvironment,
    AgentKey,
    Approval,
    Environment,
    Grant,
    Run,
    Team,
    Tool,
    VirtualModel,
)
from agents.policy import Actor
from agents.selectors.identity import visible_agents
from agents.selectors.names import person_name
from agents.services.containment import LIVE_APPROVALS
from definitions.models import Draft, Publication
from definitions.selectors.history import places_published


@dataclass(frozen=True, slots=True)
class State:
    """One agent in one environment, as its pill tells it."""

    slug: str
    version: int | None
    contained: bool
    changed: bool = False
    suspended: bool = False
    changed_at: dt.datetime | None = None
    changed_by: str = ""


@dataclass(frozen=True, slots=True)
class AgentLine:
    """One agent of the list."""

    name: str
    slug: str
    team: str
    state: State


def managed_agents(actor: Actor, query: str = "") -> QuerySet[Agent]:
    """The agents that this actor may manage, by name."""
    agents = visible_agents(actor).filter(team_id__in=actor.team_ids)
    if not actor.is_manager:
        agents = agents.none()
    if query:
        agents = agents.filter(Q(name__icontains=query) | Q(slug__icontains=query))
    return agents.order_by("name")


def own_teams(actor: Actor) -> QuerySet[Team]:
    """The teams in which this actor may create agents."""
    if not actor.is_manager or actor.organization_id is None:
        return Team.objects.none()
    teams = Team.objects.filter(organization_id=actor.organization_id, id__in=actor.team_ids)
    return teams.order_by("name")


def agent_lines(agents: Iterable[Agent], environment: Environment) -> list[AgentLine]:
    """Each agent with its state in one environment, in a constant number of queries."""
    listed = list(agents)
    slots = {
        slot.agent_id: slot
        for slot in AgentEnvironment.objects.filter(agent__in=listed, environment=environment)
    }
    published = places_published(agent.id for agent in listed)
    drafts = dict(Draft.objects.filter(agent__in=listed).values_list("agent_id", "digest"))
    return [
        AgentLine(
            agent.name,
            agent.slug,
            agent.team.name,
            _state(
                agent,
                environment.slug,
                slots.get(agent.id),
                drafts.get(agent.id, ""),
                was_published=(agent.id, environment.id) in published,
            ),
        )
        for agent in listed
    ]


def _state(
    agent: Agent,
    slug: str,
    slot: AgentEnvironment | None,
    draft_digest: str,
    publication: Publication | None = None,
    *,
    was_published: bool,
) -> State:
    version = None if slot is None else slot.published_number
    return State(
        slug=slug,
        version=version,
        contained=was_published and slot is not None and slot.state == EnvironmentState.CONTAINED,
        changed=slot is not None and version is not None and slot.published_digest != draft_digest,
        suspended=agent.status == Status.SUSPENDED,
        changed_at=None if publication is None else publication.published_at,
        changed_by="" if publication is None else person_name(publication.published_by),
    )


def states_of(agent: Agent, draft: Draft, environments: Sequence[Environment]) -> list[State]:
    """The agent's state in each environment."""
    slots = {slot.environment_id: slot for slot in agent.environments.all()}
    publications = {
        publication.environment_id: publication
        for publication in agent.publications.select_related("published_by")
    }
    published = places_published([agent.id])
    return [
        _state(
            agent,
            e.slug,
            slots.get(e.id),
            draft.digest,
            publications.get(e.id),
            was_published=(agent.id, e.id) in published,
        )
        for e in environments
    ]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A virtual model that the definition may name, and where it is granted."""

    id: UUID
    name: str
    slug: str
    enabled: bool
    granted_in: tuple[str, ...]

    @property
    def label(self) -> str:
        where = f"granted in {', '.join(self.granted_in)}" if self.granted_in else "not granted"
        return f"{self.name} · {where}" + ("" if self.enabled else " · disabled")


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """A tool that the allowlist may name, with what stands against its use."""

    tool: Tool
    granted_in: frozenset[str]

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def classification(self) -> str:
        return self.tool.effective_classification

    def note(self, environments: Iterable[str]) -> str:
        """A sentence for people when the tool cannot be used everywhere; else empty."""
        if self.tool.state != ToolState.ACCEPTED:
            return f"The tool is {self.tool.state}: no agent can use it until it is accepted."
        missing = [slug for slug in environments if slug not in self.granted_in]
        if not missing:
            return ""
        return f"Not granted in {', '.join(missing)}: it is left out there."


def model_choices(agent: Agent, draft: Draft) -> list[ModelChoice]:
    """The models granted to the agent anywhere, and the draft's own."""
    granted = _granted(agent, "virtual_model_id")
    models = VirtualModel.objects.select_related("provider").filter(
        Q(id__in=granted) | Q(id=draft.virtual_model_id), organization_id=agent.organization_id
    )
    return [
        ModelChoice(
            model.id,
            model.name,
            model.slug,
            model.enabled and model.provider.enabled,
            tuple(sorted(granted.get(model.id, ()))),
        )
        for model in models.order_by("name")
    ]


def chosen_model(agent: Agent, model_id: str) -> VirtualModel | None:
    """The virtual model of that id in the agent's organization; None for an empty id."""
    if not model_id:
        return None
    return VirtualModel.objects.filter(id=model_id, organization_id=agent.organization_id).first()


def tool_choices(agent: Agent, draft: Draft) -> list[ToolChoice]:
    """The tools granted to the agent anywhere, and those that the draft names."""
    granted = _granted(agent, "tool_id")
    tools = Tool.objects.select_related("connector").filter(
        Q(id__in=granted) | Q(id__in=draft.tool_ids),
        connector__organization_id=agent.organization_id,
    )
    return [
        ToolChoice(tool, frozenset(granted.get(tool.id, ())))
        for tool in tools.order_by("connector__name", "name")
    ]


def _granted(agent: Agent, column: str) -> dict[UUID, set[str]]:
    """Resource id → slugs of the environments with a live grant."""
    where: dict[UUID, set[str]] = defaultdict(set)
    grants = Grant.objects.filter(agent=agent, revoked_at__isnull=True)
    for resource, slug in grants.exclude(**{column: None}).values_list(column, "environment__slug"):
        where[resource].add(slug)
    return where


@dataclass(frozen=True, slots=True)
class Live:
    """What an Unpublish or a suspension would end."""

    keys: int
    runs: int
    approvals: int


def live_parts(agent: Agent, environment: Environment | None = None) -> Live:
    """Count what an Unpublish there would end now, or (without a place) a suspension.

    What it really ended, it says itself.
    """
    where: dict[str, Any] = {"agent": agent}
    if environment is not None:
        where["environment"] = environment
    return Live(
        keys=AgentKey.objects.filter(**where, kind="managed", revoked_at__isnull=True).count(),
        runs=Run.objects.filter(**where, state=RunState.RUNNING).count(),
        approvals=Approval.objects.filter(**where, state__in=LIVE_APPROVALS).count(),
    )
