"""Which agents a chat token may talk to, and what they can do, in AG-UI's shape."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from agents.choices import EnvironmentState, Status, ToolState
from agents.errors import NotFound
from agents.models import AgentEnvironment, Tool
from agents.services.runs import RUN_LIFETIME
from chat.runtime.wire import RunRequest
from chat.selectors.tokens import Caller
from definitions.selectors import published

MAX_STEPS: int = RunRequest.model_fields["max_steps"].default


def offered(caller: Caller) -> QuerySet[AgentEnvironment]:
    """Published, active agents of the token's environment, by name."""
    slots = AgentEnvironment.objects.filter(
        environment_id=caller.environment_id,
        state=EnvironmentState.OPEN,
        published_number__isnull=False,
        agent__organization_id=caller.organization_id,
        agent__status=Status.ACTIVE,
    )
    if caller.agent_id is not None:
        slots = slots.filter(agent_id=caller.agent_id)
    return slots.select_related("agent", "environment").order_by("agent__name", "agent__slug")


def capabilities(caller: Caller, slug: str) -> dict[str, Any]:
    """AgentCapabilities of one agent: only what holds now. Raises NotFound."""
    slot = offered(caller).filter(agent__slug=slug).first()
    live = None if slot is None else published(slot.agent_id, slot.environment_id)
    if slot is None or live is None:
        raise NotFound("There is no such agent.")
    tools = (
        Tool.objects.filter(
            id__in=live.pinned.tool_ids,
            state=ToolState.ACCEPTED,
            connector__enabled=True,
            grants__agent_id=slot.agent_id,
            grants__environment_id=slot.environment_id,
            grants__revoked_at__isnull=True,
        )
        .distinct()
        .order_by("exposed_name")
    )
    items = [
        {"name": t.exposed_name, "description": t.description, "parameters": t.input_schema}
        for t in tools
    ]
    return {
        "identity": {
            "name": slot.agent.name,
            "type": "mandate",
            "version": f"{live.version_number}",
        },
        "transport": {"streaming": True},
        "tools": {
            "supported": bool(items),
            "items": items,
            "parallelCalls": bool(items),
            "clientProvided": False,
        },
        "output": {"structuredOutput": False, "supportedMimeTypes": ["text/markdown"]},
        "state": {"snapshots": False, "deltas": False, "memory": False, "persistentState": False},
        "execution": {
            "codeExecution": False,
            "maxIterations": MAX_STEPS,
            "maxExecutionTime": int(RUN_LIFETIME.total_seconds() * 1000),
        },
        "humanInTheLoop": {
            "supported": True,
            "approvals": True,
            "interrupts": True,
            "approveWithEdits": True,
            "interventions": False,
            "feedback": False,
        },
    }
