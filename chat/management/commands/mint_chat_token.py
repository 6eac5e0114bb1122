"""Mint a chat token for an end user, for trying an agent from a terminal or another front end."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agents.errors import DomainError
from agents.models import Agent
from agents.policy import Actor
from agents.selectors.identity import environment_by_slug
from chat.services.tokens import mint_operator_token


class Command(BaseCommand):
    help = "Mint a chat token of an agent for one end user; the last line is the token."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", help="slug of the agent")
        parser.add_argument("--environment", required=True, help="slug of the environment")
        parser.add_argument("--subject", required=True, help="the end user's stable id")
        parser.add_argument("--organization", help="slug; needed when several have this agent")
        parser.add_argument("--ttl", type=int, default=3600, help="seconds, at most 3600")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            agent = self._agent(options["agent"], options["organization"])
            minted = mint_operator_token(
                actor=Actor(kind="operator", id="command:mint_chat_token", is_operator=True),
                agent=agent,
                environment=environment_by_slug(agent.organization_id, options["environment"]),
                subject=options["subject"],
                ttl_seconds=options["ttl"],
            )
        except DomainError as error:
            raise CommandError(error.detail) from None
        self.stderr.write(f"expires at {minted.token.expires_at.isoformat()}")
        self.stdout.write(minted.text)

    def _agent(self, slug: str, organization: str | None) -> Agent:
        agents = Agent.objects.filter(slug=slug)
        if organization is not None:
            agents = agents.filter(organization__slug=organization)
        found = list(agents.select_related("organization")[:2])
        if not found:
            message = f"there is no agent {slug}"
            raise CommandError(message)
        if len(found) > 1:
            message = "several organizations have this agent: name one with --organization"
            raise CommandError(message)
        return found[0]
