"""Why a run ended, and why a tool call failed: stable codes, never an exception's text."""

from __future__ import annotations

import re
from typing import ClassVar

import httpx2
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    OutputTokenLimitExceeded,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
)

MODEL_FAILED = "model_failed"
NO_OUTPUT = "no_output"
OUTPUT_LIMIT = "output_limit"
CONTENT_FILTERED = "content_filtered"
STEP_LIMIT = "step_limit"
DEADLINE = "deadline"
HISTORY_UNREADABLE = "history_unreadable"
NOTHING_TO_RUN = "nothing_to_run"
TOOL_PROTOCOL = "tool_protocol"
INTERNAL = "internal"

TOOL_ERROR = "tool_error"
TOOL_TIMEOUT = "tool_timeout"
TOOL_UNREACHABLE = "tool_unreachable"
TOOL_UNANSWERED = "tool_unanswered"
ARGUMENTS_INVALID = "arguments_invalid"
RESULT_TOO_LARGE = "result_too_large"

#: Failures after which the call may have happened all the same; some are the gateway's codes.
UNCERTAIN = frozenset(
    {TOOL_TIMEOUT, TOOL_UNANSWERED, RESULT_TOO_LARGE, "connector_timeout", "connector_error"}
)


class RunFailed(Exception):
    """The run cannot start or go on. The class says why; there is no message to leak."""

    code: ClassVar[str]


_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")


def stable_code(value: object, otherwise: str) -> str:
    """``value`` when it has the shape of a code of ours, else ``otherwise``."""
    return value if isinstance(value, str) and _CODE.fullmatch(value) else otherwise


def code_of(error: BaseException) -> str:
    """The code of a failed run. A gateway's own code passes through."""
    match error:
        case RunFailed():
            return error.code
        case UsageLimitExceeded():
            return STEP_LIMIT
        case OutputTokenLimitExceeded():
            return OUTPUT_LIMIT
        case ContentFilterError():
            return CONTENT_FILTERED
        case ModelAPIError():
            return stable_code(error.provider_error_code, MODEL_FAILED)
        case UnexpectedModelBehavior() | httpx2.HTTPError():
            return MODEL_FAILED
        case _:
            return INTERNAL
