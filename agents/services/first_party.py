"""Our own tools: rows under the reserved connector ``mandate``, so that grants work for them.

Apps register a toolset's definitions with the MCP Gateway; this keeps the rows in step.
"""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785
from django.utils import timezone

from agents.choices import Classification, ToolState
from agents.models import Connector, Organization, Tool

CONNECTOR = "mandate"

#: Definitions of every registered first-party tool: name -> (description, input schema).
definitions: dict[str, tuple[str, dict[str, Any]]] = {}


def define_tool(name: str, description: str, input_schema: dict[str, Any]) -> None:
    """Make *name* exist as ``mandate__<name>`` in every organization."""
    definitions[name] = (description, input_schema)


def tool_digest(
    name: str, description: str, input_schema: dict[str, Any], annotations: dict[str, Any]
) -> str:
    """SHA-256 of the canonical JSON of a tool's public definition. Public, so it is not keyed."""
    members: Any = {
        "name": name,
        "description": description,
        "input_schema": input_schema,
        "annotations": annotations,
    }
    return hashlib.sha256(rfc8785.dumps(members)).hexdigest()


def ensure_first_party(organization: Organization) -> Connector:
    """Make the reserved connector and a row for each defined tool; a step, safe to repeat."""
    connector, _ = Connector.objects.get_or_create(
        organization=organization,
        slug=CONNECTOR,
        defaults={"name": "Mandate", "first_party": True},
    )
    for name, (description, schema) in definitions.items():
        digest = tool_digest(name, description, schema, {})
        Tool.objects.update_or_create(
            connector=connector,
            name=name,
            defaults={
                "exposed_name": f"{CONNECTOR}__{name}",
                "description": description,
                "input_schema": schema,
                "digest": digest,
                "classification": Classification.READ,
                "state": ToolState.ACCEPTED,
                "accepted_at": timezone.now(),
            },
        )
    return connector
