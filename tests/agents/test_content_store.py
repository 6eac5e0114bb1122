"""The content store: what was put comes back, once, to its organization, or fails closed."""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connections
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from agents import content_store
from agents.content_store import Address
from agents.digests import keyed_digest
from agents.errors import DamagedContent
from agents.models import Blob

MINE, THEIRS = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture(autouse=True)
def _own_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_store, "_references", {})
    monkeypatch.setattr(content_store, "_sources", {})


class RoundTrip(TestCase):
    databases = "__all__"

    @settings(max_examples=40, deadline=None)
    @given(data=st.binary(max_size=2_000))
    def test_what_was_put_comes_back(self, data: bytes) -> None:
        digest = content_store.put(MINE, "instructions", data)
        assert digest == keyed_digest(data)
        assert content_store.get(MINE, "instructions", digest) == data

    @settings(max_examples=40, deadline=None)
    @given(
        value=st.dictionaries(
            st.text(max_size=8),
            st.one_of(
                st.text(max_size=20),
                st.integers(-(2**53) + 1, 2**53 - 1),
                st.booleans(),
                st.none(),
                st.lists(st.text(max_size=5), max_size=3),
            ),
            max_size=5,
        )
    )
    def test_equal_json_has_one_digest(self, value: dict[str, object]) -> None:
        backwards = dict(reversed(list(value.items())))
        digest = content_store.put_json(MINE, "arguments", value)
        assert content_store.put_json(MINE, "arguments", backwards) == digest
        assert content_store.get_json(MINE, "arguments", digest) == value


@pytest.mark.django_db(databases="__all__")
class TestAddresses:
    def test_putting_twice_stores_once_and_refreshes_the_age(self) -> None:
        digest = content_store.put(MINE, "instructions", b"x")
        age(digest, hours=30)
        assert content_store.put(MINE, "instructions", b"x") == digest
        assert Blob.objects.count() == 1
        assert Blob.objects.get().touched_at > timezone.now() - dt.timedelta(minutes=1)

    def test_another_organization_has_its_own(self) -> None:
        digest = content_store.put(MINE, "instructions", b"x")
        with pytest.raises(DamagedContent):
            content_store.get(THEIRS, "instructions", digest)
        with pytest.raises(DamagedContent):
            content_store.get(MINE, "arguments", digest)
        assert not content_store.touch(THEIRS, "instructions", digest)
        content_store.put(THEIRS, "instructions", b"x")
        assert Blob.objects.count() == 2

    def test_no_content_stands_in_clear(self) -> None:
        content_store.put(MINE, "instructions", b"CANARY of thirty-two characters!")
        row = Blob.objects.values().get()
        assert "CANARY" not in str(row)

    def test_a_missing_row_fails_closed(self) -> None:
        with pytest.raises(DamagedContent) as raised:
            content_store.get(MINE, "instructions", keyed_digest(b"never put"))
        assert raised.value.extra["digest"] == keyed_digest(b"never put")[:12]

    def test_a_damaged_byte_fails_closed_and_others_open(self) -> None:
        hurt = content_store.put(MINE, "instructions", b"one")
        sound = content_store.put(MINE, "instructions", b"two")
        damage(hurt)
        with pytest.raises(DamagedContent):
            content_store.get(MINE, "instructions", hurt)
        assert content_store.get(MINE, "instructions", sound) == b"two"

    def test_content_under_anothers_digest_fails_closed(self) -> None:
        """A seal that opens is not enough: the content must be what the digest says."""
        blob = Blob(organization_id=MINE, kind="instructions", digest=keyed_digest(b"asked for"))
        other = Blob(organization_id=MINE, kind="instructions", digest=blob.digest, id=blob.id)
        content_store.put(MINE, "instructions", b"something else")
        stored = Blob.objects.get()
        blob.seal_value("sealed", stored.open_bytes("sealed"))
        blob.save()
        assert other.pk == blob.pk
        with pytest.raises(DamagedContent):
            content_store.get(MINE, "instructions", blob.digest)

    def test_what_is_not_json_is_damaged_as_json(self) -> None:
        digest = content_store.put(MINE, "arguments", b"{")
        with pytest.raises(DamagedContent):
            content_store.get_json(MINE, "arguments", digest)


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_parallel_puts_store_one_row() -> None:
    barrier = threading.Barrier(6)

    def put(_: int) -> str:
        try:
            barrier.wait(20)
            return content_store.put(MINE, "instructions", b"the same")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        digests = set(pool.map(put, range(6)))
    assert len(digests) == 1
    assert Blob.objects.count() == 1
    assert content_store.get(MINE, "instructions", digests.pop()) == b"the same"


@pytest.mark.django_db(databases="__all__")
class TestSweep:
    def test_only_old_and_unnamed_blobs_go(self) -> None:
        old_named, old_unnamed, young = (
            content_store.put(MINE, "instructions", text) for text in (b"1", b"2", b"3")
        )
        age(old_named, hours=25)
        age(old_unnamed, hours=25)
        age(young, hours=23)
        content_store.register_references("versions", names((MINE, old_named)))
        assert content_store.delete_unreferenced() == 1
        assert set(Blob.objects.values_list("digest", flat=True)) == {old_named, young}

    def test_a_name_counts_in_its_organization_only(self) -> None:
        digest = content_store.put(MINE, "instructions", b"1")
        age(digest, hours=25)
        content_store.register_references("versions", names((THEIRS, digest)))
        assert content_store.delete_unreferenced() == 1

    def test_a_put_during_the_sweep_saves_its_blob(self) -> None:
        digest = content_store.put(MINE, "instructions", b"1")
        age(digest, hours=25)

        def put_meanwhile(digests: Sequence[str] | None) -> Iterable[Address]:
            content_store.put(MINE, "instructions", b"1")
            return []

        content_store.register_references("versions", put_meanwhile)
        assert content_store.delete_unreferenced() == 0
        assert content_store.get(MINE, "instructions", digest) == b"1"

    def test_every_old_blob_gets_its_turn(self) -> None:
        """Named ones are touched, so that a bounded sweep does not see the same ones for ever."""
        named = [content_store.put(MINE, "instructions", bytes([n])) for n in range(4)]
        stray = content_store.put(MINE, "instructions", b"stray")
        for hours, digest in enumerate([stray, *reversed(named)], start=25):
            age(digest, hours=hours)
        content_store.register_references("versions", names(*((MINE, d) for d in named)))
        removed = [content_store.delete_unreferenced(limit=2) for _ in range(3)]
        assert removed == [0, 0, 1]

    def test_nothing_goes_when_nobody_told_what_is_named(self) -> None:
        age(content_store.put(MINE, "instructions", b"1"), hours=25)
        assert content_store.delete_unreferenced() == 0

    def test_nothing_goes_when_a_source_fails(self) -> None:
        age(content_store.put(MINE, "instructions", b"1"), hours=25)

        def broken(digests: Sequence[str] | None) -> Iterable[Address]:
            raise ZeroDivisionError

        content_store.register_references("versions", broken)
        with pytest.raises(ZeroDivisionError):
            content_store.delete_unreferenced()
        assert Blob.objects.count() == 1

    def test_a_column_of_digests_is_a_source(self) -> None:
        digest = content_store.put(MINE, "instructions", b"1")
        source = content_store.column_references(Blob, "digest")
        assert list(source(None)) == [(MINE, digest)]
        assert list(source([digest, "0" * 64])) == [(MINE, digest)]
        assert list(source(["0" * 64])) == []


@pytest.mark.django_db(databases="__all__")
class TestVerification:
    def test_a_sound_store_yields_nothing(self) -> None:
        digest = content_store.put(MINE, "instructions", b"1")
        content_store.register_references("versions", names((MINE, digest)))
        checked: list[int] = []
        assert list(content_store.verify_all(lambda: checked.append(1))) == []
        assert len(checked) == 2

    def test_damaged_and_missing_blobs_are_named(self) -> None:
        hurt = content_store.put(MINE, "instructions", b"1")
        content_store.put(MINE, "instructions", b"2")
        damage(hurt)
        lost = keyed_digest(b"lost")
        content_store.register_references("versions", names((MINE, lost)))
        found = [(d.problem, d.digest) for d in content_store.verify_all()]
        assert found == [("damaged", hurt), ("missing", lost)]

    def test_texts_for_the_scan_are_those_that_open(self) -> None:
        content_store.put(MINE, "instructions", b"readable")
        damage(content_store.put(MINE, "instructions", b"gone"))
        content_store.register_content_source("events", lambda: ["an event"])
        assert sorted(content_store.content_texts()) == ["an event", "readable"]


def names(*addresses: Address) -> content_store.References:
    def source(digests: Sequence[str] | None) -> Iterator[Address]:
        return (a for a in addresses if digests is None or a[1] in digests)

    return source


def age(digest: str, *, hours: int) -> None:
    past = timezone.now() - dt.timedelta(hours=hours)
    Blob.objects.filter(digest=digest).update(touched_at=past)


def damage(digest: str) -> None:
    blob = Blob.objects.get(digest=digest)
    assert blob.sealed is not None
    flipped = bytearray(blob.sealed)
    flipped[-5] ^= 1
    Blob.objects.filter(pk=blob.pk).update(sealed=bytes(flipped))
