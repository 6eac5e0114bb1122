"""Containment, suspension and revocation: what ends, what stays, and from when."""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import pytest
from django.db import connections

from agents import clock
from agents.choices import ApprovalState, RunState
from agents.errors import (
    Conflict,
    DomainError,
    Forbidden,
    KeyDead,
    ModelNotGranted,
    NotFound,
    NotPublished,
    RunActive,
    Suspended,
)
from agents.models import (
    AgentKey,
    Approval,
    AuditEvent,
    Boot,
    Environment,
    Grant,
    Run,
    VirtualModel,
)
from agents.policy import Rights
from agents.selectors.rights import rights_of_text
from agents.services.boots import start_boot
from agents.services.grants import grant, revoke_grant
from agents.services.identity import suspend_agent, suspend_organization
from agents.services.keys import mint_external_key, revoke_key
from agents.services.runs import (
    PinnedDefinition,
    Principal,
    RunStart,
    StartedRun,
    begin_run,
    end_run,
    interrupt_run,
    request_cancel,
)
from agents.services.sweeps import sweep_control
from agents.transactions import durable
from definitions.models import Version
from definitions.selectors import pinned_of, published
from definitions.services.publishing import publish_draft, unpublish
from tests.definitions.conftest import Desk, desk

__all__ = ["desk"]

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


def rights(text: str) -> Rights:
    """What the key may use now, as a gateway call would ask."""
    with connections["default"].cursor() as cursor:
        return rights_of_text(cursor, text, everything=True)


def external_key(desk: Desk, environment: Environment | None = None) -> str:
    return mint_external_key(
        actor=desk.manager, agent=desk.agent, environment=environment or desk.production,
        name="outside", scope={"all_grants": True},
    ).text  # fmt: skip


def publish(desk: Desk) -> None:
    draft = desk.write("Be brief.")
    publish_draft(
        actor=desk.manager, agent=desk.agent, environment=desk.production,
        draft_digest=draft.digest, rationale="go",
    )  # fmt: skip


def start(desk: Desk, boot: Boot | None = None, **changes: object) -> StartedRun:
    """Start a run of the published version for a member."""
    found = published(desk.agent.id, desk.production.id)
    assert found is not None
    thread = uuid.uuid4()
    values = {
        "organization_id": desk.organization.id,
        "agent_id": desk.agent.id,
        "environment_id": desk.production.id,
        "thread_id": thread,
        "session_id": thread,
        "client_run_id": str(uuid.uuid4()),
        "request_digest": "d" * 64,
        "boot_id": (boot or start_boot(role="web")).id,
        "principal": Principal("member", "mandate", desk.member.id),
        "definition": found.pinned,
    }
    return durable(full=True)(begin_run)(RunStart(**(values | changes)))  # type: ignore[arg-type]


def open_approval(desk: Desk, run: Run) -> Approval:
    return Approval.objects.create(
        organization=desk.organization, agent=desk.agent, environment=desk.production, run=run,
        thread_id=run.thread_id, principal_issuer="mandate", principal_subject=desk.member.id,
        definition_digest=run.definition_digest, tool=desk.action_tool,
        tool_digest=desk.action_tool.digest, arguments_digest="a" * 64, decided_digest="a" * 64,
        state=ApprovalState.OPEN, expires_at=clock.database_now() + dt.timedelta(minutes=15),
    )  # fmt: skip


def test_a_managed_key_has_exactly_the_definition(desk: Desk) -> None:
    publish(desk)
    found = rights(start(desk).key_text)
    assert [m.slug for m in found.models] == ["main"]
    assert {t.id for t in found.tools} == {desk.read_tool.id, desk.action_tool.id}


def test_a_defined_tool_without_a_grant_is_left_out_and_named(desk: Desk) -> None:
    publish(desk)
    revoke_grant(
        actor=desk.manager,
        grant=Grant.objects.get(tool=desk.action_tool, environment=desk.production),
    )
    started = start(desk)
    assert started.run.receipt == {"tools_not_granted": ["orders__refund"]}
    assert [t.id for t in rights(started.key_text).tools] == [desk.read_tool.id]


def test_a_right_granted_later_is_not_in_a_key_minted_before(desk: Desk) -> None:
    publish(desk)
    slot: dict[str, Any] = {"agent": desk.agent, "environment": desk.production}
    revoke_grant(actor=desk.manager, grant=Grant.objects.get(tool=desk.action_tool, **slot))
    key = start(desk).key_text
    grant(actor=desk.manager, resource=desk.action_tool, **slot)
    assert desk.action_tool.id not in {t.id for t in rights(key).tools}


def test_without_the_models_grant_the_run_does_not_start(desk: Desk) -> None:
    publish(desk)
    revoke_grant(
        actor=desk.manager,
        grant=Grant.objects.get(virtual_model=desk.model, environment=desk.production),
    )
    with pytest.raises(ModelNotGranted):
        start(desk)
    assert not Run.objects.exists()
    assert not AgentKey.objects.exists()


def test_the_key_lives_fifteen_minutes_of_the_databases_clock(desk: Desk) -> None:
    publish(desk)
    key = start(desk).key_text
    with clock.shifted(dt.timedelta(minutes=14, seconds=58)):
        assert rights(key)
    with clock.shifted(dt.timedelta(minutes=15, seconds=1)), pytest.raises(KeyDead):
        rights(key)


def test_the_key_dies_with_its_run(desk: Desk) -> None:
    publish(desk)
    boot = start_boot(role="web")
    started = start(desk, boot)
    assert durable()(end_run)(run_id=started.run.id, boot_id=boot.id, state=RunState.SUCCEEDED)
    with pytest.raises(KeyDead):
        rights(started.key_text)
    assert AgentKey.objects.get(run=started.run).revoked_reason == "run_ended"


def test_a_run_ends_once(desk: Desk) -> None:
    publish(desk)
    boot = start_boot(role="web")
    run = start(desk, boot).run
    ends = durable()(end_run)
    other = start_boot(role="web")
    assert not ends(run_id=run.id, boot_id=other.id, state=RunState.FAILED, code="not_mine")
    assert ends(run_id=run.id, boot_id=boot.id, state=RunState.SUCCEEDED)
    assert not ends(run_id=run.id, boot_id=boot.id, state=RunState.FAILED, code="late")
    run.refresh_from_db()
    assert (run.state, run.error_code) == (RunState.SUCCEEDED, "")


def test_one_running_run_in_a_session(desk: Desk) -> None:
    publish(desk)
    first = start(desk).run
    with pytest.raises(RunActive):
        start(desk, thread_id=first.thread_id, session_id=first.session_id)


def test_unpublish_ends_keys_runs_and_approvals(desk: Desk) -> None:
    publish(desk)
    boot = start_boot(role="web")
    started, outside = start(desk, boot), external_key(desk)
    waiting = start(desk, boot).run
    approval = open_approval(desk, waiting)
    assert rights(outside)
    ended = unpublish(
        actor=desk.manager, agent=desk.agent, environment=desk.production, rationale="stop"
    )
    assert (ended.keys_revoked, ended.runs_stopped, ended.approvals_voided) == (2, 2, 1)
    with pytest.raises(KeyDead):
        rights(started.key_text)
    with pytest.raises(NotPublished):
        rights(outside)
    approval.refresh_from_db()
    assert (approval.state, approval.void_reason) == (ApprovalState.VOID, "unpublished")
    started.run.refresh_from_db()
    assert (started.run.state, started.run.error_code) == (RunState.FAILED, "unpublished")
    with pytest.raises(NotPublished):
        durable()(begin_run)(
            RunStart(
                organization_id=desk.organization.id, agent_id=desk.agent.id,
                environment_id=desk.production.id, thread_id=uuid.uuid4(),
                session_id=uuid.uuid4(), client_run_id="r", request_digest="d",
                boot_id=boot.id, principal=Principal("member", "mandate", "x"),
                definition=_pinned(started),
            )
        )  # fmt: skip


def _pinned(started: StartedRun) -> PinnedDefinition:
    assert started.run.version_id is not None
    return pinned_of(Version.objects.get(id=started.run.version_id))


def test_unpublish_leaves_the_other_environment_alone(desk: Desk) -> None:
    publish(desk)
    draft = desk.write("Be brief.")
    publish_draft(
        actor=desk.manager, agent=desk.agent, environment=desk.staging,
        draft_digest=draft.digest, rationale="too",
    )  # fmt: skip
    key = external_key(desk, desk.staging)
    unpublish(actor=desk.manager, agent=desk.agent, environment=desk.production, rationale="x")
    assert rights(key)


def test_suspension_ends_all_and_refuses_starts(desk: Desk) -> None:
    publish(desk)
    started, outside = start(desk), external_key(desk)
    ended = suspend_agent(actor=desk.operator, agent=desk.agent, rationale="incident")
    assert ended.keys_revoked == 1
    with pytest.raises(KeyDead):
        rights(started.key_text)
    with pytest.raises(Suspended):
        rights(outside)
    with pytest.raises(Suspended):
        start(desk)
    with pytest.raises(Conflict):
        suspend_agent(actor=desk.operator, agent=desk.agent, rationale="again")


def test_a_suspended_organization_stops_every_agent(desk: Desk) -> None:
    publish(desk)
    outside = external_key(desk)
    suspend_organization(actor=desk.operator, organization=desk.organization, rationale="unpaid")
    with pytest.raises(Suspended):
        rights(outside)
    with pytest.raises(Suspended):
        start(desk)


def test_revoking_the_models_grant_ends_its_runs(desk: Desk) -> None:
    publish(desk)
    started, outside = start(desk), external_key(desk)
    model_grant = Grant.objects.get(virtual_model=desk.model, environment=desk.production)
    ended = revoke_grant(actor=desk.manager, grant=model_grant)
    assert (ended.keys_revoked, ended.runs_stopped) == (1, 1)
    with pytest.raises(KeyDead):
        rights(started.key_text)
    assert rights(outside).models == ()
    with pytest.raises(Conflict):
        revoke_grant(actor=desk.manager, grant=model_grant)


def test_revoking_a_tools_grant_takes_it_and_voids_its_approvals(desk: Desk) -> None:
    publish(desk)
    started = start(desk)
    approval = open_approval(desk, started.run)
    ended = revoke_grant(
        actor=desk.manager,
        grant=Grant.objects.get(tool=desk.action_tool, environment=desk.production),
    )
    assert ended.approvals_voided == 1
    assert [t.id for t in rights(started.key_text).tools] == [desk.read_tool.id]
    approval.refresh_from_db()
    assert approval.void_reason == "grant_revoked"


def test_a_revoked_external_key_is_dead_and_audited(desk: Desk) -> None:
    publish(desk)
    text = external_key(desk)
    revoke_key(actor=desk.manager, key=AgentKey.objects.get())
    with pytest.raises(KeyDead):
        rights(text)
    assert AuditEvent.objects.filter(action__in=["key.mint", "key.revoke"]).count() == 2


def test_the_key_stands_nowhere_in_the_control_store(desk: Desk) -> None:
    publish(desk)
    secret = external_key(desk).split("_", 2)[2]
    for row in AgentKey.objects.values():
        assert secret not in str(row)
    for event in AuditEvent.objects.values():
        assert secret not in str(event)


@pytest.mark.parametrize(
    ("who", "refusal"),
    [("member", Forbidden), ("other_manager", Forbidden), ("outsider", NotFound)],
)
def test_others_may_not_grant_mint_revoke_or_suspend(
    desk: Desk, who: str, refusal: type[DomainError]
) -> None:
    actor = getattr(desk, who)
    publish(desk)
    external_key(desk)
    slot: dict[str, Any] = {"agent": desk.agent, "environment": desk.production}
    with pytest.raises(refusal):
        grant(actor=actor, resource=desk.model, **slot)
    with pytest.raises(refusal):
        revoke_grant(actor=actor, grant=Grant.objects.filter(**slot)[0])
    with pytest.raises(refusal):
        mint_external_key(actor=actor, name="x", scope={"all_grants": True}, **slot)
    with pytest.raises(refusal):
        revoke_key(actor=actor, key=AgentKey.objects.get())
    with pytest.raises(refusal):
        suspend_agent(actor=actor, agent=desk.agent, rationale="x")


@pytest.mark.parametrize(
    "scope",
    [{}, {"all_grants": False}, {"all_grants": "yes"}, {"models": "*"}, {"models": ["A "]},
     {"everything": True}, {"models": [], "all_grants": True}],
)  # fmt: skip
def test_a_scope_is_explicit(desk: Desk, scope: dict[str, object]) -> None:
    with pytest.raises(DomainError):
        mint_external_key(
            actor=desk.manager, agent=desk.agent, environment=desk.production,
            name="x", scope=scope,
        )  # fmt: skip


def test_a_listed_scope_is_intersected_with_grants(desk: Desk) -> None:
    publish(desk)
    foreign = VirtualModel.objects.create(
        organization=desk.organization, provider=desk.model.provider, name="N", slug="n",
        upstream_model="n",
    )  # fmt: skip
    text = mint_external_key(
        actor=desk.manager, agent=desk.agent, environment=desk.production, name="narrow",
        scope={"models": [str(foreign.id)], "tools": [str(desk.read_tool.id)]},
    ).text  # fmt: skip
    found = rights(text)
    assert found.models == ()
    assert [t.id for t in found.tools] == [desk.read_tool.id]


def test_a_pause_opens_its_approvals_and_kills_the_key(desk: Desk) -> None:
    publish(desk)
    boot = start_boot(role="web")
    started = start(desk, boot)
    approval = open_approval(desk, started.run)
    stray = open_approval(desk, started.run)
    Approval.objects.update(state=ApprovalState.REQUESTED)
    won = durable()(interrupt_run)(
        run_id=started.run.id, boot_id=boot.id, history_digest="h",
        approvals=[(approval.id, "call_1"), (uuid.uuid4(), "forged")], parked=[],
    )  # fmt: skip
    assert won
    approval.refresh_from_db()
    stray.refresh_from_db()
    assert (approval.state, approval.tool_call_id) == (ApprovalState.OPEN, "call_1")
    assert stray.state == ApprovalState.VOID
    with pytest.raises(KeyDead):
        rights(started.key_text)


def test_a_pause_for_nothing_or_after_a_stop_changes_nothing(desk: Desk) -> None:
    publish(desk)
    boot = start_boot(role="web")
    run = start(desk, boot).run
    pause: dict[str, Any] = {
        "run_id": run.id,
        "boot_id": boot.id,
        "history_digest": "h",
        "parked": [],
    }
    assert not durable()(interrupt_run)(approvals=[(uuid.uuid4(), "forged")], **pause)
    run.refresh_from_db()
    assert run.state == RunState.RUNNING
    approval = open_approval(desk, run)
    Approval.objects.update(state=ApprovalState.REQUESTED)
    assert request_cancel(run.id)
    assert Run.objects.get(id=run.id).cancel_requested
    assert not durable()(interrupt_run)(approvals=[(approval.id, "c")], **pause)
    run.refresh_from_db()
    assert run.state == RunState.RUNNING


def test_the_sweep_fails_runs_of_dead_boots_only(desk: Desk) -> None:
    publish(desk)
    dead, alive = start_boot(role="web"), start_boot(role="web")
    lost, healthy = start(desk, dead), start(desk, alive)
    claimed = open_approval(desk, lost.run)
    Approval.objects.update(state=ApprovalState.EXECUTING, executing_boot_id=dead.id)
    Boot.objects.filter(id=dead.id).update(
        heartbeat_at=clock.database_now() - dt.timedelta(seconds=6)
    )
    report = sweep_control()
    assert (report.runs_failed, report.approvals_uncertain, report.keys_revoked) == (1, 1, 1)
    lost.run.refresh_from_db()
    healthy.run.refresh_from_db()
    claimed.refresh_from_db()
    assert (lost.run.state, lost.run.error_code) == (RunState.FAILED, "interrupted_by_restart")
    assert healthy.run.state == RunState.RUNNING
    assert claimed.state == ApprovalState.UNCERTAIN
    assert rights(healthy.key_text)
    assert sweep_control().runs_failed == 0


def test_the_sweep_expires_approvals(desk: Desk) -> None:
    publish(desk)
    run = start(desk).run
    approval = open_approval(desk, run)
    with clock.shifted(dt.timedelta(minutes=16)):
        Run.objects.update(state=RunState.INTERRUPTED)
        assert sweep_control().approvals_expired == 1
    approval.refresh_from_db()
    assert approval.state == ApprovalState.EXPIRED
