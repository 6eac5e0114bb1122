"""The one way a credential reaches the data plane: ``Authorization: Bearer``."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from agents.errors import CredentialInUrl, Unauthenticated

Scope = MutableMapping[str, Any]

MAX_CREDENTIAL_BYTES = 200
#: Query parameters that can only be meant as a credential.
CREDENTIAL_NAMES = frozenset(
    {"key", "api_key", "apikey", "api-key", "token", "access_token", "authorization", "bearer"}
)
#: Credentials of ours anywhere in an address: ``<prefix>_<8-char accessor>_<secret>``.
CREDENTIAL = re.compile(rb"\bmk_|\b[a-z]{2,4}_[a-z0-9]{8}_[A-Za-z0-9_-]{20}")
_PRINTABLE = re.compile(rb"[\x21-\x7e]+")


def bearer(scope: Scope) -> str:
    """The bearer credential of a request. It is never repeated in a refusal.

    Raises CredentialInUrl, also beside a good header: such an address has leaked already.
    Raises Unauthenticated when the header is missing, repeated, malformed or of another scheme.
    """
    refuse_credential_in_url(scope)
    values = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(values) != 1:
        raise Unauthenticated
    scheme, _, credential = values[0].partition(b" ")
    credential = credential.strip()
    if scheme.lower() != b"bearer" or len(credential) > MAX_CREDENTIAL_BYTES:
        raise Unauthenticated
    if not _PRINTABLE.fullmatch(credential):
        raise Unauthenticated
    text: str = credential.decode("ascii")
    return text


def refuse_credential_in_url(scope: Scope) -> None:
    """Raise CredentialInUrl when the path or the query holds what looks like a credential."""
    query: bytes = scope.get("query_string", b"")
    if CREDENTIAL.search(scope.get("raw_path") or scope["path"].encode("utf-8", "replace")):
        raise CredentialInUrl
    if not query:
        return
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    for name, value in pairs:
        if name.strip().lower() in CREDENTIAL_NAMES:
            raise CredentialInUrl
        if CREDENTIAL.search(f"{name} {value}".encode("utf-8", "replace")):
            raise CredentialInUrl
