"""The run's tools as the agent library sees them: offered as given, executed at the gateway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import from_json

from chat.runtime import codes
from chat.runtime.tools import ApprovalNeeded, CallParked, ToolClient, ToolRefused
from chat.runtime.wire import META_APPROVAL, META_TOOL_CALL
from chat.runtime.wire import ToolDefinition as WireTool

JSON = dict[str, Any]


def failure(code: str) -> ToolFailed:
    """What the model reads when a call came to nothing: short, stable, the code in it."""
    if code in codes.UNCERTAIN:
        return ToolFailed(
            f"The tool call ended without a result: {code}. It may have happened; check before "
            "you repeat it."
        )
    return ToolFailed(f"The tool call failed: {code}.")


class ArgumentsValidator:
    """Takes any JSON object: the gateway validates arguments against the tool's schema."""

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> JSON:  # noqa: A002
        try:
            arguments = from_json(input, allow_inf_nan=False)
        except ValueError:
            raise failure(codes.ARGUMENTS_INVALID) from None
        return self.validate_python(arguments)

    def validate_python(self, input: Any, **_: Any) -> JSON:  # noqa: A002
        if not isinstance(input, dict):
            raise failure(codes.ARGUMENTS_INVALID)
        return input


_VALIDATOR = ArgumentsValidator()


class GatewayToolset(AbstractToolset[None]):
    """The tools of one run, called with the run's key. Never asks the model to retry."""

    def __init__(self, tools: Sequence[WireTool], *, client: ToolClient, key: str) -> None:
        self._client = client
        self._key = key
        self._tools = {tool.name: self._offer(tool) for tool in tools}

    def _offer(self, tool: WireTool) -> ToolsetTool[None]:
        definition = ToolDefinition(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.input_schema,
        )
        return ToolsetTool(
            toolset=self, tool_def=definition, max_retries=0, args_validator=_VALIDATOR
        )

    @property
    def id(self) -> str:
        return "gateway"

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        return self._tools

    async def call_tool(
        self, name: str, tool_args: JSON, ctx: RunContext[None], tool: ToolsetTool[None]
    ) -> str:
        """The result's text. Pauses and failures leave as the library's own exceptions."""
        meta: JSON = {META_TOOL_CALL: ctx.tool_call_id}
        if ctx.tool_call_approved and ctx.tool_call_metadata:
            meta[META_APPROVAL] = ctx.tool_call_metadata["approval"]
        try:
            result = await self._client.call(
                key=self._key, name=name, arguments=tool_args, meta=meta
            )
        except ApprovalNeeded as pause:
            raise ApprovalRequired({"approval": pause.approval_id}) from None
        except CallParked as pause:
            raise CallDeferred({"handoff": pause.handoff_id}) from None
        except ToolRefused as refused:
            raise failure(refused.code) from None
        if result.is_error:
            raise ToolFailed(result.text or "The tool failed.")
        return result.text
