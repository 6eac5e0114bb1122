"""Effective right = key scope ∩ current grants ∩ resource state ∩ agent and organization state."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.errors import DomainError, KeyDead, NotPublished, Suspended
from agents.policy import KeyRow, KeyRows, ModelRow, ToolRow, effective_rights

NOW = dt.datetime(2026, 11, 30, 12, 0, tzinfo=dt.UTC)


def key_row(**changes: Any) -> KeyRow:
    external = KeyRow(
        id=uuid4(),
        accessor="abcdefgh",
        kind="external",
        scope={"all_grants": True},
        generation=None,
        expires_at=None,
        revoked_at=None,
        organization_id=uuid4(),
        organization_status="active",
        agent_id=uuid4(),
        agent_slug="desk",
        agent_status="active",
        environment_id=uuid4(),
        environment_slug="production",
        environment_state="open",
        environment_generation=3,
    )
    return replace(external, **changes)


def managed(**changes: Any) -> KeyRow:
    values: dict[str, Any] = {
        "kind": "managed",
        "generation": 3,
        "expires_at": NOW + dt.timedelta(minutes=15),
        "run_id": uuid4(),
        "run_state": "running",
        "scope": {"models": [], "tools": [], "agents": []},
    }
    return key_row(**(values | changes))


def model_row(**changes: Any) -> ModelRow:
    row = ModelRow(
        uuid4(), "main", "gpt", "", 8_000, 500, enabled=True, provider_id=uuid4(),
        provider_enabled=True, base_url="https://api.example.com/v1",
    )  # fmt: skip
    return replace(row, **changes)


def tool_row(**changes: Any) -> ToolRow:
    row = ToolRow(
        id=uuid4(), name="refund", exposed_name="orders__refund", title="", description="",
        input_schema={}, annotations={}, digest="d", classification="action", state="accepted",
        connector_id=uuid4(), connector_slug="orders", connector_enabled=True,
        first_party=False, url="https://tools.example.com/mcp",
    )  # fmt: skip
    return replace(row, **changes)


def test_it_works() -> None:
    model, tool, agent = model_row(), tool_row(), uuid4()
    rights = effective_rights(KeyRows(key_row(), (model,), (tool,), (agent,)), NOW)
    assert (rights.models, rights.tools, rights.agent_ids) == ((model,), (tool,), (agent,))
    assert rights.model("main") == model
    assert rights.tool("orders__refund") == tool
    assert rights.model("other") is None


@pytest.mark.parametrize(
    ("key", "refusal"),
    [
        (key_row(revoked_at=NOW - dt.timedelta(days=1)), KeyDead),
        (key_row(expires_at=NOW), KeyDead),
        (key_row(expires_at=NOW - dt.timedelta(microseconds=1)), KeyDead),
        (key_row(organization_status="suspended"), Suspended),
        (key_row(agent_status="suspended"), Suspended),
        (key_row(environment_state="contained"), NotPublished),
        (key_row(environment_state=None), NotPublished),
        (managed(generation=2), KeyDead),
        (managed(generation=None), KeyDead),
        (managed(expires_at=None), KeyDead),
        (managed(run_state="interrupted"), KeyDead),
        (managed(run_state="succeeded"), KeyDead),
        (managed(run_state=None), KeyDead),
        (managed(environment_generation=4), KeyDead),
        (managed(agent_status="suspended"), Suspended),
    ],
)
def test_it_refuses(key: KeyRow, refusal: type[DomainError]) -> None:
    with pytest.raises(refusal):
        effective_rights(KeyRows(key, (model_row(),)), NOW)


def test_a_key_lives_until_the_instant_it_expires() -> None:
    key = key_row(expires_at=NOW + dt.timedelta(microseconds=1))
    assert effective_rights(KeyRows(key), NOW).key == key


def test_a_managed_key_works_while_the_environment_is_closed_to_others() -> None:
    """A draft is tested before anything is published; its generation is what contains it."""
    assert effective_rights(KeyRows(managed(environment_state="contained")), NOW)


@pytest.mark.parametrize(
    "scope",
    [
        {},
        {"models": [], "tools": [], "agents": []},
        {"models": None, "tools": None},
        {"models": "*", "tools": "*"},
        {"all_grants": "true"},
        {"all_grants": 1},
        {"models": ["*"], "tools": ["*"]},
    ],
)
@pytest.mark.parametrize("make", [key_row, managed])
def test_empty_or_missing_scope_never_means_all(make: Any, scope: dict[str, Any]) -> None:
    rows = KeyRows(make(scope=scope), (model_row(),), (tool_row(),), (uuid4(),))
    rights = effective_rights(rows, NOW)
    assert (rights.models, rights.tools, rights.agent_ids) == ((), (), ())


def test_all_grants_is_for_external_keys_only() -> None:
    rights = effective_rights(KeyRows(managed(scope={"all_grants": True}), (model_row(),)), NOW)
    assert rights.models == ()


@pytest.mark.parametrize("changes", [{"enabled": False}, {"provider_enabled": False}])
def test_a_disabled_model_is_no_right(changes: dict[str, Any]) -> None:
    assert effective_rights(KeyRows(key_row(), (model_row(**changes),)), NOW).models == ()


@pytest.mark.parametrize(
    "changes",
    [{"state": "new"}, {"state": "changed"}, {"state": "gone"}, {"connector_enabled": False}],
)
def test_a_tool_that_is_not_accepted_is_no_right(changes: dict[str, Any]) -> None:
    assert effective_rights(KeyRows(key_row(), (), (tool_row(**changes),)), NOW).tools == ()


@pytest.mark.parametrize("classification", ["", "action"])
def test_unclassified_means_action(classification: str) -> None:
    assert tool_row(classification=classification).is_action
    assert not tool_row(classification="read").is_action


@given(
    granted=st.sets(st.uuids(), max_size=6),
    listed=st.sets(st.uuids(), max_size=6),
    both=st.sets(st.uuids(), max_size=6),
)
def test_rights_are_the_intersection(
    granted: set[UUID], listed: set[UUID], both: set[UUID]
) -> None:
    """Whatever the scope lists and the grants hold, a right is in both; a scope adds none."""
    key = managed(scope={"tools": [str(i) for i in listed | both]})
    tools = tuple(tool_row(id=i, exposed_name=str(i)) for i in granted | both)
    rights = effective_rights(KeyRows(key, (), tools), NOW)
    assert {t.id for t in rights.tools} == (granted | both) & (listed | both)
