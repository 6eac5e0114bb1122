"""Organizations, teams, environments, members and agents."""

from __future__ import annotations

import datetime as dt
from typing import Annotated
from uuid import UUID

from ninja import Schema
from pydantic import Field, StringConstraints, model_validator

from agents.choices import EnvironmentState, Role, Status
from agents.models import Agent, AgentEnvironment, Membership
from agents.schemas.base import Input, Name, Password, Slug, Storable

Username = Annotated[str, StringConstraints(min_length=1, max_length=150), Storable]


class NamedIn(Input):
    name: Name
    slug: Slug


class NamedOut(Schema):
    id: UUID
    name: str
    slug: str
    created_at: dt.datetime


class OrganizationIn(NamedIn):
    """A new tenant."""


class OrganizationOut(NamedOut):
    status: Status


class TeamIn(NamedIn):
    """A new team."""


class TeamOut(NamedOut):
    """A team."""


class EnvironmentIn(NamedIn):
    """A new environment. Every agent starts contained in it."""


class EnvironmentOut(NamedOut):
    """An environment."""


class MemberIn(Input):
    """A person's place. With a password the account is made; without one it must exist."""

    username: Username
    password: Password | None = None
    role: Role = Role.MEMBER
    teams: Annotated[list[Slug], Field(max_length=50)] = []


class MemberPatch(Input):
    """What changes; a missing or null member stays."""

    role: Role | None = None
    active: bool | None = None
    teams: Annotated[list[Slug], Field(max_length=50)] | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> MemberPatch:
        if self.role is None and self.active is None and self.teams is None:
            msg = "Nothing to change"
            raise ValueError(msg)
        return self


class MemberOut(Schema):
    user_id: UUID
    username: str
    role: Role
    active: bool
    teams: list[str]

    @staticmethod
    def resolve_username(row: Membership) -> str:
        return row.user.get_username()

    @staticmethod
    def resolve_teams(row: Membership) -> list[str]:
        return sorted(team.slug for team in row.teams.all())


class AgentIn(NamedIn):
    """A new agent: contained everywhere, with an empty draft and no rights."""

    team: Slug


class AgentPatch(Input):
    name: Name


class AgentEnvironmentOut(Schema):
    """Whether the agent's keys work here, and what is published."""

    environment: str
    state: EnvironmentState
    published_version: int | None

    @staticmethod
    def resolve_environment(row: AgentEnvironment) -> str:
        return row.environment.slug

    @staticmethod
    def resolve_published_version(row: AgentEnvironment) -> int | None:
        return row.published_number


class AgentOut(NamedOut):
    team: str
    status: Status
    environments: list[AgentEnvironmentOut]

    @staticmethod
    def resolve_team(row: Agent) -> str:
        return row.team.slug

    @staticmethod
    def resolve_environments(row: Agent) -> list[AgentEnvironment]:
        return sorted(row.environments.all(), key=lambda slot: slot.environment.slug)
