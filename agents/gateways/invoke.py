"""The Model Gateway's path for callers in this process: same rights, bounds, codes and rows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from agents.choices import RequestKind, RequestState
from agents.errors import DomainError, Forbidden, Invalid, TooLarge
from agents.gateways import prices
from agents.gateways.model_hop import Admission, admit, admit_system
from agents.gateways.model_request import MAX_BODY_BYTES, ChatRequest, has_tools, read_chat
from agents.gateways.model_request import upstream_body as body_for
from agents.gateways.model_upstream import upstream, whole_answer
from agents.gateways.request_rows import CallRecord
from agents.policy import Actor

#: The one caller without a key.
ADVERTISEMENT_ACTOR = "system:advertisement"
ADVERTISEMENT = "advertisement"


@dataclass(frozen=True, slots=True)
class SystemCall:
    """A call of the product's own, for one model of one organization.

    The agent and environment are what it is about, for the request row.
    """

    actor: Actor
    organization_id: UUID
    virtual_model_id: UUID
    agent_id: UUID | None = None
    environment_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The provider's answer. ``usage`` is None when the provider's cannot be believed."""

    document: dict[str, Any]
    usage: prices.Usage | None
    request_id: UUID


async def invoke(
    body: dict[str, Any], *, key_text: str | None = None, system: SystemCall | None = None
) -> Answer:
    """Complete one chat, not streamed. Takes a key, or the advertisement worker's own call.

    Raises what the gateway would answer. Cancelling it cancels the call upstream.
    """
    request = _read(body)
    if system is None:
        if key_text is None:
            raise Forbidden("A model is invoked with an agent key.")
        record = CallRecord(RequestKind.MODEL)
        return await _exchange(await admit(key_text, request, record), request)
    if key_text is not None or system.actor.kind != "system":
        raise Forbidden
    if system.actor.id != ADVERTISEMENT_ACTOR:
        raise Forbidden("Only the advertisement worker calls models without a key.")
    if has_tools(request):
        raise Invalid("A call without a key has no tools.", field="tools")
    admission = await admit_system(
        organization_id=system.organization_id,
        virtual_model_id=system.virtual_model_id,
        request=request,
        record=CallRecord(RequestKind.MODEL, purpose=ADVERTISEMENT),
        agent_id=system.agent_id,
        environment_id=system.environment_id,
    )
    return await _exchange(admission, request)


def _read(body: dict[str, Any]) -> ChatRequest:
    size = len(orjson.dumps(body))
    if size > MAX_BODY_BYTES:
        raise TooLarge(limit=MAX_BODY_BYTES)
    request = read_chat(body, size)
    if request.stream:
        raise Invalid("An answer inside the process is not streamed.", field="stream")
    return request


async def _exchange(admission: Admission, request: ChatRequest) -> Answer:
    record = admission.record
    try:
        data = body_for(request, admission.model)
        async with upstream(admission, data, stream=False) as response:
            record.first_byte()
            _, document = await whole_answer(response)
    except DomainError as error:
        record.close(RequestState.FAILED, error.code)
        raise
    except asyncio.CancelledError:
        record.close(RequestState.CANCELLED, "cancelled")
        raise
    except BaseException:
        record.close(RequestState.FAILED, "internal")
        raise
    usage = prices.read_usage(document.get("usage"), had_output=bool(document["choices"]))
    record.close(RequestState.OK, spending=prices.spending(admission.model, usage))
    return Answer(document, usage, record.id)
