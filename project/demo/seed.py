"""What an empty installation starts with in demo mode: one organization that works at once.

Everything is made through the same services as by hand, in one control transaction, so that a
crash leaves either nothing or all of it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, TextIO

from django.conf import settings
from django.db import transaction

from agents.choices import Classification, Role
from agents.models import (
    Agent,
    Connector,
    Environment,
    Organization,
    Team,
    Tool,
    User,
    VirtualModel,
)
from agents.policy import Actor
from agents.selectors.identity import actor_of
from agents.services import identity, resources
from agents.services.grants import Resource, grant
from agents.services.tools import ObservedTool, apply_listing, review_tool
from agents.transactions import joined
from definitions.selectors import draft_of
from definitions.services.drafts import create_agent, save_draft
from definitions.services.publishing import publish_draft
from project.config import Config
from project.demo import addresses, tools

ORDERS_INSTRUCTIONS = """\
You are the order desk of Harbour Books, a small online bookshop.

- Answer questions about orders with the tools you have; never guess an order's state.
- Refund an order only when the customer asks for it, and say what you refunded.
- Send an e-mail only when you are asked to.
- Be brief and friendly.
"""

CATALOG_INSTRUCTIONS = """\
You help visitors of Harbour Books to find their way.

- Find orders by customer or title with the search tool.
- You cannot change anything. For refunds, point people to the order desk.
- Be brief and friendly.
"""


@dataclass(frozen=True, slots=True)
class Person:
    """One sign-in of the demo."""

    username: str
    full_name: str
    role: str
    is_operator: bool = False


PEOPLE = (
    Person("admin", "Ada Admin", "", is_operator=True),
    Person("manager", "Max Manager", Role.AGENT_MANAGER),
    Person("member", "Mia Member", Role.MEMBER),
)


def installation_is_empty() -> bool:
    """Whether nobody has made anything here yet."""
    return not Organization.objects.exists() and not User.objects.exists()


def seed_demo(stdout: TextIO) -> None:
    """Fill an empty installation and print the passwords, which are shown this once."""
    if not installation_is_empty():
        return
    with transaction.atomic(), joined():
        passwords = _seed(settings.CONFIG)
        print("\nA demo organization was made. These passwords are shown once:", file=stdout)
        for name, password in passwords.items():
            print(f"  {name:<8}  {password}", file=stdout)
        print(
            "Lost one? `.venv/bin/python manage.py changepassword NAME` sets another.\n",
            file=stdout,
        )


def _seed(config: Config) -> dict[str, str]:
    passwords = {person.username: secrets.token_urlsafe(9) for person in PEOPLE}
    users = {p.username: _user(p, passwords[p.username]) for p in PEOPLE}
    operator = actor_of(users["admin"])
    organization = identity.create_organization(
        actor=operator, name="Harbour Books", slug="harbour-books"
    )
    team = identity.create_team(
        actor=operator, organization=organization, name="Customer care", slug="customer-care"
    )
    for person in PEOPLE:
        if person.role:
            identity.add_member(
                actor=operator,
                organization=organization,
                user=users[person.username],
                role=person.role,
                teams=[team] if person.role == Role.AGENT_MANAGER else [],
            )
    environments = [
        identity.create_environment(
            actor=operator, organization=organization, name=name, slug=name.lower()
        )
        for name in ("Staging", "Production")
    ]
    model = _model(config, operator, organization)
    found = _tools(config, operator, organization)
    manager = actor_of(users["manager"])
    _publish(
        manager, team, environments, model, list(found.values()),
        name="Order desk", slug="order-desk", instructions=ORDERS_INSTRUCTIONS,
    )  # fmt: skip
    _publish(
        manager, team, environments, model, [found["search_orders"], found["order_status"]],
        name="Shop guide", slug="shop-guide", instructions=CATALOG_INSTRUCTIONS,
    )  # fmt: skip
    return passwords


def _user(person: Person, password: str) -> User:
    first, last = person.full_name.split(" ", 1)
    return User.objects.create_user(
        person.username,
        password=password,
        first_name=first,
        last_name=last,
        is_staff=person.is_operator,
        is_superuser=person.is_operator,
    )


def _model(config: Config, operator: Actor, organization: Organization) -> VirtualModel:
    """The demo model, or the real one that the environment names."""
    real = bool(config.mandate_model_url)
    provider = resources.create_provider(
        actor=operator,
        organization=organization,
        name="Your provider" if real else "Demo provider",
        slug="provider" if real else "demo-provider",
        base_url=config.mandate_model_url or addresses.model_base_url(config),
        credential=config.mandate_model_key or ("" if real else "demo"),
        output_limit_parameter=addresses.output_limit_parameter(config),
    )
    model = resources.create_virtual_model(
        actor=operator,
        provider=provider,
        name="Your model" if real else "Demo model",
        slug="main" if real else "demo",
        upstream_model=config.mandate_model_name or addresses.MODEL_ID,
        context_limit=addresses.CONTEXT_LIMIT,
        output_limit=addresses.OUTPUT_LIMIT,
    )
    if not real:
        resources.add_rate_card(
            actor=operator,
            model=model,
            rationale="The demo model's own price list.",
            **addresses.RATES,
        )
    return model


def _tools(config: Config, operator: Actor, organization: Organization) -> dict[str, Tool]:
    """The order connector with its tools reviewed. Its server need not run yet."""
    connector = resources.create_connector(
        actor=operator,
        organization=organization,
        name="Orders",
        slug="orders",
        url=addresses.tools_url(config),
        credential=addresses.tools_key(config),
    )
    apply_listing(connector=connector, listing=[_observed(t) for t in tools.tool_definitions()])
    return {
        tool.name: review_tool(
            actor=operator,
            tool=tool,
            digest_seen=tool.digest,
            classification=_classification(tool),
            rationale="Reviewed for the demo.",
        )
        for tool in _listed(connector)
    }


def _listed(connector: Connector) -> list[Tool]:
    return list(Tool.objects.filter(connector=connector).order_by("name"))


def _observed(listed: dict[str, Any]) -> ObservedTool:
    return ObservedTool(
        name=listed["name"],
        title=listed.get("title") or "",
        description=listed.get("description") or "",
        input_schema=listed["inputSchema"],
        annotations=listed.get("annotations") or {},
    )


def _classification(tool: Tool) -> Classification:
    """The reviewer's word here: what says that it only reads is believed of our own server."""
    read_only = tool.annotations.get("readOnlyHint") is True
    return Classification.READ if read_only else Classification.ACTION


def _publish(
    manager: Actor,
    team: Team,
    environments: list[Environment],
    model: VirtualModel,
    granted: list[Tool],
    *,
    name: str,
    slug: str,
    instructions: str,
) -> Agent:
    """One agent: written, granted in both environments, published in production."""
    agent = create_agent(actor=manager, team=team, name=name, slug=slug)
    draft = save_draft(
        actor=manager,
        agent=agent,
        digest_seen=draft_of(agent).digest,
        instructions=instructions,
        virtual_model=model,
        tools=granted,
    )
    usable: list[Resource] = [model, *granted]
    for environment in environments:
        for resource in usable:
            grant(actor=manager, agent=agent, environment=environment, resource=resource)
    publish_draft(
        actor=manager,
        agent=agent,
        environment=next(e for e in environments if e.slug == "production"),
        draft_digest=draft.digest,
        rationale="First publication of the demo.",
    )
    return agent
