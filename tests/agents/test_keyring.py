"""Start-up: a ring that does not fit the databases is refused, and nothing is written."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.apps import apps
from django.db import connections, models, transaction
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from agents import content_store, digests, keyring, vault
from agents.errors import DamagedContent, KeyringProblem
from agents.models import Blob, InstallationSecret
from agents.models.sealing import SealedField, sealed_columns

pytestmark = pytest.mark.django_db(databases="__all__")

ORGANIZATION = uuid.UUID(int=7)


def use_ring(settings: Settings, active: str, **keys: bytes) -> None:
    encoded = {name: base64.b64encode(key).decode() for name, key in keys.items()}
    settings.KEYRING_JSON = json.dumps({"active": active, "keys": encoded})
    vault.reset()


@pytest.fixture
def ring_file(settings: Settings, tmp_path: Path) -> Path:
    settings.KEYRING_JSON = ""
    settings.KEYRING_PATH = tmp_path / "keyring.json"
    vault.reset()
    path: Path = settings.KEYRING_PATH
    return path


def test_an_empty_installation_gets_a_ring(ring_file: Path) -> None:
    keyring.ensure_keyring()
    assert ring_file.exists()
    before = ring_file.read_bytes()
    keyring.ensure_keyring()
    assert ring_file.read_bytes() == before


def test_a_lost_ring_is_never_replaced_once_anything_is_sealed(
    settings: Settings, ring_file: Path
) -> None:
    use_ring(settings, "test", test=b"t" * 32)
    content_store.put(ORGANIZATION, "instructions", b"x")
    settings.KEYRING_JSON = ""
    vault.reset()
    with pytest.raises(KeyringProblem, match="is missing"):
        keyring.ensure_keyring()
    assert not ring_file.exists()


def test_a_fitting_ring_passes() -> None:
    content_store.put(ORGANIZATION, "instructions", b"x")
    keyring.check_keyring()


def test_a_missing_key_is_named_with_the_column_that_needs_it(settings: Settings) -> None:
    content_store.put(ORGANIZATION, "instructions", b"x")
    use_ring(settings, "new", new=b"n" * 32)
    with pytest.raises(KeyringProblem) as raised:
        keyring.check_keyring()
    assert "key test is missing and needed by agents_blob.sealed" in raised.value.detail
    assert base64.b64encode(b"n" * 32).decode() not in raised.value.detail


def test_a_wrong_ring_refuses_and_writes_nothing(settings: Settings) -> None:
    content_store.put(ORGANIZATION, "instructions", b"x")
    use_ring(settings, "test", test=b"another key of the same name !!!")
    with (
        CaptureQueriesContext(connections["default"]) as control,
        CaptureQueriesContext(connections["content"]) as content,
        pytest.raises(KeyringProblem, match="key test is not the one that sealed"),
    ):
        keyring.ensure_keyring()
    statements = [query["sql"] for query in [*control, *content]]
    assert statements
    assert all(statement.startswith("SELECT") for statement in statements)


def test_keys_of_a_rotation_in_progress_pass(settings: Settings) -> None:
    content_store.put(ORGANIZATION, "instructions", b"old")
    use_ring(settings, "new", new=b"n" * 32, test=b"t" * 32)
    content_store.put(ORGANIZATION, "instructions", b"new")
    keyring.check_keyring()
    use_ring(settings, "new", new=b"n" * 32)
    with pytest.raises(KeyringProblem, match="key test is missing"):
        keyring.check_keyring()


def test_one_damaged_row_does_not_stop_the_installation() -> None:
    for text in (b"one", b"two", b"three"):
        content_store.put(ORGANIZATION, "instructions", text)
    blob = Blob.objects.all()[0]
    blob.sealed = flipped(blob.sealed, vault.HEADER_BYTES + 20)
    blob.save(update_fields=["sealed"])
    with connections["content"].cursor() as cursor:  # Not even shaped like a sealed value.
        cursor.execute(
            "UPDATE agents_blob SET sealed = substr(sealed, 3) WHERE digest = %s",
            [Blob.objects.all()[1].digest],
        )
    keyring.check_keyring()


def test_installation_secrets_must_open(settings: Settings) -> None:
    digests.reset()
    digests.warm()
    secret = InstallationSecret.objects.get(pk=digests.DIGEST)
    secret.sealed = flipped(secret.sealed, -1)
    secret.save(update_fields=["sealed"])
    with pytest.raises(KeyringProblem, match="digest does not open"):
        keyring.check_keyring()


def test_a_lost_digest_key_is_not_replaced_while_content_exists() -> None:
    digests.reset()
    content_store.put(ORGANIZATION, "instructions", b"x")
    InstallationSecret.objects.all().delete()
    digests.reset()
    with pytest.raises(KeyringProblem, match="digest is gone"):
        digests.keyed_digest(b"x")


def test_secrets_are_made_once_and_stay() -> None:
    digests.reset()
    digest, mac = digests.keyed_digest(b"x"), digests.credential_mac("mk_x")
    assert len(digest) == len(mac) == 64
    assert digest != mac
    digests.reset()
    assert (digests.keyed_digest(b"x"), digests.credential_mac("mk_x")) == (digest, mac)
    assert set(InstallationSecret.objects.values_list("name", flat=True)) == {"digest", "pepper"}


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_processes_that_start_together_agree_on_the_secrets() -> None:
    barrier = threading.Barrier(6)

    def make(_: int) -> bytes:
        try:
            barrier.wait(20)
            return digests._made(digests.PEPPER)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(make, range(6)))) == 1
    assert InstallationSecret.objects.count() == 1


def test_digests_are_separate_by_purpose_and_by_installation() -> None:
    one = digests.keyed_digest(b"x")
    assert one != digests.keyed_digest(b"x", purpose="other")
    digests.reset()
    assert one != digests.keyed_digest(b"x")


def test_a_secret_made_in_a_transaction_that_fails_is_not_remembered() -> None:
    digests.reset()
    with transaction.atomic():
        digests.keyed_digest(b"x")
        transaction.set_rollback(True)
    assert digests._secrets == {}


def test_every_sealed_column_of_every_model_is_known() -> None:
    """Rotation and checks see each column of ciphertext that any model has."""
    listed = {str(column) for column in sealed_columns()}
    declared = {
        f"{model._meta.db_table}.{field.attname}"
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if isinstance(field, models.BinaryField)
    }
    assert listed == declared
    assert {"agents_blob.sealed", "agents_installationsecret.sealed"} <= listed


def test_a_sealed_column_takes_ciphertext_only() -> None:
    with pytest.raises(ValueError, match="sealed values only"):
        Blob.objects.create(
            organization_id=ORGANIZATION, kind="k", digest="d", sealed=b"plain text"
        )
    assert isinstance(Blob._meta.get_field("sealed"), SealedField)


def test_a_value_copied_to_another_row_does_not_open() -> None:
    rows = [Blob(organization_id=ORGANIZATION, kind="k", digest=str(n)) for n in range(2)]
    for row in rows:
        row.seal_value("sealed", f"text of {row.digest}")
        row.save()
    rows[0].sealed = rows[1].sealed
    rows[0].save(update_fields=["sealed"])
    with pytest.raises(DamagedContent):
        Blob.objects.get(pk=rows[0].pk).open_value("sealed")
    assert Blob.objects.get(pk=rows[1].pk).open_value("sealed") == "text of 1"


def flipped(value: bytes | None, position: int) -> bytes:
    assert value is not None
    damaged = bytearray(value)
    damaged[position] ^= 1
    return bytes(damaged)
