"""One organization with two environments, people of each kind, an agent, and what it may use."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.db import transaction

from agents.models import Agent, Environment, Organization, Tool, User, VirtualModel
from agents.policy import Actor
from agents.selectors.identity import actor_of
from agents.services import identity, resources
from agents.services.grants import grant
from agents.services.tools import ObservedTool, apply_listing, review_tool
from agents.transactions import joined
from definitions.models import Draft
from definitions.selectors import draft_of
from definitions.services.drafts import create_agent, save_draft


@dataclass
class Desk:
    organization: Organization
    staging: Environment
    production: Environment
    operator: Actor
    manager: Actor
    other_manager: Actor
    member: Actor
    outsider: Actor
    agent: Agent
    model: VirtualModel
    read_tool: Tool
    action_tool: Tool

    def write(self, instructions: str, *, tools: list[Tool] | None = None) -> Draft:
        """Save the draft as the manager."""
        return save_draft(
            actor=self.manager,
            agent=self.agent,
            digest_seen=draft_of(self.agent).digest,
            instructions=instructions,
            virtual_model=self.model,
            tools=[self.read_tool, self.action_tool] if tools is None else tools,
        )


def _person(
    operator: Actor, organization: Organization, name: str, role: str, *teams: object
) -> Actor:
    user = User.objects.create_user(name)
    identity.add_member(
        actor=operator,
        organization=organization,
        user=user,
        role=role,
        teams=list(teams),  # type: ignore[arg-type]
    )
    return actor_of(user)


def make_desk() -> Desk:
    """Build it through the services, in one transaction."""
    operator = actor_of(User.objects.create_user("operator", is_staff=True))
    org = identity.create_organization(actor=operator, name="Acme", slug="acme")
    other = identity.create_organization(actor=operator, name="Other", slug="other")
    team = identity.create_team(actor=operator, organization=org, name="Care", slug="care")
    second = identity.create_team(actor=operator, organization=org, name="Law", slug="law")
    foreign = identity.create_team(actor=operator, organization=other, name="X", slug="x")
    staging, production = (
        identity.create_environment(actor=operator, organization=org, name=n, slug=n.lower())
        for n in ("Staging", "Production")
    )
    manager = _person(operator, org, "alice", "agent_manager", team)
    provider = resources.create_provider(
        actor=operator, organization=org, name="P", slug="p",
        base_url="https://api.example.com/v1", credential="sk-secret",
    )  # fmt: skip
    model = resources.create_virtual_model(
        actor=operator, provider=provider, name="Main", slug="main", upstream_model="gpt",
        context_limit=8_000, output_limit=500,
    )  # fmt: skip
    connector = resources.create_connector(
        actor=operator, organization=org, name="Orders", slug="orders",
        url="https://tools.example.com/mcp",
    )  # fmt: skip
    listing = [
        ObservedTool(n, "", f"Do {n}.", {"type": "object"}, {}) for n in ("status", "refund")
    ]
    apply_listing(connector=connector, listing=listing)
    read_tool, action_tool = (
        review_tool(
            actor=operator, tool=tool, digest_seen=tool.digest, classification=classification
        )
        for tool, classification in (
            (Tool.objects.get(name="status"), "read"),
            (Tool.objects.get(name="refund"), "action"),
        )
    )
    agent = create_agent(actor=manager, team=team, name="Order desk", slug="order-desk")
    for environment in (staging, production):
        for resource in (model, read_tool, action_tool):
            grant(actor=manager, agent=agent, environment=environment, resource=resource)
    return Desk(
        organization=org,
        staging=staging,
        production=production,
        operator=operator,
        manager=manager,
        other_manager=_person(operator, org, "lawrence", "agent_manager", second),
        member=_person(operator, org, "bob", "member"),
        outsider=_person(operator, other, "mallory", "agent_manager", foreign),
        agent=agent,
        model=model,
        read_tool=read_tool,
        action_tool=action_tool,
    )


@pytest.fixture
def desk(transactional_db: None) -> Desk:
    with transaction.atomic(), joined():
        return make_desk()
