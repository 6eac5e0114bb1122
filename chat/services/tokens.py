"""Mint chat tokens: for a signed-in member, for an end user by an agent key, by an operator."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

from agents import content_store
from agents.choices import EnvironmentState, InitiatorKind, KeyKind, Status
from agents.clock import database_now
from agents.digests import credential_mac
from agents.errors import Invalid, KeyDead, NotFound, NotPublished, Suspended
from agents.models import Agent, AgentEnvironment, AgentKey, Environment
from agents.policy import Actor, require_operator
from agents.selectors.identity import environment_by_slug, membership_of
from agents.services.audit import append_audit
from agents.services.keys import new_credential
from agents.transactions import durable
from chat.errors import TokenInvalid
from chat.models import ChatToken, TokenSource

PREFIX = "ct_"
MEMBER_LIFETIME = dt.timedelta(minutes=15)
MAX_LIFETIME = dt.timedelta(minutes=60)
#: Issuer of members' principals.
ISSUER = "mandate"
DEFAULT_ENVIRONMENT = "production"
#: Kind of blob that holds an end user's display name.
DISPLAY_NAME = "display_name"
#: Expired tokens are kept this long, so that a late request finds out nothing else.
KEPT = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class MintedToken:
    """A new token with its text, which exists nowhere else."""

    token: ChatToken
    text: str = field(repr=False)


def clean_subject(value: str) -> str:
    """An end user's stable id at the front end: 1 to 200 printable characters."""
    if not 1 <= len(value) <= 200 or not value.isprintable() or value != value.strip():
        raise Invalid("The subject needs 1 to 200 printable characters.", field="subject")
    return value


def clean_ttl(seconds: int) -> dt.timedelta:
    if not 1 <= seconds <= MAX_LIFETIME.total_seconds():
        raise Invalid("ttl_seconds is 1 to 3600.", field="ttl_seconds")
    return dt.timedelta(seconds=seconds)


def clean_display_name(value: str) -> str:
    value = value.strip()
    if len(value) > 120 or not value.isprintable():
        raise Invalid("A display name has at most 120 printable characters.", field="display_name")
    return value


@durable(full=True)
def mint_member_token(
    *, actor: Actor, environment: str | None = None, agent: str | None = None
) -> MintedToken:
    """A member's own token, 15 minutes. Raises NotFound for an unknown environment or agent."""
    if actor.user_id is None:
        raise TokenInvalid
    membership = membership_of(actor.user_id)
    if membership is None:
        raise TokenInvalid
    organization_id = membership.organization_id
    if environment is not None:
        place = environment_by_slug(organization_id, environment)
    else:
        place = _default_environment(membership.organization_id)
    chosen = None
    if agent is not None:
        chosen = Agent.objects.filter(organization_id=organization_id, slug=agent).first()
        if chosen is None:
            raise NotFound("There is no such agent.")
    return _mint(
        organization_id=organization_id,
        agent=chosen,
        environment=place,
        principal_kind=InitiatorKind.MEMBER,
        principal_issuer=ISSUER,
        principal_subject=str(actor.user_id),
        source=TokenSource.SESSION,
        user_id=actor.user_id,
        expires_at=database_now() + MEMBER_LIFETIME,
    )


def _default_environment(organization_id: Any) -> Environment:
    environments = Environment.objects.filter(organization_id=organization_id)
    place = (
        environments.filter(slug=DEFAULT_ENVIRONMENT).first()
        or environments.order_by("created_at").first()
    )
    if place is None:
        raise NotFound("The organization has no environment.")
    return place


def mint_end_user_token(
    *, key_text: str, subject: str, ttl_seconds: int, display_name: str = ""
) -> MintedToken:
    """A token for an end user of the key's own agent and environment.

    Raises KeyDead, Suspended or NotPublished as the gateways would, Invalid for a bad value. It
    never outlives its key.
    """
    subject, lifetime = clean_subject(subject), clean_ttl(ttl_seconds)
    name = clean_display_name(display_name)
    digest = ""
    if name:
        key = AgentKey.objects.filter(mac=credential_mac(key_text)).first()
        if key is None:
            raise KeyDead
        digest = content_store.put(key.organization_id, DISPLAY_NAME, name.encode())
    return _mint_with_key(
        key_text=key_text, subject=subject, lifetime=lifetime, display_name_digest=digest
    )


@durable(full=True)
def _mint_with_key(
    *, key_text: str, subject: str, lifetime: dt.timedelta, display_name_digest: str
) -> MintedToken:
    key = (
        AgentKey.objects.filter(mac=credential_mac(key_text), kind=KeyKind.EXTERNAL)
        .select_related("agent", "environment", "organization")
        .first()
    )
    now = database_now()
    if key is None or key.revoked_at is not None:
        raise KeyDead
    if key.expires_at is not None and key.expires_at <= now:
        raise KeyDead
    _require_open(key.agent, key.environment)
    ends = now + lifetime
    return _mint(
        organization_id=key.organization_id,
        agent=key.agent,
        environment=key.environment,
        principal_kind=InitiatorKind.END_USER,
        principal_issuer=issuer_of(key.agent),
        principal_subject=subject,
        source=TokenSource.KEY,
        key=key,
        display_name_digest=display_name_digest,
        expires_at=ends if key.expires_at is None else min(ends, key.expires_at),
    )


def issuer_of(agent: Agent) -> str:
    """End users belong to the agent whose front end vouches for them, not to one of its keys."""
    return f"agent:{agent.id}"


def _require_open(agent: Agent, environment: Environment) -> None:
    if Status.SUSPENDED in {agent.status, agent.organization.status}:
        raise Suspended
    slot = AgentEnvironment.objects.filter(agent=agent, environment=environment).first()
    if slot is None or slot.state != EnvironmentState.OPEN:
        raise NotPublished


@durable(full=True)
def mint_operator_token(
    *, actor: Actor, agent: Agent, environment: Environment, subject: str, ttl_seconds: int = 3600
) -> MintedToken:
    """A token for trying an agent as an end user, minted by an operator; audited."""
    require_operator(actor)
    subject, lifetime = clean_subject(subject), clean_ttl(ttl_seconds)
    _require_open(agent, environment)
    minted = _mint(
        organization_id=agent.organization_id,
        agent=agent,
        environment=environment,
        principal_kind=InitiatorKind.END_USER,
        principal_issuer=issuer_of(agent),
        principal_subject=subject,
        source=TokenSource.OPERATOR,
        expires_at=database_now() + lifetime,
    )
    append_audit(
        actor=actor,
        organization_id=agent.organization_id,
        action="chat_token.mint",
        target_kind="chat_token",
        target_id=minted.token.accessor,
        agent_id=agent.id,
        environment_id=environment.id,
        subject=subject,
    )
    return minted


def _mint(**columns: Any) -> MintedToken:
    accessor, text = new_credential(PREFIX)
    token = ChatToken.objects.create(accessor=accessor, mac=credential_mac(text), **columns)
    return MintedToken(token, text)


@durable()
def forget_expired_tokens() -> int:
    """Delete tokens that ended a day ago. A sweep."""
    deleted, _ = ChatToken.objects.filter(expires_at__lt=database_now() - KEPT).delete()
    return deleted
