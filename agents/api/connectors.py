"""Connectors: upstream MCP servers, their refresh, and the review of their tools."""

from uuid import UUID

from django.db.models import QuerySet
from ninja import Router, Status
from ninja.pagination import paginate

from agents.api.auth import ActorRequest
from agents.api.common import OrganizationSlug, Pages, secret_text
from agents.models import Connector, Tool
from agents.policy import require_operator
from agents.schemas.base import Slug
from agents.schemas.resources import (
    ConnectorIn,
    ConnectorOut,
    ConnectorPatch,
    RefreshOut,
    ToolOut,
    ToolReviewIn,
    ToolWithdrawIn,
)
from agents.selectors import directory
from agents.services import resources, tools
from agents.services.tools import ListingResult

router = Router(tags=["tools"])


@router.get("/connectors", response=list[ConnectorOut], operation_id="list_connectors")
@paginate(Pages)
def list_connectors(
    request: ActorRequest, organization: OrganizationSlug = None
) -> QuerySet[Connector]:
    """Operators: the tool servers. Credentials are never shown."""
    tenant = directory.organization_of(request.auth, organization)
    return directory.connectors_of(request.auth, tenant)


@router.post("/connectors", response={201: ConnectorOut}, operation_id="create_connector")
def create_connector(
    request: ActorRequest, body: ConnectorIn, organization: OrganizationSlug = None
) -> Status[Connector]:
    """Operators: name a tool server. Its tools arrive with the first refresh, unreviewed."""
    tenant = directory.organization_of(request.auth, organization)
    connector = resources.create_connector(
        actor=request.auth,
        organization=tenant,
        name=body.name,
        slug=body.slug,
        url=body.url,
        credential=secret_text(body.credential) or "",
    )
    return Status(201, connector)


@router.get("/connectors/{slug:slug}", response=ConnectorOut, operation_id="get_connector")
def get_connector(
    request: ActorRequest, slug: str, organization: OrganizationSlug = None
) -> Connector:
    """Operators: one tool server."""
    tenant = directory.organization_of(request.auth, organization)
    return directory.connector_named(request.auth, tenant, slug)


@router.patch("/connectors/{slug:slug}", response=ConnectorOut, operation_id="change_connector")
def change_connector(
    request: ActorRequest,
    slug: str,
    body: ConnectorPatch,
    organization: OrganizationSlug = None,
) -> Connector:
    """Operators: change what is sent; a new address quarantines the accepted tools."""
    tenant = directory.organization_of(request.auth, organization)
    return resources.change_connector(
        actor=request.auth,
        connector=directory.connector_named(request.auth, tenant, slug),
        name=body.name,
        url=body.url,
        credential=secret_text(body.credential),
        enabled=body.enabled,
    )


@router.post(
    "/connectors/{slug:slug}/actions/refresh",
    response=RefreshOut,
    operation_id="refresh_connector",
)
def refresh_connector(
    request: ActorRequest, slug: str, organization: OrganizationSlug = None
) -> ListingResult:
    """Operators: read the server's tools now. New and changed ones wait for a review."""
    from agents.gateways.refresh import refresh_now

    tenant = directory.organization_of(request.auth, organization)
    return refresh_now(directory.connector_named(request.auth, tenant, slug))


@router.get("/tools", response=list[ToolOut], operation_id="list_tools")
@paginate(Pages)
def list_tools(
    request: ActorRequest,
    connector: Slug | None = None,
    organization: OrganizationSlug = None,
) -> QuerySet[Tool]:
    """All tools, or one connector's, with what its server shows when that differs."""
    tenant = directory.organization_of(request.auth, organization)
    return directory.tools_of(request.auth, tenant, connector)


@router.get("/tools/{uuid:tool_id}", response=ToolOut, operation_id="get_tool")
def get_tool(request: ActorRequest, tool_id: UUID, organization: OrganizationSlug = None) -> Tool:
    """Operators and managers: one tool."""
    tenant = directory.organization_of(request.auth, organization)
    return directory.tool_with_id(request.auth, tenant, tool_id)


@router.post("/tools/{uuid:tool_id}/actions/review", response=ToolOut, operation_id="review_tool")
def review_tool(
    request: ActorRequest,
    tool_id: UUID,
    body: ToolReviewIn,
    organization: OrganizationSlug = None,
) -> Tool:
    """Operators: accept a tool exactly as seen, as ``read`` or ``action``."""
    tenant = directory.organization_of(request.auth, organization)
    require_operator(request.auth)
    return tools.review_tool(
        actor=request.auth,
        tool=directory.tool_with_id(request.auth, tenant, tool_id),
        digest_seen=body.digest_seen,
        classification=body.classification,
        rationale=body.rationale,
    )


@router.post(
    "/tools/{uuid:tool_id}/actions/withdraw", response=ToolOut, operation_id="withdraw_tool"
)
def withdraw_tool(
    request: ActorRequest,
    tool_id: UUID,
    body: ToolWithdrawIn,
    organization: OrganizationSlug = None,
) -> Tool:
    """Operators: take a tool back; it is neither listed nor callable until the next review."""
    tenant = directory.organization_of(request.auth, organization)
    require_operator(request.auth)
    return tools.withdraw_tool(
        actor=request.auth,
        tool=directory.tool_with_id(request.auth, tenant, tool_id),
        rationale=body.rationale,
    )
