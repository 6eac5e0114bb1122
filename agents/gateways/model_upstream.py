"""The call to a provider: its credential, its time limits, and codes instead of its words."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from agents import vault
from agents.errors import (
    DomainError,
    ProviderAuth,
    ProviderError,
    ProviderRateLimited,
    ProviderRefused,
    ProviderTimeout,
)
from agents.gateways import outgoing
from agents.gateways.model_answer import read_completion
from agents.gateways.model_hop import Admission
from agents.models import ModelProvider
from agents.models.sealing import seal_context

#: Seconds for a whole answer: longer than any run, whose key dies at 15 minutes.
TOTAL_SECONDS = 900.0
#: Seconds of silence before the first byte and between two.
SILENCE_SECONDS = 300.0
#: Bytes of one whole answer.
MAX_ANSWER_BYTES = 32 * 2**20

_CODES: dict[int, type[ProviderError]] = {
    400: ProviderRefused,
    401: ProviderAuth,
    403: ProviderAuth,
    404: ProviderRefused,
    408: ProviderTimeout,
    413: ProviderRefused,
    422: ProviderRefused,
    429: ProviderRateLimited,
    504: ProviderTimeout,
}


@asynccontextmanager
async def upstream(
    admission: Admission, body: bytes, *, stream: bool
) -> AsyncIterator[outgoing.Response]:
    """Send *body* and yield the provider's successful answer, unread.

    Every failure, also one while the answer is read inside the block, is a ProviderError with a
    stable code; the provider's text is neither read nor kept. Raises DamagedContent when the
    credential does not open, DestinationRefused when the address may not be connected to.
    """
    accept = "text/event-stream" if stream else "application/json"
    headers = {
        "content-type": "application/json",
        "accept": accept,
        "accept-encoding": "identity",
        "user-agent": "mandate",
        **_authorization(admission),
    }
    timeout = outgoing.TimeLimits(
        total=TOTAL_SECONDS, connect=outgoing.CONNECT_SECONDS, sock_read=SILENCE_SECONDS
    )
    url = f"{admission.model.base_url}/chat/completions"
    try:
        async with outgoing.send(
            "POST", url, headers=headers, data=body, timeout=timeout
        ) as response:
            _require_success(response, accept)
            yield response
    except DomainError:
        raise
    except TimeoutError:
        raise ProviderTimeout from None
    except (outgoing.TransportError, OSError, ValueError):
        raise ProviderError from None


async def whole_answer(response: outgoing.Response) -> tuple[bytes, dict[str, Any]]:
    """An answer that is not a stream: its bytes, and what they say. Raises ProviderError."""
    try:
        data = await outgoing.read_bounded(response, MAX_ANSWER_BYTES)
    except outgoing.AnswerTooLong:
        raise ProviderError("The provider's answer exceeds the limit.") from None
    document = read_completion(data)
    if document is None:  # Some providers report a failure under status 200.
        raise ProviderError
    return data, document


def _authorization(admission: Admission) -> dict[str, str]:
    model = admission.model
    if model.credential is None:
        return {}
    credential = _opened(model.credential, model.provider_id, admission.organization_id)
    return {"authorization": f"Bearer {credential}"}


@functools.lru_cache(maxsize=256)
def _opened(sealed: bytes, provider_id: UUID, organization_id: UUID) -> str:
    """The credential behind *sealed*: the same bytes at the same place always open to the same."""
    context = seal_context(ModelProvider, "credential", provider_id, organization_id)
    return vault.unseal(sealed, context).decode()


def _require_success(response: outgoing.Response, accept: str) -> None:
    if response.status != 200:
        raise _CODES.get(response.status, ProviderError)
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise ProviderError
    if response.content_type != accept:
        raise ProviderError
