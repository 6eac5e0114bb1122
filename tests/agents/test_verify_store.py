"""``verify_store`` opens everything sealed in both stores and names what does not open."""

from __future__ import annotations

import uuid

import pytest
from django.core.management import CommandError, call_command

from agents import content_store, digests
from agents.models import Blob, InstallationSecret, ModelProvider, Organization

pytestmark = pytest.mark.django_db(databases="__all__")


@pytest.fixture
def provider() -> ModelProvider:
    organization = Organization.objects.create(name="Acme", slug="acme")
    provider = ModelProvider(
        organization=organization, name="Upstream", slug="up", base_url="http://127.0.0.1/v1"
    )
    provider.seal_value("credential", "sk-CANARY")
    provider.save()
    return provider


def test_a_sound_store_passes(provider: ModelProvider, capsys: pytest.CaptureFixture[str]) -> None:
    content_store.put(uuid.uuid4(), "instructions", b"x")
    call_command("verify_store")
    assert "2 values checked, all sound" in capsys.readouterr().out
    assert provider.open_value("credential") == "sk-CANARY"


def test_one_flipped_byte_in_a_blob_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    organization = uuid.uuid4()
    digest = content_store.put(organization, "instructions", b"the CANARY instructions")
    content_store.put(organization, "instructions", b"sound")
    flip(Blob.objects.get(digest=digest), "sealed")
    with pytest.raises(CommandError, match="1 of 2 values"):
        call_command("verify_store")
    output = capsys.readouterr().out
    assert f"damaged: blob {digest[:12]} (instructions), organization {organization}" in output
    assert "CANARY" not in output


def test_a_credential_that_does_not_open_is_named(
    provider: ModelProvider, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(provider, "credential")
    with pytest.raises(CommandError):
        call_command("verify_store")
    assert f"damaged: agents_modelprovider.credential of {provider.pk}" in capsys.readouterr().out


def test_an_installation_secret_that_does_not_open_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    digests.reset()
    digests.warm()
    flip(InstallationSecret.objects.get(pk=digests.PEPPER), "sealed")
    with pytest.raises(CommandError):
        call_command("verify_store")
    assert "agents_installationsecret.sealed of pepper" in capsys.readouterr().out


def test_a_blob_that_a_row_names_and_nobody_has_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = digests.keyed_digest(b"lost")
    monkeypatch.setattr(content_store, "_references", {})
    content_store.register_references("versions", lambda asked: [(uuid.UUID(int=1), lost)])
    with pytest.raises(CommandError):
        call_command("verify_store")
    assert f"missing: blob {lost[:12]} (named by versions)" in capsys.readouterr().out


def flip(row: Blob | ModelProvider | InstallationSecret, column: str) -> None:
    damaged = bytearray(getattr(row, column))
    damaged[-3] ^= 1
    setattr(row, column, bytes(damaged))
    row.save(update_fields=[column])
