"""What every page's frame shows: names and counts of the rail and the top line."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from agents.pages import Frame
from agents.selectors.names import person_name
from chat.pages import member_principal
from chat.selectors.inbox import count_open_approvals


def navigation(request: HttpRequest) -> dict[str, Any]:
    """The member's frame; nothing for a visitor who has not signed in."""
    frame = getattr(request, "frame", None)
    if not isinstance(frame, Frame):
        return {}
    match = request.resolver_match
    return {
        "nav": {
            "section": "" if match is None else SECTIONS.get(match.url_name or "", ""),
            "organization": frame.organization,
            "environment": frame.environment.slug,
            "environments": [environment.slug for environment in frame.environments],
            "pending": count_open_approvals(member_principal(frame.actor)),
            "manages": frame.actor.is_manager,
            "person": person_name(request.user),
            "role": "Agent manager" if frame.actor.is_manager else "Member",
        }
    }


#: URL name → entry of the rail.
SECTIONS = {
    "home": "home",
    "chat": "chat",
    "approvals": "approvals",
    "agents": "agents",
    "agent": "agents",
    "agent-publish": "agents",
    "agent-unpublish": "agents",
}
