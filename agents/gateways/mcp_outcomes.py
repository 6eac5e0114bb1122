"""The outcome of an executed action as the content store keeps it, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass

from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ContentBlock, EmbeddedResource, ResourceLink, TextContent
from mcp_types import TextResourceContents as TextResource
from pydantic import BaseModel

from agents.errors import DamagedContent, DomainError
from agents.gateways.mcp_codes import CODE_REFUSED


class _Failure(BaseModel):
    code: str
    title: str


class _Outcome(BaseModel):
    """Exactly one of both."""

    result: CallToolResult | None = None
    failure: _Failure | None = None


@dataclass(frozen=True, slots=True)
class OutcomeText:
    """An outcome in words, for the model and for people."""

    text: str
    is_error: bool


def clean_result(result: CallToolResult) -> CallToolResult:
    """What passes of a tool server's result: content, structure and the error mark."""
    return CallToolResult(
        content=result.content,
        structured_content=result.structured_content,
        is_error=result.is_error,
    )


def result_outcome(result: CallToolResult) -> bytes:
    return _dump(_Outcome(result=result))


def failure_outcome(error: DomainError) -> bytes:
    """The outcome of a call that the server took and answered with an error."""
    return _dump(_Outcome(failure=_Failure(code=error.code, title=error.title)))


def _dump(outcome: _Outcome) -> bytes:
    return outcome.model_dump_json(by_alias=True, exclude_none=True).encode()


def replay(data: bytes) -> CallToolResult:
    """The same answer again: the result, or the same error raised."""
    outcome = _read(data)
    if outcome.result is not None:
        return outcome.result
    failure = outcome.failure
    if failure is None:
        raise DamagedContent
    raise MCPError(CODE_REFUSED, failure.title, {"code": failure.code})


def outcome_text(data: bytes) -> OutcomeText:
    """A stored outcome in words. Raises DamagedContent when it is none."""
    outcome = _read(data)
    if outcome.failure is not None:
        return OutcomeText(f"The tool call failed: {outcome.failure.code}.", is_error=True)
    if outcome.result is None:
        raise DamagedContent
    return OutcomeText(result_text(outcome.result), is_error=outcome.result.is_error)


def result_text(result: CallToolResult) -> str:
    """The blocks as text; structured content counts only when no block says it."""
    if not result.content and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(_block_text(block) for block in result.content)


def _block_text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case EmbeddedResource(resource=TextResource() as resource):
            return resource.text
        case ResourceLink():
            return f"[resource {block.uri}]"
        case _:
            return f"[{block.type}]"


def _read(data: bytes) -> _Outcome:
    try:
        return _Outcome.model_validate_json(data)
    except ValueError:
        raise DamagedContent from None
