"""Fails every connection that leaves the machine, and remembers it when the failure is swallowed."""

from __future__ import annotations

import ipaddress
import socket
import sys
from typing import Any


class ConnectionLeft(RuntimeError):
    """Something tried to reach an address other than our own."""


#: Destinations refused so far. A test that expects one empties it.
refused: list[str] = []
_installed = False


def install() -> None:
    """Guard this process from now on; an audit hook cannot be taken back."""
    global _installed
    if not _installed:
        sys.addaudithook(_hook)
        _installed = True


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in {"socket.connect", "socket.sendto"}:
        return
    sock, address = arguments[0], arguments[-1]
    if sock.family == socket.AF_UNIX or _is_own(address):
        return
    refused.append(str(address))
    msg = f"the suite may not connect to {address}"
    raise ConnectionLeft(msg)


def _is_own(address: Any) -> bool:
    host = address[0] if isinstance(address, tuple) else None
    if host in {"localhost", ""}:
        return True
    try:
        return host is not None and ipaddress.ip_address(host.split("%")[0]).is_loopback
    except ValueError:
        return False
