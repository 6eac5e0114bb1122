"""Where the demo's parts are and what they cost: shared by the seed, ``serve`` and the servers."""

from __future__ import annotations

import json
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
#: The ports that the seed wrote into the provider and the connector, in the data directory.
PORTS_FILE: Final = "demo_ports.json"
PORT_FIELDS: Final = ("demo_model_port", "demo_tools_port")


def output_limit_parameter(config: Config) -> str:
    """OpenAI's own models know ``max_completion_tokens``; most other servers know the older name."""
    host = urlsplit(config.mandate_model_url).hostname or ""
    known = host == "api.openai.com" or host.endswith(".openai.azure.com")
    return "max_completion_tokens" if known else "max_tokens"


def model_base_url(config: Config) -> str:
    """The demo model's base URL by OpenAI's convention, ``/v1`` included."""
    return f"http://127.0.0.1:{config.demo_model_port}/v1"


def tools_url(config: Config) -> str:
    return f"http://127.0.0.1:{config.demo_tools_port}/mcp"


def keep_ports(config: Config) -> None:
    """Remember, when the demo is seeded, where its rows say that its servers are."""
    path = config.data_dir / PORTS_FILE
    path.unlink(missing_ok=True)
    _write_private(path, json.dumps({name: getattr(config, name) for name in PORT_FIELDS}))


def with_kept_ports(config: Config) -> Config:
    """*config* with the seeded demo's ports, unless the environment names others.

    A later serve under another PORT would otherwise start the servers where no row looks for them.
    """
    try:
        kept = json.loads((config.data_dir / PORTS_FILE).read_text(encoding="utf-8"))
        ports = {name: int(kept[name]) for name in PORT_FIELDS}
    except (OSError, ValueError, KeyError, TypeError):
        return config
    return config.model_copy(
        update={n: port for n, port in ports.items() if n not in config.model_fields_set}
    )


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
