"""Where the demo's parts are and what they cost: shared by the seed, ``serve`` and the servers."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from project.config import Config

#: The upstream id of the demo model; it answers 404 to any other.
MODEL_ID: Final = "mandate-demo"
CONTEXT_LIMIT: Final = 32_768
OUTPUT_LIMIT: Final = 1_024
#: The demo model's rate card, in micro-dollars per million tokens.
RATES: Final = {
    "input_rate": 100_000,
    "output_rate": 400_000,
    "cache_read_rate": 100_000,
    "cache_write_rate": 100_000,
}
KEY_FILE: Final = "demo_tools_key"


def model_base_url(config: Config) -> str:
    """The demo model's base URL by OpenAI's convention, ``/v1`` included."""
    return f"http://127.0.0.1:{config.demo_model_port}/v1"


def tools_url(config: Config) -> str:
    return f"http://127.0.0.1:{config.demo_tools_port}/mcp"


def tools_key(config: Config) -> str:
    """The demo tools' bearer credential: from the environment, or made once per data directory."""
    given = os.environ.get("DEMO_TOOLS_KEY", "")
    if given:
        return given
    path = config.data_dir / KEY_FILE
    if not path.exists():
        _write_private(path, secrets.token_urlsafe(24))
    return path.read_text(encoding="utf-8").strip()


def uses_demo_model(config: Config) -> bool:
    """The demo runs on a real provider instead when one is named."""
    return config.mandate_demo and not config.mandate_model_url


def outgoing_allowed(config: Config) -> list[str]:
    """``host:port`` of every private address that the demo's providers and connector live at.

    A named real provider is included: whoever sets it means it, and a local one is private.
    """
    if not config.mandate_demo:
        return []
    provider = urlsplit(config.mandate_model_url or model_base_url(config))
    port = provider.port or (443 if provider.scheme == "https" else 80)
    host = provider.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    return [f"{host}:{port}", f"127.0.0.1:{config.demo_tools_port}"]


def _write_private(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
