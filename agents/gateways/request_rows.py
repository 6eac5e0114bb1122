"""The row of one gateway call: opened in its hop, closed after it, or written as refused."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from agents import clock, sql
from agents.choices import RequestKind, RequestState
from agents.errors import DomainError
from agents.lifecycle import current_boot_id
from agents.policy import KeyRow
from agents.writer import get_writer

INSERT_SQL = """
INSERT INTO agents_gatewayrequest
    (id, organization_id, agent_id, environment_id, key_accessor, run_id, boot_id, purpose, kind,
     resource_id, resource_name, state, code, opened_at, closed_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""

CLOSE_SQL = """
UPDATE agents_gatewayrequest
SET state = %s, code = %s, closed_at = %s, first_byte_ms = %s, duration_ms = %s,
    input_tokens = %s, output_tokens = %s, cost = %s
WHERE id = %s AND state = 'open'
"""

#: Input tokens, output tokens, and cost in micro-dollars; null where unknown.
Spent = tuple[int | None, int | None, int | None]
Spending = Callable[[], Spent]


class CallRecord:
    """One call's row, from the hop that opens it to the closing that the writer does later."""

    def __init__(self, kind: RequestKind, purpose: str = "agent") -> None:
        self.id = uuid.uuid4()
        self.kind = kind
        self.purpose = purpose
        self.started = time.monotonic()
        self._first_byte_ms: int | None = None
        self._closed = False

    def open(
        self, cursor: CursorWrapper, key: KeyRow, *, resource_id: UUID, resource_name: str
    ) -> None:
        """Write the row as open. A step of the hop that authorises the call."""
        self._insert(cursor, key, resource_id, resource_name, RequestState.OPEN, "")

    def refuse(
        self,
        cursor: CursorWrapper,
        key: KeyRow,
        error: DomainError,
        *,
        resource_id: UUID | None = None,
        resource_name: str = "",
    ) -> None:
        """Write the row of a call that goes nowhere.

        Raising inside the operation would undo it: return the error, and raise it outside.
        """
        self._closed = True
        self._insert(cursor, key, resource_id, resource_name, RequestState.REFUSED, error.code)

    def open_keyless(
        self,
        cursor: CursorWrapper,
        *,
        organization_id: UUID,
        agent_id: UUID | None,
        environment_id: UUID | None,
        resource_id: UUID,
        resource_name: str,
    ) -> None:
        """Write the open row of a call of the product's own."""
        now = clock.now(cursor)
        sql.execute(
            cursor,
            INSERT_SQL,
            [
                self.id, organization_id, agent_id, environment_id, "", None, current_boot_id(),
                self.purpose, self.kind.value, resource_id, resource_name[:80],
                RequestState.OPEN.value, "", now, None,
            ],
        )  # fmt: skip

    def _insert(
        self,
        cursor: CursorWrapper,
        key: KeyRow,
        resource_id: UUID | None,
        resource_name: str,
        state: RequestState,
        code: str,
    ) -> None:
        now = clock.now(cursor)
        sql.execute(
            cursor,
            INSERT_SQL,
            [
                self.id, key.organization_id, key.agent_id, key.environment_id, key.accessor,
                key.run_id, current_boot_id(), self.purpose, self.kind.value, resource_id,
                resource_name[:80], state.value, code, now,
                None if state is RequestState.OPEN else now,
            ],
        )  # fmt: skip

    def first_byte(self) -> None:
        """Note when the upstream's answer began; the first call counts."""
        if self._first_byte_ms is None:
            self._first_byte_ms = self._elapsed_ms()

    def close(
        self, state: RequestState, code: str = "", *, spending: Spending | None = None
    ) -> None:
        """Queue the closing; waits for nothing. Only the first call has an effect.

        *spending* runs in the writer's thread and tells what the call cost.
        """
        if not self._closed:
            get_writer().post(self.closing(state, code, spending=spending))

    def closing(
        self, state: RequestState, code: str = "", *, spending: Spending | None = None
    ) -> Callable[[CursorWrapper], Any]:
        """The operation that closes the row, unless somebody else did it first."""
        self._closed = True
        duration_ms, first_byte_ms = self._elapsed_ms(), self._first_byte_ms

        def operation(cursor: CursorWrapper) -> int:
            spent: Spent = (None, None, None) if spending is None else spending()
            return sql.changed(
                cursor,
                CLOSE_SQL,
                [
                    state.value, code[:60], clock.now(cursor), first_byte_ms, duration_ms,
                    *spent, self.id,
                ],
            )  # fmt: skip

        return operation

    def _elapsed_ms(self) -> int:
        return round((time.monotonic() - self.started) * 1000)
