"""Home, chat and the approvals inbox. Conversations themselves come through the chat surface."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from agents.choices import InitiatorKind
from agents.errors import NotFound
from agents.pages import PageRequest, member_page
from agents.policy import Actor
from agents.selectors.identity import agent_by_slug
from agents.services.runs import Principal
from chat.selectors import directory, inbox
from chat.services.tokens import ISSUER


def member_principal(actor: Actor) -> Principal:
    """The principal that a member is in conversations."""
    return Principal(InitiatorKind.MEMBER, ISSUER, str(actor.user_id))


@member_page
@require_safe
def home(request: PageRequest) -> HttpResponse:
    """What waits for this person, and whom to chat with."""
    context = {
        "groups": _groups(request, ""),
        "agents": directory.partners(request.frame.environment),
    }
    return render(request, "chat/home.html", context)


@member_page
@require_safe
def chat(request: PageRequest, agent: str = "", thread: str = "") -> HttpResponse:
    """The conversation page of one agent, or the agents to choose from.

    Whether the thread exists and is the reader's own, the chat surface says.
    """
    if not agent:
        agents = directory.partners(request.frame.environment)
        return render(request, "chat/chat.html", {"agents": agents})
    context = {"agent": _partner(request, agent), "thread": thread}
    return render(request, "chat/chat.html", context)


@member_page
@require_safe
def chat_state(request: PageRequest, agent: str) -> HttpResponse:
    """What of the agent is live, for a conversation that stays open."""
    return render(request, "chat/_live.html", {"agent": _partner(request, agent)})


def _partner(request: PageRequest, slug: str) -> directory.Partner:
    """Raises NotFound for an agent that the person's organization does not have."""
    found = agent_by_slug(request.frame.actor, slug)
    if found.organization_id != request.frame.organization_id:
        raise NotFound("There is no such agent.")
    return directory.partner(found, request.frame.environment)


@member_page
@require_safe
def approvals(request: PageRequest) -> HttpResponse:
    """The approvals that this person may decide, oldest first."""
    query = request.GET.get("q", "").strip()
    context = {"groups": _groups(request, query), "query": query}
    return render(request, "chat/approvals.html", context)


@member_page
@require_safe
def approval_count(request: PageRequest) -> HttpResponse:
    """The number beside "Approvals" in the navigation, for a page that stays open."""
    pending = inbox.count_open_approvals(member_principal(request.frame.actor))
    return render(request, "chat/_count.html", {"pending": pending})


def _groups(request: PageRequest, query: str) -> list[dict[str, Any]]:
    return [
        {
            "thread": str(group.thread.id),
            "slug": group.thread.agent.slug,
            "agent": group.thread.agent.name,
            "environment": group.thread.environment.slug,
            "title": group.title,
            "asked_at": group.asked_at,
            "url": _thread_address(group),
            "cards": [
                {"card": card, "interrupt": json.dumps(card.interrupt)} for card in group.cards
            ],
        }
        for group in inbox.inbox_of(member_principal(request.frame.actor))
        if group.matches(query)
    ]


def _thread_address(group: inbox.Group) -> str:
    path = reverse("chat", args=[group.thread.agent.slug, str(group.thread.id)])
    return f"{path}?{urlencode({'environment': group.thread.environment.slug})}"
