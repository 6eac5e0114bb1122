"""What was published where, from the audit: publications themselves go with an Unpublish."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from agents.models import AuditEvent

#: One agent in one environment.
Place = tuple[UUID, UUID]


def places_published(agent_ids: Iterable[UUID]) -> set[Place]:
    """The (agent, environment) pairs in which something of these agents was ever published."""
    events = AuditEvent.objects.filter(agent_id__in=list(agent_ids), action="definition.publish")
    return {
        (agent, environment)
        for agent, environment in events.values_list("agent_id", "environment_id").distinct()
        if agent is not None and environment is not None
    }
