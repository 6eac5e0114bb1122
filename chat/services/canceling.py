"""Stop a run from a thread: its owner, in whatever process, sees the flag within 200 ms."""

from __future__ import annotations

from uuid import UUID

from agents.services.runs import request_cancel
from agents.transactions import durable


@durable()
def cancel_own_run(run_id: UUID) -> bool:
    """Ask the run's owner to stop it; False when it is not running."""
    return request_cancel(run_id)
