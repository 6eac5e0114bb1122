"""Metadata of what happened: audit events and runs. Never content."""

from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import UUID

from ninja import Schema

from agents.choices import InitiatorKind, RunState
from agents.models import Run


class AuditEventOut(Schema):
    seq: int
    created_at: dt.datetime
    action: str
    actor_kind: str
    actor_id: str
    target_kind: str
    target_id: str
    environment_id: UUID | None
    rationale: str
    before_digest: str
    after_digest: str
    data: dict[str, Any]
    hash: str


class RunOut(Schema):
    """One execution. ``version`` is null for a draft test, which ``definition_digest`` names."""

    id: UUID
    environment: str
    thread_id: UUID
    root_run_id: UUID
    parent_id: UUID | None
    state: RunState
    error_code: str
    version: int | None
    definition_digest: str
    initiator: InitiatorKind | None
    created_at: dt.datetime
    ended_at: dt.datetime | None
    input_tokens: int
    output_tokens: int

    @staticmethod
    def resolve_environment(row: Run) -> str:
        return row.environment.slug

    @staticmethod
    def resolve_version(row: Run) -> int | None:
        return row.version_number

    @staticmethod
    def resolve_initiator(row: Run) -> str | None:
        initiator = getattr(row, "initiator", None)
        return None if initiator is None else initiator.kind
