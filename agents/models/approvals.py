"""Approvals: a principal's decision on one exact action call."""

from __future__ import annotations

from django.db import models

from agents.choices import ApprovalState
from agents.models.base import Row, one_of
from agents.models.identity import Agent, Environment, Organization
from agents.models.resources import Tool
from agents.models.runs import Run


class Approval(Row):
    """Made by the MCP Gateway; opened when the run pauses; decided once; claimed once.

    Arguments lie in the content store under ``arguments_digest`` (keyed). An edit gives
    ``decided_digest`` another value; what runs is exactly what that digest names.
    """

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="approvals")
    agent = models.ForeignKey(Agent, models.PROTECT, related_name="approvals")
    environment = models.ForeignKey(Environment, models.PROTECT, related_name="approvals")
    run = models.ForeignKey(Run, models.PROTECT, related_name="approvals")
    thread_id = models.UUIDField()
    principal_issuer = models.CharField(max_length=80)
    principal_subject = models.CharField(max_length=200)
    definition_digest = models.CharField(max_length=64)
    tool = models.ForeignKey(Tool, models.PROTECT, related_name="approvals")
    tool_digest = models.CharField(max_length=64)
    tool_call_id = models.CharField(max_length=128, blank=True, default="")
    arguments_digest = models.CharField(max_length=64)
    decided_digest = models.CharField(max_length=64, blank=True, default="")
    state = models.CharField(max_length=10, choices=ApprovalState, default=ApprovalState.REQUESTED)
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.CharField(max_length=300, blank=True, default="")
    #: Keyed digest of the deny reason in the content store.
    reason_digest = models.CharField(max_length=64, blank=True, default="")
    #: Why it ended without a decision: ``expired``, ``stopped``, ``unpublished``, and so on.
    void_reason = models.CharField(max_length=40, blank=True, default="")
    #: Only this run's key may claim it.
    resume_run = models.ForeignKey(
        Run, models.PROTECT, null=True, blank=True, related_name="claims"
    )
    executing_boot_id = models.UUIDField(null=True, blank=True)
    executed_at = models.DateTimeField(null=True, blank=True)
    outcome_digest = models.CharField(max_length=64, blank=True, default="")
    outcome_is_error = models.BooleanField(default=False)

    class Meta:
        constraints = [one_of("state", ApprovalState, "approval_state")]
        indexes = [
            models.Index(
                fields=["principal_issuer", "principal_subject", "state"], name="approval_inbox"
            ),
            models.Index(fields=["state", "expires_at"], name="approval_expiry"),
        ]

    def __str__(self) -> str:
        return f"approval {str(self.id)[:8]} ({self.state})"
