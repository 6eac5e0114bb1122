"""Threads and tokens in the control store; titles and session events, sealed, in content."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from agents.choices import InitiatorKind
from agents.models import Agent, AgentKey, Environment, Organization, User
from agents.models.base import Row, one_of
from agents.models.sealing import SealedField, SealsFields


class Thread(Row):
    """A conversation of one principal with one agent in one environment.

    Its root session has the same id. Deleting sets ``deleted_at`` and erases the sealed texts.
    ``client_id`` is the thread id as the client spells it, which its events carry.
    """

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="threads")
    agent = models.ForeignKey(Agent, models.PROTECT, related_name="threads")
    environment = models.ForeignKey(Environment, models.PROTECT, related_name="threads")
    principal_kind = models.CharField(max_length=10, choices=InitiatorKind)
    principal_issuer = models.CharField(max_length=80)
    principal_subject = models.CharField(max_length=200)
    client_id = models.CharField(max_length=128)
    active_at = models.DateTimeField(default=timezone.now)
    deleted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [one_of("principal_kind", InitiatorKind, "thread_principal_kind")]
        indexes = [
            models.Index(
                fields=["principal_issuer", "principal_subject", "active_at"],
                name="thread_by_principal",
            ),
        ]

    def __str__(self) -> str:
        return f"thread {str(self.id)[:8]}"


class TokenSource(models.TextChoices):
    """What a chat token was minted with, and therefore dies with."""

    SESSION = "session"
    KEY = "key"
    OPERATOR = "operator"


class ChatToken(Row):
    """A short-lived bearer credential that carries a principal; an HMAC, not ciphertext.

    ``agent`` is null only for members, who may chat with every published agent. It dies with the
    member (``session``) or the agent key (``key``) that minted it, and always with the agent.
    ``display_name_digest`` names the end user's display name in the content store.
    """

    organization = models.ForeignKey(Organization, models.CASCADE, related_name="+")
    agent = models.ForeignKey(Agent, models.CASCADE, null=True, related_name="+")
    environment = models.ForeignKey(Environment, models.CASCADE, related_name="+")
    principal_kind = models.CharField(max_length=10, choices=InitiatorKind)
    principal_issuer = models.CharField(max_length=80)
    principal_subject = models.CharField(max_length=200)
    mac = models.CharField(max_length=64, unique=True)
    accessor = models.CharField(max_length=8)
    expires_at = models.DateTimeField()
    source = models.CharField(max_length=8, choices=TokenSource)
    display_name_digest = models.CharField(max_length=64, blank=True, default="")
    user = models.ForeignKey(User, models.CASCADE, null=True, related_name="+")
    key = models.ForeignKey(AgentKey, models.CASCADE, null=True, related_name="+")

    class Meta:
        constraints = [
            one_of("principal_kind", InitiatorKind, "chat_token_principal_kind"),
            models.CheckConstraint(
                name="chat_token_has_its_source",
                condition=Q(source="session", user__isnull=False, key__isnull=True)
                | Q(source="key", user__isnull=True, key__isnull=False, agent__isnull=False)
                | Q(source="operator", user__isnull=True, key__isnull=True, agent__isnull=False),
            ),
        ]
        indexes = [models.Index(fields=["expires_at"], name="chat_token_expiry")]


class ThreadText(SealsFields, models.Model):
    """A thread's title and its principal's display name, sealed, in the content store."""

    id = models.UUIDField(primary_key=True, editable=False)
    organization_id = models.UUIDField()
    title = SealedField(null=True)
    display_name = SealedField(null=True)


class SessionEvent(SealsFields, models.Model):
    """One entry of a session's append-only log.

    ``seq`` is gapless from 1 in its session. ``type`` is an AG-UI event type for people
    (``TEXT_MESSAGE_CONTENT``…) or ``model/message`` and other lower-case types for the product.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization_id = models.UUIDField()
    thread_id = models.UUIDField()
    session_id = models.UUIDField()
    run_id = models.UUIDField(null=True)
    seq = models.PositiveBigIntegerField()
    type = models.CharField(max_length=40)
    payload = SealedField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session_id", "seq"], name="session_event_seq"),
        ]
        indexes = [
            models.Index(fields=["thread_id"], name="session_event_thread"),
            models.Index(fields=["run_id", "seq"], name="session_event_run"),
        ]
