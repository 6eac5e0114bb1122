"""The real AG-UI client (npm) chats, is interrupted, and resumes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stage import Stage
from tests.fakes.mcp_server import Text
from tests.fakes.model_provider import call, calls, text

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.django_db(transaction=True, databases="__all__"),
]

HERE = Path(__file__).parent / "agui"


@pytest.fixture(scope="session")
def node() -> str:
    """Node.js, with the client installed from the lock file."""
    found = shutil.which("node")
    assert found, "Node.js is missing: install it (Debian: apt-get install nodejs npm)"
    if not (HERE / "node_modules" / "@ag-ui" / "client").exists():
        subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund"], cwd=HERE, check=True, capture_output=True
        )
    return found


def chat(node: str, stage: Stage, prompt: str, answer: dict[str, Any]) -> dict[str, Any]:
    web = stage.servers.web()
    stage.servers.runtime(web)
    url = f"{web.url}/apps/v1/agents/order-desk"
    command = [node, "client.mjs", url, stage.chat_token(), prompt, json.dumps(answer)]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr + web.output[-2000:]
    # The client warns on stderr about anything in a stream that it does not like.
    assert "warn" not in done.stderr.lower(), done.stderr
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def test_it_chats_is_interrupted_and_resumes(node: str, stage: Stage) -> None:
    stage.provider.script(
        calls(call("shop__status", {"order": 7}, "call_0")),
        calls(call("shop__refund", {"order": 7, "amount": 5}, "call_0"), say="I need your word."),
        text("It is refunded."),
    )
    stage.mcp.answer("refund", Text("ok"))
    done = chat(node, stage, "Refund order 7", {"approved": True})
    first, second = done["runs"]
    assert first["outcome"]["type"] == "interrupt"
    assert "TOOL_CALL_RESULT" in first["types"]
    assert second["error"] is None
    assert second["types"][0] == "RUN_STARTED"
    assert second["types"][-1] == "RUN_FINISHED"
    assert second["types"].count("TOOL_CALL_START") == 0
    assert second["types"].count("TOOL_CALL_RESULT") == 1
    assert done["messages"][-1]["content"] == "It is refunded."
    assert stage.mcp.count("refund") == 1


def test_it_is_denied(node: str, stage: Stage) -> None:
    stage.provider.script(calls(call("shop__refund", {"order": 7})), text("Then I leave it."))
    done = chat(node, stage, "Refund order 7", {"approved": False, "reason": "not now"})
    assert done["messages"][-1]["content"] == "Then I leave it."
    assert stage.mcp.count("refund") == 0
    assert "not now" in str(stage.provider.completions[-1].json["messages"])
