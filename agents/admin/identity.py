"""Organizations, people and agents."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.admin.base import OperatorAdmin, RationaleAdmin, ServiceAdmin
from agents.forms import EnvironmentForm, MembershipForm, OrganizationForm, TeamForm
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
from agents.services import identity, members


@admin.register(Organization)
class OrganizationAdmin(ServiceAdmin[Organization], RationaleAdmin[Organization]):
    form = OrganizationForm
    may_change = False
    list_display = ["name", "slug", "status", "created_at"]
    list_filter = ["status"]
    search_fields = ["name", "slug"]
    fixed_fields = ("status", "created_at")
    actions = ["suspend", "resume"]

    def create(self, actor: Actor, cleaned: dict[str, Any]) -> Organization:
        return identity.create_organization(actor=actor, **cleaned)

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
class MembershipAdmin(ServiceAdmin[Membership]):
    form = MembershipForm
    list_display = ["user", "organization", "role", "active"]
    list_filter = ["role", "active", "organization"]
    list_select_related = ["user", "organization"]
    search_fields = ["user__username"]
    fixed_fields = ("organization", "username")
    actions = ["deactivate", "activate"]

    @admin.display(description="user name")
    def username(self, row: Membership) -> str:
        return row.user.get_username()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None:
            return ["organization", "username", "new_password", "role", "teams"]
        return ["organization", "username", "role", "active", "teams"]

    def create(self, actor: Actor, cleaned: dict[str, Any]) -> Membership:
        return members.admit_member(
            actor=actor,
            organization=cleaned["organization"],
            username=cleaned["username"],
            password=cleaned["new_password"] or None,
            role=cleaned["role"],
            teams=list(cleaned["teams"]),
        )

    def change(self, actor: Actor, row: Membership, cleaned: dict[str, Any]) -> Membership:
        return identity.change_member(
            actor=actor,
            membership=row,
            role=cleaned["role"],
            active=cleaned["active"],
            teams=list(cleaned["teams"]),
        )

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
class TeamAdmin(ServiceAdmin[Team]):
    form = TeamForm
    may_change = False
    list_display = ["name", "slug", "organization"]
    list_filter = ["organization"]
    list_select_related = ["organization"]
    search_fields = ["name", "slug"]

    def create(self, actor: Actor, cleaned: dict[str, Any]) -> Team:
        return identity.create_team(actor=actor, **cleaned)


@admin.register(Environment)
class EnvironmentAdmin(ServiceAdmin[Environment]):
    form = EnvironmentForm
    may_change = False
    list_display = ["name", "slug", "organization"]
    list_filter = ["organization"]
    list_select_related = ["organization"]
    search_fields = ["name", "slug"]

    def create(self, actor: Actor, cleaned: dict[str, Any]) -> Environment:
        return identity.create_environment(actor=actor, **cleaned)


@admin.register(Agent)
class AgentAdmin(RationaleAdmin[Agent]):
    list_display = ["name", "slug", "team", "organization", "status"]
    list_filter = ["status", "organization"]
    list_select_related = ["team", "organization"]
    search_fields = ["name", "slug"]
    fields = ["name", "slug", "team", "organization", "status", "created_at"]
    actions = ["suspend"]

    @admin.action(description="Suspend: stop it everywhere (its managers resume it on its page)")
    def suspend(self, request: HttpRequest, queryset: QuerySet[Agent]) -> None:
        why = self.rationale(request)
        self.each(
            request,
            queryset,
            lambda actor, row: identity.suspend_agent(actor=actor, agent=row, rationale=why),
            "suspended",
        )


@admin.register(AgentEnvironment)
class AgentEnvironmentAdmin(OperatorAdmin[AgentEnvironment]):
    list_display = ["agent", "environment", "state", "generation", "published_number"]
    list_filter = ["state", "environment__slug"]
    list_select_related = ["agent", "environment"]
    search_fields = ["agent__name", "agent__slug"]
