"""Approvals of a thread as AG-UI interrupts: the innermost call, and the path to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from agents import clock, content_store
from agents.choices import ApprovalState
from agents.errors import DamagedContent
from agents.models import Approval, Run
from agents.services.approvals import ARGUMENTS

#: What an answer to an interrupt looks like.
RESPONSE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object"},
        "reason": {"type": "string", "maxLength": 2000},
    },
    "required": ["approved"],
    "additionalProperties": False,
}
#: How deep a path is followed; delegation goes three levels down.
MAX_DEPTH = 8
#: What may stand in a headline of all that a model wrote.
PLAIN_OBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


def open_approvals(thread_id: UUID) -> QuerySet[Approval]:
    """What a person may still decide in a thread, at any depth of delegation."""
    return (
        Approval.objects.filter(
            thread_id=thread_id, state=ApprovalState.OPEN, expires_at__gt=clock.database_now()
        )
        .select_related("agent", "tool__connector", "run")
        .order_by("created_at", "id")
    )


def interrupts_of(run: Run) -> list[dict[str, Any]]:
    """The interrupts that an interrupted run of a root session ended with, never none.

    Those still open; when none is (a late sweep tells it), those that were.
    """
    found = list(open_approvals(run.thread_id))
    if not found:
        opened = Approval.objects.filter(thread_id=run.thread_id).exclude(
            Q(state=ApprovalState.REQUESTED) | Q(tool_call_id="")
        )
        found = list(
            opened.filter(run__root_run_id=run.root_run_id)
            .select_related("agent", "tool__connector", "run")
            .order_by("created_at", "id")
        )
    return as_interrupts(found)


def as_interrupts(approvals: Iterable[Approval]) -> list[dict[str, Any]]:
    """AG-UI interrupts. One whose arguments are unreadable cannot be shown and is left out."""
    shown = []
    for approval in approvals:
        try:
            shown.append(_interrupt(approval))
        except DamagedContent:
            continue
    return shown


def _interrupt(approval: Approval) -> dict[str, Any]:
    tool = approval.tool
    arguments = content_store.get_json(
        approval.organization_id, ARGUMENTS, approval.decided_digest or approval.arguments_digest
    )
    return {
        "id": str(approval.id),
        "reason": "tool_call",
        "message": f"{headline(tool.title or tool.name, arguments)} in {tool.connector.name}",
        "toolCallId": approval.tool_call_id,
        "responseSchema": RESPONSE_SCHEMA,
        "expiresAt": approval.expires_at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "metadata": {
            "tool": tool.exposed_name,
            "classification": tool.classification or "action",
            "agent": approval.agent.name,
            "version": approval.run.version_number,
            "path": path_to(approval.run),
            "arguments": arguments,
            "schema": tool.input_schema,
        },
    }


def headline(name: str, arguments: Mapping[str, Any]) -> str:
    """The call in words: ``refund_order`` of ``{"order": 1042}`` becomes "Refund order 1042".

    The object is the argument that the name itself speaks of, when it is a number or a plain short
    word; nothing else of what a model wrote gets into a headline.
    """
    words = " ".join(name.replace("_", " ").replace("-", " ").split())
    spoken = words.lower().split()
    for key, value in arguments.items():
        plain = isinstance(value, int | str) and PLAIN_OBJECT.fullmatch(str(value))
        if plain and not isinstance(value, bool) and spoken[-1:] == [_noun(key)]:
            words = f"{words} {value}"
            break
    return words[:1].upper() + words[1:]


def _noun(key: str) -> str:
    """``order_id``, ``orderId`` and ``order`` all speak of an order."""
    return re.sub(r"(_?id|_?number|_?no)$", "", key, flags=re.IGNORECASE).lower()


def path_to(run: Run) -> list[str]:
    """Names of the agents from the root to the one that asks."""
    names: list[str] = []
    current: Run | None = Run.objects.select_related("agent").get(id=run.id)
    for _ in range(MAX_DEPTH):
        if current is None:
            break
        names.append(current.agent.name)
        current = (
            None
            if current.parent_id is None
            else Run.objects.select_related("agent").get(id=current.parent_id)
        )
    return names[::-1]
