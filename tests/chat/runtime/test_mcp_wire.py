"""The runtime's calls against the official SDK's own server: headers, envelope and codes fit."""

from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import pytest
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from chat.runtime.app import build_http_client
from chat.runtime.tools import ApprovalNeeded, CallParked, ToolClient, ToolRefused
from tests.chat.runtime.conftest import serving

SEEN: list[tuple[Any, str | None]] = []


async def answer(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    SEEN.append((params, ctx.request.headers.get("authorization")))
    match params.name:
        case "gated":
            raise MCPError(code=-32043, message="SECRET", data={"approval": "ap-1"})
        case "parked":
            raise MCPError(code=-32042, message="SECRET", data={"handoff": "ho-1"})
        case "refused":
            raise MCPError(code=-32602, message="SECRET", data={"code": "out_of_scope"})
    text = types.TextContent(type="text", text=f"{params.arguments}")
    return types.CallToolResult(content=[text], is_error=params.name == "broken")


@pytest.fixture(params=[True, False], ids=["json", "stream"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[ToolClient]:
    SEEN.clear()
    server = Server("official", on_call_tool=answer)
    app = server.streamable_http_app(stateless_http=True, json_response=request.param)
    async with serving(app) as url, build_http_client() as http:
        yield ToolClient(http, f"{url}/mcp")


async def called(client: ToolClient, name: str) -> Any:
    return await client.call(key="mk_1", name=name, arguments={"n": 1}, meta={"mandate/x": "y"})


async def test_a_call_arrives_with_its_key_arguments_and_meta(client: ToolClient) -> None:
    result = await called(client, "fine")

    assert (result.text, result.is_error) == ("{'n': 1}", False)
    [(params, authorization)] = SEEN
    assert authorization == "Bearer mk_1"
    assert params.meta["mandate/x"] == "y"


async def test_a_tools_own_error_is_a_result(client: ToolClient) -> None:
    assert (await called(client, "broken")).is_error


async def test_pauses_and_refusals_keep_their_ids_and_codes(client: ToolClient) -> None:
    with pytest.raises(ApprovalNeeded) as gated:
        await called(client, "gated")
    with pytest.raises(CallParked) as parked:
        await called(client, "parked")
    with pytest.raises(ToolRefused) as refused:
        await called(client, "refused")

    assert gated.value.approval_id == "ap-1"
    assert parked.value.handoff_id == "ho-1"
    assert refused.value.code == "out_of_scope"
