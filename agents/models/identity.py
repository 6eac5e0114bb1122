"""Who exists: organizations, people, teams, environments and agents."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AbstractUser
from django.db import models

from agents.choices import EnvironmentState, Role, Status
from agents.models.base import Row, one_of


class Organization(Row):
    """One tenant."""

    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=60, unique=True)
    status = models.CharField(max_length=12, choices=Status, default=Status.ACTIVE)

    class Meta:
        constraints = [one_of("status", Status, "organization_status")]

    def __str__(self) -> str:
        return self.name


class User(AbstractUser):
    """A sign-in. What it may do comes from its membership; ``is_staff`` makes an operator."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)


class Team(Row):
    """A group in an organization that owns agents."""

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="teams")
    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=60)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "slug"], name="team_slug"),
        ]

    def __str__(self) -> str:
        return self.name


class Membership(Row):
    """A user's one place in one organization."""

    user = models.OneToOneField(User, models.CASCADE, related_name="membership")
    organization = models.ForeignKey(Organization, models.PROTECT, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role, default=Role.MEMBER)
    active = models.BooleanField(default=True)
    teams = models.ManyToManyField(Team, related_name="memberships", blank=True)

    class Meta:
        constraints = [one_of("role", Role, "membership_role")]

    def __str__(self) -> str:
        return f"{self.user.get_username()} in {self.organization}"


class Environment(Row):
    """Where agents run: staging, production, and so on."""

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="environments")
    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=40)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "slug"], name="environment_slug"),
        ]

    def __str__(self) -> str:
        return self.slug


class Agent(Row):
    """Identity only. Instructions live in definitions, rights in grants."""

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="agents")
    team = models.ForeignKey(Team, models.PROTECT, related_name="agents")
    name = models.CharField(max_length=120)
    slug = models.SlugField(max_length=60)
    status = models.CharField(max_length=12, choices=Status, default=Status.ACTIVE)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "slug"], name="agent_slug"),
            one_of("status", Status, "agent_status"),
        ]

    def __str__(self) -> str:
        return self.name


class AgentEnvironment(Row):
    """The switch that every gateway call reads: may this agent's keys work here, and since when.

    ``generation`` rises with every publish, unpublish, opening and suspension that must end
    running keys; a managed key carries the generation it was minted under and is dead when it
    differs. ``published_version_id`` points upward without a foreign key.
    """

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="environments")
    environment = models.ForeignKey(Environment, models.PROTECT, related_name="agents")
    state = models.CharField(
        max_length=12, choices=EnvironmentState, default=EnvironmentState.CONTAINED
    )
    generation = models.PositiveBigIntegerField(default=0)
    published_version_id = models.UUIDField(null=True, blank=True)
    published_number = models.PositiveIntegerField(null=True, blank=True)
    published_digest = models.CharField(max_length=64, blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["agent", "environment"], name="agent_environment"),
            one_of("state", EnvironmentState, "agent_environment_state"),
        ]

    def __str__(self) -> str:
        return f"{self.agent} in {self.environment}"
