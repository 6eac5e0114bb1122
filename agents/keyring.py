"""Whether the key ring fits the databases, and the making of one on an empty installation."""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidTag
from django.conf import settings
from django.db import connections

from agents import vault
from agents.errors import DamagedContent, KeyringProblem
from agents.models.sealing import InstallationSecret, SealedColumn, sealed_columns

#: How many values of one column and key are tried before the key is called wrong.
SAMPLES = 20


def ensure_keyring() -> None:
    """Make a ring where nothing was ever sealed; otherwise check the one there is.

    Both stores must be migrated. ``KeyringProblem`` when a ring is missing or does not fit.
    """
    if not vault.keyring_exists() and not any_ciphertext():
        vault.create_keyring(Path(settings.KEYRING_PATH))
        vault.reset()
    check_keyring()


def check_keyring() -> None:
    """Prove that the ring opens every key that any row needs. Reads only.

    For each sealed column and key id one data key is unwrapped, and the installation's own
    secrets are opened. ``KeyringProblem`` names key ids and columns, never bytes.
    """
    ring = vault.load_keyring()
    missing: dict[str, list[str]] = {}
    wrong: dict[str, list[str]] = {}
    for column in sealed_columns():
        for header in headers(column):
            try:
                kek_id = vault.sealed_kek_id(header)
            except ValueError:
                continue  # Not a sealed value: a damaged row, which ``verify_store`` names.
            if kek_id not in ring:
                missing.setdefault(kek_id, []).append(str(column))
            elif not any(_unwraps(sample, column) for sample in samples(column, header)):
                wrong.setdefault(kek_id, []).append(str(column))
    if missing or wrong:
        raise KeyringProblem(_complaint(missing, wrong))
    for secret in InstallationSecret.objects.all():
        try:
            secret.open_bytes("sealed")
        except DamagedContent:
            msg = f"The installation secret {secret.name} does not open with this key ring"
            raise KeyringProblem(msg) from None


def any_ciphertext() -> bool:
    """Whether any sealed value exists in either store."""
    return any(
        column.model._default_manager.filter(**{f"{column.name}__isnull": False}).exists()
        for column in sealed_columns()
    )


def headers(column: SealedColumn) -> list[bytes]:
    """The distinct headers that occur in *column*: one for each key id."""
    return _selected(column, "SELECT DISTINCT substr({name}, 1, {size}) FROM {table}", [])


def samples(column: SealedColumn, header: bytes) -> list[bytes]:
    """A few values under *header*, cut behind the wrapped key: one damaged row proves nothing."""
    statement = (
        "SELECT substr({name}, 1, {wrapped}) FROM {table} WHERE substr({name}, 1, {size}) = %s "
        "LIMIT {limit}"
    )
    return _selected(column, statement, [header])


def _selected(column: SealedColumn, statement: str, parameters: list[bytes]) -> list[bytes]:
    connection = connections[column.store]
    quote = connection.ops.quote_name
    # Names come from the models and sizes are constants: nothing of a caller gets in here.
    text = statement.format(
        name=quote(column.name),
        table=quote(column.table),
        size=vault.HEADER_BYTES,
        wrapped=vault.HEADER_BYTES + vault.WRAPPED_BYTES,
        limit=SAMPLES,
    )
    with connection.cursor() as cursor:
        cursor.execute(text, parameters)
        return [bytes(value) for (value,) in cursor.fetchall() if value is not None]


def _unwraps(sample: bytes, column: SealedColumn) -> bool:
    try:
        vault.unwrap(sample, column.purpose)
    except (InvalidTag, ValueError):
        return False
    return True


def _complaint(missing: dict[str, list[str]], wrong: dict[str, list[str]]) -> str:
    parts = [
        f"key {kek_id} is missing and needed by {', '.join(sorted(columns))}"
        for kek_id, columns in sorted(missing.items())
    ]
    parts += [
        f"key {kek_id} is not the one that sealed {', '.join(sorted(columns))}"
        for kek_id, columns in sorted(wrong.items())
    ]
    return f"The key ring does not fit the databases: {'; '.join(parts)}. Nothing was written."
