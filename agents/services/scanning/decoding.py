"""Every text that hides in a stored value: behind base64, hex, zlib, pickle, JSON and escapes.

Nothing is executed: pickles are read as a list of operations and their strings taken out.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import pickletools
import re
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from agents.vault import MAGIC

#: How many encodings may lie inside each other.
MAX_DEPTH = 6
#: Bytes that one compressed value may grow to.
MAX_INFLATED = 64 * 1024 * 1024
#: Bytes up to which a value is also read as UTF-16.
MAX_WIDE = 1024 * 1024

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){12,}")
_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_ESCAPED = {"b": " ", "f": " ", "n": "\n", "r": "\n", "t": "\t"}
_ZLIB_HEADS = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


def texts(value: Any, depth: int = MAX_DEPTH) -> Iterator[str]:
    """*value* as text, and every text found by decoding parts of it, *depth* times over."""
    if value is None or depth < 0:
        return
    if isinstance(value, bytes | bytearray | memoryview):
        yield from _from_bytes(bytes(value), depth)
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from texts(key, depth)
            yield from texts(member, depth)
    elif isinstance(value, list | tuple | set | frozenset):
        for member in value:
            yield from texts(member, depth)
    else:
        yield from _from_text(str(value), depth)


def _from_text(text: str, depth: int) -> Iterator[str]:
    yield text
    yield from _unescaped(text)
    parsed = _json(text)
    if parsed is not None:
        yield from texts(parsed, depth - 1)
    if depth == 0:
        return
    for run in _HEX.findall(text):
        yield from _from_bytes(bytes.fromhex(run), depth - 1)
    for run in _BASE64.findall(text):
        for decoded in _base64(run):
            yield from _from_bytes(decoded, depth - 1)


def _from_bytes(data: bytes, depth: int) -> Iterator[str]:
    if depth < 0 or data.startswith(MAGIC):  # Sealed: nobody reads it without the ring.
        return
    for inflated in _inflated(data):
        yield from _from_bytes(inflated, depth - 1)
    if data[:1] == b"\x80" or data[-1:] == b".":
        for member in _pickled(data):
            yield from texts(member, depth - 1)
    yield from _from_text(data.decode("utf-8", "replace"), depth)
    if b"\0" in data and len(data) <= MAX_WIDE:
        for encoding in ("utf-16-le", "utf-16-be"):
            yield data.decode(encoding, "replace")


def _unescaped(text: str) -> Iterator[str]:
    """The text as JSON or a URL would have spelled it, where that differs."""
    if "\\" in text:
        yield _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPED.get(m[2], m[2]), text)
    if "%" in text:
        yield unquote(text.replace("+", " "))


def _json(text: str) -> Any:
    if text.lstrip()[:1] not in {"{", "[", '"'}:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _base64(run: str) -> Iterator[bytes]:
    """What *run* may decode to; its beginning may belong to the text before it."""
    body = run.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    for offset in range(min(4, len(body))):
        part = body[offset:]
        if len(part) % 4 == 1:
            part = part[:-1]
        try:
            yield base64.b64decode(part + "=" * (-len(part) % 4), validate=True)
        except binascii.Error:
            continue


def _inflated(data: bytes) -> Iterator[bytes]:
    if data.startswith(_ZLIB_HEADS):
        inflate = zlib.decompressobj()
    elif data.startswith(b"\x1f\x8b"):
        inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    else:
        return
    try:
        yield inflate.decompress(data, MAX_INFLATED)
    except (zlib.error, gzip.BadGzipFile):
        return


def _pickled(data: bytes) -> Iterator[Any]:
    """The strings of a pickle, up to where it stops making sense."""
    try:
        for _, argument, _ in pickletools.genops(data):
            if isinstance(argument, str | bytes | bytearray):
                yield argument
    except Exception:  # noqa: BLE001 - any bytes may come here; what is no pickle has no strings
        return
