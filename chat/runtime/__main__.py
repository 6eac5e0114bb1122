"""``python -m chat.runtime``: serve runs until a signal comes."""

from __future__ import annotations

import gc
import logging
import os
import sys

import pydantic_ai
import uvicorn

from chat.runtime.app import RuntimeApp
from chat.runtime.logs import configure_logging
from chat.runtime.settings import SettingsError, read_settings

#: Seconds that open runs get to end after a signal.
GRACE_SECONDS = 3


def main() -> int:
    try:
        settings = read_settings(os.environ)
    except SettingsError as error:
        sys.stderr.write(f"chat.runtime: {error}\n")
        return 2
    configure_logging(settings.log_level)
    pydantic_ai.BANNER_ENABLED = False
    logging.getLogger("chat.runtime").info("serving on %s:%d", settings.bind, settings.port)
    config = uvicorn.Config(
        RuntimeApp(settings),
        host=settings.bind,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = uvicorn.Server(config)
    gc.collect()
    gc.freeze()  # what the imports made lives as long as the process
    server.run()
    return 0 if server.started else 1


if __name__ == "__main__":
    sys.exit(main())
