"""Organizations, teams, environments and members."""

from uuid import UUID

from django.db.models import QuerySet
from ninja import Router, Status
from ninja.pagination import paginate

from agents.api.auth import ActorRequest
from agents.api.common import OrganizationSlug, Pages, contained, secret_text
from agents.models import Environment, Membership, Organization, Team
from agents.schemas.base import ContainmentOut, RationaleIn
from agents.schemas.identity import (
    EnvironmentIn,
    EnvironmentOut,
    MemberIn,
    MemberOut,
    MemberPatch,
    OrganizationIn,
    OrganizationOut,
    TeamIn,
    TeamOut,
)
from agents.selectors import directory
from agents.services import identity, members

router = Router(tags=["organization"])


@router.get("/organizations", response=list[OrganizationOut], operation_id="list_organizations")
@paginate(Pages)
def list_organizations(request: ActorRequest) -> QuerySet[Organization]:
    """Every tenant for operators, one's own for people."""
    return directory.organizations_seen_by(request.auth)


@router.post("/organizations", response={201: OrganizationOut}, operation_id="create_organization")
def create_organization(request: ActorRequest, body: OrganizationIn) -> Status[Organization]:
    """Operators: make a tenant."""
    return Status(
        201, identity.create_organization(actor=request.auth, name=body.name, slug=body.slug)
    )


@router.get("/organizations/{slug:slug}", response=OrganizationOut, operation_id="get_organization")
def get_organization(request: ActorRequest, slug: str) -> Organization:
    """One tenant, by its slug."""
    return directory.organization_of(request.auth, slug)


@router.post(
    "/organizations/{slug:slug}/actions/suspend",
    response=ContainmentOut,
    operation_id="suspend_organization",
)
def suspend_organization(request: ActorRequest, slug: str, body: RationaleIn) -> ContainmentOut:
    """Operators: stop every agent of a tenant."""
    organization = directory.organization_of(request.auth, slug)
    ended = identity.suspend_organization(
        actor=request.auth, organization=organization, rationale=body.rationale
    )
    return contained(ended)


@router.post(
    "/organizations/{slug:slug}/actions/resume",
    response=OrganizationOut,
    operation_id="resume_organization",
)
def resume_organization(request: ActorRequest, slug: str, body: RationaleIn) -> Organization:
    """Operators: let a suspended tenant's agents work again."""
    organization = directory.organization_of(request.auth, slug)
    return identity.resume_organization(
        actor=request.auth, organization=organization, rationale=body.rationale
    )


@router.get("/teams", response=list[TeamOut], operation_id="list_teams")
@paginate(Pages)
def list_teams(request: ActorRequest, organization: OrganizationSlug = None) -> QuerySet[Team]:
    """Teams, which own agents."""
    return directory.teams_of(directory.organization_of(request.auth, organization))


@router.post("/teams", response={201: TeamOut}, operation_id="create_team")
def create_team(
    request: ActorRequest, body: TeamIn, organization: OrganizationSlug = None
) -> Status[Team]:
    """Operators: make a team, which can then own agents."""
    tenant = directory.organization_of(request.auth, organization)
    return Status(
        201,
        identity.create_team(
            actor=request.auth, organization=tenant, name=body.name, slug=body.slug
        ),
    )


@router.get("/environments", response=list[EnvironmentOut], operation_id="list_environments")
@paginate(Pages)
def list_environments(
    request: ActorRequest, organization: OrganizationSlug = None
) -> QuerySet[Environment]:
    """Environments, where agents run."""
    return directory.environments_of(directory.organization_of(request.auth, organization))


@router.post("/environments", response={201: EnvironmentOut}, operation_id="create_environment")
def create_environment(
    request: ActorRequest, body: EnvironmentIn, organization: OrganizationSlug = None
) -> Status[Environment]:
    """Operators: make an environment, in which every agent starts contained."""
    tenant = directory.organization_of(request.auth, organization)
    return Status(
        201,
        identity.create_environment(
            actor=request.auth, organization=tenant, name=body.name, slug=body.slug
        ),
    )


@router.get("/members", response=list[MemberOut], operation_id="list_members")
@paginate(Pages)
def list_members(
    request: ActorRequest, organization: OrganizationSlug = None
) -> QuerySet[Membership]:
    """Operators: who belongs to a tenant."""
    tenant = directory.organization_of(request.auth, organization)
    return directory.members_of(request.auth, tenant)


@router.post("/members", response={201: MemberOut}, operation_id="add_member")
def add_member(
    request: ActorRequest, body: MemberIn, organization: OrganizationSlug = None
) -> Status[Membership]:
    """Operators: add a person; with a password the account is made as well."""
    tenant = directory.organization_of(request.auth, organization)
    membership = members.admit_member(
        actor=request.auth,
        organization=tenant,
        username=body.username,
        password=secret_text(body.password),
        role=body.role,
        teams=directory.teams_named(tenant, body.teams),
    )
    return Status(201, membership)


@router.patch("/members/{uuid:user_id}", response=MemberOut, operation_id="change_member")
def change_member(
    request: ActorRequest,
    user_id: UUID,
    body: MemberPatch,
    organization: OrganizationSlug = None,
) -> Membership:
    """Operators: change role, activity or teams; it counts from that person's next request."""
    tenant = directory.organization_of(request.auth, organization)
    return identity.change_member(
        actor=request.auth,
        membership=directory.member_of(request.auth, tenant, user_id),
        role=body.role,
        active=body.active,
        teams=None if body.teams is None else directory.teams_named(tenant, body.teams),
    )
