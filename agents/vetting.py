"""Addresses that the product may connect to: one function, for saving and for connecting.

Saving checks the spelling; connecting checks what the name resolves to, and connects to exactly
the address that was checked (:mod:`agents.gateways.outgoing`).
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from django.conf import settings

from agents.errors import DestinationRefused, Invalid

DEFAULT_PORTS = {"http": 80, "https": 443}
#: A host made only of these is a number in some spelling (127.1, 0x7f.1, 2130706433).
NUMERIC_HOST = re.compile(r"^(0x[0-9a-f]*|[0-9]+)(\.(0x[0-9a-f]*|[0-9]+))*\.?$", re.IGNORECASE)
HOST_NAME = re.compile(r"^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$")


def clean_address(url: str, *, field: str = "url") -> str:
    """Return a normalised http(s) address or raise Invalid or DestinationRefused.

    Refused: other schemes, user names, fragments, queries, backslashes, control characters, hosts
    that are not plain ASCII names, numbers in any spelling but a canonical public IP address.
    """
    url = url.strip()
    if len(url) > 500 or not url.isascii() or not url.isprintable() or "\\" in url or " " in url:
        raise Invalid("This is not a plain http or https address.", field=field)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise Invalid("This is not a plain http or https address.", field=field) from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise Invalid("The address must start with http:// or https://.", field=field)
    if parts.username is not None or parts.password is not None:
        raise Invalid("Put the credential into its own field.", field=field)
    if parts.query or parts.fragment:
        raise Invalid("The address may not have a query or a fragment.", field=field)
    host = parts.hostname.lower()
    try:
        check_host(host, port or DEFAULT_PORTS[parts.scheme])
    except DestinationRefused:
        raise DestinationRefused(field=field) from None
    shown = f"[{host}]" if ":" in host else host
    port_text = "" if port is None else f":{port}"
    return f"{parts.scheme}://{shown}{port_text}{parts.path.rstrip('/')}"


def is_operator_allowed(host: str, port: int) -> bool:
    """Whether the operator listed exactly this host and port in OUTGOING_ALLOWED."""
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{port}" in settings.OUTGOING_ALLOWED


def check_host(host: str, port: int) -> None:
    """Refuse spellings that name a private place, without resolving anything."""
    if is_operator_allowed(host, port):
        return
    try:
        check_ip(host, port)
    except ValueError:
        if NUMERIC_HOST.fullmatch(host) or not HOST_NAME.fullmatch(host) or "." not in host:
            raise DestinationRefused from None
        if host.rsplit(".", 1)[-1] in {"localhost", "local", "internal", "localdomain"}:
            raise DestinationRefused from None


def check_ip(address: str, port: int, *, host: str = "") -> None:
    """Refuse an IP address that is not globally routable, unless its host and port are allowed.

    Raises ValueError when *address* is not an IP address.
    """
    ip = ipaddress.ip_address(address)
    if is_operator_allowed(host or address, port):
        return
    if isinstance(ip, ipaddress.IPv6Address):
        embedded = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if embedded is not None:
            ip = embedded
    nat64 = isinstance(ip, ipaddress.IPv6Address) and ip in ipaddress.ip_network("64:ff9b::/96")
    if not ip.is_global or ip.is_multicast or nat64:
        raise DestinationRefused
