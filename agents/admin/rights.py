"""Grants, agent keys and approvals."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.admin.base import OperatorAdmin
from agents.models import AgentKey, Approval, Grant, IdempotencyRecord
from agents.policy import Actor
from agents.services import grants, keys


@admin.register(Grant)
class GrantAdmin(OperatorAdmin[Grant]):
    list_display = ["agent", "environment", "named", "created_at", "revoked_at"]
    list_filter = [("revoked_at", admin.EmptyFieldListFilter), "environment__slug"]
    list_select_related = ["agent", "environment", "virtual_model", "tool", "target_agent"]
    search_fields = ["agent__slug", "tool__exposed_name", "virtual_model__slug"]
    actions = ["revoke"]

    @admin.display(description="resource")
    def named(self, row: Grant) -> str:
        return str(row.resource)

    @admin.action(description="Revoke: refused from the next call on")
    def revoke(self, request: HttpRequest, queryset: QuerySet[Grant]) -> None:
        self.each(
            request,
            queryset,
            lambda actor, row: grants.revoke_grant(actor=actor, grant=row),
            "revoked",
        )


@admin.register(AgentKey)
class AgentKeyAdmin(OperatorAdmin[AgentKey]):
    """Accessors, scopes and lives. The text exists nowhere, and its digest is not shown."""

    list_display = [
        "accessor", "kind", "name", "agent", "environment", "expires_at", "revoked_at",
    ]  # fmt: skip
    list_filter = ["kind", ("revoked_at", admin.EmptyFieldListFilter)]
    list_select_related = ["agent", "environment"]
    search_fields = ["accessor", "name", "agent__slug"]
    fields = [
        "accessor", "kind", "name", "agent", "environment", "scope", "run", "created_at",
        "created_by", "expires_at", "revoked_at", "revoked_reason",
    ]  # fmt: skip
    actions = ["revoke"]

    @admin.action(description="Revoke: dead from the next call on")
    def revoke(self, request: HttpRequest, queryset: QuerySet[AgentKey]) -> None:
        def service(actor: Actor, row: AgentKey) -> None:
            keys.revoke_key(actor=actor, key=row)

        self.each(request, queryset, service, "revoked")


@admin.register(Approval)
class ApprovalAdmin(OperatorAdmin[Approval]):
    """What was asked and decided, by digest; arguments and outcomes are content."""

    list_display = ["id", "agent", "environment", "tool", "state", "created_at", "decided_at"]
    list_filter = ["state", "environment__slug"]
    list_select_related = ["agent", "environment", "tool"]
    search_fields = ["id", "agent__slug", "tool__exposed_name"]


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(OperatorAdmin[IdempotencyRecord]):
    list_display = ["operation", "actor_id", "created_at", "expires_at"]
    fields = ["organization_id", "actor_id", "operation", "created_at", "expires_at"]
