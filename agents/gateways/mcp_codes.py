"""What the MCP Gateway says on the JSON-RPC wire: error codes, ``_meta`` keys, one mapping.

The runtime has the same numbers and keys in its own wire module; a test keeps both equal.
"""

from __future__ import annotations

from uuid import UUID

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from agents.errors import ArgumentsInvalid, DomainError

#: The call waits for a child run; ``data`` names the handoff.
CODE_PARKED = -32042
#: The call waits for a person; ``data`` names the approval.
CODE_APPROVAL_REQUIRED = -32043
#: Every other refusal; ``data.code`` says which.
CODE_REFUSED = -32040

#: Keys in the ``_meta`` of a ``tools/call``.
META_APPROVAL = "mandate/approval"
META_TOOL_CALL = "mandate/toolCallId"


def refusal(error: DomainError) -> MCPError:
    """The JSON-RPC error of a refusal: its title and code, never another party's text."""
    code = INVALID_PARAMS if isinstance(error, ArgumentsInvalid) else CODE_REFUSED
    return MCPError(code, error.title, {**error.extra, "code": error.code})


def approval_required(approval_id: UUID) -> MCPError:
    data = {"approval": str(approval_id), "code": "approval_required"}
    return MCPError(CODE_APPROVAL_REQUIRED, "A person has to approve this call", data)


def parked(handoff_id: UUID) -> MCPError:
    data = {"handoff": str(handoff_id), "code": "parked"}
    return MCPError(CODE_PARKED, "The result comes in a later run", data)


def internal() -> MCPError:
    """For what should not happen: nothing of the cause leaves."""
    return MCPError(INTERNAL_ERROR, "The gateway failed", {"code": "internal"})
