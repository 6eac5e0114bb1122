"""What happened: audit events, gateway requests, runs and boots. All of it is read-only."""

from __future__ import annotations

from django.contrib import admin

from agents.admin.base import OperatorAdmin
from agents.models import AuditEvent, AuditHead, Boot, GatewayRequest, ParkedCall, Run, RunInitiator


@admin.register(AuditEvent)
class AuditEventAdmin(OperatorAdmin[AuditEvent]):
    list_display = ["created_at", "seq", "action", "actor_kind", "target_kind", "target_id"]
    list_filter = ["action", "actor_kind"]
    search_fields = ["action", "target_id", "actor_id"]
    ordering = ["-created_at", "-seq"]


@admin.register(AuditHead)
class AuditHeadAdmin(OperatorAdmin[AuditHead]):
    list_display = ["organization_id", "seq", "hash"]


@admin.register(GatewayRequest)
class GatewayRequestAdmin(OperatorAdmin[GatewayRequest]):
    list_display = [
        "opened_at", "kind", "resource_name", "state", "code", "key_accessor", "duration_ms",
        "input_tokens", "output_tokens", "cost",
    ]  # fmt: skip
    list_filter = ["kind", "state", "code"]
    search_fields = ["key_accessor", "run_id", "resource_name"]
    ordering = ["-opened_at"]


@admin.register(Run)
class RunAdmin(OperatorAdmin[Run]):
    list_display = ["id", "agent", "environment", "state", "error_code", "created_at", "ended_at"]
    list_filter = ["state", "environment__slug"]
    list_select_related = ["agent", "environment"]
    search_fields = ["id", "thread_id", "agent__slug"]
    ordering = ["-created_at"]


@admin.register(RunInitiator)
class RunInitiatorAdmin(OperatorAdmin[RunInitiator]):
    list_display = ["run", "kind", "issuer", "subject", "version_number"]
    list_filter = ["kind"]
    list_select_related = ["run"]
    search_fields = ["run__id", "subject"]


@admin.register(ParkedCall)
class ParkedCallAdmin(OperatorAdmin[ParkedCall]):
    list_display = ["run", "child", "tool_name", "state"]
    list_filter = ["state"]
    list_select_related = ["run", "child"]


@admin.register(Boot)
class BootAdmin(OperatorAdmin[Boot]):
    list_display = ["id", "role", "host", "pid", "created_at", "heartbeat_at", "ended_at"]
    list_filter = ["role", ("ended_at", admin.EmptyFieldListFilter)]
    ordering = ["-created_at"]
