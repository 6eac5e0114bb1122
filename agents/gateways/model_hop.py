"""The one visit to the database before a model call: rights, limits, reservation, request row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from agents import sql
from agents.choices import RequestState, Status
from agents.digests import credential_mac
from agents.errors import DomainError, InputTooLarge, KeyDead, ModelDisabled, NotFound, OutOfScope
from agents.gateways.model_request import BYTES_PER_TOKEN, ChatRequest
from agents.gateways.request_rows import CallRecord
from agents.policy import KeyRow, ModelRow, Rights
from agents.selectors.rights import read_key, rights_of_key
from agents.writer import get_writer

#: Takes what a call may cost at worst, before it is sent: the cursor of the hop, the key, the
#: model and the bytes of input. It refuses by raising a DomainError before it has written.
Reserve = Callable[[CursorWrapper, KeyRow, ModelRow, int], None]

SYSTEM_MODEL_SQL = """
SELECT m.id, m.slug, m.upstream_model, m.pricing_reference, m.context_limit, m.output_limit,
       m.enabled, p.id, p.enabled, p.base_url, p.credential, o.status
FROM agents_virtualmodel m
JOIN agents_modelprovider p ON p.id = m.provider_id
JOIN agents_organization o ON o.id = m.organization_id
WHERE m.id = %s AND m.organization_id = %s
"""


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
        key = _known_key(cursor, key_text)
        try:
            model = _granted_model(cursor, key, request)
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
        model = _model_row(row)
        if not (model.enabled and model.provider_enabled and row[11] == Status.ACTIVE):
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


def _granted_model(cursor: CursorWrapper, key: KeyRow, request: ChatRequest) -> ModelRow:
    rights = rights_of_key(cursor, key, model_slug=request.model)
    model = rights.model(request.model)
    if model is None:  # One answer for unknown, ungranted, disabled and out of the key's scope.
        raise OutOfScope("The key's current rights do not include this model.")
    _check_size(model, request)
    return model


def _check_size(model: ModelRow, request: ChatRequest) -> None:
    limit = model.context_limit * BYTES_PER_TOKEN
    if request.size > limit:
        raise InputTooLarge(limit=limit)


def _model_row(row: tuple[Any, ...]) -> ModelRow:
    return ModelRow(
        id=sql.read_uuid(row[0]),
        slug=row[1],
        upstream_model=row[2],
        pricing_reference=row[3],
        context_limit=row[4],
        output_limit=row[5],
        enabled=sql.read_bool(row[6]),
        provider_id=sql.read_uuid(row[7]),
        provider_enabled=sql.read_bool(row[8]),
        base_url=row[9],
        credential=sql.read_bytes(row[10]),
    )
