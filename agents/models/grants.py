"""Grants: which agent may use which resource in which environment."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from agents.models.base import Row
from agents.models.identity import Agent, Environment, User
from agents.models.resources import Tool, VirtualModel


class Grant(Row):
    """One edge: agent x environment x exactly one of model, tool or agent. Revoked, never deleted."""

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="grants")
    environment = models.ForeignKey(Environment, models.PROTECT, related_name="grants")
    virtual_model = models.ForeignKey(
        VirtualModel, models.PROTECT, null=True, blank=True, related_name="grants"
    )
    tool = models.ForeignKey(Tool, models.PROTECT, null=True, blank=True, related_name="grants")
    target_agent = models.ForeignKey(
        Agent, models.PROTECT, null=True, blank=True, related_name="granted_to"
    )
    granted_by = models.ForeignKey(User, models.PROTECT, null=True, related_name="+")
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.ForeignKey(User, models.PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="grant_names_one_resource",
                condition=(
                    Q(virtual_model__isnull=False, tool__isnull=True, target_agent__isnull=True)
                    | Q(virtual_model__isnull=True, tool__isnull=False, target_agent__isnull=True)
                    | Q(virtual_model__isnull=True, tool__isnull=True, target_agent__isnull=False)
                ),
            ),
            *(
                models.UniqueConstraint(
                    fields=["agent", "environment", field],
                    condition=Q(revoked_at__isnull=True, **{f"{field}__isnull": False}),
                    name=f"grant_live_{field}",
                )
                for field in ("virtual_model", "tool", "target_agent")
            ),
        ]

    def __str__(self) -> str:
        return f"{self.agent} in {self.environment}: {self.resource}"

    @property
    def resource(self) -> VirtualModel | Tool | Agent:
        found = self.virtual_model or self.tool or self.target_agent
        assert found is not None  # the check constraint says so
        return found
