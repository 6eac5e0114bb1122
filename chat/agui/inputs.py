"""Read a RunAgentInput: bounded, strict about what it knows, silent about what it does not.

The transcript, tools, state and context that a client sends are not read: the server owns the
conversation. What counts is the last new user message and the answers to interrupts.
"""

from __future__ import annotations

from typing import Any

import orjson
from ag_ui.core import RunAgentInput, TextPart, UserMessage
from pydantic import ValidationError

from agents.digests import keyed_digest
from agents.errors import Invalid, TooLarge
from chat.selectors.threads import is_client_id
from chat.services import jobs
from chat.services.approvals import MAX_ANSWERS, Answer, read_answer
from chat.services.planning import Turn

MAX_BODY = 1 * 2**20
MAX_MESSAGE = 64 * 1024
MAX_MESSAGE_ID = 128
#: The major version of AG-UI that is spoken here.
MAJOR = "1"


def read_turn(value: Any) -> Turn:
    """What the client asks. Raises Invalid or TooLarge; nothing of the input is quoted."""
    if not isinstance(value, dict):
        raise Invalid("The body is one RunAgentInput object.")
    try:
        given = RunAgentInput.model_validate(value)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors(include_input=False)[0]["loc"][:4])
        raise Invalid("The body is no RunAgentInput.", field=where) from None
    for name, text in (("threadId", given.thread_id), ("runId", given.run_id)):
        if not is_client_id(text):
            raise Invalid(
                f"{name} has 1 to 128 letters, digits, or characters of _.:@/+=-.", field=name
            )
    _check_version(given.protocol_version)
    return Turn(
        client_thread_id=given.thread_id,
        client_run_id=given.run_id,
        digest=keyed_digest(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), "run_request"),
        message=_new_message(given),
        answers=_answers(given),
    )


def _check_version(version: str | None) -> None:
    """A newer minor is served; only another major that we do not speak is refused."""
    if version is None:
        return
    major, _, minor = version.partition(".")
    if major.isdigit() and minor.isdigit() and major != MAJOR:
        raise Invalid("AG-UI 1 is spoken here.", field="protocolVersion")


def _new_message(given: RunAgentInput) -> jobs.UserMessage | None:
    """The last message, if it is the user's. Parts that are not text are skipped."""
    last = given.messages[-1] if given.messages else None
    if not isinstance(last, UserMessage):
        return None
    if isinstance(last.content, str):
        text = last.content
    else:
        text = "\n".join(part.text for part in last.content if isinstance(part, TextPart))
    if len(text.encode()) > MAX_MESSAGE:
        raise TooLarge("A message may have at most 64 KiB.", limit=MAX_MESSAGE)
    if not (1 <= len(last.id) <= MAX_MESSAGE_ID and last.id.isprintable()):
        raise Invalid("A message's id has 1 to 128 printable characters.", field="messages")
    text = text.replace("\x00", "")
    return jobs.UserMessage(last.id, text) if text.strip() else None


def _answers(given: RunAgentInput) -> tuple[Answer, ...]:
    entries = given.resume or []
    if len(entries) > MAX_ANSWERS:
        raise Invalid(f"At most {MAX_ANSWERS} interrupts are answered at once.", field="resume")
    return tuple(read_answer(e.interrupt_id, e.status, e.payload) for e in entries)
