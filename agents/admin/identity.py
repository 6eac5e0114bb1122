"""Organizations, people and agents."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.admin.base import OperatorAdmin, RationaleAdmin
from agents.models import (
    Agent,
    AgentEnvironment,
    Environment,
    Membership,
    Organization,
    Team,
    User,
)
from agents.policy import Actor
from agents.services import identity


@admin.register(Organization)
class OrganizationAdmin(RationaleAdmin[Organization]):
    list_display = ["name", "slug", "status", "created_at"]
    list_filter = ["status"]
    search_fields = ["name", "slug"]
    fields = ["name", "slug", "status", "created_at"]
    actions = ["suspend", "resume"]

    @admin.action(description="Suspend: stop every agent of it")
    def suspend(self, request: HttpRequest, queryset: QuerySet[Organization]) -> None:
        why = self.rationale(request)
        self.each(
            request,
            queryset,
            lambda actor, row: identity.suspend_organization(
                actor=actor, organization=row, rationale=why
            ),
            "suspended",
        )

    @admin.action(description="Resume")
    def resume(self, request: HttpRequest, queryset: QuerySet[Organization]) -> None:
        why = self.rationale(request)

        def service(actor: Actor, row: Organization) -> None:
            identity.resume_organization(actor=actor, organization=row, rationale=why)

        self.each(request, queryset, service, "resumed")


@admin.register(User)
class UserAdmin(OperatorAdmin[User]):
    """Accounts without their password hashes."""

    list_display = ["username", "membership", "is_active", "is_staff", "last_login"]
    list_filter = ["is_active", "is_staff"]
    list_select_related = ["membership__user", "membership__organization"]
    search_fields = ["username"]
    fields = ["username", "is_active", "is_staff", "last_login", "date_joined"]


@admin.register(Membership)
class MembershipAdmin(OperatorAdmin[Membership]):
    list_display = ["user", "organization", "role", "active"]
    list_filter = ["role", "active", "organization"]
    list_select_related = ["user", "organization"]
    search_fields = ["user__username"]
    fields = ["user", "organization", "role", "active", "teams", "created_at"]
    actions = ["deactivate", "activate"]

    @admin.action(description="Deactivate: nobody from the next request on")
    def deactivate(self, request: HttpRequest, queryset: QuerySet[Membership]) -> None:
        self._set_active(request, queryset, active=False)

    @admin.action(description="Activate")
    def activate(self, request: HttpRequest, queryset: QuerySet[Membership]) -> None:
        self._set_active(request, queryset, active=True)

    def _set_active(
        self, request: HttpRequest, queryset: QuerySet[Membership], *, active: bool
    ) -> None:
        def service(actor: Actor, row: Membership) -> None:
            identity.change_member(actor=actor, membership=row, active=active)

        self.each(request, queryset, service, "active" if active else "inactive")


@admin.register(Team)
class TeamAdmin(OperatorAdmin[Team]):
    list_display = ["name", "slug", "organization"]
    list_filter = ["organization"]
    list_select_related = ["organization"]
    search_fields = ["name", "slug"]


@admin.register(Environment)
class EnvironmentAdmin(OperatorAdmin[Environment]):
    list_display = ["name", "slug", "organization"]
    list_filter = ["organization"]
    list_select_related = ["organization"]
    search_fields = ["name", "slug"]


@admin.register(Agent)
class AgentAdmin(RationaleAdmin[Agent]):
    list_display = ["name", "slug", "team", "organization", "status"]
    list_filter = ["status", "organization"]
    list_select_related = ["team", "organization"]
    search_fields = ["name", "slug"]
    fields = ["name", "slug", "team", "organization", "status", "created_at"]
    actions = ["suspend", "resume"]

    @admin.action(description="Suspend: stop it everywhere")
    def suspend(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        why = self.rationale(request)
        self.each(
            request,
            queryset,
            lambda actor, row: identity.suspend_agent(actor=actor, agent=row, rationale=why),
            "suspended",
        )

    @admin.action(description="Resume (managers of the team)")
    def resume(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        why = self.rationale(request)

        def service(actor: Actor, row: Agent) -> None:
            identity.resume_agent(actor=actor, agent=row, rationale=why)

        self.each(request, queryset, service, "resumed")


@admin.register(AgentEnvironment)
class AgentEnvironmentAdmin(OperatorAdmin[AgentEnvironment]):
    list_display = ["agent", "environment", "state", "generation", "published_number"]
    list_filter = ["state", "environment__slug"]
    list_select_related = ["agent", "environment"]
    search_fields = ["agent__name", "agent__slug"]
