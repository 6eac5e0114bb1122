"""Parked first-party calls, two levels deep: the innermost call waits, everything above it too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction

from agents.choices import InitiatorKind, ParkedState, RunState
from agents.gateways import first_party
from agents.gateways.first_party import FirstPartyCall, FirstPartyResult, Parked
from agents.models import Agent, Approval, Boot, ParkedCall, Run, Tool
from agents.services import first_party as definitions
from agents.services.boots import start_boot
from agents.services.containment import Containment, contain, void_approvals
from agents.services.runs import Principal
from chat.selectors.inbox import count_open_approvals, inbox_of
from chat.services.children import run_child
from chat.services.fences import verdicts
from definitions.services import drafts
from tests.chat.desk import Desk, approve, cancel, deny, eventually, new_thread, settle_writes
from tests.fakes.mcp_server import Text
from tests.fakes.model_provider import call, calls, text
from tests.serving import aside

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

REFUND = {"order": 1042, "amount": 20}
ASK = "mandate__ask_specialist"


async def ask_specialist(asked: FirstPartyCall) -> FirstPartyResult:
    """The test's own toolset: let another agent of the organization answer."""
    assert asked.key.run_id is not None
    agent = await aside(
        lambda: Agent.objects.get(
            organization_id=asked.key.organization_id, slug=asked.arguments["agent"]
        )
    )
    result = await run_child(
        parent_run_id=asked.key.run_id,
        agent_id=agent.id,
        tool_name=ASK,
        prompt=asked.arguments["question"],
    )
    if result.handoff_id is not None:
        raise Parked(result.handoff_id)
    return FirstPartyResult(result.text, is_error=result.is_error)


@dataclass
class Family:
    """Order desk -> Specialist -> Clerk; only the clerk may refund."""

    desk: Desk
    specialist: Agent
    clerk: Agent

    def script_down(self) -> None:
        """Each asks the next; the clerk wants to refund."""
        self.desk.provider.script(
            calls(call(ASK, {"agent": "specialist", "question": "Refund 1042?"})),
            calls(call(ASK, {"agent": "clerk", "question": "Refund 1042, please."})),
            calls(call("shop__refund", REFUND)),
        )


@pytest.fixture
def family(desk: Desk) -> Iterator[Family]:
    schema = {
        "type": "object",
        "properties": {"agent": {"type": "string"}, "question": {"type": "string"}},
        "required": ["agent", "question"],
    }
    first_party.register("ask_specialist", "Ask another agent.", schema, ask_specialist)
    definitions.ensure_first_party(desk.world.organization)
    ask = Tool.objects.get(exposed_name=ASK)
    made = {}
    for slug in ("specialist", "clerk"):
        made[slug] = drafts.create_agent(
            actor=desk.world.manager, team=desk.world.team, name=slug.title(), slug=slug
        )
    desk.publish(tools=[ask], instructions="Ask the specialist.")
    desk.publish(made["specialist"], "Ask the clerk.", [ask])
    desk.publish(made["clerk"], "Refund.", [desk.tools["refund"]])
    yield Family(desk, made["specialist"], made["clerk"])
    first_party._handlers.pop("ask_specialist")
    definitions.definitions.pop("ask_specialist")


def saw(desk: Desk, index: int) -> str:
    return json.dumps(desk.provider.completions[index].json["messages"])


def test_an_unparked_child_returns_its_last_message(family: Family) -> None:
    desk = family.desk
    desk.provider.script(
        calls(call(ASK, {"agent": "clerk", "question": "How are you?"})),
        text("Fine, thank you."),
        text("The clerk is fine."),
    )
    answer = desk.member().send("Ask the clerk", thread=new_thread())
    assert answer.text == "The clerk is fine."
    assert "Fine, thank you." in saw(desk, -1)
    root, child = Run.objects.order_by("created_at")
    assert (child.parent_id, child.root_run_id, child.depth) == (root.id, root.id, 1)
    assert child.session_id != root.session_id
    assert child.thread_id == root.thread_id
    assert child.initiator.subject == root.initiator.subject
    assert child.key.id != root.key.id


def test_approving_the_innermost_call_runs_it_once_and_the_results_flow_up(family: Family) -> None:
    desk = family.desk
    desk.fake.answer("refund", Text("refunded 1042"))
    family.script_down()
    front, thread = desk.member(), new_thread()
    asked = front.send("Refund 1042", thread=thread)
    (interrupt,) = asked.interrupts
    assert interrupt["metadata"]["path"] == ["Order desk", "Specialist", "Clerk"]
    assert interrupt["metadata"]["agent"] == "Clerk"
    assert interrupt["metadata"]["arguments"] == REFUND
    states = Run.objects.order_by("created_at").values_list("state", flat=True)
    assert set(states) == {RunState.INTERRUPTED}
    assert front.thread(thread)["interrupts"] == asked.interrupts

    desk.provider.script(text("Clerk: done."), text("Specialist: done."), text("All done."))
    done = front.send(thread=thread, resume=[approve(interrupt)])
    assert done.text == "All done."
    assert [c.arguments for c in desk.fake.calls if c.name == "refund"] == [REFUND]
    assert "refunded 1042" in saw(desk, 3)
    assert "Clerk: done." in saw(desk, 4)
    assert "Specialist: done." in saw(desk, 5)
    assert done.kinds.count("TOOL_CALL_RESULT") == 1
    assert "TOOL_CALL_START" not in done.kinds
    resumed = Run.objects.filter(resumes__isnull=False)
    assert {run.state for run in resumed} == {RunState.SUCCEEDED}
    assert set(Run.objects.values_list("root_run_id", flat=True)) == {
        Run.objects.order_by("created_at")[0].id
    }
    assert set(ParkedCall.objects.values_list("state", flat=True)) == {ParkedState.DONE}


def test_a_denial_flows_back_as_a_result(family: Family) -> None:
    desk = family.desk
    family.script_down()
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund 1042", thread=thread).interrupts
    desk.provider.script(text("Not allowed."), text("The clerk may not."), text("Sorry."))
    done = front.send(thread=thread, resume=[deny(interrupt, "no budget")])
    assert done.text == "Sorry."
    assert desk.fake.count("refund") == 0
    assert "Denied by the user: no budget" in saw(desk, 3)
    assert "Not allowed." in saw(desk, 4)


def test_a_child_that_asks_again_interrupts_everything_again(family: Family) -> None:
    desk = family.desk
    family.script_down()
    front, thread = desk.member(), new_thread()
    (first,) = front.send("Refund 1042", thread=thread).interrupts
    again = {"order": 7, "amount": 3}
    desk.provider.script(calls(call("shop__refund", again)))
    (second,) = front.send(thread=thread, resume=[approve(first)]).interrupts
    assert second["id"] != first["id"]
    assert second["metadata"]["path"] == ["Order desk", "Specialist", "Clerk"]
    desk.provider.script(text("Clerk: done."), text("Specialist: done."), text("All done."))
    done = front.send(thread=thread, resume=[approve(second)])
    assert done.text == "All done."
    assert [c.arguments for c in desk.fake.calls if c.name == "refund"] == [REFUND, again]


def test_cancelling_it_all_lets_the_next_message_work(family: Family) -> None:
    desk = family.desk
    family.script_down()
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund 1042", thread=thread).interrupts
    desk.provider.script(text("As you like."))
    done = front.send("Forget it", thread=thread, resume=[cancel(interrupt)])
    assert done.text == "As you like."
    assert desk.fake.count("refund") == 0
    assert ParkedCall.objects.filter(state=ParkedState.WAITING).count() == 0


def test_a_void_approval_below_lets_the_next_message_work(family: Family) -> None:
    desk = family.desk
    family.script_down()
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund 1042", thread=thread).interrupts
    void_approvals("unpublished", id=interrupt["id"])
    refused = front.send(thread=thread, resume=[approve(interrupt)])
    assert (refused.status, refused.code) == (409, "approval_already_decided")
    assert refused.problem["reason"] == "unpublished"
    desk.provider.script(text("Then not."))
    assert front.send("Go on", thread=thread).text == "Then not."
    assert desk.fake.count("refund") == 0


def test_containing_an_agent_voids_what_is_asked_below_it(family: Family) -> None:
    desk = family.desk
    family.script_down()
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund 1042", thread=thread).interrupts
    done = contain_in_production(desk, family.specialist)
    assert done.approvals_voided == 1
    assert desk.state(interrupt) == "void"
    family.script_down()
    (interrupt,) = front.send("Refund 1042", thread=new_thread()).interrupts
    desk.unpublish()
    assert desk.state(interrupt) == "void"


def test_containing_an_agent_leaves_what_others_ask_for(family: Family) -> None:
    desk = family.desk
    family.script_down()
    (interrupt,) = desk.member().send("Refund 1042", thread=new_thread()).interrupts
    other = drafts.create_agent(
        actor=desk.world.manager, team=desk.world.team, name="Other", slug="other"
    )
    assert contain_in_production(desk, other).approvals_voided == 0
    assert desk.state(interrupt) == "open"


def contain_in_production(desk: Desk, agent: Agent) -> Containment:
    with transaction.atomic():
        return contain(
            agent_ids=[agent.id], reason="suspended", environment_id=desk.world.production.id
        )


def test_the_inbox_shows_what_a_child_asks_once_the_whole_turn_waits(family: Family) -> None:
    desk = family.desk
    family.script_down()
    desk.member().send("Refund 1042", thread=new_thread())
    settle_writes()
    me = Principal(InitiatorKind.MEMBER, "mandate", str(desk.world.member_user.id))
    assert (count_open_approvals(me), len(inbox_of(me))) == (1, 1)
    root = Run.objects.filter(depth=0)
    root.update(state=RunState.RUNNING)
    assert (count_open_approvals(me), inbox_of(me)) == (0, [])
    root.update(state=RunState.INTERRUPTED)


def test_stopping_the_root_stops_the_children(family: Family) -> None:
    desk = family.desk
    desk.provider.script(
        calls(call(ASK, {"agent": "clerk", "question": "Take your time."})),
        text("Slow answer", chunk=1, pace=0.2),
    )
    front, thread = desk.member(), new_thread()
    stream = front.begin("Ask", thread=thread, run="r1")
    eventually(lambda: Run.objects.filter(depth=1).exists())
    desk.provider.wait_for_requests(2)
    assert front.cancel(thread, "r1").status_code == 202
    events = stream.finish()
    assert events[-1]["outcome"] == {"type": "cancelled"}
    eventually(lambda: not Run.objects.filter(state=RunState.RUNNING).exists())
    assert set(Run.objects.values_list("state", flat=True)) == {RunState.CANCELLED}
    desk.provider.wait_until_gone()


def test_an_outsider_cannot_decide_below_either(family: Family) -> None:
    desk = family.desk
    family.script_down()
    front, thread = desk.member(), new_thread()
    (interrupt,) = front.send("Refund 1042", thread=thread).interrupts
    refused = desk.end_user("mallory").send(thread=thread, resume=[approve(interrupt)])
    assert refused.status == 404
    settle_writes()
    assert Approval.objects.get().state == "open"


def test_a_child_goes_on_only_while_its_parent_does(family: Family, boot: Boot) -> None:
    desk = family.desk
    desk.provider.script(
        calls(call(ASK, {"agent": "clerk", "question": "How are you?"})), text("Fine."), text("Ok.")
    )
    desk.member().send("Ask the clerk", thread=new_thread())
    root, child = Run.objects.order_by("created_at")

    def verdict(**changes: Any) -> str:
        Run.objects.filter(id=child.id).update(state=RunState.RUNNING, boot=boot)
        Run.objects.filter(id=root.id).update(state=RunState.RUNNING, cancel_requested=False)
        for name, value in changes.items():
            which, _, column = name.partition("_")
            Run.objects.filter(id=root.id if which == "root" else child.id).update(
                **{column: value}
            )
        found = verdicts([child.id], boot.id)
        return "" if not found else "lost" if found[0].lost else "cancel"

    assert verdict() == ""
    assert verdict(root_state=RunState.FAILED) == "cancel"
    assert verdict(root_cancel_requested=True) == "cancel"
    assert verdict(child_cancel_requested=True) == "cancel"
    assert verdict(child_state=RunState.FAILED) == "lost"
    assert verdict(child_boot=start_boot(role="web")) == "lost"


def test_what_was_approved_beside_a_child_waits_for_it_and_runs_once(family: Family) -> None:
    """The root's own call and its child's: the child asks twice before the root may go on."""
    desk = family.desk
    ask = Tool.objects.get(exposed_name=ASK)
    desk.publish(tools=[ask, desk.tools["refund"]], instructions="Do both.")
    own, again = {"order": 1, "amount": 1}, {"order": 2, "amount": 2}
    desk.provider.script(
        calls(
            call(ASK, {"agent": "clerk", "question": "Refund 1042."}, "a"),
            call("shop__refund", own, "b"),
        ),
        calls(call("shop__refund", REFUND)),
    )
    front, thread = desk.member(), new_thread()
    asked = front.send("Both", thread=thread).interrupts
    assert sorted(len(i["metadata"]["path"]) for i in asked) == [1, 2]

    desk.provider.script(calls(call("shop__refund", again)))
    (second,) = front.send(thread=thread, resume=[approve(i) for i in asked]).interrupts
    assert second["metadata"]["arguments"] == again
    assert [c.arguments for c in desk.fake.calls] == [REFUND]

    desk.provider.script(text("Clerk: both done."), text("All done."))
    done = front.send(thread=thread, resume=[approve(second)])
    assert done.text == "All done."
    assert [c.arguments for c in desk.fake.calls] == [REFUND, again, own]
    assert "Clerk: both done." in saw(desk, -1)
    assert set(Approval.objects.values_list("state", flat=True)) == {"executed"}
