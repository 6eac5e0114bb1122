"""A thread as people see it: AG-UI messages folded from the log, and what waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agents import content_store
from agents.choices import ApprovalState, RunState
from agents.errors import DamagedContent
from agents.models import Approval, Run
from agents.services.approvals import ARGUMENTS, REASON
from chat.markdown import to_html
from chat.models import Thread, ThreadText
from chat.selectors.interrupts import as_interrupts, open_approvals
from chat.selectors.log import MODEL_MESSAGE, USER_MESSAGE, Entry, all_entries
from chat.selectors.threads import last_run

JSON = dict[str, Any]

#: The state of a call by what became of its approval, where that says more than the log.
BY_APPROVAL = {
    ApprovalState.OPEN: "waiting",
    ApprovalState.DENIED: "denied",
    ApprovalState.EXPIRED: "expired",
    ApprovalState.VOID: "void",
    ApprovalState.UNCERTAIN: "unknown",
}
#: The state of a call without a result, by its run's.
UNFINISHED = {
    RunState.RUNNING: "running",
    RunState.INTERRUPTED: "waiting",
    RunState.CANCELLED: "stopped",
}
#: Types that make up what people see: everything but the model's own messages.
SHOWN = [
    USER_MESSAGE, "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR",
    "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT",
    "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_RESULT",
]  # fmt: skip
assert MODEL_MESSAGE not in SHOWN


@dataclass
class _Fold:
    """Messages in order, and the way back from ids to them."""

    messages: list[JSON] = field(default_factory=list)
    by_id: dict[str, JSON] = field(default_factory=dict)
    calls: dict[str, JSON] = field(default_factory=dict)
    started: dict[str, int] = field(default_factory=dict)
    run_of: dict[str, str] = field(default_factory=dict)
    #: When each run began: what an approved call is measured from, not from its question.
    run_started: dict[str, int] = field(default_factory=dict)
    #: The last message of each run, which carries its error or its stop.
    last_of: dict[UUID | None, JSON] = field(default_factory=dict)
    error: JSON | None = None

    def add(self, entry: Entry) -> None:
        data = entry.data()
        match entry.type:
            case "user/message":
                self._message(entry, {"id": data["id"], "role": "user", "content": data["content"]})
            case "TEXT_MESSAGE_START":
                self._assistant(entry, data["messageId"])
            case "TEXT_MESSAGE_CONTENT":
                self._assistant(entry, data["messageId"])["content"] += data["delta"]
            case "TOOL_CALL_START":
                self._call(entry, data)
            case "TOOL_CALL_ARGS" if data["toolCallId"] in self.calls:
                self.calls[data["toolCallId"]]["function"]["arguments"] += data["delta"]
            case "TOOL_CALL_RESULT":
                self._result(entry, data)
            case "RUN_STARTED":
                self.error = None
                self.run_started[str(entry.run_id)] = data.get("timestamp", 0)
            case "RUN_ERROR":
                self.error = {"code": data.get("code", ""), "message": data["message"]}
                self._mark(entry, "error", self.error)
            case "RUN_FINISHED" if data["outcome"]["type"] == "cancelled":
                self._mark(entry, "stopped", value=True)

    def _message(self, entry: Entry, message: JSON) -> JSON:
        message["runId"] = str(entry.run_id)
        self.messages.append(message)
        self.by_id[message["id"]] = self.last_of[entry.run_id] = message
        return message

    def _assistant(self, entry: Entry, message_id: str) -> JSON:
        known = self.by_id.get(message_id)
        if known is not None:
            return known
        return self._message(entry, {"id": message_id, "role": "assistant", "content": ""})

    def _call(self, entry: Entry, data: JSON) -> None:
        message = self._assistant(entry, data.get("parentMessageId") or data["toolCallId"])
        call = {
            "id": data["toolCallId"],
            "type": "function",
            "function": {"name": data["toolCallName"], "arguments": ""},
            "state": "",
        }
        message.setdefault("toolCalls", []).append(call)
        self.calls[call["id"]] = call
        self.run_of[call["id"]] = message["runId"]
        if "timestamp" in data:
            self.started[call["id"]] = data["timestamp"]

    def _result(self, entry: Entry, data: JSON) -> None:
        call_id = data["toolCallId"]
        self._message(
            entry,
            {
                "id": data["messageId"],
                "role": "tool",
                "toolCallId": call_id,
                "content": data["content"],
            },
        )
        call = self.calls.get(call_id)
        if call is not None:
            call["state"] = "done"
            began = self.started.get(call_id, 0)
            if str(entry.run_id) != self.run_of[call_id]:
                began = self.run_started.get(str(entry.run_id), 0)
            if began and "timestamp" in data:
                call["seconds"] = round((data["timestamp"] - began) / 1000, 1)

    def _mark(self, entry: Entry, name: str, value: Any) -> None:
        message = self.last_of.get(entry.run_id)
        if message is not None:
            message[name] = value


def conversation(thread: Thread) -> JSON:
    """Everything that a page of the thread shows. Raises DamagedContent when it is unreadable."""
    fold = _Fold()
    last_seq = 0
    for entry in all_entries(thread.organization_id, thread.id, types=SHOWN):
        fold.add(entry)
        last_seq = entry.seq
    run = last_run(thread.id)
    running = run is not None and run.state == RunState.RUNNING
    approvals = list(
        Approval.objects.filter(thread_id=thread.id)
        .exclude(state=ApprovalState.REQUESTED)
        .order_by("created_at", "id")
    )
    # A child may ask while others still work: it can be answered once the whole turn pauses.
    waiting = [] if running else as_interrupts(open_approvals(thread.id))
    _settle_calls(fold, approvals, run)
    for message in fold.messages:
        settled = not running or run is None or message["runId"] != str(run.id)
        if message["role"] == "assistant" and message["content"] and settled:
            message["html"] = to_html(message["content"])
    return {
        "id": str(thread.id),
        "threadId": thread.client_id,
        "title": title_of(thread),
        "agent": thread.agent.slug,
        "environment": thread.environment.slug,
        "messages": fold.messages,
        "interrupts": waiting,
        "approvals": [_decided(a) for a in approvals if a.state != ApprovalState.OPEN],
        "run": None if run is None else _run(run, last_seq),
        "error": fold.error,
    }


def _settle_calls(fold: _Fold, approvals: list[Approval], last: Run | None) -> None:
    """Say of each call what became of it."""
    by_call = {approval.tool_call_id: approval for approval in approvals}
    if last is None:
        return
    runs = {
        str(run.id): run
        for run in Run.objects.filter(session_id=last.session_id).only("state", "root_run_id")
    }
    for call_id, call in fold.calls.items():
        approval = by_call.get(call_id)
        if approval is not None:
            _apply(approval, call)
        call["state"] = call["state"] or _without_result(runs.get(fold.run_of[call_id]), last)


def _without_result(run: Run | None, last: Run) -> str:
    """The state of a call that has no result, by its own run and the turn's last one."""
    if run is not None and run.root_run_id == last.root_run_id:
        run = last
    return "unknown" if run is None else UNFINISHED.get(RunState(run.state), "unknown")


def _apply(approval: Approval, call: JSON) -> None:
    state = ApprovalState(approval.state)
    if state in BY_APPROVAL:
        call["state"] = BY_APPROVAL[state]
    elif state == ApprovalState.EXECUTED and approval.outcome_is_error:
        call["state"] = "failed"
    if approval.decided_digest not in {"", approval.arguments_digest}:
        try:
            edited = content_store.get(approval.organization_id, ARGUMENTS, approval.decided_digest)
        except DamagedContent:
            return
        call["function"]["arguments"] = edited.decode()
        call["edited"] = True


def _decided(approval: Approval) -> JSON:
    """What became of an approval, for the card's place in the thread."""
    reason = ""
    if approval.reason_digest:
        try:
            reason = content_store.get(
                approval.organization_id, REASON, approval.reason_digest
            ).decode()
        except DamagedContent:
            reason = ""
    return {
        "id": str(approval.id),
        "toolCallId": approval.tool_call_id,
        "state": approval.state,
        "edited": approval.decided_digest not in {"", approval.arguments_digest},
        "decidedAt": None if approval.decided_at is None else approval.decided_at.isoformat(),
        "reason": reason,
        "endedBy": approval.void_reason,
    }


def _run(run: Run, last_seq: int) -> JSON:
    return {
        "id": str(run.id),
        "runId": run.client_run_id,
        "state": run.state,
        "lastSeq": last_seq,
    }


def title_of(thread: Thread) -> str:
    """The thread's title; empty when there is none or it cannot be read."""
    row = ThreadText.objects.filter(id=thread.id).first()
    if row is None or row.title is None:
        return ""
    try:
        return row.open_value("title")
    except DamagedContent:
        return ""
