"""What the agent pages share."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode

from agents.errors import DomainError
from agents.models import Agent, Environment
from agents.pages import PageRequest
from agents.policy import require_manage
from agents.selectors.identity import agent_by_slug

Context = dict[str, Any]


def managed_agent(request: PageRequest, slug: str) -> Agent:
    """The agent, for those who manage it. Raises NotFound or Forbidden."""
    agent = agent_by_slug(request.frame.actor, slug)
    require_manage(request.frame.actor, agent)
    return agent


def address_of(name: str, agent: Agent, environment: Environment) -> str:
    """The address of one of the agent's pages, showing *environment*."""
    return f"{reverse(name, args=[agent.slug])}?{urlencode({'environment': environment.slug})}"


def field_of(form: Any, error: DomainError) -> str | None:
    """The form field that a refusal is about, if it names one."""
    field = error.extra.get("field")
    return field if field in form.fields else None


def show_dialog(request: PageRequest, name: str, context: Context, *, status: int) -> HttpResponse:
    """A dialog's content for htmx; the same as a page of its own without."""
    if request.htmx:
        return render(
            request, f"definitions/_{name}.html", context | {"heading": "h2"}, status=status
        )
    return render(request, f"definitions/{name}.html", context | {"heading": "h1"}, status=status)
