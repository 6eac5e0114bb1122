"""Providers, virtual models with their rate cards, connectors and tools."""

from django.db.models import QuerySet
from ninja import Router, Status
from ninja.pagination import paginate

from agents.api.auth import ActorRequest
from agents.api.common import OrganizationSlug, Pages, secret_text
from agents.models import ModelProvider, RateCard, VirtualModel
from agents.schemas.resources import (
    ProviderIn,
    ProviderOut,
    ProviderPatch,
    RateCardIn,
    RateCardOut,
    VirtualModelIn,
    VirtualModelOut,
    VirtualModelPatch,
)
from agents.selectors import directory
from agents.services import resources

router = Router(tags=["models"])


@router.get("/providers", response=list[ProviderOut], operation_id="list_providers")
@paginate(Pages)
def list_providers(
    request: ActorRequest, organization: OrganizationSlug = None
) -> QuerySet[ModelProvider]:
    """Operators: the upstreams. Credentials are never shown."""
    tenant = directory.organization_of(request.auth, organization)
    return directory.providers_of(request.auth, tenant)


@router.post("/providers", response={201: ProviderOut}, operation_id="create_provider")
def create_provider(
    request: ActorRequest, body: ProviderIn, organization: OrganizationSlug = None
) -> Status[ModelProvider]:
    """Operators: name an upstream. Private addresses are refused unless they were allowed."""
    tenant = directory.organization_of(request.auth, organization)
    provider = resources.create_provider(
        actor=request.auth,
        organization=tenant,
        name=body.name,
        slug=body.slug,
        base_url=body.base_url,
        credential=secret_text(body.credential) or "",
        output_limit_parameter=body.output_limit_parameter,
    )
    return Status(201, provider)


@router.get("/providers/{slug:slug}", response=ProviderOut, operation_id="get_provider")
def get_provider(
    request: ActorRequest, slug: str, organization: OrganizationSlug = None
) -> ModelProvider:
    """Operators: one upstream."""
    tenant = directory.organization_of(request.auth, organization)
    return directory.provider_named(request.auth, tenant, slug)


@router.patch("/providers/{slug:slug}", response=ProviderOut, operation_id="change_provider")
def change_provider(
    request: ActorRequest,
    slug: str,
    body: ProviderPatch,
    organization: OrganizationSlug = None,
) -> ModelProvider:
    """Operators: change what is sent; a new address needs the credential with it."""
    tenant = directory.organization_of(request.auth, organization)
    return resources.change_provider(
        actor=request.auth,
        provider=directory.provider_named(request.auth, tenant, slug),
        name=body.name,
        base_url=body.base_url,
        credential=secret_text(body.credential),
        enabled=body.enabled,
        output_limit_parameter=body.output_limit_parameter,
    )


@router.get("/virtual-models", response=list[VirtualModelOut], operation_id="list_virtual_models")
@paginate(Pages)
def list_virtual_models(
    request: ActorRequest, organization: OrganizationSlug = None
) -> QuerySet[VirtualModel]:
    """Operators and managers: the models that can be granted."""
    tenant = directory.organization_of(request.auth, organization)
    return directory.virtual_models_of(request.auth, tenant)


@router.post(
    "/virtual-models", response={201: VirtualModelOut}, operation_id="create_virtual_model"
)
def create_virtual_model(
    request: ActorRequest, body: VirtualModelIn, organization: OrganizationSlug = None
) -> Status[VirtualModel]:
    """Operators: offer an upstream model under a slug, so that it can be granted."""
    tenant = directory.organization_of(request.auth, organization)
    model = resources.create_virtual_model(
        actor=request.auth,
        provider=directory.provider_named(request.auth, tenant, body.provider),
        name=body.name,
        slug=body.slug,
        upstream_model=body.upstream_model,
        context_limit=body.context_limit,
        output_limit=body.output_limit,
        pricing_reference=body.pricing_reference,
    )
    return Status(201, model)


@router.get(
    "/virtual-models/{slug:slug}", response=VirtualModelOut, operation_id="get_virtual_model"
)
def get_virtual_model(
    request: ActorRequest, slug: str, organization: OrganizationSlug = None
) -> VirtualModel:
    """Operators and managers: one model."""
    tenant = directory.organization_of(request.auth, organization)
    return directory.virtual_model_named(request.auth, tenant, slug)


@router.patch(
    "/virtual-models/{slug:slug}", response=VirtualModelOut, operation_id="change_virtual_model"
)
def change_virtual_model(
    request: ActorRequest,
    slug: str,
    body: VirtualModelPatch,
    organization: OrganizationSlug = None,
) -> VirtualModel:
    """Operators: change what is sent."""
    tenant = directory.organization_of(request.auth, organization)
    return resources.change_virtual_model(
        actor=request.auth,
        model=directory.virtual_model_named(request.auth, tenant, slug),
        name=body.name,
        upstream_model=body.upstream_model,
        context_limit=body.context_limit,
        output_limit=body.output_limit,
        pricing_reference=body.pricing_reference,
        enabled=body.enabled,
    )


@router.get(
    "/virtual-models/{slug:slug}/rate-cards",
    response=list[RateCardOut],
    operation_id="list_rate_cards",
)
@paginate(Pages)
def list_rate_cards(
    request: ActorRequest, slug: str, organization: OrganizationSlug = None
) -> QuerySet[RateCard]:
    """Newest first: the first one counts."""
    tenant = directory.organization_of(request.auth, organization)
    return directory.rate_cards_of(directory.virtual_model_named(request.auth, tenant, slug))


@router.post(
    "/virtual-models/{slug:slug}/rate-cards",
    response={201: RateCardOut},
    operation_id="add_rate_card",
)
def add_rate_card(
    request: ActorRequest, slug: str, body: RateCardIn, organization: OrganizationSlug = None
) -> Status[RateCard]:
    """Operators: price a model by hand; the new card replaces the one before."""
    tenant = directory.organization_of(request.auth, organization)
    card = resources.add_rate_card(
        actor=request.auth,
        model=directory.virtual_model_named(request.auth, tenant, slug),
        **body.model_dump(),
    )
    return Status(201, card)
