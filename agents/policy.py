"""Who may do what: pure functions over rows, with no clock and no database of their own.

``effective_rights`` is the only resolver of what an agent key may use. People's permissions are
the predicates on :class:`Actor`. Both are read from live rows at every request; nothing here
remembers anything.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import UUID

from agents.choices import (
    Classification,
    EnvironmentState,
    KeyKind,
    Role,
    RunState,
    Status,
    ToolState,
)
from agents.errors import Forbidden, KeyDead, NotFound, NotPublished, Suspended

ActorKind = Literal["user", "operator", "key", "principal", "system"]


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, as the audit log names them. Built from live rows for each request."""

    kind: ActorKind
    id: str
    organization_id: UUID | None = None
    role: str = ""
    team_ids: frozenset[UUID] = field(default_factory=frozenset)
    user_id: UUID | None = None
    is_operator: bool = False

    @property
    def is_manager(self) -> bool:
        return self.role == Role.AGENT_MANAGER


def system_actor(name: str) -> Actor:
    """The product itself, doing *name*."""
    return Actor(kind="system", id=f"system:{name}")


class OwnedAgent(Protocol):
    """What the predicates read of an agent."""

    @property
    def organization_id(self) -> UUID: ...
    @property
    def team_id(self) -> UUID: ...


def may_see_agent(actor: Actor, agent: OwnedAgent) -> bool:
    """Operators see every agent's metadata; people those of their organization."""
    return actor.is_operator or (
        bool(actor.role) and actor.organization_id == agent.organization_id
    )


def may_manage_agent(actor: Actor, agent: OwnedAgent) -> bool:
    """Managers act on agents of their teams: write, test, publish, contain, grant, mint keys."""
    return (
        actor.is_manager
        and actor.organization_id == agent.organization_id
        and agent.team_id in actor.team_ids
    )


def may_contain_agent(actor: Actor, agent: OwnedAgent) -> bool:
    """Stopping is open to operators too; starting again is not."""
    return actor.is_operator or may_manage_agent(actor, agent)


def require_manage(actor: Actor, agent: OwnedAgent) -> None:
    """Raise NotFound for outsiders, Forbidden for people of the organization without the right."""
    if may_manage_agent(actor, agent):
        return
    if may_see_agent(actor, agent):
        raise Forbidden("Only agent managers of the owning team may do this.")
    raise NotFound


def require_contain(actor: Actor, agent: OwnedAgent) -> None:
    if not may_contain_agent(actor, agent):
        require_manage(actor, agent)


def require_operator(actor: Actor) -> None:
    """Providers, models, connectors, tools and members are operators' business."""
    if not actor.is_operator:
        raise Forbidden("Only operators may do this.")


# --- agent keys ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One agent key joined with everything its life depends on."""

    id: UUID
    accessor: str
    kind: str
    scope: dict[str, Any]
    generation: int | None
    expires_at: dt.datetime | None
    revoked_at: dt.datetime | None
    organization_id: UUID
    organization_status: str
    agent_id: UUID
    agent_slug: str
    agent_status: str
    environment_id: UUID
    environment_slug: str
    environment_state: str | None
    environment_generation: int | None
    run_id: UUID | None = None
    run_state: str | None = None
    thread_id: UUID | None = None
    run_depth: int = 0


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A granted virtual model with its provider."""

    id: UUID
    slug: str
    upstream_model: str
    pricing_reference: str
    context_limit: int
    output_limit: int
    enabled: bool
    provider_id: UUID
    provider_enabled: bool
    base_url: str
    #: The one parameter that tells this provider the output limit.
    output_limit_parameter: str = "max_tokens"
    credential: bytes | None = field(repr=False, default=None)
    #: The newest rate card: its upstream model, then the rates of input, output, cache read and
    #: cache write in micro-dollars per million tokens.
    rate_card: tuple[str, int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A granted tool with its connector."""

    id: UUID
    name: str
    exposed_name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any]
    digest: str
    classification: str
    state: str
    connector_id: UUID
    connector_slug: str
    connector_enabled: bool
    first_party: bool
    url: str
    credential: bytes | None = field(repr=False, default=None)

    @property
    def is_action(self) -> bool:
        """Unclassified means action."""
        return self.classification != Classification.READ


@dataclass(frozen=True, slots=True)
class KeyRows:
    """All rows that decide what one key may use. Grants are those not revoked."""

    key: KeyRow
    models: tuple[ModelRow, ...] = ()
    tools: tuple[ToolRow, ...] = ()
    agent_ids: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class Rights:
    """What a live key may use now: key scope ∩ current grants ∩ resource state."""

    key: KeyRow
    models: tuple[ModelRow, ...]
    tools: tuple[ToolRow, ...]
    agent_ids: tuple[UUID, ...]

    def model(self, slug: str) -> ModelRow | None:
        return next((m for m in self.models if m.slug == slug), None)

    def tool(self, exposed_name: str) -> ToolRow | None:
        return next((t for t in self.tools if t.exposed_name == exposed_name), None)


def effective_rights(rows: KeyRows, now: dt.datetime) -> Rights:
    """Resolve what a key may use at *now*, which comes from the database's clock.

    Raises KeyDead for a key that is revoked, expired, of another generation or of an ended run;
    Suspended for an agent or organization that is; NotPublished for an external key of an agent
    that is not open in this environment.
    """
    key = rows.key
    _require_alive(key, now)
    if key.organization_status != Status.ACTIVE or key.agent_status != Status.ACTIVE:
        raise Suspended
    if key.kind == KeyKind.EXTERNAL and key.environment_state != EnvironmentState.OPEN:
        # A managed key's generation says the same and more; a draft may be tested while closed.
        raise NotPublished
    return Rights(
        key=key,
        models=tuple(
            m
            for m in rows.models
            if m.enabled and m.provider_enabled and _in_scope(key, "models", m.id)
        ),
        tools=tuple(
            t
            for t in rows.tools
            if t.state == ToolState.ACCEPTED
            and t.connector_enabled
            and _in_scope(key, "tools", t.id)
        ),
        agent_ids=tuple(a for a in rows.agent_ids if _in_scope(key, "agents", a)),
    )


def _require_alive(key: KeyRow, now: dt.datetime) -> None:
    if key.revoked_at is not None:
        raise KeyDead
    if key.expires_at is not None and key.expires_at <= now:
        raise KeyDead
    if key.kind == KeyKind.MANAGED:
        if key.generation is None or key.generation != key.environment_generation:
            raise KeyDead
        if key.expires_at is None or key.run_state != RunState.RUNNING:
            raise KeyDead


def _in_scope(key: KeyRow, part: str, resource_id: UUID) -> bool:
    """Whether the key's own scope names the resource. Missing or empty never means all."""
    if key.kind == KeyKind.EXTERNAL and key.scope.get("all_grants") is True:
        return True
    listed = key.scope.get(part)
    return isinstance(listed, list) and str(resource_id) in listed


def managed_scope(
    model_id: UUID, tool_ids: Iterable[UUID], agent_ids: Iterable[UUID]
) -> dict[str, Any]:
    """The scope of a run's key: exactly the definition's model and tools, as granted now."""
    return {
        "models": [str(model_id)],
        "tools": sorted(str(t) for t in tool_ids),
        "agents": sorted(str(a) for a in agent_ids),
    }
