"""Agents with their drafts, versions and publications: the definitions' part of ``/api/v1``."""

import re
from dataclasses import asdict
from typing import Annotated, Any

from django.db.models import QuerySet
from django.http import HttpResponse
from ninja import Header, Router, Status
from ninja.pagination import paginate

from agents.api.auth import ActorRequest
from agents.api.common import OrganizationSlug, Pages, contained
from agents.errors import Invalid
from agents.models import Agent
from agents.policy import require_manage
from agents.schemas.base import ContainmentOut
from agents.schemas.identity import AgentIn, AgentOut
from agents.selectors import directory as agents_directory
from definitions.errors import DraftChanged, IfMatchRequired
from definitions.models import Publication, Version
from definitions.schemas import (
    DraftIn,
    DraftOut,
    PublicationOut,
    PublishedOut,
    PublishIn,
    PublishVersionIn,
    UnpublishIn,
    VersionDetailOut,
    VersionOut,
)
from definitions.selectors import directory, publications_of, versions_of
from definitions.services import drafts, publishing
from definitions.services.publishing import Published

router = Router(tags=["definitions"])

STRONG_TAG = re.compile(r'^"([0-9a-f]{64})"$')
IfMatch = Annotated[
    str | None, Header(None, alias="If-Match", description="The digest of the draft you saw.")
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        None,
        alias="Idempotency-Key",
        description="1 to 128 printable ASCII characters; kept for 24 hours.",
    ),
]


@router.get("/agents", response=list[AgentOut], operation_id="list_agents", tags=["agents"])
@paginate(Pages)
def list_agents(request: ActorRequest, organization: OrganizationSlug = None) -> QuerySet[Agent]:
    """Agents of the organization: metadata, which all of its people may see."""
    tenant = agents_directory.organization_of(request.auth, organization)
    return agents_directory.agents_of(tenant)


@router.post("/agents", response={201: AgentOut}, operation_id="create_agent", tags=["agents"])
def create_agent(
    request: ActorRequest, body: AgentIn, organization: OrganizationSlug = None
) -> Status[Agent]:
    """Managers: make an agent in one of their teams, with an empty draft and no rights."""
    tenant = agents_directory.organization_of(request.auth, organization)
    made = drafts.create_agent(
        actor=request.auth,
        team=agents_directory.team_named(tenant, body.team),
        name=body.name,
        slug=body.slug,
    )
    return Status(201, agents_directory.agents_of(tenant).get(id=made.id))


# --- drafts ---------------------------------------------------------------------------------


@router.get("/agents/{slug:agent}/draft", response=DraftOut, operation_id="get_draft")
def get_draft(
    request: ActorRequest,
    response: HttpResponse,
    agent: str,
    organization: OrganizationSlug = None,
) -> dict[str, Any]:
    """Managers of the team: the draft. Its ``ETag`` is what the next write must match."""
    row = agents_directory.agent_named(request.auth, organization, agent)
    return _draft(request, response, row)


@router.put("/agents/{slug:agent}/draft", response=DraftOut, operation_id="save_draft")
def save_draft(
    request: ActorRequest,
    response: HttpResponse,
    agent: str,
    body: DraftIn,
    if_match: IfMatch = None,
    organization: OrganizationSlug = None,
) -> dict[str, Any]:
    """Managers of the team: replace the draft that ``If-Match`` names.

    409 ``draft_changed`` carries both versions when somebody saved meanwhile.
    """
    row = agents_directory.agent_named(request.auth, organization, agent)
    require_manage(request.auth, row)
    digest_seen = _digest_seen(if_match)
    model, tools = directory.chosen_resources(row.organization, body.model, body.tools)
    try:
        drafts.save_draft(
            actor=request.auth,
            agent=row,
            digest_seen=digest_seen,
            instructions=body.instructions,
            virtual_model=model,
            tools=tools,
        )
    except DraftChanged as conflict:
        _, current = directory.readable_draft(request.auth, row)
        yours = {"digest": conflict.extra["sent"], **body.model_dump()}
        raise DraftChanged(current=asdict(current), yours=yours) from None
    return _draft(request, response, row)


def _draft(request: ActorRequest, response: HttpResponse, agent: Agent) -> dict[str, Any]:
    draft, definition = directory.readable_draft(request.auth, agent)
    response["ETag"] = f'"{definition.digest}"'
    by = draft.updated_by
    return {
        **asdict(definition),
        "updated_at": draft.updated_at,
        "updated_by": None if by is None else by.get_username(),
    }


def _digest_seen(if_match: str | None) -> str:
    if if_match is None:
        raise IfMatchRequired
    tag = STRONG_TAG.fullmatch(if_match.strip())
    if tag is None:
        raise Invalid(IfMatchRequired.title, field="If-Match")
    return tag[1]


# --- versions and publications ----------------------------------------------------------------


@router.get(
    "/agents/{slug:agent}/versions", response=list[VersionOut], operation_id="list_versions"
)
@paginate(Pages)
def list_versions(
    request: ActorRequest, agent: str, organization: OrganizationSlug = None
) -> QuerySet[Version]:
    """Versions, newest first: metadata."""
    return versions_of(agents_directory.agent_named(request.auth, organization, agent))


@router.get(
    "/agents/{slug:agent}/versions/{int:number}",
    response=VersionDetailOut,
    operation_id="get_version",
)
def get_version(
    request: ActorRequest, agent: str, number: int, organization: OrganizationSlug = None
) -> dict[str, Any]:
    """One version; managers of the owning team also get its definition."""
    row = agents_directory.agent_named(request.auth, organization, agent)
    version = directory.version_numbered(row, number)
    return {
        "version": version,
        "definition": directory.readable_version(request.auth, version),
    }


@router.get(
    "/agents/{slug:agent}/publications",
    response=list[PublicationOut],
    operation_id="list_publications",
)
@paginate(Pages)
def list_publications(
    request: ActorRequest, agent: str, organization: OrganizationSlug = None
) -> QuerySet[Publication]:
    """Which version each environment runs."""
    return publications_of(agents_directory.agent_named(request.auth, organization, agent))


@router.post(
    "/agents/{slug:agent}/actions/publish",
    response=PublishedOut,
    operation_id="publish_draft",
)
def publish_draft(
    request: ActorRequest,
    agent: str,
    body: PublishIn,
    idempotency_key: IdempotencyKey = None,
    organization: OrganizationSlug = None,
) -> dict[str, Any]:
    """Managers of the team: publish exactly the draft with this digest, as the next number."""
    row = agents_directory.agent_named(request.auth, organization, agent)
    done = publishing.publish_draft(
        actor=request.auth,
        agent=row,
        environment=agents_directory.environment_named(row.organization_id, body.environment),
        draft_digest=body.draft_digest,
        rationale=body.rationale,
        idempotency_key="" if idempotency_key is None else _plain(idempotency_key),
    )
    return _published(row, done)


@router.post(
    "/agents/{slug:agent}/versions/{int:number}/actions/publish",
    response=PublishedOut,
    operation_id="publish_version",
)
def publish_version(
    request: ActorRequest,
    agent: str,
    number: int,
    body: PublishVersionIn,
    organization: OrganizationSlug = None,
) -> dict[str, Any]:
    """Managers of the team: let an environment run an existing version again."""
    row = agents_directory.agent_named(request.auth, organization, agent)
    require_manage(request.auth, row)
    done = publishing.publish_version(
        actor=request.auth,
        version=directory.version_numbered(row, number),
        environment=agents_directory.environment_named(row.organization_id, body.environment),
        rationale=body.rationale,
    )
    return _published(row, done)


@router.post(
    "/agents/{slug:agent}/actions/unpublish",
    response=ContainmentOut,
    operation_id="unpublish_agent",
)
def unpublish_agent(
    request: ActorRequest, agent: str, body: UnpublishIn, organization: OrganizationSlug = None
) -> ContainmentOut:
    """Managers of the team and operators: contain the agent; says what that ended."""
    row = agents_directory.agent_named(request.auth, organization, agent)
    ended = publishing.unpublish(
        actor=request.auth,
        agent=row,
        environment=agents_directory.environment_named(row.organization_id, body.environment),
        rationale=body.rationale,
    )
    return contained(ended)


def _published(agent: Agent, done: Published) -> dict[str, Any]:
    return {
        "environment": done.environment.slug,
        "version": directory.version_numbered(agent, done.version.number),
    }


def _plain(key: str) -> str:
    """An empty header is a mistake, not the absence of one."""
    if not key:
        raise Invalid("The Idempotency-Key is empty.", field="Idempotency-Key")
    return key
