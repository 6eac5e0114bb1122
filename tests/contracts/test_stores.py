"""Every model is in its store, and the two stores never mix."""

from __future__ import annotations

from django.apps import apps
from django.conf import settings
from django.db import router

CONTENT = {"agents.Blob", "chat.SessionEvent", "chat.ThreadText"}
CONTROL = {
    "agents.Agent", "agents.AgentEnvironment", "agents.AgentKey", "agents.Approval",
    "agents.AuditEvent", "agents.AuditHead", "agents.Boot", "agents.Connector",
    "agents.Environment", "agents.GatewayRequest", "agents.Grant", "agents.IdempotencyRecord",
    "agents.InstallationSecret", "agents.Membership", "agents.ModelProvider",
    "agents.Organization", "agents.ParkedCall", "agents.RateCard", "agents.Run",
    "agents.RunInitiator", "agents.Team", "agents.Tool", "agents.User", "agents.VirtualModel",
    "chat.ChatToken", "chat.Thread",
    "definitions.Draft", "definitions.Publication", "definitions.Version",
}  # fmt: skip
OURS = {"agents", "definitions", "advertisements", "chat", "project"}


def test_every_model_of_ours_is_listed_in_one_store() -> None:
    ours = {m._meta.label for m in apps.get_models() if m._meta.app_label in OURS}
    assert ours == CONTENT | CONTROL
    assert set(settings.CONTENT_MODELS) == CONTENT


def test_the_router_keeps_each_model_in_its_store() -> None:
    for model in apps.get_models():
        expected = "content" if model._meta.label in CONTENT else "default"
        assert router.db_for_read(model) == router.db_for_write(model) == expected
        other = "default" if expected == "content" else "content"
        assert router.allow_migrate_model(expected, model)
        assert not router.allow_migrate_model(other, model)


def test_no_foreign_key_crosses_the_stores() -> None:
    for model in apps.get_models():
        for field in model._meta.get_fields():
            related = field.related_model
            if isinstance(related, type):
                assert (model._meta.label in CONTENT) == (related._meta.label in CONTENT), field


def test_rows_of_lower_apps_point_upward_without_foreign_keys() -> None:
    order = ["agents", "definitions", "advertisements", "chat"]
    for model in apps.get_models():
        label = model._meta.app_label
        if label not in order:
            continue
        for field in model._meta.local_fields:
            related = field.related_model
            if isinstance(related, type) and related._meta.app_label in order:
                assert order.index(related._meta.app_label) <= order.index(label), field
