"""The lock order: the agent's row in its environment comes before everything else.

Then runs, keys, approvals, and the audit head last. Who takes rights away and who starts or
resumes work both lock these rows first, so they wait for each other and never deadlock half way.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from agents.models import AgentEnvironment

#: (agent id, environment id)
Slot = tuple[UUID, UUID]


def lock_slots(slots: Iterable[Slot]) -> None:
    """Lock these agents in these environments until the caller's transaction ends; a step.

    Several are locked in one fixed order.
    """
    for agent_id, environment_id in sorted(set(slots)):
        rows = AgentEnvironment.objects.select_for_update().filter(
            agent_id=agent_id, environment_id=environment_id
        )
        list(rows.values_list("id"))
