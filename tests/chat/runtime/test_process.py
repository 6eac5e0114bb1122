"""The runtime as a process: an empty environment, one address, and no Django."""

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from chat.runtime.settings import SettingsError, read_settings
from tests.chat.runtime.conftest import KEY, TOKEN, Web
from tests.chat.runtime.gateway import FakeGateway, result
from tests.fakes.model_provider import call, calls, failure, hang, text

ROOT = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Process:
    """``python -m chat.runtime`` under ``env -i`` with nothing but its settings."""

    def __init__(self, gateway: FakeGateway) -> None:
        self.port = free_port()
        settings = {
            "GATEWAY_URL": gateway.url,
            "RUNTIME_TOKEN": TOKEN,
            "RUNTIME_PORT": str(self.port),
        }
        program = [sys.executable, "-m", "chat.runtime"]
        command = ["env", "-i", *(f"{k}={v}" for k, v in settings.items()), *program]
        self.process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)

    async def healthy(self, session: aiohttp.ClientSession) -> Web:
        url = f"http://127.0.0.1:{self.port}"
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up and self.process.poll() is None:
            try:
                async with session.get(f"{url}/health") as response:
                    if response.status == 200:
                        return Web(url, session)
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
        raise AssertionError(f"the runtime did not start: {self.stop()}")

    def stop(self) -> str:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        _, stderr = self.process.communicate(timeout=15)
        return stderr.decode()


@pytest.fixture
def process(gateway: FakeGateway) -> Iterator[Process]:
    started = Process(gateway)
    yield started
    if started.process.poll() is None:
        started.process.kill()
    started.process.communicate()


async def test_it_starts_on_an_empty_environment_and_connects_to_the_gateway_only(
    process: Process, gateway: FakeGateway
) -> None:
    gateway.script(
        calls(call("orders__status", {"order": 7}), say="CONTENT-CANARY"),
        text("CONTENT-CANARY", pace=0.02),
    )
    gateway.on_tool("orders__status", result("CONTENT-CANARY", delay=0.1))

    async with aiohttp.ClientSession() as session:
        web = await process.healthy(session)
        turn = asyncio.create_task(web.turn("CONTENT-CANARY"))
        connected: set[int] = set()
        while not turn.done():
            connected |= remote_ports(process.process.pid)
            await asyncio.sleep(0.005)

    assert turn.result().final.outcome == "success"
    assert connected == {gateway.port}
    log = process.stop()
    assert "run run-1 success" in log
    for secret in ("CONTENT-CANARY", KEY, TOKEN):
        assert secret not in log


def remote_ports(pid: int) -> set[int]:
    """The remote ports of the process's own outgoing connections, from the kernel's table."""
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()]
    inodes = {link.removeprefix("socket:[").removesuffix("]") for link in links}
    listening, pairs = set(), []
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        local, peer = (int(address.split(":")[1], 16) for address in fields[1:3])
        if fields[9] in inodes and fields[3] == "0A":
            listening.add(local)
        elif fields[9] in inodes:
            pairs.append((local, peer))
    return {peer for local, peer in pairs if local not in listening}


class SocketGuard:
    """Every address that this process connects to or looks up while the guard is on."""

    def __init__(self) -> None:
        self.on = False
        self.seen: set[object] = set()
        sys.addaudithook(self._see)  # stays for good, so it only looks while it is on

    def _see(self, event: str, args: tuple[object, ...]) -> None:
        if self.on and event == "socket.connect":
            self.seen.add(args[1])
        if self.on and event == "socket.getaddrinfo":
            self.seen.add(args[:2])


async def test_no_library_connects_to_anything_else(web: Web, gateway: FakeGateway) -> None:
    gateway.script(calls(call("orders__status", {})), failure(500))
    gateway.on_tool("orders__status", result("shipped"))
    await web.session.get(f"{web.url}/health")
    guard = SocketGuard()

    guard.on = True
    await web.turn("Hi")
    guard.on = False

    assert guard.seen == {("127.0.0.1", gateway.port)}


async def test_a_signal_ends_it_soon_although_a_run_is_open(
    process: Process, gateway: FakeGateway
) -> None:
    gateway.script(hang())
    async with aiohttp.ClientSession() as session:
        web = await process.healthy(session)
        open_run = asyncio.create_task(web.turn("Hi"))
        await asyncio.to_thread(gateway.wait_for_requests, 1)

        started = time.monotonic()
        await asyncio.to_thread(process.stop)

        assert time.monotonic() - started < 8
        await asyncio.wait((open_run,))
        assert open_run.exception() is not None


def test_neither_django_nor_an_app_is_imported() -> None:
    code = (
        "import sys, chat.runtime.app, chat.runtime.__main__;"
        "apps = ('django', 'agents', 'definitions', 'advertisements', 'project');"
        "print([m for m in sys.modules if m.split('.')[0] in apps])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert done.stdout.strip() == "[]", done.stderr


def test_the_wire_alone_does_not_bring_the_agent_library_into_web() -> None:
    code = "import sys, chat.runtime.wire; print('pydantic_ai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert done.stdout.strip() == "False", done.stderr


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("from-a-file\n")
    settings = read_settings(
        {"GATEWAY_URL": "http://127.0.0.1:8000/", "RUNTIME_TOKEN_FILE": str(secret)}
    )

    assert settings.models_url == "http://127.0.0.1:8000/gateway/v1"
    assert settings.tools_url == "http://127.0.0.1:8000/gateway/mcp"
    assert (settings.bind, settings.port) == ("127.0.0.1", 8010)
    assert settings.token == "from-a-file"
    assert "from-a-file" not in repr(settings)


@pytest.mark.parametrize(
    "changes",
    [
        {"GATEWAY_URL": ""},
        {"GATEWAY_URL": "127.0.0.1:8000"},
        {"GATEWAY_URL": "http://user:SECRET@host"},
        {"RUNTIME_TOKEN": ""},
        {"RUNTIME_TOKEN_FILE": "/nowhere/SECRET"},
        {"RUNTIME_TOKEN": "", "RUNTIME_TOKEN_FILE": "/nowhere/SECRET"},
        {"RUNTIME_PORT": "0"},
        {"RUNTIME_PORT": "many"},
        {"LOG_LEVEL": "CHATTY"},
    ],
)
def test_a_wrong_setting_is_named_and_not_shown(changes: dict[str, str]) -> None:
    environment = {"GATEWAY_URL": "http://127.0.0.1:8000", "RUNTIME_TOKEN": TOKEN, **changes}

    with pytest.raises(SettingsError) as refused:
        read_settings(environment)

    assert any(name in str(refused.value) for name in changes)
    assert "SECRET" not in str(refused.value)


def test_a_missing_setting_ends_the_program_with_a_sentence() -> None:
    done = subprocess.run(
        ["env", "-i", sys.executable, "-m", "chat.runtime"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert done.stderr.strip() == (
        "chat.runtime: GATEWAY_URL must be an http or https address without credentials"
    )
