"""A process of its own for the writer's tests: ``python -m tests.agents.writer_child MODE …``."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path


def main(mode: str, address: str, first: str) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    from django.db import connections
    from django.db.backends.utils import CursorWrapper

    from agents.writer import Writer
    from project.databases import database_from_url

    connections.settings["scratch"] = {
        **connections.settings["default"],
        **database_from_url(address, Path(tempfile.gettempdir())),
    }
    writer = Writer("scratch")

    def add(number: int, *, full: bool = False) -> None:
        def operation(cursor: CursorWrapper) -> None:
            cursor.execute("INSERT INTO entry (id, note) VALUES (%s, 'x')", [number])
            cursor.execute("UPDATE total SET n = n + 1 WHERE id = 1")

        writer.run_sync(operation, full=full)

    def add_all(numbers: range) -> None:
        for number in numbers:
            add(number)

    if mode == "count":
        # Several threads, so that groups form while another process writes too.
        start = int(first)
        threads = [
            threading.Thread(target=add_all, args=(range(base, base + 25),))
            for base in range(start, start + 200, 25)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        number = int(first)
        while True:  # Until it is killed: every number it tells was committed before.
            add(number, full=True)
            os.write(1, f"{number}\n".encode())
            number += 1
    writer.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
