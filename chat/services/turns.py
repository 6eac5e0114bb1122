"""Start a run: a new user turn, or the decisions that let an interrupted one go on.

Reading and verifying comes first, then content (edits, reasons), then one control transaction
that records the decisions and begins every run. Whoever loses a race changes nothing.
"""

from __future__ import annotations

import asyncio

from agents.errors import RunActive
from agents.services.sweeps import fail_dead_run
from chat.selectors.tokens import Caller
from chat.services.approvals import store_blobs
from chat.services.beginning import decide_and_begin
from chat.services.execution import executor
from chat.services.planning import Attached, LeftBehind, Plan, Turn, attached_to, plan_turn
from chat.services.stores import content, control, read
from chat.services.terminal import settle

#: Starts under way: nobody else may hold them when their client has gone.
_starting: set[asyncio.Task[Attached]] = set()


async def start_turn(caller: Caller, slug: str, turn: Turn) -> Attached:
    """Begin the run that *turn* asks for, or find the one that the same request began.

    Raises NotFound, RunIdReused, RunActive, ApprovalOpen, NothingToRun, NothingToResume,
    InterruptsUncovered, the refusals of a decision, and those of beginning a run.
    """
    planned = await read(plan_turn, caller, slug, turn)
    if isinstance(planned, LeftBehind):
        await read(fail_dead_run, planned.run_id)
        await settle(planned.run_id)
        planned = await read(plan_turn, caller, slug, turn)
    if isinstance(planned, LeftBehind):
        raise RunActive  # its process came back
    return planned if isinstance(planned, Attached) else await carry_out(planned)


async def carry_out(plan: Plan) -> Attached:
    """Store, commit and launch, to the end even when the client has gone meanwhile."""
    task = asyncio.create_task(_carry_out(plan))
    _starting.add(task)
    task.add_done_callback(_starting.discard)
    return await asyncio.shield(task)


async def _carry_out(plan: Plan) -> Attached:
    stored = await content(lambda: store_blobs(plan.answers)) if plan.answers else []
    for run_id in plan.untold:
        await settle(run_id)
    begun = await control(lambda: decide_and_begin(plan, stored), full=True)
    if isinstance(begun, Attached):
        return begun
    await executor.launch(begun)
    return attached_to(begun.run)
