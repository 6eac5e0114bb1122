"""The operators' admin: everything to look at, nothing to leak, services behind every change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from agents.models import (
    Agent,
    AgentKey,
    AuditEvent,
    Connector,
    Grant,
    Membership,
    ModelProvider,
    Organization,
    RateCard,
    Tool,
    User,
    VirtualModel,
)
from agents.services.tools import ObservedTool, apply_listing
from tests.api_client import Api
from tests.fakes.mcp_server import FakeMCP, tool
from tests.world import PASSWORD, PROVIDER_CREDENTIAL, World, allow, make_world

CREDENTIAL = "credential-canary-3391"
LIMIT_NAME = {"output_limit_parameter": "max_completion_tokens"}
CHANGEABLE = {
    "agents_modelprovider", "agents_virtualmodel", "agents_connector", "agents_membership",
}  # fmt: skip
pytestmark = pytest.mark.django_db(databases="__all__")


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
def operator(world: World) -> Client:
    """Signed in as somebody with ``is_staff`` and no other permission."""
    assert not world.operator_user.is_superuser
    client = Client()
    client.force_login(world.operator_user)
    return client


@pytest.fixture
def refund(world: World) -> Tool:
    connector = Connector.objects.create(
        organization=world.organization, name="Orders", slug="orders", url="https://t.example/mcp"
    )
    apply_listing(connector=connector, listing=[ObservedTool("refund", "", "Refund", {}, {})])
    found: Tool = Tool.objects.get(connector=connector)
    return found


def page(name: str, *args: Any) -> str:
    return reverse(f"admin:{name}", args=args)


def run_action(client: Client, model: str, action: str, row: Any, **members: str) -> Any:
    data = {"action": action, "_selected_action": [str(row.pk)], **members}
    return client.post(page(f"agents_{model}_changelist"), data, follow=True)


def registered() -> Iterator[tuple[str, Any]]:
    for model, model_admin in admin.site._registry.items():
        yield f"{model._meta.app_label}_{model._meta.model_name}", model_admin


def test_staff_see_every_list_and_every_row(operator: Client, refund: Tool) -> None:
    assert operator.get(page("index")).status_code == 200
    for name, model_admin in registered():
        assert operator.get(page(f"{name}_changelist"), {"q": "a"}).status_code == 200, name
        row = model_admin.model._default_manager.first()
        if row is not None:
            seen = operator.get(page(f"{name}_change", row.pk))
            assert seen.status_code == 200, name
            for secret in (PROVIDER_CREDENTIAL, "pbkdf2_", "md5$", "v1|A256GCM"):
                assert secret not in seen.content.decode(), name


def test_a_lists_queries_do_not_grow_with_its_rows(
    operator: Client, world: World, django_assert_max_num_queries: Any
) -> None:
    for number in range(8):
        world.mint_key()
        world.add_model(f"model-{number}")
    for name in ("agentkey", "grant", "virtualmodel", "modelprovider", "agent", "membership"):
        with django_assert_max_num_queries(10):
            operator.get(page(f"agents_{name}_changelist"))


def test_content_and_secrets_are_not_registered() -> None:
    labels = {model._meta.label for model in admin.site._registry}
    assert {label.split(".")[0] for label in labels} <= {"agents", "definitions", "chat"}
    control = {
        model._meta.label
        for app in ("agents", "definitions", "chat")
        for model in apps.get_app_config(app).get_models()
    }
    assert control - labels == {
        "agents.Blob", "agents.InstallationSecret", "chat.SessionEvent", "chat.ThreadText",
    }  # fmt: skip


def test_people_who_are_no_staff_do_not_get_in(world: World) -> None:
    client = Client()
    client.force_login(world.manager_user)
    for name, _ in registered():
        answer = client.get(page(f"{name}_changelist"))
        assert answer.status_code == 302, name
        assert answer["Location"].startswith("/admin/login/")


def test_nothing_can_be_deleted_and_records_cannot_be_changed(
    operator: Client, world: World
) -> None:
    for name, model_admin in registered():
        row = model_admin.model._default_manager.first()
        if row is None:
            continue
        assert operator.post(page(f"{name}_delete", row.pk), {"post": "yes"}).status_code == 403
        if name not in CHANGEABLE:
            assert operator.post(page(f"{name}_change", row.pk), {}).status_code == 403, name
    for name in ("agents_auditevent", "definitions_version", "agents_run", "agents_agentkey"):
        assert operator.post(page(f"{name}_add"), {}).status_code == 403


# --- forms end in the same services as the API --------------------------------------------------


def facts(row: Any, *fields: str) -> dict[str, Any]:
    return {name: getattr(row, name) for name in fields}


def audit_facts() -> list[tuple[str, str, str, str, Any]]:
    """The last two events, without what differs between two rows."""
    events = AuditEvent.objects.order_by("-seq")[:2]
    return [
        (e.action, e.actor_kind, e.actor_id, e.target_kind, sorted(e.data)) for e in events
    ]  # fmt: skip


def test_admin_and_api_make_and_move_the_same_provider(operator: Client, world: World) -> None:
    api = Api(world.operator_user, organization="acme")
    first, moved = "https://one.example/v1", "https://two.example/v1"
    body = {"name": "By API", "slug": "by-api", "base_url": first, "credential": CREDENTIAL}
    assert api.post("/providers", body).status_code == 201
    patch = {"base_url": moved, "credential": "x", **LIMIT_NAME}
    assert api.patch("/providers/by-api", patch).status_code == 200
    told_by_api = audit_facts()

    form = {
        "organization": str(world.organization.id), "name": "By admin", "slug": "by-admin",
        "base_url": f"{first}/", "new_credential": CREDENTIAL, "enabled": "on",
        **LIMIT_NAME,
    }  # fmt: skip
    added = operator.post(page("agents_modelprovider_add"), form)
    assert added.status_code == 302, added.context["errors"]
    made = ModelProvider.objects.get(slug="by-admin")
    assert made.open_value("credential") == CREDENTIAL
    change = {
        "name": "By admin", "base_url": moved, "new_credential": "x", "enabled": "on", **LIMIT_NAME,
    }  # fmt: skip
    changed = operator.post(page("agents_modelprovider_change", made.pk), change)
    assert changed.status_code == 302
    assert audit_facts() == told_by_api
    by_api, by_admin = (ModelProvider.objects.get(slug=s) for s in ("by-api", "by-admin"))
    fields = ("base_url", "enabled", "organization_id", "output_limit_parameter")
    assert facts(by_api, *fields) == facts(by_admin, *fields)
    assert by_api.output_limit_parameter == "max_completion_tokens"
    assert by_api.open_value("credential") == by_admin.open_value("credential") == "x"


def test_admin_and_api_make_the_same_model_card_and_connector(
    operator: Client, world: World
) -> None:
    api = Api(world.operator_user, organization="acme")
    model = {"name": "M", "upstream_model": "m-1", "context_limit": 4096, "output_limit": 64}
    card = {"input_rate": 5, "output_rate": 6, "cache_read_rate": 0, "cache_write_rate": 7}
    server = {"name": "C", "url": "https://tools.example/mcp", "credential": CREDENTIAL}
    api.post("/virtual-models", {**model, "slug": "by-api", "provider": "provider"})
    api.post("/virtual-models/by-api/rate-cards", {**card, "rationale": "agreed"})
    told_by_api = audit_facts()
    made = operator.post(
        page("agents_virtualmodel_add"),
        {**model, "slug": "by-admin", "provider": str(world.provider.id), "enabled": "on"},
    )
    assert made.status_code == 302, made.context["errors"]
    by_api, by_admin = (VirtualModel.objects.get(slug=s) for s in ("by-api", "by-admin"))
    priced = operator.post(
        page("agents_ratecard_add"),
        {**card, "virtual_model": str(by_admin.id), "rationale": "agreed"},
    )
    assert priced.status_code == 302, priced.context["errors"]
    assert audit_facts() == told_by_api
    fields = ("name", "upstream_model", "context_limit", "output_limit", "provider_id", "enabled")
    assert facts(by_api, *fields) == facts(by_admin, *fields)
    cards = [RateCard.objects.get(virtual_model=row) for row in (by_api, by_admin)]
    assert facts(cards[0], *card, "created_by_id") == facts(cards[1], *card, "created_by_id")

    api.post("/connectors", {**server, "slug": "c-api"})
    api.patch("/connectors/c-api", {"enabled": False})
    told_by_api = audit_facts()
    form = {
        "name": "C", "url": server["url"], "new_credential": CREDENTIAL, "slug": "c-admin",
        "organization": str(world.organization.id),
    }  # fmt: skip
    assert operator.post(page("agents_connector_add"), form).status_code == 302
    assert audit_facts() == told_by_api
    assert Connector.objects.get(slug="c-admin").open_value("credential") == CREDENTIAL


def test_an_operator_builds_an_organization_with_its_people(operator: Client, world: World) -> None:
    made = operator.post(page("agents_organization_add"), {"name": "Initech", "slug": "initech"})
    assert made.status_code == 302, made.context["errors"]
    tenant = Organization.objects.get(slug="initech")
    for kind in ("team", "environment"):
        form = {"organization": str(tenant.id), "name": "First", "slug": "first"}
        assert operator.post(page(f"agents_{kind}_add"), form).status_code == 302
    team = tenant.teams.get()
    person = {
        "organization": str(tenant.id), "username": "nina", "new_password": PASSWORD,
        "role": "agent_manager", "teams": [str(team.id)],
    }  # fmt: skip
    weak = operator.post(page("agents_membership_add"), {**person, "new_password": "12345"})
    assert "too short" in weak.content.decode()
    assert not User.objects.filter(username="nina").exists()
    assert operator.post(page("agents_membership_add"), person).status_code == 302
    place = Membership.objects.get(user__username="nina")
    assert place.user.check_password(PASSWORD)
    assert (place.role, list(place.teams.all())) == ("agent_manager", [team])
    told = [e.action for e in AuditEvent.objects.filter(organization_id=tenant.id).order_by("seq")]
    assert told == ["organization.create", "team.create", "environment.create", "member.add"]
    change = page("agents_membership_change", place.pk)
    assert operator.post(change, {"role": "member", "active": "on"}).status_code == 302
    foreign = {"role": "member", "active": "on", "teams": [str(world.team.id)]}
    refused = operator.post(change, foreign)
    assert "Teams must be of" in refused.content.decode()
    place.refresh_from_db()
    assert (place.role, place.active, place.teams.count()) == ("member", True, 0)
    assert PASSWORD not in str(list(LogEntry.objects.values()))


def test_a_refused_save_changes_nothing_and_says_why(operator: Client, world: World) -> None:
    events = AuditEvent.objects.count()
    elsewhere = "https://elsewhere.example/v1"
    change = {"name": "Renamed", "base_url": elsewhere, "enabled": "on", **LIMIT_NAME}
    refused = operator.post(page("agents_modelprovider_change", world.provider.pk), change)
    assert refused.status_code == 200
    assert "enter the credential again" in refused.content.decode()
    world.provider.refresh_from_db()
    assert (world.provider.name, world.provider.base_url) == (
        "Provider", "https://provider.example/v1",
    )  # fmt: skip
    form = {
        "organization": str(world.organization.id), "name": "Meta", "slug": "meta",
        "base_url": "http://169.254.169.254/v1", "new_credential": CREDENTIAL, "enabled": "on",
        **LIMIT_NAME,
    }  # fmt: skip
    refused = operator.post(page("agents_modelprovider_add"), form)
    assert "OUTGOING_ALLOWED" in str(refused.context["adminform"].form.errors["base_url"])
    assert CREDENTIAL not in refused.content.decode()
    assert not ModelProvider.objects.filter(slug="meta").exists()
    assert AuditEvent.objects.count() == events
    assert not LogEntry.objects.exists()


def test_an_empty_credential_keeps_what_is_stored(operator: Client, world: World) -> None:
    change = {"name": "Renamed", "base_url": world.provider.base_url, "new_credential": ""}
    change |= LIMIT_NAME
    operator.post(page("agents_modelprovider_change", world.provider.pk), change)
    world.provider.refresh_from_db()
    assert (world.provider.name, world.provider.enabled) == ("Renamed", False)
    assert world.provider.open_value("credential") == PROVIDER_CREDENTIAL
    seen = operator.get(page("agents_modelprovider_change", world.provider.pk)).content.decode()
    assert "sealed" in seen
    assert PROVIDER_CREDENTIAL not in seen


def test_the_history_names_fields_and_holds_no_credential(operator: Client, world: World) -> None:
    change = {
        "name": world.provider.name, "base_url": world.provider.base_url,
        "new_credential": CREDENTIAL, "enabled": "on", **LIMIT_NAME,
    }  # fmt: skip
    operator.post(page("agents_modelprovider_change", world.provider.pk), change)
    entry = LogEntry.objects.get()
    assert "Credential" in entry.change_message
    told = f"{entry.object_repr} {entry.change_message}"
    assert CREDENTIAL not in told


# --- actions ------------------------------------------------------------------------------------


def test_an_agent_is_suspended_with_a_rationale(operator: Client, world: World) -> None:
    asked = run_action(operator, "agent", "suspend", world.agent)
    assert "rationale of 1 to 2,000 characters" in asked.content.decode()
    assert Agent.objects.get().status == "active"
    done = run_action(operator, "agent", "suspend", world.agent, rationale="misbehaves")
    assert "contained in" in done.content.decode()
    assert Agent.objects.get().status == "suspended"
    event = AuditEvent.objects.order_by("-seq").first()
    assert event is not None
    assert (event.action, event.rationale) == ("agent.suspend", "misbehaves")


def test_resuming_an_agent_is_its_managers_business(operator: Client, world: World) -> None:
    run_action(operator, "agent", "suspend", world.agent, rationale="misbehaves")
    page = operator.get("/admin/agents/agent/").content.decode()
    assert 'value="suspend"' in page
    assert 'value="resume"' not in page
    run_action(operator, "agent", "resume", world.agent, rationale="mended")
    assert Agent.objects.get().status == "suspended"


def test_an_organization_is_suspended_and_resumed(operator: Client, world: World) -> None:
    for action, status in (("suspend", "suspended"), ("resume", "active")):
        run_action(operator, "organization", action, world.organization, rationale="unpaid")
        world.organization.refresh_from_db()
        assert world.organization.status == status


def test_a_member_is_deactivated_and_activated(operator: Client, world: World) -> None:
    place = world.member_user.membership
    for action, active in (("deactivate", False), ("activate", True)):
        run_action(operator, "membership", action, place)
        place.refresh_from_db()
        assert place.active is active


def test_keys_and_grants_are_revoked_once(operator: Client, world: World) -> None:
    run_action(operator, "agentkey", "revoke", world.key)
    assert AgentKey.objects.get().revoked_at is not None
    again = run_action(operator, "agentkey", "revoke", world.key)
    assert "revoked already" in again.content.decode()
    run_action(operator, "grant", "revoke", world.model_grant)
    assert Grant.objects.get().revoked_at is not None


def test_a_connector_is_refreshed(
    transactional_db: None, operator: Client, world: World, settings: Any
) -> None:
    with FakeMCP(tools=[tool("refund", {"order": "integer"})]) as server:
        allow(settings, server.url)
        connector = Connector.objects.create(
            organization=world.organization, name="Live", slug="live", url=server.url
        )
        done = run_action(operator, "connector", "refresh", connector)
    assert "1 new, 0 changed, 0 gone" in done.content.decode()


def review(client: Client, row: Tool, **changes: str) -> Any:
    shown = run_action(client, "tool", "review", row)
    (form,) = shown.context["formset"]
    data = {
        "review-TOTAL_FORMS": "1", "review-INITIAL_FORMS": "1",
        "review-0-tool_id": str(form.initial["tool_id"]),
        "review-0-digest_seen": form.initial["digest_seen"],
        "review-0-accept": "on", "review-0-classification": "read", "rationale": "looked at it",
        **changes,
    }  # fmt: skip
    return shown, data


def test_a_tool_is_accepted_exactly_as_it_was_shown(operator: Client, refund: Tool) -> None:
    shown, data = review(operator, refund)
    assert "Refund" in shown.content.decode()
    apply_listing(
        connector=refund.connector, listing=[ObservedTool("refund", "", "Refund all", {}, {})]
    )
    late = operator.post(page("agents_tool_review"), data, follow=True)
    assert "changed since you looked" in late.content.decode()
    assert Tool.objects.get(id=refund.id).state == "new"
    _, data = review(operator, refund)
    operator.post(page("agents_tool_review"), data)
    accepted = Tool.objects.get(id=refund.id)
    assert (accepted.state, accepted.classification) == ("accepted", "read")
    run_action(operator, "tool", "withdraw", refund, rationale="no longer trusted")
    assert Tool.objects.get(id=refund.id).state == "new"


def test_a_changed_tool_shows_its_difference_escaped(operator: Client, refund: Tool) -> None:
    _, data = review(operator, refund)
    operator.post(page("agents_tool_review"), data)
    hostile = "Refund <script>alert(1)</script>"
    apply_listing(connector=refund.connector, listing=[ObservedTool("refund", "", hostile, {}, {})])
    for seen in (
        run_action(operator, "tool", "review", refund).content.decode(),
        operator.get(page("agents_tool_change", refund.pk)).content.decode(),
    ):
        assert "&lt;script&gt;" in seen
        assert "<script>alert" not in seen
        assert "+  &quot;description&quot;" in seen


def test_an_unticked_tool_stays_as_it_is(operator: Client, refund: Tool) -> None:
    _, data = review(operator, refund)
    del data["review-0-accept"]
    operator.post(page("agents_tool_review"), data)
    assert Tool.objects.get(id=refund.id).state == "new"
    incomplete = operator.post(page("agents_tool_review"), {"review-TOTAL_FORMS": "x"}, follow=True)
    assert "incomplete" in incomplete.content.decode()
