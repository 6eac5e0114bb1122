"""Web's end of the wire to the runtime."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator

from django.conf import settings
from pydantic import ValidationError

from agents.gateways import outgoing
from chat.errors import RuntimeUnavailable
from chat.runtime.wire import EventFrame, FinalFrame, MessageFrame, RunRequest, decode

logger = logging.getLogger(__name__)

Frame = EventFrame | MessageFrame | FinalFrame

#: Bytes of one frame; a tool's result, bounded by the gateway, fits with room to spare.
MAX_FRAME = 16 * 2**20


class RuntimeLost(Exception):
    """The runtime's answer broke off, or was none."""


async def frames(request: RunRequest) -> AsyncGenerator[list[Frame]]:
    """The run's frames, as many at once as arrived together.

    Closing the iterator cancels the run. Raises RuntimeUnavailable when the runtime did not take
    the run, RuntimeLost when its answer is not what the wire says.
    """
    headers = {
        "authorization": f"Bearer {settings.RUNTIME_TOKEN}",
        "content-type": "application/json",
    }
    body = request.model_dump_json().encode()
    session = outgoing.runtime_session()
    answered = False
    try:
        async with session.post("/runs", data=body, headers=headers) as response:
            if response.status != 200:
                logger.error("the runtime refused a run with status %d", response.status)
                raise RuntimeUnavailable
            answered = True
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > MAX_FRAME:
                    raise RuntimeLost
                if lines:
                    yield [decode(line) for line in lines if line]
    except outgoing.FAILURES as error:
        raise (RuntimeLost if answered else RuntimeUnavailable) from error
    except ValidationError as error:
        raise RuntimeLost from error
