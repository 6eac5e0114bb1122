"""The agent page: save with conflict, publish, publish again, unpublish; who may."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from agents import content_store
from agents.choices import Classification
from agents.models import Agent, Blob, Tool
from agents.services import grants, identity, resources
from agents.services.tools import ObservedTool, apply_listing, review_tool
from definitions.models import Draft, Version
from definitions.selectors import draft_of, open_draft
from tests.world import World, make_world

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

HTMX = {"HX-Request": "true"}
PAGE = "/agents/order-desk/"


@pytest.fixture
def world() -> World:
    return make_world(open_agent=False)


@pytest.fixture
def refund(world: World) -> Tool:
    """An accepted action, granted in production."""
    connector = resources.create_connector(
        actor=world.operator,
        organization=world.organization,
        name="Orders",
        slug="orders",
        url="https://tools.example/mcp",
        credential="c",
    )
    apply_listing(
        connector=connector,
        listing=[ObservedTool("refund", "", "Pays back.", {"type": "object"}, {})],
    )
    tool = Tool.objects.get(connector=connector)
    tool = review_tool(
        actor=world.operator,
        tool=tool,
        digest_seen=tool.digest,
        classification=Classification.ACTION,
        rationale="Read it.",
    )
    grants.grant(
        actor=world.manager, agent=world.agent, environment=world.production, resource=tool
    )
    return tool


@pytest.fixture
def manager(client: Client, world: World) -> Client:
    client.force_login(world.manager_user)
    return client


def save(client: Client, world: World, text: str, base: str = "", **data: Any) -> Any:
    form = {
        "instructions": text,
        "model": str(world.model.id),
        "base": base or draft_of(world.agent).digest,
        **data,
    }
    return client.post(PAGE, form, headers=data.pop("headers", HTMX))


def publish(client: Client, world: World, **data: Any) -> Any:
    form = {
        "environment": "production",
        "digest": draft_of(world.agent).digest,
        "rationale": "It is time.",
        "key": "one",
        **data,
    }
    return client.post(f"{PAGE}publish/", form, headers=HTMX)


def text_of(answer: Any) -> str:
    return re.sub(r"\s+", " ", answer.content.decode())


# --- save -----------------------------------------------------------------------------------


def test_saving_works(manager: Client, world: World, refund: Tool) -> None:
    answer = save(manager, world, "Be kind.", tools=[str(refund.id)])
    assert answer.status_code == 200
    definition = open_draft(draft_of(world.agent))
    assert definition.instructions == "Be kind."
    assert definition.virtual_model_id == world.model.id
    assert definition.tool_ids == (refund.id,)
    assert f'name="base" value="{draft_of(world.agent).digest}"' in text_of(answer)
    assert "<html" not in text_of(answer), "the form would lose its focus"


def test_saving_works_without_javascript(manager: Client, world: World) -> None:
    form = {"instructions": "Plain.", "model": "", "base": draft_of(world.agent).digest}
    answer = manager.post(PAGE, form)
    assert (answer.status_code, answer["Location"]) == (302, f"{PAGE}?environment=production")
    assert open_draft(draft_of(world.agent)).instructions == "Plain."


@pytest.mark.parametrize("headers", [HTMX, {}], ids=["htmx", "plain"])
def test_a_conflict_shows_both_and_loses_neither(
    manager: Client, world: World, headers: dict[str, str]
) -> None:
    seen = draft_of(world.agent).digest
    save(manager, world, "Theirs: be formal.")
    answer = save(manager, world, "Mine: be brief.", base=seen, headers=headers)
    assert answer.status_code == 409
    assert "Theirs: be formal." in text_of(answer)
    assert "Mine: be brief." in text_of(answer)
    assert "acme-manager saved this draft" in text_of(answer)
    assert open_draft(draft_of(world.agent)).instructions == "Theirs: be formal."
    theirs = draft_of(world.agent).digest
    answer = save(manager, world, "Mine: be brief.", base=seen, overwrite=theirs)
    assert answer.status_code == 200
    assert open_draft(draft_of(world.agent)).instructions == "Mine: be brief."


def test_an_overwrite_of_a_draft_that_moved_again_conflicts_again(
    manager: Client, world: World
) -> None:
    seen = draft_of(world.agent).digest
    save(manager, world, "Second.")
    second = draft_of(world.agent).digest
    save(manager, world, "Third.")
    answer = save(manager, world, "Mine.", base=seen, overwrite=second)
    assert answer.status_code == 409
    assert open_draft(draft_of(world.agent)).instructions == "Third."


def test_too_long_instructions_are_refused_beside_the_field(manager: Client, world: World) -> None:
    before = draft_of(world.agent).digest
    answer = save(manager, world, "ä" * 32_769)
    assert answer.status_code == 422
    assert "64 KiB" in text_of(answer)
    assert draft_of(world.agent).digest == before


@pytest.mark.parametrize(
    ("field", "value"),
    [("model", "11111111-1111-4111-8111-111111111111"), ("tools", "x"), ("instructions", "a\x00")],
)
def test_values_that_were_not_offered_are_refused(
    manager: Client, world: World, field: str, value: str
) -> None:
    form: dict[str, Any] = {"instructions": "x", "base": draft_of(world.agent).digest}
    answer = manager.post(PAGE, form | {field: value}, headers=HTMX)
    assert answer.status_code == 422


def test_an_ungranted_tool_of_the_draft_stays_and_is_explained(
    manager: Client, world: World, refund: Tool
) -> None:
    save(manager, world, "Be kind.", tools=[str(refund.id)])
    grants.revoke_grant(actor=world.manager, grant=refund.grants.get())
    page = text_of(manager.get(PAGE))
    assert "Not granted in production, staging: it is left out there." in page
    answer = save(manager, world, "Be kinder.", tools=[str(refund.id)])
    assert answer.status_code == 200
    assert open_draft(draft_of(world.agent)).tool_ids == (refund.id,)


def test_instructions_are_escaped(manager: Client, world: World) -> None:
    save(manager, world, "</textarea><script>alert(1)</script>")
    page = manager.get(PAGE).content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_a_damaged_draft_is_said_and_not_overwritten(manager: Client, world: World) -> None:
    save(manager, world, "Be kind.")
    draft = draft_of(world.agent)
    Blob.objects.filter(digest=draft.digest).delete()
    page = manager.get(PAGE)
    assert page.status_code == 200
    assert "content_damaged" in text_of(page)
    assert "<textarea" not in text_of(page)
    save(manager, world, "Overwritten.")
    assert Draft.objects.get(agent=world.agent).digest == draft.digest
    assert manager.get("/agents/").status_code == 200


# --- publish and unpublish ------------------------------------------------------------------


def test_the_dialog_tells_what_will_change(manager: Client, world: World, refund: Tool) -> None:
    save(manager, world, "Be kind to customers.")
    publish(manager, world)
    save(manager, world, "Be brief to customers.", tools=[str(refund.id)])
    dialog = text_of(manager.get(f"{PAGE}publish/?environment=production", headers=HTMX))
    assert "refund (action) can be called" in dialog
    assert "<del>kind</del><ins>brief</ins>" in dialog
    assert "Publish v2 to production" in dialog
    assert "<html" not in dialog
    staging = text_of(manager.get(f"{PAGE}publish/?environment=staging"))
    assert "The model Standard is not granted in staging." in staging
    assert "refund is not granted in staging: it is left out there." in staging
    assert "<html" in staging


def test_publishing_works(manager: Client, world: World) -> None:
    save(manager, world, "Be kind.")
    answer = publish(manager, world)
    assert answer["HX-Redirect"] == f"{PAGE}?environment=production"
    version = Version.objects.get(agent=world.agent)
    assert (version.number, version.rationale) == (1, "It is time.")
    page = text_of(manager.get(PAGE))
    assert "v1 is live in production." in page
    assert "Live v1" in page


def test_publishing_needs_a_rationale(manager: Client, world: World) -> None:
    save(manager, world, "Be kind.")
    answer = publish(manager, world, rationale="  ")
    assert answer.status_code == 422
    assert "This field is required" in text_of(answer)
    assert not Version.objects.exists()


def test_publishing_a_draft_that_moved_is_refused(manager: Client, world: World) -> None:
    save(manager, world, "Be kind.")
    seen = draft_of(world.agent).digest
    save(manager, world, "Be rude.")
    answer = publish(manager, world, digest=seen)
    assert answer.status_code == 422
    assert "The draft changed since you opened it" in text_of(answer)
    assert not Version.objects.exists()
    assert draft_of(world.agent).digest in text_of(answer), "the dialog shows the new one"


def test_a_double_click_publishes_once(manager: Client, world: World) -> None:
    save(manager, world, "Be kind.")
    publish(manager, world)
    publish(manager, world)
    assert Version.objects.count() == 1


def test_an_old_version_is_published_again_under_its_number(manager: Client, world: World) -> None:
    save(manager, world, "First.")
    publish(manager, world)
    save(manager, world, "Second.")
    publish(manager, world, key="two")
    dialog = text_of(manager.get(f"{PAGE}publish/?version=1", headers=HTMX))
    assert "Publish v1 of Order desk again" in dialog
    answer = publish(manager, world, version="1", key="three")
    assert "HX-Redirect" in answer
    assert Version.objects.count() == 2
    assert "Live v1" in text_of(manager.get(PAGE))
    assert manager.get(f"{PAGE}publish/?version=9", headers=HTMX).status_code == 404
    assert manager.get(f"{PAGE}publish/?version=x", headers=HTMX).status_code == 404


def test_unpublish_contains_and_reports(manager: Client, world: World) -> None:
    save(manager, world, "Be kind.")
    publish(manager, world)
    dialog = text_of(manager.get(f"{PAGE}unpublish/?environment=production", headers=HTMX))
    assert "Unpublish from production" in dialog
    refused = manager.post(f"{PAGE}unpublish/", {"environment": "production"}, headers=HTMX)
    assert refused.status_code == 422
    answer = manager.post(
        f"{PAGE}unpublish/", {"environment": "production", "rationale": "Incident."}, headers=HTMX
    )
    assert "HX-Redirect" in answer
    page = text_of(manager.get(PAGE))
    assert re.search(r"contained in (\d+\.\d s|\d+ ms): 0 keys revoked, 0 runs stopped", page)
    assert "contained</span>" in page
    again = manager.post(
        f"{PAGE}unpublish/", {"environment": "production", "rationale": "Again."}, headers=HTMX
    )
    assert again.status_code == 422
    assert "Nothing is published in this environment" in text_of(again)


def test_get_changes_nothing(manager: Client, world: World) -> None:
    save(manager, world, "Be kind.")
    manager.get(f"{PAGE}publish/?environment=production&rationale=x&key=y")
    manager.get(f"{PAGE}unpublish/?environment=production&rationale=x")
    assert not Version.objects.exists()


# --- suspend, resume, create ----------------------------------------------------------------


def test_suspend_stops_and_reports_and_resume_undoes_it(manager: Client, world: World) -> None:
    save(manager, world, "Be kind.")
    publish(manager, world)
    dialog = text_of(manager.get(f"{PAGE}suspend/", headers=HTMX))
    assert "Suspend Order desk" in dialog
    assert "Pending approvals that end" in dialog
    assert manager.post(f"{PAGE}suspend/", {"rationale": " "}, headers=HTMX).status_code == 422
    answer = manager.post(f"{PAGE}suspend/", {"rationale": "Incident."}, headers=HTMX)
    assert answer["HX-Redirect"] == f"{PAGE}?environment=production"
    assert Agent.objects.get(id=world.agent.id).status == "suspended"
    page = text_of(manager.get(PAGE))
    assert re.search(r"Order desk is suspended, contained in (\d+\.\d s|\d+ ms): 0 keys", page)
    assert "suspended</span>" in page
    assert "Suspend…" not in page
    again = manager.post(f"{PAGE}suspend/", {"rationale": "Again."}, headers=HTMX)
    assert again.status_code == 422
    assert "suspended already" in text_of(again)
    assert "v1" in text_of(manager.get(f"{PAGE}resume/"))
    assert manager.post(f"{PAGE}resume/", {}, headers=HTMX).status_code == 422
    manager.post(f"{PAGE}resume/", {"rationale": "Mended."}, headers=HTMX)
    assert Agent.objects.get(id=world.agent.id).status == "active"
    assert "Live v1" in text_of(manager.get(PAGE))


def test_a_suspension_does_not_make_a_place_look_published_before(
    manager: Client, world: World
) -> None:
    assert text_of(manager.get(PAGE)).count("Nothing has been published here.") == 2
    manager.post(f"{PAGE}suspend/", {"rationale": "Incident."}, headers=HTMX)
    manager.post(f"{PAGE}resume/", {"rationale": "Mended."}, headers=HTMX)
    page = text_of(manager.get(PAGE))
    assert page.count("Nothing has been published here.") == 2
    assert "contained</span>" not in page
    assert "contained</span>" not in text_of(manager.get("/agents/"))


def test_a_manager_creates_an_agent_in_an_own_team(manager: Client, world: World) -> None:
    assert "New agent" in text_of(manager.get("/agents/"))
    form = {"name": "Returns", "slug": "returns", "team": str(world.team.id)}
    answer = manager.post("/agents/+new/", form, headers=HTMX)
    assert answer["HX-Redirect"] == "/agents/returns/?environment=production"
    made = Agent.objects.get(slug="returns")
    assert (made.name, made.team_id) == ("Returns", world.team.id)
    assert manager.get("/agents/returns/").status_code == 200
    again = manager.post("/agents/+new/", form, headers=HTMX)
    assert again.status_code == 422
    assert "An agent with this slug exists." in text_of(again)
    assert 'value="Returns"' in text_of(again), "what was typed is lost"
    other = identity.create_team(
        actor=world.operator, organization=world.organization, name="Other", slug="other"
    )
    foreign = manager.post("/agents/+new/", {**form, "slug": "theirs", "team": str(other.id)})
    assert foreign.status_code == 422
    assert not Agent.objects.filter(slug="theirs").exists()


def test_a_member_reads_a_true_sentence_and_creates_nothing(client: Client, world: World) -> None:
    client.force_login(world.member_user)
    page = text_of(client.get("/agents/"))
    assert "Agent managers see the agents of their teams here." in page
    assert "New agent" not in page
    form = {"name": "Mine", "slug": "mine", "team": str(world.team.id)}
    assert client.post("/agents/+new/", form).status_code == 403
    assert not Agent.objects.filter(slug="mine").exists()


# --- who may --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", [PAGE, *(f"{PAGE}{name}/" for name in ("publish", "unpublish", "suspend", "resume"))]
)
def test_members_and_managers_of_other_teams_may_not(
    client: Client, world: World, path: str
) -> None:
    other = identity.create_team(
        actor=world.operator, organization=world.organization, name="Other", slug="other"
    )
    Agent.objects.filter(id=world.agent.id).update(team=other)
    for user in (world.member_user, world.manager_user):
        client.force_login(user)
        assert client.get(path).status_code == 403
        assert client.post(path, {}).status_code == 403
        answer = client.post(path, {}, headers=HTMX)
        assert answer.status_code == 403
        assert "mandate:refused" in answer["HX-Trigger"]


def test_other_organizations_find_nothing(client: Client, world: World) -> None:
    stranger = make_world(name="globex")
    Agent.objects.filter(id=stranger.agent.id).update(slug="theirs")
    client.force_login(stranger.manager_user)
    assert client.get(PAGE).status_code == 404
    assert client.post(PAGE, {}).status_code == 404


def test_the_list_has_the_teams_agents_and_a_search(manager: Client, world: World) -> None:
    save(manager, world, "Be kind.")
    publish(manager, world)
    page = text_of(manager.get("/agents/"))
    assert "Order desk" in page
    assert "Live v1" in page
    assert "No agent matches" in text_of(manager.get("/agents/?q=zebra"))
    assert "Order desk" in text_of(manager.get("/agents/?q=ORDER"))
    assert manager.get("/agents/?environment=nowhere").status_code == 404


def test_the_list_is_a_constant_number_of_queries(
    manager: Client, world: World, django_assert_max_num_queries: Any
) -> None:
    from definitions.services.drafts import create_agent

    for number in range(8):
        create_agent(
            actor=world.manager, team=world.team, name=f"Agent {number}", slug=f"agent-{number}"
        )
    with django_assert_max_num_queries(16):
        manager.get("/agents/")


def test_the_content_store_is_touched_by_nothing_in_the_list(
    manager: Client, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a list opened content")

    monkeypatch.setattr(content_store, "get", refuse)
    assert manager.get("/agents/").status_code == 200
