"""``/api/v1``: organizations, teams, environments, members and agents."""

from __future__ import annotations

import pytest

from agents.models import AuditEvent, Membership, User
from tests.api_client import Api, problem_of
from tests.world import PASSWORD, World, make_world

pytestmark = pytest.mark.django_db(databases="__all__")


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
def operator(world: World) -> Api:
    return Api(world.operator_user, organization="acme")


@pytest.fixture
def manager(world: World) -> Api:
    return Api(world.manager_user)


def test_an_operator_builds_an_organization(operator: Api) -> None:
    made = operator.post("/organizations", {"name": "Initech", "slug": "initech"}, query={})
    assert made.status_code == 201
    assert made.json()["status"] == "active"
    there = Api(User.objects.get(username="acme-operator"), organization="initech")
    for path, slug in (("/teams", "desk"), ("/environments", "live")):
        assert there.post(path, {"name": slug.title(), "slug": slug}).status_code == 201
        assert [row["slug"] for row in there.get(path).json()["items"]] == [slug]
    assert {"initech", "acme"} == {
        row["slug"] for row in there.get("/organizations").json()["items"]
    }


def test_a_second_organization_with_the_slug_is_refused(operator: Api) -> None:
    refused = operator.post("/organizations", {"name": "Again", "slug": "acme"})
    assert problem_of(refused, 409, "conflict")["field"] == "slug"


def test_operators_must_name_the_organization(world: World) -> None:
    refused = Api(world.operator_user).get("/teams")
    assert problem_of(refused, 422, "invalid")["field"] == "organization"


def test_people_need_not_name_their_own_organization(manager: Api) -> None:
    assert [row["slug"] for row in manager.get("/organizations").json()["items"]] == ["acme"]
    assert manager.get("/teams", query={"organization": "acme"}).status_code == 200


def test_a_member_is_made_with_an_initial_password(world: World, operator: Api) -> None:
    body = {"username": "nina", "password": PASSWORD, "role": "agent_manager", "teams": ["support"]}
    made = operator.post("/members", body)
    assert made.status_code == 201
    assert (made.json()["role"], made.json()["teams"]) == ("agent_manager", ["support"])
    assert PASSWORD not in made.content.decode()
    assert User.objects.get(username="nina").check_password(PASSWORD)
    event = AuditEvent.objects.latest("seq")
    assert (event.action, event.data["role"]) == ("member.add", "agent_manager")


def test_a_weak_initial_password_is_refused_and_nothing_is_made(operator: Api) -> None:
    refused = operator.post("/members", {"username": "nina", "password": "12345"})
    assert problem_of(refused, 422, "invalid")["field"] == "password"
    assert not User.objects.filter(username="nina").exists()


def test_an_existing_account_is_added_once(operator: Api) -> None:
    User.objects.create_user("olaf", password=PASSWORD)
    assert operator.post("/members", {"username": "olaf"}).status_code == 201
    problem_of(operator.post("/members", {"username": "olaf"}), 409, "conflict")
    problem_of(operator.post("/members", {"username": "nobody"}), 404, "not_found")
    taken = operator.post("/members", {"username": "olaf", "password": PASSWORD})
    assert problem_of(taken, 409, "conflict")["field"] == "username"


def test_a_deactivated_member_is_nobody_from_the_next_request_on(
    world: World, operator: Api
) -> None:
    member = Api(world.member_user)
    assert member.get("/agents").status_code == 200
    changed = operator.patch(f"/members/{world.member_user.id}", {"active": False})
    assert changed.json()["active"] is False
    problem_of(member.get("/agents"), 401, "unauthenticated")


def test_a_members_teams_and_role_change(world: World, operator: Api) -> None:
    path = f"/members/{world.member_user.id}"
    assert operator.patch(path, {"role": "agent_manager", "teams": ["support"]}).status_code == 200
    place = Membership.objects.get(user=world.member_user)
    assert (place.role, place.teams.count()) == ("agent_manager", 1)
    problem_of(operator.patch(path, {}), 422, "invalid")
    problem_of(operator.patch(path, {"teams": ["nowhere"]}), 422, "invalid")


def test_an_agent_is_made_read_and_renamed_by_its_manager(manager: Api) -> None:
    body = {"name": "Refunds", "slug": "refunds", "team": "support"}
    made = manager.post("/agents", body)
    assert made.status_code == 201
    assert {slot["state"] for slot in made.json()["environments"]} == {"contained"}
    assert manager.patch("/agents/refunds", {"name": "Money back"}).json()["name"] == "Money back"
    assert manager.get("/agents/refunds").json()["name"] == "Money back"
    names = [row["slug"] for row in manager.get("/agents").json()["items"]]
    assert "refunds" in names


def test_suspension_says_what_it_ended_and_happens_once(world: World, manager: Api) -> None:
    path = f"/agents/{world.agent.slug}/actions"
    ended = manager.post(f"{path}/suspend", {"rationale": "it misbehaves"})
    assert ended.status_code == 200
    assert set(ended.json()) == {"seconds", "keys_revoked", "runs_stopped", "approvals_voided"}
    problem_of(manager.post(f"{path}/suspend", {"rationale": "again"}), 409, "conflict")
    assert manager.post(f"{path}/resume", {"rationale": "mended"}).json()["status"] == "active"


def test_operators_suspend_agents_and_organizations_but_resume_no_agent(
    world: World, operator: Api
) -> None:
    path = f"/agents/{world.agent.slug}/actions"
    assert operator.post(f"{path}/suspend", {"rationale": "stop"}).status_code == 200
    problem_of(operator.post(f"{path}/resume", {"rationale": "go"}), 403, "forbidden")
    stopped = operator.post("/organizations/acme/actions/suspend", {"rationale": "unpaid"})
    assert stopped.status_code == 200
    again = operator.post("/organizations/acme/actions/resume", {"rationale": "paid"})
    assert again.json()["status"] == "active"


def test_an_environment_is_opened_for_a_runtime_outside(world: World, manager: Api) -> None:
    path = f"/agents/{world.agent.slug}/environments/staging/actions/open"
    opened = manager.post(path, {"rationale": "runs elsewhere"})
    assert opened.json() == {"environment": "staging", "state": "open", "published_version": None}
    problem_of(manager.post(path, {"rationale": "again"}), 409, "conflict")


def test_pages_are_bounded(manager: Api) -> None:
    page = manager.get("/environments", query={"limit": 1, "offset": 1}).json()
    assert (len(page["items"]), page["count"]) == (1, 2)
    for query in ({"limit": 201}, {"limit": 0}, {"offset": -1}, {"offset": 10**9}, {"limit": "x"}):
        problem_of(manager.get("/environments", query=query), 422, "invalid")
