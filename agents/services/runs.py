"""A run's life in the control store: start with a key, pause, end once, cancel, be fenced.

The functions without a decorator are steps: they expect the caller's transaction.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import IntegrityError, transaction

from agents import clock
from agents.choices import (
    ApprovalState,
    EnvironmentState,
    ParkedState,
    RunState,
    Status,
    ToolState,
)
from agents.errors import (
    ModelDisabled,
    ModelNotGranted,
    NotPublished,
    RunActive,
    Suspended,
)
from agents.models import (
    Agent,
    AgentEnvironment,
    AgentKey,
    Approval,
    Grant,
    ParkedCall,
    Run,
    RunInitiator,
    Tool,
    VirtualModel,
)
from agents.policy import managed_scope
from agents.services.keys import mint_managed_key

#: A run ends by itself at 14 minutes, a minute before its key does.
RUN_LIFETIME = dt.timedelta(minutes=14)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who initiates: a member of ours or an end user of a front end."""

    kind: str
    issuer: str
    subject: str

    def __str__(self) -> str:
        return f"{self.issuer}:{self.subject}"


@dataclass(frozen=True, slots=True)
class PinnedDefinition:
    """Exactly what a run executes. ``version_id`` is None for a draft test."""

    digest: str
    virtual_model_id: UUID
    tool_ids: tuple[UUID, ...]
    version_id: UUID | None = None
    version_number: int | None = None


@dataclass(frozen=True, slots=True)
class RunStart:
    """Everything a new run is made from."""

    organization_id: UUID
    agent_id: UUID
    environment_id: UUID
    thread_id: UUID
    session_id: UUID
    client_run_id: str
    request_digest: str
    boot_id: UUID
    principal: Principal
    definition: PinnedDefinition
    resumes: Run | None = None
    parent: Run | None = None
    run_id: UUID = field(default_factory=uuid.uuid4)


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A running run with its key's text, which is handed to the runtime and kept nowhere."""

    run: Run
    key_text: str = field(repr=False)
    model: VirtualModel
    tools: tuple[Tool, ...]


def begin_run(start: RunStart) -> StartedRun:
    """Check the agent's state and grants, write the run and mint its key. A step.

    Raises Suspended, NotPublished (also when the version moved meanwhile), ModelNotGranted,
    ModelDisabled, or RunActive. A defined tool without a grant is left out and named in the
    receipt.
    """
    slot = AgentEnvironment.objects.select_for_update().get(
        agent_id=start.agent_id, environment_id=start.environment_id
    )
    # Read after the lock is held: a suspension that committed while we waited is seen.
    agent = Agent.objects.select_related("organization").get(id=start.agent_id)
    if Status.SUSPENDED in {agent.status, agent.organization.status}:
        raise Suspended
    pinned = start.definition
    if pinned.version_id is not None and (
        slot.state != EnvironmentState.OPEN or slot.published_version_id != pinned.version_id
    ):
        raise NotPublished
    model = _granted_model(start)
    tools, left_out = _granted_tools(start)
    now = clock.database_now()
    run = Run(
        id=start.run_id,
        organization_id=start.organization_id,
        agent_id=start.agent_id,
        environment_id=start.environment_id,
        thread_id=start.thread_id,
        session_id=start.session_id,
        client_run_id=start.client_run_id,
        request_digest=start.request_digest,
        boot_id=start.boot_id,
        version_id=pinned.version_id,
        version_number=pinned.version_number,
        definition_digest=pinned.digest,
        generation=slot.generation,
        root_run_id=_root_of(start),
        resumes=start.resumes,
        parent=start.parent,
        depth=0 if start.parent is None else start.parent.depth + 1,
        deadline_at=now + RUN_LIFETIME,
        created_at=now,
        receipt={"tools_not_granted": left_out},
    )
    try:
        with transaction.atomic():
            run.save(force_insert=True)
    except IntegrityError:
        raise RunActive from None
    RunInitiator.objects.create(
        run=run,
        kind=start.principal.kind,
        issuer=start.principal.issuer,
        subject=start.principal.subject,
        thread_id=start.thread_id,
        client_run_id=start.client_run_id,
        definition_digest=pinned.digest,
        version_number=pinned.version_number,
    )
    agent_ids = Grant.objects.filter(
        agent_id=start.agent_id,
        environment_id=start.environment_id,
        target_agent__isnull=False,
        revoked_at__isnull=True,
    ).values_list("target_agent_id", flat=True)
    scope = managed_scope(model.id, (t.id for t in tools), agent_ids)
    minted = mint_managed_key(run=run, scope=scope)
    return StartedRun(run, minted.text, model, tools)


def _root_of(start: RunStart) -> UUID:
    """A resumed run and a child belong to the root task of what they continue."""
    origin = start.resumes or start.parent
    return start.run_id if origin is None else origin.root_run_id


def _granted_model(start: RunStart) -> VirtualModel:
    granted = (
        Grant.objects.filter(
            agent_id=start.agent_id,
            environment_id=start.environment_id,
            virtual_model_id=start.definition.virtual_model_id,
            revoked_at__isnull=True,
        )
        .select_related("virtual_model__provider")
        .first()
    )
    if granted is None or granted.virtual_model is None:
        raise ModelNotGranted
    model = granted.virtual_model
    if not model.enabled or not model.provider.enabled:
        raise ModelDisabled
    return model


def _granted_tools(start: RunStart) -> tuple[tuple[Tool, ...], list[str]]:
    """The defined tools that are granted and usable now, and the names of the others."""
    defined = list(
        Tool.objects.filter(
            id__in=start.definition.tool_ids,
            connector__organization_id=start.organization_id,
        ).select_related("connector")
    )
    granted = set(
        Grant.objects.filter(
            agent_id=start.agent_id,
            environment_id=start.environment_id,
            tool_id__in=start.definition.tool_ids,
            revoked_at__isnull=True,
        ).values_list("tool_id", flat=True)
    )
    usable = tuple(
        t
        for t in sorted(defined, key=lambda t: t.exposed_name)
        if t.id in granted and t.state == ToolState.ACCEPTED and t.connector.enabled
    )
    kept = {t.id for t in usable}
    return usable, sorted(t.exposed_name for t in defined if t.id not in kept)


def end_run(
    *,
    run_id: UUID,
    boot_id: UUID,
    state: RunState,
    code: str = "",
    input_tokens: int = 0,
    output_tokens: int = 0,
) -> bool:
    """End a running run of this boot, once. A step; False when somebody else ended it first.

    Its key is revoked and approvals that were only requested become void.
    """
    now = clock.database_now()
    won = Run.objects.filter(id=run_id, boot_id=boot_id, state=RunState.RUNNING).update(
        state=state,
        error_code=code,
        ended_at=now,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )
    if not won:
        return False
    _close_run_rows([run_id], now, "run_ended")
    return True


def _close_run_rows(run_ids: Sequence[UUID], now: dt.datetime, reason: str) -> None:
    _revoke_keys(run_ids, now)
    Approval.objects.filter(run_id__in=run_ids, state=ApprovalState.REQUESTED).update(
        state=ApprovalState.VOID, void_reason=reason
    )
    # Approved but never claimed: the run that could claim it has ended.
    Approval.objects.filter(resume_run_id__in=run_ids, state=ApprovalState.APPROVED).update(
        state=ApprovalState.VOID, void_reason=reason
    )


def _revoke_keys(run_ids: Sequence[UUID], now: dt.datetime) -> None:
    AgentKey.objects.filter(run_id__in=run_ids, revoked_at__isnull=True).update(
        revoked_at=now, revoked_reason="run_ended"
    )


def interrupt_run(
    *,
    run_id: UUID,
    boot_id: UUID,
    history_digest: str,
    approvals: Iterable[tuple[UUID, str]],
    parked: Iterable[tuple[UUID, str]],
    input_tokens: int = 0,
    output_tokens: int = 0,
) -> bool:
    """Pause: the run ends ``interrupted``, its approvals open, its key dies. A step.

    ``approvals`` and ``parked`` are (row id, tool call id) as the runtime claims; only rows that
    the gateway made for this run count. False when the run was ended or cancelled meanwhile, or
    when nothing it waits for is left: then nothing was written.
    """
    now = clock.database_now()
    with transaction.atomic():
        won = Run.objects.filter(
            id=run_id, boot_id=boot_id, state=RunState.RUNNING, cancel_requested=False
        ).update(
            state=RunState.INTERRUPTED,
            ended_at=now,
            history_digest=history_digest,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )
        waiting = 0
        if won:
            _revoke_keys([run_id], now)
            for approval_id, call_id in approvals:
                waiting += Approval.objects.filter(
                    id=approval_id, run_id=run_id, state=ApprovalState.REQUESTED
                ).update(state=ApprovalState.OPEN, tool_call_id=call_id[:128])
            for parked_id, call_id in parked:
                waiting += ParkedCall.objects.filter(
                    id=parked_id, run_id=run_id, state=ParkedState.WAITING
                ).update(tool_call_id=call_id[:128])
        if not waiting:
            transaction.set_rollback(True)
    if waiting:
        _close_run_rows([run_id], now, "not_awaited")
    return bool(waiting)


def request_cancel(run_id: UUID) -> bool:
    """Ask the owner, in whatever process, to stop. A step; False when the run is not running."""
    return bool(Run.objects.filter(id=run_id, state=RunState.RUNNING).update(cancel_requested=True))
