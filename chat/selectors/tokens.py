"""Who bears a chat token, from live rows, at every request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from agents.choices import KeyKind, Status
from agents.clock import database_now
from agents.digests import credential_mac
from agents.models import Membership
from agents.services.runs import Principal
from chat.errors import TokenInvalid
from chat.models import ChatToken, TokenSource


@dataclass(frozen=True, slots=True)
class Caller:
    """What a live token allows: a principal, an environment, and one agent or (members) all."""

    organization_id: UUID
    environment_id: UUID
    environment_slug: str
    principal: Principal
    agent_id: UUID | None = None
    display_name_digest: str = ""


def caller_of(token: str) -> Caller:
    """The bearer of *token*. Raises TokenInvalid, whatever the reason.

    A token dies with the member that fetched it or the key that minted it, with its agent, and
    with its organization.
    """
    if not token.startswith("ct_"):
        raise TokenInvalid
    row = _rows([token]).first()
    if row is None or not _lives(row, _members([row])):
        raise TokenInvalid
    return Caller(
        organization_id=row.organization_id,
        environment_id=row.environment_id,
        environment_slug=row.environment.slug,
        principal=Principal(row.principal_kind, row.principal_issuer, row.principal_subject),
        agent_id=row.agent_id,
        display_name_digest=row.display_name_digest,
    )


def living_tokens(tokens: Sequence[str]) -> set[str]:
    """Those of *tokens* that hold now."""
    by_mac = {credential_mac(token): token for token in tokens}
    rows = list(_rows(tokens))
    members = _members(rows)
    return {by_mac[row.mac] for row in rows if _lives(row, members)}


def _rows(tokens: Sequence[str]) -> QuerySet[ChatToken]:
    return ChatToken.objects.filter(mac__in=[credential_mac(t) for t in tokens]).select_related(
        "organization", "environment", "agent", "key"
    )


#: (user id, organization id)
Members = set[tuple[UUID | None, UUID]]


def _members(rows: Iterable[ChatToken]) -> Members:
    """Who of those that fetched these tokens is an active member."""
    users = {row.user_id for row in rows if row.user_id is not None}
    if not users:
        return set()
    found = Membership.objects.filter(user_id__in=users, active=True, user__is_active=True)
    return set(found.values_list("user_id", "organization_id"))


def _lives(row: ChatToken, members: Members) -> bool:
    now = database_now()
    if row.expires_at <= now or row.organization.status != Status.ACTIVE:
        return False
    if row.agent is not None and row.agent.status != Status.ACTIVE:
        return False
    if row.source == TokenSource.KEY:
        key = row.key
        return (
            key is not None
            and key.kind == KeyKind.EXTERNAL
            and key.revoked_at is None
            and (key.expires_at is None or key.expires_at > now)
        )
    if row.source == TokenSource.SESSION:
        return (row.user_id, row.organization_id) in members
    return row.source == TokenSource.OPERATOR
