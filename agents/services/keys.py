"""Agent keys: minting, shown once; revocation, at once."""

from __future__ import annotations

import datetime as dt
import secrets
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agents.choices import KeyKind
from agents.clock import database_now
from agents.digests import credential_mac
from agents.errors import Conflict, Invalid
from agents.models import Agent, AgentKey, Environment, Run
from agents.policy import Actor, require_contain, require_manage
from agents.services.audit import append_audit
from agents.services.identity import clean_name
from agents.services.locks import lock_slots
from agents.transactions import durable

KEY_PREFIX = "mk_"
MANAGED_LIFETIME = dt.timedelta(minutes=15)
ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"


@dataclass(frozen=True, slots=True)
class MintedKey:
    """A new key with its text, which exists nowhere else and is never shown again."""

    key: AgentKey
    text: str

    def __repr__(self) -> str:
        return f"MintedKey({self.key.accessor})"


def new_credential(prefix: str) -> tuple[str, str]:
    """Return (accessor, text): ``<prefix><8-char accessor>_<secret of 256 bits>``."""
    accessor = "".join(secrets.choice(ALPHABET) for _ in range(8))
    return accessor, f"{prefix}{accessor}_{secrets.token_urlsafe(32)}"


def clean_scope(scope: dict[str, Any]) -> dict[str, Any]:
    """An external key's scope: ``{"all_grants": true}`` or explicit lists of resource ids.

    Nothing is widened by absence: a missing or empty list means none of that kind.
    """
    if scope == {"all_grants": True}:
        return scope
    unknown = set(scope) - {"models", "tools", "agents"}
    if not scope or unknown:
        raise Invalid(
            'A scope is {"all_grants": true} or lists of ids: models, tools, agents.',
            field="scope",
        )
    cleaned: dict[str, Any] = {}
    for part in ("models", "tools", "agents"):
        listed = scope.get(part, [])
        if not isinstance(listed, list):
            raise Invalid("Each part of a scope is a list of ids.", field="scope")
        try:
            cleaned[part] = sorted({str(UUID(str(item))) for item in listed})
        except ValueError:
            raise Invalid("Each part of a scope is a list of ids.", field="scope") from None
    return cleaned


@durable(full=True)
def mint_external_key(
    *,
    actor: Actor,
    agent: Agent,
    environment: Environment,
    name: str,
    scope: dict[str, Any],
    lifetime: dt.timedelta | None = None,
) -> MintedKey:
    """Mint a key for a runtime outside. Its rights never exceed the agent's current grants."""
    require_manage(actor, agent)
    if environment.organization_id != agent.organization_id:
        raise Invalid("The environment is of another organization.", field="environment")
    if lifetime is not None and lifetime <= dt.timedelta(0):
        raise Invalid("The lifetime must be positive.", field="lifetime")
    accessor, text = new_credential(KEY_PREFIX)
    key = AgentKey.objects.create(
        organization_id=agent.organization_id,
        agent=agent,
        environment=environment,
        kind=KeyKind.EXTERNAL,
        name=clean_name(name),
        accessor=accessor,
        mac=credential_mac(text),
        scope=clean_scope(scope),
        expires_at=None if lifetime is None else database_now() + lifetime,
        created_by_id=actor.user_id,
    )
    append_audit(
        actor=actor,
        organization_id=agent.organization_id,
        action="key.mint",
        target_kind="agent_key",
        target_id=accessor,
        agent_id=agent.id,
        environment_id=environment.id,
        kind=KeyKind.EXTERNAL.value,
        name=key.name,
    )
    return MintedKey(key, text)


def mint_managed_key(*, run: Run, scope: dict[str, Any]) -> MintedKey:
    """The one key of a run, 15 minutes by the database's clock. A step of starting a run."""
    accessor, text = new_credential(KEY_PREFIX)
    key = AgentKey.objects.create(
        organization_id=run.organization_id,
        agent_id=run.agent_id,
        environment_id=run.environment_id,
        kind=KeyKind.MANAGED,
        accessor=accessor,
        mac=credential_mac(text),
        scope=scope,
        generation=run.generation,
        run=run,
        expires_at=database_now() + MANAGED_LIFETIME,
    )
    return MintedKey(key, text)


@durable(full=True)
def revoke_key(*, actor: Actor, key: AgentKey, reason: str = "revoked") -> AgentKey:
    """End a key. From the commit on no gateway accepts it; its chat tokens die with it."""
    require_contain(actor, key.agent)
    lock_slots([(key.agent_id, key.environment_id)])
    now = database_now()
    changed = AgentKey.objects.filter(id=key.id, revoked_at__isnull=True).update(
        revoked_at=now, revoked_reason=reason[:40]
    )
    if not changed:
        raise Conflict("The key is revoked already.")
    key.revoked_at = now
    append_audit(
        actor=actor,
        organization_id=key.organization_id,
        action="key.revoke",
        target_kind="agent_key",
        target_id=key.accessor,
        agent_id=key.agent_id,
        environment_id=key.environment_id,
    )
    return key
