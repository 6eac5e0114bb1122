"""The one visit to the database before a model call: rights, limits, reservation, request row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from agents import clock, sql
from agents.choices import RequestState, Status
from agents.digests import credential_mac
from agents.errors import DomainError, InputTooLarge, KeyDead, ModelDisabled, NotFound, OutOfScope
from agents.gateways.model_request import BYTES_PER_TOKEN, ChatRequest
from agents.gateways.request_rows import CallRecord
from agents.policy import KeyRow, KeyRows, ModelRow, Rights, effective_rights
from agents.selectors.rights import (
    MODEL_COLUMNS,
    MODEL_TABLES,
    model_row,
    read_key,
    read_key_and_model,
    rights_of_key,
)
from agents.writer import get_writer

#: Takes what a call may cost at worst, before it is sent: the cursor of the hop, the key, the
#: model and the bytes of input. It refuses by raising a DomainError before it has written.
Reserve = Callable[[CursorWrapper, KeyRow, ModelRow, int], None]

SYSTEM_MODEL_SQL = f"""
SELECT {MODEL_COLUMNS}, o.status
FROM (SELECT id AS virtual_model_id, organization_id FROM agents_virtualmodel) g
{MODEL_TABLES}
JOIN agents_organization o ON o.id = g.organization_id
WHERE m.id = %s AND m.organization_id = %s
"""  # noqa: S608 - made of constants


@dataclass(frozen=True, slots=True)
class Admission:
    """A call that may go upstream; its request row is open."""

    organization_id: UUID
    model: ModelRow
    record: CallRecord
    key: KeyRow | None = field(repr=False, default=None)


async def admit(
    key_text: str, request: ChatRequest, record: CallRecord, *, reserve: Reserve | None = None
) -> Admission:
    """Authorise, reserve and open the row in one durable step, or raise what refuses it.

    A refusal of a known key leaves a row; an unknown key leaves none.
    """

    def operation(cursor: CursorWrapper) -> Admission | DomainError:
        found = read_key_and_model(cursor, mac=credential_mac(key_text), model_slug=request.model)
        key = found[0] if found is not None else _known_key(cursor, key_text)
        try:
            model = _granted_model(cursor, key, found and found[1], request)
            if reserve is not None:
                reserve(cursor, key, model, request.size)
        except DomainError as error:
            # The name that was asked for is the caller's text, and stays out of the row.
            record.refuse(cursor, key, error)
            return error
        record.open(cursor, key, resource_id=model.id, resource_name=model.slug)
        return Admission(key.organization_id, model, record, key)

    return await _run(operation, record)


async def refuse(key_text: str, error: DomainError, record: CallRecord) -> DomainError:
    """Record that a request could not even be read; gives the error to answer with.

    A key that does not work is told so, whatever it sent.
    """

    def operation(cursor: CursorWrapper) -> DomainError:
        key = _known_key(cursor, key_text)
        answer = error
        try:
            rights_of_key(cursor, key)
        except DomainError as dead:
            answer = dead
        record.refuse(cursor, key, answer)
        return answer

    return await get_writer().run(operation)


async def admit_system(
    *,
    organization_id: UUID,
    virtual_model_id: UUID,
    request: ChatRequest,
    record: CallRecord,
    agent_id: UUID | None = None,
    environment_id: UUID | None = None,
) -> Admission:
    """:func:`admit` for the product's own calls, which have no key: the model says it all."""

    def operation(cursor: CursorWrapper) -> Admission:
        row = sql.one(cursor, SYSTEM_MODEL_SQL, [virtual_model_id, organization_id])
        if row is None:
            raise NotFound("There is no such model in this organization.")
        model = model_row(row)
        if not (model.enabled and model.provider_enabled and row[-1] == Status.ACTIVE):
            raise ModelDisabled
        _check_size(model, request)
        record.open_keyless(
            cursor,
            organization_id=organization_id,
            agent_id=agent_id,
            environment_id=environment_id,
            resource_id=model.id,
            resource_name=model.slug,
        )
        return Admission(organization_id, model, record)

    return await _run(operation, record)


async def rights_for_listing(key_text: str) -> Rights:
    """What the bearer may use now, for a list. Raises as every call does."""

    def operation(cursor: CursorWrapper) -> Rights:
        return rights_of_key(cursor, _known_key(cursor, key_text), everything=True)

    return await get_writer().run(operation)


async def _run(
    operation: Callable[[CursorWrapper], Admission | DomainError], record: CallRecord
) -> Admission:
    result = await get_writer().run(
        operation, abandoned=lambda _result: record.closing(RequestState.CANCELLED, "client_gone")
    )
    if isinstance(result, DomainError):
        raise result
    return result


def _known_key(cursor: CursorWrapper, key_text: str) -> KeyRow:
    key = read_key(cursor, mac=credential_mac(key_text))
    if key is None:
        raise KeyDead
    return key


def _granted_model(
    cursor: CursorWrapper, key: KeyRow, found: ModelRow | None, request: ChatRequest
) -> ModelRow:
    rows = KeyRows(key=key, models=() if found is None else (found,))
    model = effective_rights(rows, clock.now(cursor)).model(request.model)
    if model is None:  # One answer for unknown, ungranted, disabled and out of the key's scope.
        raise OutOfScope("The key's current rights do not include this model.")
    _check_size(model, request)
    return model


def _check_size(model: ModelRow, request: ChatRequest) -> None:
    limit = model.context_limit * BYTES_PER_TOKEN
    if request.size > limit:
        raise InputTooLarge(limit=limit)
