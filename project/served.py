"""Where ``serve`` put the processes, kept for commands that run beside it with a bare environment."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from django.conf import settings

from project.config import Config

#: In the data directory, for its owner alone. It holds addresses and no secret.
SERVED_FILE: Final = "serve.json"
#: What is kept, each with the variables that would say otherwise.
KEPT: Final = {
    "GATEWAY_URL": {"gateway_url", "port"},
    "RUNTIME_URL": {"runtime_url", "port"},
}


def record(config: Config) -> None:
    """Keep the addresses of this ``serve`` until :func:`forget`."""
    told = {"GATEWAY_URL": config.gateway_address, "RUNTIME_URL": config.runtime_url}
    path = config.data_dir / SERVED_FILE
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(told, file)


def forget(config: Config) -> None:
    (config.data_dir / SERVED_FILE).unlink(missing_ok=True)


def address(name: str) -> str:
    """The address behind the setting *name*: what the environment says, else where serve runs."""
    given = settings.CONFIG.model_fields_set & KEPT[name]
    told = "" if given else _recorded().get(name, "")
    return told or str(getattr(settings, name))


def _recorded() -> dict[str, str]:
    try:
        found = json.loads(Path(settings.DATA_DIR, SERVED_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
