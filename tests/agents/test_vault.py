"""Sealing: a value opens with the ring's key, at its own place, or not at all."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import Settings

from agents import vault
from agents.errors import DamagedContent, KeyringProblem
from agents.vault import SealContext

CONTEXT = SealContext(
    store="content",
    table="agents_blob",
    column="sealed",
    row_id=uuid.UUID(int=1),
    organization_id=uuid.UUID(int=2),
    version=3,
)


def ring(active: str, **keys: bytes) -> str:
    encoded = {name: base64.b64encode(key).decode() for name, key in keys.items()}
    return json.dumps({"active": active, "keys": encoded})


@pytest.fixture
def ring_file(settings: Settings, tmp_path: Path) -> Iterator[Path]:
    """The ring comes from a file that does not exist yet."""
    settings.KEYRING_JSON = ""
    settings.KEYRING_PATH = tmp_path / "keys" / "keyring.json"
    vault.reset()
    yield settings.KEYRING_PATH
    vault.reset()


def test_it_works() -> None:
    sealed = vault.seal(b"the instructions", CONTEXT)
    assert b"instructions" not in sealed
    assert vault.unseal(sealed, CONTEXT) == b"the instructions"
    assert vault.unseal(memoryview(sealed), CONTEXT) == b"the instructions"
    assert vault.sealed_kek_id(sealed) == "test"
    assert len(sealed) == len(b"the instructions") + vault.OVERHEAD_BYTES


@given(st.binary(max_size=4_096))
def test_every_value_comes_back(plaintext: bytes) -> None:
    assert vault.unseal(vault.seal(plaintext, CONTEXT), CONTEXT) == plaintext


def test_a_flipped_bit_at_any_byte_does_not_open() -> None:
    sealed = vault.seal(b"a short prompt", CONTEXT)
    for position in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[position] ^= 1
        with pytest.raises(DamagedContent):
            vault.unseal(damaged, CONTEXT)


def test_a_truncated_value_does_not_open() -> None:
    sealed = vault.seal(b"a short prompt", CONTEXT)
    for length in range(len(sealed)):
        with pytest.raises(DamagedContent):
            vault.unseal(sealed[:length], CONTEXT)
    with pytest.raises(DamagedContent):
        vault.unseal(sealed + b"\0", CONTEXT)


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"store": "default"},
        {"table": "chat_sessionevent"},
        {"column": "other"},
        {"row_id": uuid.UUID(int=9)},
        {"organization_id": uuid.UUID(int=9)},
        {"organization_id": None},
        {"version": 4},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_value_moved_elsewhere_does_not_open(elsewhere: dict[str, object]) -> None:
    sealed = vault.seal(b"mine", CONTEXT)
    with pytest.raises(DamagedContent):
        vault.unseal(sealed, dataclasses.replace(CONTEXT, **elsewhere))  # type: ignore[arg-type]


def test_no_two_places_spell_the_same_associated_data() -> None:
    """Text that slides from one member into the next makes another place."""
    one = dataclasses.replace(CONTEXT, table="ab", column="c")
    other = dataclasses.replace(CONTEXT, table="a", column="bc")
    assert one.associated_data() != other.associated_data()


def test_a_wrapped_key_of_another_value_does_not_open() -> None:
    one, other = vault.seal(b"one", CONTEXT), vault.seal(b"two", CONTEXT)
    cut = vault.HEADER_BYTES + vault.WRAPPED_BYTES
    with pytest.raises(DamagedContent):
        vault.unseal(one[:cut] + other[cut:], CONTEXT)


@pytest.mark.parametrize("value", [None, b"", b"plain text", b"v2|A256GCM|test............|" * 9])
def test_what_was_never_sealed_is_damaged(value: bytes | None) -> None:
    assert not vault.is_sealed(value)
    with pytest.raises(DamagedContent) as raised:
        vault.unseal(value, CONTEXT)
    assert raised.value.extra["table"] == "agents_blob"


def test_an_unknown_key_is_damage_and_names_the_row_only(settings: Settings) -> None:
    sealed = vault.seal(b"CANARY", CONTEXT)
    settings.KEYRING_JSON = ring("other", other=b"o" * 32)
    vault.reset()
    with pytest.raises(DamagedContent) as raised:
        vault.unseal(sealed, CONTEXT)
    assert "CANARY" not in repr(raised.value) + str(raised.value.extra)
    assert str(CONTEXT.row_id) in str(raised.value.extra)


def test_another_key_under_the_same_id_does_not_open(settings: Settings) -> None:
    sealed = vault.seal(b"x", CONTEXT)
    settings.KEYRING_JSON = ring("test", test=b"o" * 32)
    vault.reset()
    with pytest.raises(DamagedContent):
        vault.unseal(sealed, CONTEXT)


def test_2000_seals_share_no_key_and_no_nonce() -> None:
    sealed = [vault.seal(b"the same", CONTEXT) for _ in range(2_000)]
    head, cut = vault.HEADER_BYTES, vault.HEADER_BYTES + vault.WRAPPED_BYTES
    data_keys = {vault.unwrap(value, CONTEXT.purpose) for value in sealed}
    nonces = {value[head : head + 12] for value in sealed} | {v[cut : cut + 12] for v in sealed}
    assert len(data_keys) == 2_000
    assert len(nonces) == 4_000


def test_columns_are_wrapped_under_different_keys() -> None:
    other = dataclasses.replace(CONTEXT, column="other")
    sealed = vault.seal(b"x", CONTEXT)
    with pytest.raises(InvalidTag):
        vault.unwrap(sealed, other.purpose)


def test_rewrapping_changes_the_header_alone(settings: Settings) -> None:
    sealed = vault.seal(b"the content", CONTEXT)
    settings.KEYRING_JSON = ring("new", new=b"n" * 32, test=b"t" * 32)
    vault.reset()
    rewrapped = vault.rewrap(sealed, CONTEXT)
    cut = vault.HEADER_BYTES + vault.WRAPPED_BYTES
    assert vault.sealed_kek_id(rewrapped) == "new"
    assert rewrapped[cut:] == sealed[cut:]
    settings.KEYRING_JSON = ring("new", new=b"n" * 32)
    vault.reset()
    assert vault.unseal(rewrapped, CONTEXT) == b"the content"
    with pytest.raises(DamagedContent):
        vault.rewrap(sealed, CONTEXT)


# --- the ring's file ------------------------------------------------------------------------


def test_a_new_ring_is_ours_alone_and_usable(ring_file: Path) -> None:
    vault.create_keyring(ring_file)
    assert stat.S_IMODE(ring_file.stat().st_mode) == 0o400
    assert list(ring_file.parent.iterdir()) == [ring_file]
    assert vault.unseal(vault.seal(b"x", CONTEXT), CONTEXT) == b"x"


def test_a_ring_is_never_replaced(ring_file: Path) -> None:
    vault.create_keyring(ring_file)
    before = ring_file.read_bytes()
    with pytest.raises(KeyringProblem):
        vault.create_keyring(ring_file)
    assert ring_file.read_bytes() == before
    assert list(ring_file.parent.iterdir()) == [ring_file]


@pytest.mark.parametrize("mode", [0o440, 0o444, 0o604, 0o660, 0o700, 0o000])
def test_a_ring_that_others_may_touch_is_refused(ring_file: Path, mode: int) -> None:
    vault.create_keyring(ring_file)
    ring_file.chmod(mode)
    with pytest.raises(KeyringProblem):
        vault.load_keyring()
    ring_file.chmod(0o600)
    assert vault.load_keyring().active


def test_a_ring_of_another_user_is_refused(
    ring_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.create_keyring(ring_file)
    owner = ring_file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(KeyringProblem, match="belongs to user"):
        vault.load_keyring()


def test_a_link_to_a_ring_is_refused(ring_file: Path, tmp_path: Path) -> None:
    vault.create_keyring(tmp_path / "real.json")
    ring_file.parent.mkdir()
    ring_file.symlink_to(tmp_path / "real.json")
    with pytest.raises(KeyringProblem):
        vault.load_keyring()


def test_a_missing_ring_says_so(ring_file: Path) -> None:
    assert not vault.keyring_exists()
    with pytest.raises(KeyringProblem, match="is missing"):
        vault.load_keyring()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"active": "a"}',
        '{"active": "a", "keys": {"a": 7}}',
        '{"active": "a", "keys": {"a": "not base64"}}',
        ring("a", b=b"x" * 32),
        ring("a", a=b"x" * 31),
        ring("a" * 17, **{"a" * 17: b"x" * 32}),
        ring("A|b", **{"A|b": b"x" * 32}),
    ],
)
def test_a_malformed_ring_is_refused_without_quoting_it(text: str) -> None:
    with pytest.raises(KeyringProblem) as raised:
        vault.parse_keyring(text, "The ring")
    assert base64.b64encode(b"x" * 31).decode()[:20] not in str(raised.value)


def test_a_ring_never_shows_its_keys() -> None:
    shown = repr(vault.load_keyring())
    assert base64.b64encode(b"t" * 32).decode() not in shown
    assert "tttt" not in shown
