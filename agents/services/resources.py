"""Providers, virtual models, rate cards and connectors: operators' governed resources."""

from __future__ import annotations

from typing import Any

from django.db.models import Max

from agents.choices import OutputLimitParameter, ToolState
from agents.errors import Conflict, CredentialRequired, Invalid
from agents.models import (
    Connector,
    ModelProvider,
    Organization,
    RateCard,
    Tool,
    VirtualModel,
)
from agents.policy import Actor, require_operator
from agents.services.audit import append_audit
from agents.services.containment import void_approvals
from agents.services.first_party import CONNECTOR as RESERVED_SLUG
from agents.services.identity import clean_name, clean_rationale, clean_slug
from agents.transactions import durable
from agents.vetting import clean_address


def _audit(actor: Actor, row: Any, action: str, **data: Any) -> None:
    append_audit(
        actor=actor,
        organization_id=row.organization_id,
        action=action,
        target_kind=row._meta.model_name,
        target_id=row.id,
        slug=row.slug,
        **data,
    )


@durable()
def create_provider(
    *,
    actor: Actor,
    organization: Organization,
    name: str,
    slug: str,
    base_url: str,
    credential: str = "",
    output_limit_parameter: str = OutputLimitParameter.MAX_TOKENS,
) -> ModelProvider:
    """Name an upstream of the OpenAI wire. Addresses that may not be connected to are refused."""
    require_operator(actor)
    slug = clean_slug(slug)
    if organization.providers.filter(slug=slug).exists():
        raise Conflict("A provider with this slug exists.", field="slug")
    provider = ModelProvider(
        organization=organization,
        name=clean_name(name),
        slug=slug,
        base_url=clean_address(base_url, field="base_url"),
        output_limit_parameter=_clean_limit_parameter(output_limit_parameter),
    )
    if credential:
        provider.seal_value("credential", credential)
    provider.save(force_insert=True)
    _audit(actor, provider, "provider.create")
    return provider


@durable()
def change_provider(
    *,
    actor: Actor,
    provider: ModelProvider,
    name: str | None = None,
    base_url: str | None = None,
    credential: str | None = None,
    enabled: bool | None = None,
    output_limit_parameter: str | None = None,
) -> ModelProvider:
    """Change a provider. Another address demands the credential again, so none goes astray."""
    require_operator(actor)
    provider = ModelProvider.objects.select_for_update().get(id=provider.id)
    if name is not None:
        provider.name = clean_name(name)
    _move_address(provider, "base_url", base_url, credential)
    if enabled is not None:
        provider.enabled = enabled
    if output_limit_parameter is not None:
        provider.output_limit_parameter = _clean_limit_parameter(output_limit_parameter)
    provider.save(
        update_fields=["name", "base_url", "credential", "enabled", "output_limit_parameter"]
    )
    _audit(actor, provider, "provider.change", enabled=provider.enabled)
    return provider


def _clean_limit_parameter(name: str) -> str:
    if name not in OutputLimitParameter.values:
        raise Invalid(
            "This is max_tokens or max_completion_tokens.", field="output_limit_parameter"
        )
    return name


def _move_address(
    row: ModelProvider | Connector, field: str, address: str | None, credential: str | None
) -> None:
    """Set a new address and credential; keeping a sealed credential for another address fails."""
    if address is not None:
        cleaned = clean_address(address, field=field)
        if cleaned != getattr(row, field) and row.credential is not None and credential is None:
            raise CredentialRequired(field="credential")
        setattr(row, field, cleaned)
    if credential is not None:
        if credential:
            row.seal_value("credential", credential)
        else:
            row.credential = None


@durable()
def create_virtual_model(
    *,
    actor: Actor,
    provider: ModelProvider,
    name: str,
    slug: str,
    upstream_model: str,
    context_limit: int,
    output_limit: int,
    pricing_reference: str = "",
) -> VirtualModel:
    """Offer one upstream model under a slug of ours. Limits are tokens."""
    require_operator(actor)
    slug = clean_slug(slug)
    if VirtualModel.objects.filter(organization_id=provider.organization_id, slug=slug).exists():
        raise Conflict("A virtual model with this slug exists.", field="slug")
    model = VirtualModel(
        organization_id=provider.organization_id,
        provider=provider,
        name=clean_name(name),
        slug=slug,
        upstream_model=clean_name(upstream_model, "upstream model"),
        pricing_reference=pricing_reference.strip(),
        context_limit=context_limit,
        output_limit=output_limit,
    )
    _check_limits(model)
    model.save(force_insert=True)
    _audit(actor, model, "virtual_model.create")
    return model


@durable()
def change_virtual_model(
    *,
    actor: Actor,
    model: VirtualModel,
    name: str | None = None,
    upstream_model: str | None = None,
    context_limit: int | None = None,
    output_limit: int | None = None,
    pricing_reference: str | None = None,
    enabled: bool | None = None,
) -> VirtualModel:
    require_operator(actor)
    model = VirtualModel.objects.select_for_update().get(id=model.id)
    changes = {
        "name": None if name is None else clean_name(name),
        "upstream_model": upstream_model and clean_name(upstream_model, "upstream model"),
        "context_limit": context_limit,
        "output_limit": output_limit,
        "pricing_reference": pricing_reference,
        "enabled": enabled,
    }
    changed = {field: value for field, value in changes.items() if value is not None}
    for field, value in changed.items():
        setattr(model, field, value)
    _check_limits(model)
    model.save(update_fields=list(changed))
    _audit(actor, model, "virtual_model.change", fields=sorted(changed))
    return model


def _check_limits(model: VirtualModel) -> None:
    if len(model.pricing_reference) > 200:
        raise Invalid("A pricing reference has at most 200 characters.", field="pricing_reference")
    if not 256 <= model.context_limit <= 10_000_000:
        raise Invalid("The context limit is 256 to 10,000,000 tokens.", field="context_limit")
    if not 1 <= model.output_limit < model.context_limit:
        raise Invalid("The output limit is below the context limit.", field="output_limit")


@durable()
def add_rate_card(
    *,
    actor: Actor,
    model: VirtualModel,
    input_rate: int,
    output_rate: int,
    cache_read_rate: int,
    cache_write_rate: int,
    rationale: str,
) -> RateCard:
    """Price a model by hand: micro-dollars per million tokens, all four, zero allowed."""
    require_operator(actor)
    rates = (input_rate, output_rate, cache_read_rate, cache_write_rate)
    if any(not 0 <= rate <= 10_000_000_000 for rate in rates):
        raise Invalid("A rate is 0 to 10,000,000,000 micro-dollars per million tokens.")
    last = model.rate_cards.aggregate(last=Max("version"))["last"] or 0
    card = RateCard.objects.create(
        virtual_model=model,
        upstream_model=model.upstream_model,
        version=last + 1,
        input_rate=input_rate,
        output_rate=output_rate,
        cache_read_rate=cache_read_rate,
        cache_write_rate=cache_write_rate,
        rationale=clean_rationale(rationale),
        created_by_id=actor.user_id,
    )
    _audit(actor, model, "rate_card.add", version=card.version, rates=list(rates))
    return card


@durable()
def create_connector(
    *,
    actor: Actor,
    organization: Organization,
    name: str,
    slug: str,
    url: str,
    credential: str = "",
) -> Connector:
    """Name an upstream MCP server (streamable HTTP). Its tools arrive with the first refresh."""
    require_operator(actor)
    slug = clean_slug(slug)
    if slug == RESERVED_SLUG:
        raise Invalid("This slug is reserved for our own tools.", field="slug")
    if organization.connectors.filter(slug=slug).exists():
        raise Conflict("A connector with this slug exists.", field="slug")
    connector = Connector(
        organization=organization,
        name=clean_name(name),
        slug=slug,
        url=clean_address(url, field="url"),
    )
    if credential:
        connector.seal_value("credential", credential)
    connector.save(force_insert=True)
    _audit(actor, connector, "connector.create")
    return connector


@durable()
def change_connector(
    *,
    actor: Actor,
    connector: Connector,
    name: str | None = None,
    url: str | None = None,
    credential: str | None = None,
    enabled: bool | None = None,
) -> Connector:
    """Change a connector. A new address quarantines its accepted tools until they are reviewed."""
    require_operator(actor)
    connector = Connector.objects.select_for_update().get(id=connector.id)
    if connector.first_party:
        raise Invalid("Our own connector cannot be changed.")
    before = connector.url
    if name is not None:
        connector.name = clean_name(name)
    _move_address(connector, "url", url, credential)
    if enabled is not None:
        connector.enabled = enabled
    connector.save(update_fields=["name", "url", "credential", "enabled"])
    if connector.url != before:
        # Also those that are gone just now: at another address nothing returns unreviewed.
        Tool.objects.filter(connector=connector, accepted_at__isnull=False).update(
            state=ToolState.CHANGED
        )
        void_approvals("tool_changed", tool__connector=connector)
    _audit(actor, connector, "connector.change", enabled=connector.enabled)
    return connector
