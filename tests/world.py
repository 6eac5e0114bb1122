"""A small organization that works, made through the services: what most tests start from.

    world = make_world(provider_url=provider.base_url)     # its address must be allowed, see allow()
    other = make_world(name="globex")                      # an outsider's organization

It writes, so call it from synchronous code (``await asyncio.to_thread(make_world, ...)`` in async
tests), with ``django_db(transaction=True, databases="__all__")``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from agents import lifecycle
from agents.choices import Role
from agents.models import (
    Agent,
    AgentKey,
    Boot,
    Environment,
    Grant,
    ModelProvider,
    Organization,
    Team,
    User,
    VirtualModel,
)
from agents.policy import Actor
from agents.selectors.identity import actor_of
from agents.services import grants, identity, keys, resources
from agents.services.boots import start_boot
from definitions.services import drafts

PASSWORD = "correct horse battery staple"
#: The credential that the provider gets; it may be seen nowhere else.
PROVIDER_CREDENTIAL = "sk-provider-credential-canary"


@dataclass(frozen=True)
class World:
    """One organization with an open agent, a granted model, and an external key of it."""

    organization: Organization
    staging: Environment
    production: Environment
    team: Team
    operator_user: User
    manager_user: User
    member_user: User
    agent: Agent
    provider: ModelProvider
    model: VirtualModel
    model_grant: Grant
    key: AgentKey
    key_text: str = field(repr=False)

    @property
    def operator(self) -> Actor:
        return actor_of(self.operator_user)

    @property
    def manager(self) -> Actor:
        return actor_of(self.manager_user)

    @property
    def member(self) -> Actor:
        return actor_of(self.member_user)

    def authorization(self) -> dict[str, str]:
        """The header that the agent's runtime outside would send."""
        return {"authorization": f"Bearer {self.key_text}"}

    def mint_key(self, scope: dict[str, Any] | None = None, **options: Any) -> keys.MintedKey:
        """Another external key of the agent, in production."""
        return keys.mint_external_key(
            actor=self.manager,
            agent=self.agent,
            environment=self.production,
            name="another",
            scope=scope or {"all_grants": True},
            **options,
        )

    def add_model(self, slug: str, *, granted: bool = True, **options: Any) -> VirtualModel:
        """Another model of the same provider."""
        model = resources.create_virtual_model(
            actor=self.operator,
            provider=self.provider,
            name=slug,
            slug=slug,
            upstream_model=options.pop("upstream_model", "gpt-test"),
            **{"context_limit": 32_768, "output_limit": 256, **options},
        )
        if granted:
            grants.grant(
                actor=self.manager, agent=self.agent, environment=self.production, resource=model
            )
        return model


def make_world(
    *,
    name: str = "acme",
    provider_url: str = "https://provider.example/v1",
    open_agent: bool = True,
) -> World:
    """Build everything that one gateway call needs, and the people around it.

    Users are called ``<name>-operator``, ``<name>-manager`` and ``<name>-member``, with PASSWORD.
    The model's slug is ``standard``; its rate card says 1 and 2 dollars per million tokens.
    """
    operator_user = User.objects.create_user(f"{name}-operator", password=PASSWORD, is_staff=True)
    operator = actor_of(operator_user)
    organization = identity.create_organization(actor=operator, name=name.title(), slug=name)
    team = identity.create_team(
        actor=operator, organization=organization, name="Support", slug="support"
    )
    staging, production = (
        identity.create_environment(
            actor=operator, organization=organization, name=slug.title(), slug=slug
        )
        for slug in ("staging", "production")
    )
    manager_user = _person(operator, organization, f"{name}-manager", Role.AGENT_MANAGER, [team])
    member_user = _person(operator, organization, f"{name}-member", Role.MEMBER, [])
    manager = actor_of(manager_user)
    provider = resources.create_provider(
        actor=operator,
        organization=organization,
        name="Provider",
        slug="provider",
        base_url=provider_url,
        credential=PROVIDER_CREDENTIAL,
    )
    model = resources.create_virtual_model(
        actor=operator,
        provider=provider,
        name="Standard",
        slug="standard",
        upstream_model="gpt-test",
        context_limit=32_768,
        output_limit=256,
    )
    resources.add_rate_card(
        actor=operator,
        model=model,
        input_rate=1_000_000,
        output_rate=2_000_000,
        cache_read_rate=100_000,
        cache_write_rate=1_250_000,
        rationale="Agreed for the tests.",
    )
    agent = drafts.create_agent(actor=manager, team=team, name="Order desk", slug="order-desk")
    model_grant = grants.grant(actor=manager, agent=agent, environment=production, resource=model)
    if open_agent:
        identity.open_agent_environment(
            actor=manager, agent=agent, environment=production, rationale="It runs outside."
        )
    minted = keys.mint_external_key(
        actor=manager,
        agent=agent,
        environment=production,
        name="outside",
        scope={"all_grants": True},
    )
    return World(
        organization=organization,
        staging=staging,
        production=production,
        team=team,
        operator_user=operator_user,
        manager_user=manager_user,
        member_user=member_user,
        agent=agent,
        provider=provider,
        model=model,
        model_grant=model_grant,
        key=minted.key,
        key_text=minted.text,
    )


def _person(
    operator: Actor, organization: Organization, username: str, role: Role, teams: list[Team]
) -> User:
    user = User.objects.create_user(username, password=PASSWORD)
    identity.add_member(
        actor=operator, organization=organization, user=user, role=role, teams=teams
    )
    return user


def allow(settings: Any, *urls: str) -> None:
    """Let the product connect to these local addresses, as an operator would say it."""
    addresses = [urlsplit(url).netloc for url in urls]
    settings.OUTGOING_ALLOWED = [*settings.OUTGOING_ALLOWED, *addresses]


@pytest.fixture
def boot(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Boot:
    """This process's boot, without heartbeat: what owns runs and gateway calls in a test."""
    row = start_boot(role="web")
    monkeypatch.setattr(lifecycle, "_boot_id", row.id)
    return row
