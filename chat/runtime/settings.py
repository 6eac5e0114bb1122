"""What the runtime reads from its environment: three addresses and one token, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class SettingsError(Exception):
    """A setting is missing or wrong. The message names it and never shows a secret's value."""


@dataclass(frozen=True)
class Settings:
    """Where the runtime listens, the one address it connects to, and what web must present."""

    gateway_url: str
    token: str = field(repr=False)
    bind: str = "127.0.0.1"
    port: int = 8010
    log_level: str = "INFO"

    @property
    def models_url(self) -> str:
        return f"{self.gateway_url}/gateway/v1"

    @property
    def tools_url(self) -> str:
        return f"{self.gateway_url}/gateway/mcp"


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Raises :class:`SettingsError` for anything that is missing or cannot be meant."""
    address = environment.get("GATEWAY_URL", "").rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        raise SettingsError("GATEWAY_URL must be an http or https address without credentials")
    port = environment.get("RUNTIME_PORT") or "8010"
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise SettingsError("RUNTIME_PORT must be a number from 1 to 65535")
    level = environment.get("LOG_LEVEL") or "INFO"
    if level not in LEVELS:
        raise SettingsError(f"LOG_LEVEL must be one of {', '.join(LEVELS)}")
    return Settings(
        gateway_url=address,
        token=_read_token(environment),
        bind=environment.get("RUNTIME_BIND") or "127.0.0.1",
        port=int(port),
        log_level=level,
    )


def _read_token(environment: Mapping[str, str]) -> str:
    token, path = environment.get("RUNTIME_TOKEN"), environment.get("RUNTIME_TOKEN_FILE")
    if token and path:
        raise SettingsError("RUNTIME_TOKEN and RUNTIME_TOKEN_FILE are both set: keep one of them")
    if path:
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise SettingsError("RUNTIME_TOKEN_FILE cannot be read") from error
    if not token:
        raise SettingsError("RUNTIME_TOKEN or RUNTIME_TOKEN_FILE must be set")
    return token
