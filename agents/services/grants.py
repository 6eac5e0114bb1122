"""Grant and revoke: which agent may use which resource where."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction

from agents.choices import RunState, ToolState
from agents.clock import database_now
from agents.errors import Conflict, Invalid
from agents.models import Agent, AgentKey, Environment, Grant, Run, Tool, VirtualModel
from agents.policy import Actor, require_contain, require_manage
from agents.services.audit import append_audit
from agents.services.containment import Containment, void_approvals
from agents.services.locks import lock_slots
from agents.transactions import durable

Resource = VirtualModel | Tool | Agent


def _field_of(resource: Resource) -> str:
    if isinstance(resource, VirtualModel):
        return "virtual_model"
    return "tool" if isinstance(resource, Tool) else "target_agent"


def _organization_of(resource: Resource) -> Any:
    if isinstance(resource, Tool):
        return resource.connector.organization_id
    return resource.organization_id


@durable()
def grant(*, actor: Actor, agent: Agent, environment: Environment, resource: Resource) -> Grant:
    """Let an agent use a resource of its organization in an environment. Repeating is harmless."""
    require_manage(actor, agent)
    organizations = {environment.organization_id, _organization_of(resource)}
    if organizations != {agent.organization_id}:
        raise Invalid("Agent, environment and resource must be of one organization.")
    if isinstance(resource, Tool) and resource.state != ToolState.ACCEPTED:
        raise Conflict("Only accepted tools can be granted; an operator must review it first.")
    if isinstance(resource, Agent) and resource.pk == agent.pk:
        raise Invalid("An agent cannot delegate to itself.")
    field = _field_of(resource)
    slot = {"agent": agent, "environment": environment, field: resource}
    existing = Grant.objects.filter(**slot, revoked_at__isnull=True).first()
    if existing is not None:
        return existing
    try:
        with transaction.atomic():
            made = Grant.objects.create(**slot, granted_by_id=actor.user_id)
    except IntegrityError:  # a parallel request granted it between our look and our insert
        return Grant.objects.get(**slot, revoked_at__isnull=True)
    append_audit(
        actor=actor,
        organization_id=agent.organization_id,
        action="grant.add",
        target_kind=field,
        target_id=resource.pk,
        agent_id=agent.id,
        environment_id=environment.id,
    )
    return made


@durable(full=True)
def revoke_grant(*, actor: Actor, grant: Grant) -> Containment:
    """Take a right away. The next gateway call of any key is refused it.

    Runs whose key's scope holds the resource cannot go on as defined: a run with the model ends;
    open approvals of the tool are void. Open streams are cut by their own processes.
    """
    require_contain(actor, grant.agent)
    lock_slots([(grant.agent_id, grant.environment_id)])
    now = database_now()
    changed = Grant.objects.filter(id=grant.id, revoked_at__isnull=True).update(
        revoked_at=now, revoked_by_id=actor.user_id
    )
    if not changed:
        raise Conflict("The grant is revoked already.")
    slot = {"agent_id": grant.agent_id, "environment_id": grant.environment_id}
    runs = keys = approvals = 0
    if grant.virtual_model_id is not None:
        running = Run.objects.filter(**slot, state=RunState.RUNNING)
        using = [
            run.id
            for run in running.select_related("key")
            if str(grant.virtual_model_id) in run.key.scope.get("models", [])
        ]
        runs = Run.objects.filter(id__in=using, state=RunState.RUNNING).update(
            state=RunState.FAILED, error_code="grant_revoked", ended_at=now
        )
        keys = AgentKey.objects.filter(run_id__in=using, revoked_at__isnull=True).update(
            revoked_at=now, revoked_reason="grant_revoked"
        )
    if grant.tool_id is not None:
        approvals = void_approvals("grant_revoked", **slot, tool_id=grant.tool_id)
    ended = Containment(0.0, keys, runs, approvals)
    append_audit(
        actor=actor,
        organization_id=grant.agent.organization_id,
        action="grant.revoke",
        target_kind=_field_of(grant.resource),
        target_id=grant.resource.pk,
        agent_id=grant.agent_id,
        environment_id=grant.environment_id,
        **ended.as_data(),
    )
    return ended
