"""One agent: identity, suspension, environments, grants, external keys, and its records.

The collection itself stands in :mod:`definitions.api`, because an agent is made with its draft.
"""

import datetime as dt
from uuid import UUID

from django.db.models import QuerySet
from ninja import Router, Status
from ninja.pagination import paginate

from agents.api.auth import ActorRequest
from agents.api.common import OrganizationSlug, Pages, contained
from agents.models import Agent, AgentEnvironment, AgentKey, AuditEvent, Grant, Organization, Run
from agents.policy import Actor
from agents.schemas.base import ContainmentOut, RationaleIn, Slug
from agents.schemas.identity import AgentEnvironmentOut, AgentOut, AgentPatch
from agents.schemas.observing import AuditEventOut, RunOut
from agents.schemas.rights import GrantIn, GrantOut, KeyIn, KeyOut, MintedKeyOut
from agents.selectors import directory
from agents.services import grants, identity, keys
from agents.services.keys import MintedKey

router = Router(tags=["agents"])


@router.get("/agents/{slug:agent}", response=AgentOut, operation_id="get_agent")
def get_agent(request: ActorRequest, agent: str, organization: OrganizationSlug = None) -> Agent:
    """One agent's metadata, with where it is open and what is published there."""
    return directory.agent_named(request.auth, organization, agent)


@router.patch("/agents/{slug:agent}", response=AgentOut, operation_id="rename_agent")
def rename_agent(
    request: ActorRequest, agent: str, body: AgentPatch, organization: OrganizationSlug = None
) -> Agent:
    """Managers of the team: change the name. The slug stays."""
    row = directory.agent_named(request.auth, organization, agent)
    return identity.rename_agent(actor=request.auth, agent=row, name=body.name)


@router.post(
    "/agents/{slug:agent}/actions/suspend",
    response=ContainmentOut,
    operation_id="suspend_agent",
)
def suspend_agent(
    request: ActorRequest, agent: str, body: RationaleIn, organization: OrganizationSlug = None
) -> ContainmentOut:
    """Managers of the team and operators: stop the agent everywhere, at once."""
    row = directory.agent_named(request.auth, organization, agent)
    ended = identity.suspend_agent(actor=request.auth, agent=row, rationale=body.rationale)
    return contained(ended)


@router.post("/agents/{slug:agent}/actions/resume", response=AgentOut, operation_id="resume_agent")
def resume_agent(
    request: ActorRequest, agent: str, body: RationaleIn, organization: OrganizationSlug = None
) -> Agent:
    """Managers of the team: let it work again where it is open."""
    row = directory.agent_named(request.auth, organization, agent)
    return identity.resume_agent(actor=request.auth, agent=row, rationale=body.rationale)


@router.post(
    "/agents/{slug:agent}/environments/{slug:environment}/actions/open",
    response=AgentEnvironmentOut,
    operation_id="open_agent_environment",
)
def open_agent_environment(
    request: ActorRequest,
    agent: str,
    environment: str,
    body: RationaleIn,
    organization: OrganizationSlug = None,
) -> AgentEnvironment:
    """Managers of the team: let external keys work here without a publication."""
    row = directory.agent_named(request.auth, organization, agent)
    return identity.open_agent_environment(
        actor=request.auth,
        agent=row,
        environment=directory.environment_named(row.organization_id, environment),
        rationale=body.rationale,
    )


# --- grants ---------------------------------------------------------------------------------


@router.get("/agents/{slug:agent}/grants", response=list[GrantOut], operation_id="list_grants")
@paginate(Pages)
def list_grants(
    request: ActorRequest,
    agent: str,
    environment: Slug | None = None,
    revoked: bool = False,  # noqa: FBT001, FBT002  # a query parameter has no other spelling
    organization: OrganizationSlug = None,
) -> QuerySet[Grant]:
    """What the agent may use; with ``revoked=true`` also what it once might."""
    row = directory.agent_named(request.auth, organization, agent)
    return directory.grants_of(request.auth, row, environment=environment, revoked=revoked)


@router.post("/agents/{slug:agent}/grants", response={201: GrantOut}, operation_id="add_grant")
def add_grant(
    request: ActorRequest, agent: str, body: GrantIn, organization: OrganizationSlug = None
) -> Status[Grant]:
    """Managers of the team: let the agent use a resource in an environment."""
    row = directory.agent_named(request.auth, organization, agent)
    made = grants.grant(
        actor=request.auth,
        agent=row,
        environment=directory.environment_named(row.organization_id, body.environment),
        resource=_resource(request.auth, row.organization, body),
    )
    return Status(201, made)


def _resource(actor: Actor, organization: Organization, body: GrantIn) -> grants.Resource:
    if body.virtual_model is not None:
        return directory.virtual_model_named(actor, organization, body.virtual_model)
    if body.tool is not None:
        return directory.tool_named(actor, organization, body.tool)
    return directory.agent_named(actor, organization.slug, body.target_agent or "")


@router.post(
    "/agents/{slug:agent}/grants/{uuid:grant_id}/actions/revoke",
    response=ContainmentOut,
    operation_id="revoke_grant",
)
def revoke_grant(
    request: ActorRequest, agent: str, grant_id: UUID, organization: OrganizationSlug = None
) -> ContainmentOut:
    """Managers of the team and operators: take the right away from the next call on."""
    row = directory.agent_named(request.auth, organization, agent)
    known = directory.grants_of(request.auth, row, revoked=True)
    grant = directory.found(known.filter(id=grant_id).first(), "grant")
    return contained(grants.revoke_grant(actor=request.auth, grant=grant))


# --- external keys --------------------------------------------------------------------------


@router.get("/agents/{slug:agent}/keys", response=list[KeyOut], operation_id="list_keys")
@paginate(Pages)
def list_keys(
    request: ActorRequest, agent: str, organization: OrganizationSlug = None
) -> QuerySet[AgentKey]:
    """External keys, newest first, without their texts."""
    row = directory.agent_named(request.auth, organization, agent)
    return directory.external_keys_of(request.auth, row)


@router.post("/agents/{slug:agent}/keys", response={201: MintedKeyOut}, operation_id="mint_key")
def mint_key(
    request: ActorRequest, agent: str, body: KeyIn, organization: OrganizationSlug = None
) -> Status[MintedKey]:
    """Managers of the team: mint a key. This answer is the only one that holds its text."""
    row = directory.agent_named(request.auth, organization, agent)
    minted = keys.mint_external_key(
        actor=request.auth,
        agent=row,
        environment=directory.environment_named(row.organization_id, body.environment),
        name=body.name,
        scope=body.scope.as_scope(),
        lifetime=None if body.lifetime is None else dt.timedelta(seconds=body.lifetime),
    )
    return Status(201, minted)


@router.post(
    "/agents/{slug:agent}/keys/{slug:accessor}/actions/revoke",
    response=KeyOut,
    operation_id="revoke_key",
)
def revoke_key(
    request: ActorRequest, agent: str, accessor: str, organization: OrganizationSlug = None
) -> AgentKey:
    """Managers of the team and operators: end a key, from the next call on."""
    row = directory.agent_named(request.auth, organization, agent)
    known = directory.external_keys_of(request.auth, row)
    key = directory.found(known.filter(accessor=accessor).first(), "key")
    return keys.revoke_key(actor=request.auth, key=key)


# --- records --------------------------------------------------------------------------------


@router.get(
    "/agents/{slug:agent}/audit", response=list[AuditEventOut], operation_id="list_agent_audit"
)
@paginate(Pages)
def list_agent_audit(
    request: ActorRequest, agent: str, organization: OrganizationSlug = None
) -> QuerySet[AuditEvent]:
    """Managers of the team and operators: what was done to the agent, newest first."""
    row = directory.agent_named(request.auth, organization, agent)
    return directory.audit_of(request.auth, row)


@router.get("/agents/{slug:agent}/runs", response=list[RunOut], operation_id="list_agent_runs")
@paginate(Pages)
def list_agent_runs(
    request: ActorRequest, agent: str, organization: OrganizationSlug = None
) -> QuerySet[Run]:
    """Managers of the team and operators: its executions' metadata, newest first."""
    row = directory.agent_named(request.auth, organization, agent)
    return directory.runs_of(request.auth, row)
