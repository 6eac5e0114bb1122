"""Tools of connectors: what a listing changes, and an operator's review."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from django.utils import timezone

from agents.choices import Classification, ToolState
from agents.clock import database_now
from agents.errors import Conflict, Invalid
from agents.models import Connector, Tool
from agents.policy import Actor, require_operator
from agents.services.audit import append_audit
from agents.services.containment import void_approvals
from agents.services.first_party import tool_digest
from agents.transactions import durable

NAME_LIMIT = 255
DESCRIPTION_LIMIT = 16_000
SCHEMA_LIMIT = 65_536
TOOLS_LIMIT = 500
EXPOSED_LIMIT = 64
PLAIN_NAME = re.compile(r"^[a-zA-Z0-9_-]+$")


@dataclass(frozen=True, slots=True)
class ObservedTool:
    """One tool as its server lists it."""

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    annotations: dict[str, Any]

    @property
    def digest(self) -> str:
        return tool_digest(self.name, self.description, self.input_schema, self.annotations)

    @property
    def problem(self) -> str:
        """A stable code when this tool cannot be stored, else empty. Nothing is ever cut."""
        texts = (self.name, self.title, self.description)
        if not 1 <= len(self.name) <= NAME_LIMIT or any("\x00" in text for text in texts):
            return "tool_name_invalid"
        if len(self.description) > DESCRIPTION_LIMIT:
            return "tool_description_too_large"
        try:
            schema = orjson.dumps([self.input_schema, self.annotations, *texts])
            _ = self.digest
        except (TypeError, ValueError):
            return "tool_schema_invalid"
        if len(schema) > SCHEMA_LIMIT or b"\\u0000" in schema:
            return "tool_schema_too_large"
        if _refers_outside(self.input_schema):
            return "tool_schema_remote_reference"
        return ""


def _refers_outside(value: Any) -> bool:
    """Whether a schema has a ``$ref`` to anything but itself; such a reference is never fetched."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            return True
        return any(_refers_outside(item) for item in value.values())
    return isinstance(value, list) and any(_refers_outside(item) for item in value)


def exposed_name(connector_slug: str, name: str) -> str:
    """``<connector>__<tool>``, or a stable hashed alias when that is no plain name of ≤ 64."""
    plain = f"{connector_slug}__{name}"
    if len(plain) <= EXPOSED_LIMIT and PLAIN_NAME.fullmatch(name):
        return plain
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    kept = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    room = EXPOSED_LIMIT - len(connector_slug) - 2 - 11
    return f"{connector_slug}__{kept[:room]}_{digest}"


@dataclass(frozen=True, slots=True)
class ListingResult:
    added: int = 0
    changed: int = 0
    gone: int = 0
    refused: int = 0


@durable(full=True)
def apply_listing(*, connector: Connector, listing: Sequence[ObservedTool]) -> ListingResult:
    """Fold one reading of a server's tools into the rows.

    New tools arrive ``new``. An accepted tool whose definition differs becomes ``changed`` and
    its open approvals void; it stays so, even when the server changes back, until an operator
    accepts. An accepted tool that is no longer listed is ``gone``, and accepted again when it
    returns as it was; a changed one stays ``changed``. A tool whose exposed name another one has
    is refused.
    """
    known = {t.name: t for t in Tool.objects.select_for_update().filter(connector=connector)}
    usable, collided = _usable(connector, known, listing[:TOOLS_LIMIT])
    counts = {"added": 0, "changed": 0, "gone": 0}
    for name, seen in usable.items():
        tool = known.get(name)
        if tool is None:
            Tool.objects.create(
                connector=connector,
                name=name,
                exposed_name=exposed_name(connector.slug, name),
                **_columns(seen),
            )
            counts["added"] += 1
        else:
            counts["changed"] += _observe(tool, seen)
    for name, tool in known.items():
        if name not in usable and tool.state in {ToolState.NEW, ToolState.ACCEPTED}:
            tool.state = ToolState.GONE
            tool.save(update_fields=["state"])
            void_approvals("tool_gone", tool=tool)
            counts["gone"] += 1
    refused = len(listing) - len(usable)
    connector.last_read_at = database_now()
    connector.last_error = next((t.problem for t in listing if t.problem), collided)
    if len(listing) > TOOLS_LIMIT:
        connector.last_error = "too_many_tools"
    connector.save(update_fields=["last_read_at", "last_error"])
    return ListingResult(**counts, refused=refused)


def _usable(
    connector: Connector, known: Mapping[str, Tool], listing: Sequence[ObservedTool]
) -> tuple[dict[str, ObservedTool], str]:
    """The listed tools that can be stored, by name, and a code if exposed names collided."""
    owners = {tool.exposed_name: name for name, tool in known.items()}
    usable: dict[str, ObservedTool] = {}
    collided = ""
    for seen in listing:
        if seen.problem:
            continue
        if owners.setdefault(exposed_name(connector.slug, seen.name), seen.name) != seen.name:
            collided = "tool_name_collision"
            continue
        usable[seen.name] = seen
    return usable, collided


def _columns(seen: ObservedTool) -> dict[str, Any]:
    return {
        "title": seen.title[:255],
        "description": seen.description,
        "input_schema": seen.input_schema,
        "annotations": seen.annotations,
        "digest": seen.digest,
    }


def _observe(tool: Tool, seen: ObservedTool) -> bool:
    """Compare one known tool with its listing; return whether it left the accepted state."""
    if tool.state == ToolState.NEW or tool.accepted_at is None:
        if tool.digest != seen.digest or tool.state != ToolState.NEW:
            for name, value in _columns(seen).items():
                setattr(tool, name, value)
            tool.state = ToolState.NEW
            tool.save()
        return False
    if tool.digest == seen.digest and tool.state in {ToolState.ACCEPTED, ToolState.GONE}:
        if tool.state == ToolState.GONE:
            tool.state = ToolState.ACCEPTED
            tool.save(update_fields=["state"])
        return False
    tool.observed = {"digest": seen.digest, **_columns(seen)}
    was_changed = tool.state == ToolState.CHANGED
    tool.state = ToolState.CHANGED
    tool.save(update_fields=["observed", "state"])
    if not was_changed:
        void_approvals("tool_changed", tool=tool)
    return not was_changed


@durable()
def review_tool(
    *, actor: Actor, tool: Tool, digest_seen: str, classification: str, rationale: str = ""
) -> Tool:
    """Accept a tool exactly as the operator saw it, with a class. Raises Conflict if it moved on."""
    require_operator(actor)
    if classification not in Classification.values:
        raise Invalid("Classify the tool as read or action.", field="classification")
    tool = Tool.objects.select_for_update().select_related("connector").get(id=tool.id)
    if tool.connector.first_party:
        raise Invalid("Our own tools are not reviewed.")
    if tool.state == ToolState.GONE:
        raise Conflict("The server no longer lists this tool.")
    current = tool.observed["digest"] if tool.observed else tool.digest
    if current != digest_seen:
        raise Conflict("The tool changed since you looked; review it again.", digest=current)
    before = tool.digest
    if tool.observed:
        for name in ("title", "description", "input_schema", "annotations", "digest"):
            setattr(tool, name, tool.observed[name])
        tool.observed = None
    reclassified = tool.classification != classification
    tool.classification = classification
    tool.state = ToolState.ACCEPTED
    tool.accepted_at = timezone.now()
    tool.accepted_by_id = actor.user_id
    tool.save()
    if reclassified or before != tool.digest:
        void_approvals("tool_changed", tool=tool)
    append_audit(
        actor=actor,
        organization_id=tool.connector.organization_id,
        action="tool.accept",
        target_kind="tool",
        target_id=tool.id,
        rationale=rationale,
        before_digest=before,
        after_digest=tool.digest,
        name=tool.exposed_name,
        classification=classification,
    )
    return tool


@durable(full=True)
def withdraw_tool(*, actor: Actor, tool: Tool, rationale: str = "") -> Tool:
    """Take an accepted tool back to ``new``: not listed, not callable, approvals void."""
    require_operator(actor)
    Tool.objects.filter(id=tool.id).update(state=ToolState.NEW, accepted_at=None)
    void_approvals("tool_withdrawn", tool=tool)
    append_audit(
        actor=actor,
        organization_id=tool.connector.organization_id,
        action="tool.withdraw",
        target_kind="tool",
        target_id=tool.id,
        rationale=rationale,
        name=tool.exposed_name,
    )
    tool.refresh_from_db()
    return tool
