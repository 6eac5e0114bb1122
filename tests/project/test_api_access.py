"""Every operation of ``/api/v1`` against everybody who has no business there."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from agents.models import AuditEvent, Membership, Team, User
from agents.problems import CONTENT_TYPE
from project.api import api
from tests.api_client import Api
from tests.world import World, make_world

pytestmark = pytest.mark.django_db(databases="__all__")

RATIONALE = {"rationale": "because"}
SLUG = {"name": "New", "slug": "new"}
SCOPE = {"environment": "production", "name": "k", "scope": {"all_grants": True}}
PUBLISH = {"environment": "production", "draft_digest": "0" * 64, **RATIONALE}
CARD = {"input_rate": 1, "output_rate": 1, "cache_read_rate": 1, "cache_write_rate": 1, **RATIONALE}
REVIEW = {"digest_seen": "0" * 64, "classification": "read"}
PROVIDER = {**SLUG, "base_url": "https://p.example/v1"}
CONNECTOR = {**SLUG, "url": "https://t.example/mcp"}
MODEL = {**SLUG, "provider": "provider", "upstream_model": "m"}

#: A body that each writing operation would accept, by operation id.
BODIES: dict[str, dict[str, Any]] = {
    "create_organization": SLUG,
    "suspend_organization": RATIONALE,
    "resume_organization": RATIONALE,
    "create_team": SLUG,
    "create_environment": SLUG,
    "add_member": {"username": "somebody"},
    "change_member": {"active": False},
    "create_provider": PROVIDER,
    "change_provider": {"enabled": False},
    "create_virtual_model": MODEL,
    "change_virtual_model": {"enabled": False},
    "add_rate_card": CARD,
    "create_connector": CONNECTOR,
    "change_connector": {"enabled": False},
    "refresh_connector": {},
    "review_tool": REVIEW,
    "withdraw_tool": {},
    "create_agent": {**SLUG, "team": "support"},
    "rename_agent": {"name": "Other"},
    "suspend_agent": RATIONALE,
    "resume_agent": RATIONALE,
    "open_agent_environment": RATIONALE,
    "add_grant": {"environment": "staging", "virtual_model": "standard"},
    "revoke_grant": {},
    "mint_key": SCOPE,
    "revoke_key": {},
    "save_draft": {"instructions": "mine"},
    "publish_draft": PUBLISH,
    "publish_version": {"environment": "production", **RATIONALE},
    "unpublish_agent": {"environment": "production", **RATIONALE},
}
#: What every person of an organization may read.
OPEN_READS = {
    "list_organizations", "get_organization", "list_teams", "list_environments",
    "list_agents", "get_agent", "list_versions", "get_version", "list_publications",
}  # fmt: skip
#: What managers of any team may read as well.
RESOURCE_READS = {
    "list_virtual_models", "get_virtual_model", "list_rate_cards", "list_tools", "get_tool",
}  # fmt: skip


def operations() -> list[tuple[str, str, str]]:
    """(operation id, method, path template) of every operation under /api/v1."""
    document = api.get_openapi_schema(path_prefix="")
    return [
        (operation["operationId"], method, path.removeprefix("/api/v1"))
        for path, methods in document["paths"].items()
        if path.startswith("/api/v1/")
        for method, operation in methods.items()
    ]


OPERATIONS = operations()


@pytest.fixture
def world() -> World:
    return make_world()


def call(api: Api, world: World, name: str, method: str, template: str) -> Any:
    values = {
        "agent": "order-desk",
        "environment": "staging",
        "accessor": world.key.accessor,
        "number": "1",
        "user_id": str(world.member_user.id),
        "grant_id": str(world.model_grant.id),
        "tool_id": str(uuid.uuid4()),
    }
    values["slug"] = {"virtual-models": "standard", "providers": "provider"}.get(
        template.split("/")[1], "acme"
    )
    if "connectors" in template:
        values["slug"] = "mandate"
    path = template.format(**values)
    headers = {"If-Match": f'"{"0" * 64}"'} if name == "save_draft" else {}
    return api.send(method, path, BODIES.get(name), headers=headers)


def test_the_table_knows_every_writing_operation() -> None:
    assert {name for name, method, _ in OPERATIONS if method != "get"} == set(BODIES)


def refusals(api: Api, world: World, code: str, *, allowed: set[str]) -> dict[str, Any]:
    """Call everything; return what answered otherwise than it should: a refusal with *code*.

    Operations in *allowed* may answer 200 or, for what this world does not hold, 404.
    """
    wrong: dict[str, Any] = {}
    before = AuditEvent.objects.count()
    for name, method, template in OPERATIONS:
        answer = call(api, world, name, method, template)
        if name in allowed:
            right = answer.status_code in {200, 404}
        else:
            right = answer["Content-Type"] == CONTENT_TYPE and answer.json()["code"] == code
        if not right or AuditEvent.objects.count() != before:
            wrong[name] = answer.content
    return wrong


def test_nobody_is_let_in(world: World) -> None:
    assert refusals(Api(), world, "unauthenticated", allowed=set()) == {}


def test_a_member_writes_nothing(world: World) -> None:
    member = Api(world.member_user)
    assert refusals(member, world, "forbidden", allowed=OPEN_READS) == {}


def test_a_manager_of_another_team_writes_nothing(world: World) -> None:
    other = User.objects.create_user("other-manager")
    team = Team.objects.create(organization=world.organization, name="Other", slug="other")
    place = Membership.objects.create(
        user=other, organization=world.organization, role="agent_manager"
    )
    place.teams.add(team)
    wrong = refusals(Api(other), world, "forbidden", allowed=OPEN_READS | RESOURCE_READS)
    assert wrong == {}


def test_another_organizations_things_do_not_exist(world: World) -> None:
    mallory = Api(make_world(name="globex").manager_user, organization="acme")
    wrong = refusals(mallory, world, "not_found", allowed={"list_organizations"})
    assert json.loads(wrong.pop("create_organization"))["code"] == "forbidden"
    assert wrong == {}
    assert [r["slug"] for r in mallory.get("/organizations").json()["items"]] == ["globex"]


def test_operators_reach_no_content_and_manage_no_agent(world: World) -> None:
    operator = Api(world.operator_user, organization="acme")
    refused = {
        name
        for name, method, template in OPERATIONS
        if call(operator, world, name, method, template).status_code == 403
    }
    assert refused == {
        "create_agent", "rename_agent", "resume_agent", "open_agent_environment", "add_grant",
        "mint_key", "get_draft", "save_draft", "publish_draft", "publish_version",
    }  # fmt: skip
