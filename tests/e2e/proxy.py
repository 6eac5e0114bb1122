"""A door in front of the site that can be slammed: every open connection is cut."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Door:
    """Passes bytes between browsers and the site until :meth:`slam`; then new ones may come."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._let_in, daemon=True).start()

    def _let_in(self) -> None:
        with suppress(OSError):
            while True:
                outside, _ = self._listener.accept()
                inside = socket.create_connection(("127.0.0.1", self._behind))
                self._open |= {outside, inside}
                for one, other in ((outside, inside), (inside, outside)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        for end in (source, sink):
            self._cut(end)

    def _cut(self, end: socket.socket) -> None:
        self._open.discard(end)
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()

    def slam(self) -> None:
        """Cut everything that is open now."""
        for end in list(self._open):
            self._cut(end)

    def close(self) -> None:
        self._listener.close()
        self.slam()


@contextmanager
def door(port: int) -> Iterator[Door]:
    """A door in front of *port* until the block ends."""
    made = Door(port)
    try:
        yield made
    finally:
        made.close()
