"""Runs, the boots that own them, and the handoffs they wait for."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.utils import timezone

from agents.choices import InitiatorKind, ParkedState, RunState
from agents.models.base import Row, one_of
from agents.models.identity import Agent, Environment, Organization


class Boot(Row):
    """One server process's life. It owns runs and open calls while its heartbeat is fresh (5 s)."""

    heartbeat_at = models.DateTimeField(default=timezone.now)
    parent_id = models.CharField(max_length=32, blank=True, default="")
    pid = models.PositiveIntegerField()
    host = models.CharField(max_length=120)
    role = models.CharField(max_length=20)
    ended_at = models.DateTimeField(null=True, blank=True)


class Run(Row):
    """One execution by one agent. One terminal event ever; pinned to a draft digest or version."""

    organization = models.ForeignKey(Organization, models.PROTECT, related_name="runs")
    agent = models.ForeignKey(Agent, models.PROTECT, related_name="runs")
    environment = models.ForeignKey(Environment, models.PROTECT, related_name="runs")
    thread_id = models.UUIDField()
    session_id = models.UUIDField()
    client_run_id = models.CharField(max_length=128)
    request_digest = models.CharField(max_length=64)
    state = models.CharField(max_length=12, choices=RunState, default=RunState.RUNNING)
    boot = models.ForeignKey(Boot, models.PROTECT, related_name="runs")
    cancel_requested = models.BooleanField(default=False)
    version_id = models.UUIDField(null=True, blank=True)
    version_number = models.PositiveIntegerField(null=True, blank=True)
    definition_digest = models.CharField(max_length=64)
    generation = models.PositiveBigIntegerField()
    #: The first run of the user turn; its own id for that run itself.
    root_run_id = models.UUIDField()
    #: The run whose interrupt this run continues.
    resumes = models.OneToOneField(
        "self", models.PROTECT, null=True, blank=True, related_name="resumed_by"
    )
    #: The run whose first-party call started this one.
    parent = models.ForeignKey(
        "self", models.PROTECT, null=True, blank=True, related_name="children"
    )
    depth = models.PositiveSmallIntegerField(default=0)
    deadline_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    error_code = models.CharField(max_length=60, blank=True, default="")
    #: Keyed digest of the model history at the pause.
    history_digest = models.CharField(max_length=64, blank=True, default="")
    #: Set once the log tells how the run ended; a sweep appends what a crash left out.
    terminal_logged = models.BooleanField(default=False)
    #: Names of tools that were defined but not granted at the start, for the receipt.
    receipt: models.JSONField[dict[str, Any]] = models.JSONField(default=dict)
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session_id", "client_run_id"], name="run_client_id"),
            models.UniqueConstraint(
                fields=["session_id"], condition=Q(state="running"), name="run_one_running"
            ),
            one_of("state", RunState, "run_state"),
        ]
        indexes = [
            models.Index(fields=["state", "boot"], name="run_by_state"),
            models.Index(fields=["thread_id", "created_at"], name="run_by_thread"),
            models.Index(fields=["root_run_id"], name="run_by_root"),
        ]

    def __str__(self) -> str:
        return f"run {str(self.id)[:8]} ({self.state})"


class RunInitiator(Row):
    """Who asked. The agent executes; the initiator is recorded and decides approvals."""

    run = models.OneToOneField(Run, models.PROTECT, related_name="initiator")
    kind = models.CharField(max_length=10, choices=InitiatorKind)
    issuer = models.CharField(max_length=80)
    subject = models.CharField(max_length=200)
    thread_id = models.UUIDField()
    client_run_id = models.CharField(max_length=128)
    definition_digest = models.CharField(max_length=64)
    version_number = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        constraints = [one_of("kind", InitiatorKind, "run_initiator_kind")]


class ParkedCall(Row):
    """A first-party call whose child run waits for a person; the parent's run ended meanwhile.

    ``tool_call_id`` is learned when the parent pauses. ``outcome_digest`` names the stored result
    once the child has ended.
    """

    run = models.ForeignKey(Run, models.PROTECT, related_name="parked_calls")
    child = models.ForeignKey(Run, models.PROTECT, related_name="parked_in")
    tool_name = models.CharField(max_length=64)
    tool_call_id = models.CharField(max_length=128, blank=True, default="")
    state = models.CharField(max_length=8, choices=ParkedState, default=ParkedState.WAITING)
    outcome_digest = models.CharField(max_length=64, blank=True, default="")
    outcome_is_error = models.BooleanField(default=False)

    class Meta:
        constraints = [one_of("state", ParkedState, "parked_state")]
