"""Providers, virtual models, rate cards and connectors: forms that end in services."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.admin.base import ServiceAdmin, sealed_or_none
from agents.forms import ConnectorForm, ProviderForm, RateCardForm, VirtualModelForm
from agents.models import Connector, ModelProvider, RateCard, VirtualModel
from agents.policy import Actor
from agents.services import resources
from agents.services.tools import ListingResult


def new_credential(cleaned: dict[str, Any]) -> str | None:
    """What was typed, or None to keep what is stored."""
    return cleaned["new_credential"] or None


@admin.register(ModelProvider)
class ModelProviderAdmin(ServiceAdmin[ModelProvider]):
    form = ProviderForm
    list_display = ["name", "slug", "organization", "base_url", "sealed", "enabled"]
    list_filter = ["enabled", "organization"]
    list_select_related = ["organization"]
    search_fields = ["name", "slug", "base_url"]
    fixed_fields = ("organization", "slug", "sealed")

    @admin.display(description="credential")
    def sealed(self, row: ModelProvider) -> str:
        return sealed_or_none(row)

    def create(self, actor: Actor, cleaned: dict[str, Any]) -> ModelProvider:
        provider = resources.create_provider(
            actor=actor,
            organization=cleaned["organization"],
            name=cleaned["name"],
            slug=cleaned["slug"],
            base_url=cleaned["base_url"],
            credential=cleaned["new_credential"],
            output_limit_parameter=cleaned["output_limit_parameter"],
        )
        if not cleaned["enabled"]:
            resources.change_provider(actor=actor, provider=provider, enabled=False)
        return provider

    def change(self, actor: Actor, row: ModelProvider, cleaned: dict[str, Any]) -> ModelProvider:
        return resources.change_provider(
            actor=actor,
            provider=row,
            name=cleaned["name"],
            base_url=cleaned["base_url"],
            credential=new_credential(cleaned),
            enabled=cleaned["enabled"],
            output_limit_parameter=cleaned["output_limit_parameter"],
        )


@admin.register(VirtualModel)
class VirtualModelAdmin(ServiceAdmin[VirtualModel]):
    form = VirtualModelForm
    list_display = ["slug", "name", "provider", "upstream_model", "output_limit", "enabled"]
    list_filter = ["enabled", "organization"]
    list_select_related = ["provider"]
    search_fields = ["name", "slug", "upstream_model"]
    fixed_fields = ("provider", "slug")

    def create(self, actor: Actor, cleaned: dict[str, Any]) -> VirtualModel:
        members = {name: value for name, value in cleaned.items() if name != "enabled"}
        model = resources.create_virtual_model(actor=actor, **members)
        if not cleaned["enabled"]:
            resources.change_virtual_model(actor=actor, model=model, enabled=False)
        return model

    def change(self, actor: Actor, row: VirtualModel, cleaned: dict[str, Any]) -> VirtualModel:
        members = {name: v for name, v in cleaned.items() if name not in self.fixed_fields}
        return resources.change_virtual_model(actor=actor, model=row, **members)


@admin.register(RateCard)
class RateCardAdmin(ServiceAdmin[RateCard]):
    """Cards are versions: a new one is added, none is changed."""

    form = RateCardForm
    may_change = False
    list_display = ["virtual_model", "version", "input_rate", "output_rate", "created_at"]
    list_select_related = ["virtual_model"]
    search_fields = ["virtual_model__slug", "upstream_model"]

    def create(self, actor: Actor, cleaned: dict[str, Any]) -> RateCard:
        return resources.add_rate_card(
            actor=actor,
            model=cleaned["virtual_model"],
            **{name: value for name, value in cleaned.items() if name != "virtual_model"},
        )


@admin.register(Connector)
class ConnectorAdmin(ServiceAdmin[Connector]):
    form = ConnectorForm
    list_display = [
        "name", "slug", "organization", "url", "sealed", "enabled", "last_read_at", "last_error",
    ]  # fmt: skip
    list_filter = ["enabled", "last_error", "organization"]
    list_select_related = ["organization"]
    search_fields = ["name", "slug", "url"]
    fixed_fields = ("organization", "slug", "sealed", "last_read_at", "last_error")
    actions = ["refresh"]

    @admin.display(description="credential")
    def sealed(self, row: Connector) -> str:
        return sealed_or_none(row)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        ours = obj is not None and obj.first_party
        return not ours and super().has_change_permission(request, obj)

    def create(self, actor: Actor, cleaned: dict[str, Any]) -> Connector:
        connector = resources.create_connector(
            actor=actor,
            organization=cleaned["organization"],
            name=cleaned["name"],
            slug=cleaned["slug"],
            url=cleaned["url"],
            credential=cleaned["new_credential"],
        )
        if not cleaned["enabled"]:
            resources.change_connector(actor=actor, connector=connector, enabled=False)
        return connector

    def change(self, actor: Actor, row: Connector, cleaned: dict[str, Any]) -> Connector:
        return resources.change_connector(
            actor=actor,
            connector=row,
            name=cleaned["name"],
            url=cleaned["url"],
            credential=new_credential(cleaned),
            enabled=cleaned["enabled"],
        )

    @admin.action(description="Refresh: read the server's tools now")
    def refresh(self, request: HttpRequest, queryset: QuerySet[Connector]) -> None:
        from agents.gateways.refresh import refresh_now

        def service(_: Actor, row: Connector) -> str:
            read: ListingResult = refresh_now(row)
            return f"{read.added} new, {read.changed} changed, {read.gone} gone"

        self.each(request, queryset, service, "read")
