"""Settings of the installation, read from the environment, typed, failing loudly.

Every secret may be given as a file instead: ``SECRET_KEY_FILE=/run/secrets/key`` wins over
nothing and conflicts with ``SECRET_KEY`` (both set is an error, so that a forgotten variable
never shadows the file). Names carry no prefix but ``MANDATE_`` where a plain one would be
ambiguous on a shared machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, NoReturn
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

ROOT = Path(__file__).resolve().parent.parent
#: What the other processes of one machine listen on when nothing else is said: this much more
#: than PORT, so that a second installation needs no more than a PORT and a DATA_DIR of its own.
RUNTIME_OFFSET: Final = 10
DEMO_MODEL_OFFSET: Final = 11
DEMO_TOOLS_OFFSET: Final = 12
HIGHEST_PORT: Final = 65_535


class FileOrEnvironment(EnvSettingsSource):
    """The environment, where ``NAME_FILE`` names a file that holds the value of ``NAME``."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        value, key, is_complex = super().get_field_value(field, field_name)
        env_name = str(field.validation_alias or field_name).upper()
        path = os.environ.get(f"{env_name}_FILE")
        if path is None:
            return value, key, is_complex
        if value is not None:
            msg = f"{env_name} and {env_name}_FILE are both set: keep one of them"
            raise ValueError(msg)
        try:
            return Path(path).read_text(encoding="utf-8").strip(), key, is_complex
        except (OSError, UnicodeDecodeError) as problem:
            why = getattr(problem, "strerror", None) or "it is not UTF-8"
            msg = f"the file that {env_name}_FILE names cannot be read: {why}"
            raise ValueError(msg) from None


def _beside_port(offset: int) -> Callable[[dict[str, Any]], int]:
    def beside(known: dict[str, Any]) -> int:
        port: int = known["port"]
        return port + offset if port + offset <= HIGHEST_PORT else port - offset

    return beside


def _runtime_beside_port(known: dict[str, Any]) -> str:
    return f"http://127.0.0.1:{_beside_port(RUNTIME_OFFSET)(known)}"


class Config(BaseSettings):
    """One immutable record of everything an operator can set. Seconds and bytes are plain ints."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", env_ignore_empty=True)

    debug: bool = False
    secret_key: str = Field(default="", description="Signs sessions; never a data key.")
    data_dir: Path = Field(default=ROOT / "var", description="Databases, keys and locks.")
    database_url: str = Field(default="", description="Control store; empty = SQLite in data_dir.")
    content_database_url: str = Field(default="", description="Content store; as above.")
    keyring: str = Field(default="", description="The key ring's JSON, for development only.")
    keyring_path: Path | None = Field(default=None, description="0400 file; default in data_dir.")
    allowed_hosts: str = "127.0.0.1,localhost,[::1]"
    csrf_trusted_origins: str = ""
    secure_cookies: bool = False
    port: int = Field(default=8000, ge=1, le=HIGHEST_PORT)
    bind: str = "127.0.0.1"
    public_url: str = Field(default="", description="What browsers use; default from the port.")
    gateway_url: str = Field(default="", description="Where the runtime reaches the gateways.")
    runtime_url: str = Field(
        default_factory=_runtime_beside_port,
        description="Where web reaches the runtime; default beside the port.",
    )
    runtime_token: str = Field(default="", description="Authenticates web to the runtime.")
    chat_origins: str = Field(
        default="",
        description="Origins of external front ends that may call the chat surface, spelled "
        "exactly, comma separated.",
    )
    outgoing_allowed: str = Field(
        default="",
        description="host:port pairs, comma separated, that may be private addresses.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    mandate_demo: bool = Field(default=True, description="Seed the demo on an empty installation.")
    mandate_model_url: str = ""
    mandate_model_key: str = ""
    mandate_model_name: str = ""
    demo_model_port: int = Field(
        default_factory=_beside_port(DEMO_MODEL_OFFSET), ge=1, le=HIGHEST_PORT
    )
    demo_tools_port: int = Field(
        default_factory=_beside_port(DEMO_TOOLS_OFFSET), ge=1, le=HIGHEST_PORT
    )

    @field_validator("runtime_url", "gateway_url", "public_url", "mandate_model_url")
    @classmethod
    def _http_address(cls, value: str) -> str:
        if value and not _is_http(value):
            msg = "must be an http or https address, such as http://127.0.0.1:8010"
            raise ValueError(msg)
        return value.rstrip("/")

    @field_validator("database_url", "content_database_url")
    @classmethod
    def _database_address(cls, value: str) -> str:
        if value and urlsplit(value).scheme not in {"sqlite", "postgres", "postgresql"}:
            msg = "must start with sqlite:, postgres: or postgresql:"
            raise ValueError(msg)
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, FileOrEnvironment(settings_cls))

    @property
    def gateway_address(self) -> str:
        return self.gateway_url or f"http://127.0.0.1:{self.port}"

    @property
    def public_address(self) -> str:
        return self.public_url or f"http://127.0.0.1:{self.port}"


def load() -> Config:
    """The installation's settings, with the data directory made.

    Wrong ones are told on stderr, and the process exits with 2.
    """
    try:
        config = Config()
        config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (ValidationError, SettingsError) as error:
        _give_up(complaints(error))
    except OSError as problem:
        _give_up([("DATA_DIR", f"the directory cannot be made: {problem.strerror}")])
    return config


def _give_up(wrong: Iterable[tuple[str, str]]) -> NoReturn:
    print("Mandate cannot start with these settings:", file=sys.stderr)  # noqa: T201
    for name, reason in wrong:
        print(f"  {name}: {reason}", file=sys.stderr)  # noqa: T201
    sys.exit(2)


def complaints(error: ValidationError | SettingsError) -> Iterator[tuple[str, str]]:
    """Each wrong variable's name and what is wrong with it, never what it holds."""
    if isinstance(error, SettingsError):
        cause = error.__cause__ if isinstance(error.__cause__, ValueError) else None
        reason = str(cause) if cause else "it cannot be read"
        yield str(error).split('"')[1].upper(), reason
        return
    for found in error.errors(include_input=False, include_url=False):
        if found["type"] != "default_factory_not_called":  # It follows from another's mistake.
            name = str(found["loc"][0]).upper() if found["loc"] else "settings"
            yield name, found["msg"].removeprefix("Value error, ")


def _is_http(value: str) -> bool:
    try:
        parts = urlsplit(value)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # A port that is no number.
        return False


def split_list(value: str) -> list[str]:
    """Turn ``"a, b"`` into ``["a", "b"]``; empty parts vanish."""
    return [part.strip() for part in value.split(",") if part.strip()]
