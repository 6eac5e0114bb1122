"""``/api/v1``: grants, external keys, and an agent's records."""

from __future__ import annotations

from typing import Any

import pytest

from agents.choices import RunState
from agents.models import AgentKey, Boot, Connector, Run, Tool
from agents.services.tools import ObservedTool, apply_listing, review_tool
from tests.api_client import Api, problem_of
from tests.world import World, make_world

pytestmark = pytest.mark.django_db(databases="__all__")
AGENT = "/agents/order-desk"


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
def manager(world: World) -> Api:
    return Api(world.manager_user)


@pytest.fixture
def refund(world: World) -> Tool:
    connector = Connector.objects.create(
        organization=world.organization, name="Orders", slug="orders", url="https://t.example/mcp"
    )
    apply_listing(connector=connector, listing=[ObservedTool("refund", "", "Refund", {}, {})])
    row = Tool.objects.get(connector=connector)
    return review_tool(
        actor=world.operator, tool=row, digest_seen=row.digest, classification="action"
    )


def test_a_manager_grants_lists_and_revokes(manager: Api, refund: Tool) -> None:
    body = {"environment": "staging", "tool": "orders__refund"}
    made = manager.post(f"{AGENT}/grants", body)
    assert made.status_code == 201
    assert (made.json()["kind"], made.json()["resource"]) == ("tool", "orders__refund")
    assert manager.post(f"{AGENT}/grants", body).json()["id"] == made.json()["id"]
    staging = {"environment": "staging"}
    assert manager.get(f"{AGENT}/grants", query=staging).json()["count"] == 1
    path = f"{AGENT}/grants/{made.json()['id']}/actions/revoke"
    assert manager.post(path).status_code == 200
    problem_of(manager.post(path), 409, "conflict")
    assert manager.get(f"{AGENT}/grants", query=staging).json()["count"] == 0
    kept = manager.get(f"{AGENT}/grants", query={**staging, "revoked": "true"}).json()["items"]
    assert kept[0]["revoked_at"] is not None


@pytest.mark.parametrize(
    "resource",
    [{}, {"tool": "a__b", "virtual_model": "standard"}, {"virtual_model": None}],
)
def test_a_grant_names_exactly_one_resource(manager: Api, resource: dict[str, Any]) -> None:
    refused = manager.post(f"{AGENT}/grants", {"environment": "staging", **resource})
    problem_of(refused, 422, "invalid")


def test_a_grant_of_what_does_not_exist_is_404(manager: Api) -> None:
    for resource in ({"tool": "no__tool"}, {"virtual_model": "none"}, {"target_agent": "none"}):
        body = {"environment": "staging", **resource}
        problem_of(manager.post(f"{AGENT}/grants", body), 404, "not_found")


def test_a_keys_text_is_shown_once(manager: Api) -> None:
    body = {"environment": "production", "name": "worker", "scope": {"all_grants": True}}
    minted = manager.post(f"{AGENT}/keys", body)
    assert minted.status_code == 201
    text, key = minted.json()["text"], minted.json()["key"]
    assert text.startswith(f"mk_{key['accessor']}_")
    listing = manager.get(f"{AGENT}/keys")
    assert key["accessor"] in [row["accessor"] for row in listing.json()["items"]]
    assert text not in listing.content.decode()
    assert AgentKey.objects.get(accessor=key["accessor"]).mac not in listing.content.decode()


def test_a_keys_scope_is_said_explicitly(world: World, manager: Api) -> None:
    body = {"environment": "production", "name": "worker"}
    refused: list[dict[str, Any]] = [
        {},
        {"all_grants": False},
        {"all_grants": True, "models": []},
        {"other": []},
    ]
    for scope in refused:
        problem_of(manager.post(f"{AGENT}/keys", {**body, "scope": scope}), 422, "invalid")
    scope = {"models": [str(world.model.id)]}
    minted = manager.post(f"{AGENT}/keys", {**body, "scope": scope, "lifetime": 60}).json()["key"]
    assert minted["scope"] == {"models": scope["models"], "tools": [], "agents": []}
    assert minted["expires_at"] is not None


def test_a_revoked_key_stays_in_the_list(manager: Api, world: World) -> None:
    path = f"{AGENT}/keys/{world.key.accessor}/actions/revoke"
    assert manager.post(path).json()["revoked_at"] is not None
    problem_of(manager.post(path), 409, "conflict")
    problem_of(manager.post(f"{AGENT}/keys/nosuchky/actions/revoke"), 404, "not_found")
    assert manager.get(f"{AGENT}/keys").json()["count"] == 1


def test_an_agents_audit_events_are_listed_newest_first(manager: Api) -> None:
    events = manager.get(f"{AGENT}/audit").json()["items"]
    assert [event["action"] for event in events] == [
        "key.mint", "agent.open", "grant.add", "agent.create",
    ]  # fmt: skip


def test_an_agents_runs_are_listed_as_metadata(world: World, manager: Api) -> None:
    assert manager.get(f"{AGENT}/runs").json() == {"items": [], "count": 0}
    boot = Boot.objects.create(pid=1, host="h", role="web")
    run = Run(
        organization=world.organization, agent=world.agent, environment=world.production,
        client_run_id="r1", request_digest="0" * 64, boot=boot, definition_digest="1" * 64,
        generation=1, state=RunState.RUNNING, deadline_at=boot.created_at, version_number=3,
    )  # fmt: skip
    run.thread_id = run.session_id = run.root_run_id = run.id
    run.save()
    (row,) = manager.get(f"{AGENT}/runs").json()["items"]
    assert (row["id"], row["version"], row["initiator"]) == (str(run.id), 3, None)
    assert (row["environment"], row["state"]) == ("production", "running")
