"""Sealed columns: a field that holds ciphertext only, and rows that seal and open their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from django.apps import apps
from django.db import models, router
from django.db.backends.base.base import BaseDatabaseWrapper

from agents import vault
from agents.errors import DamagedContent

if TYPE_CHECKING:
    SealedBytes = models.BinaryField[bytes | None, bytes | None]
else:
    SealedBytes = models.BinaryField


class SealedField(SealedBytes):
    """A column of sealed values. It refuses to store anything else.

    Set it with :meth:`SealsFields.seal_value`; reading the attribute gives ciphertext.
    """

    description = "A value sealed under the key ring"

    def from_db_value(
        self, value: Any, _expression: object, _connection: BaseDatabaseWrapper
    ) -> bytes | None:
        return None if value is None else bytes(value)

    def get_prep_value(self, value: Any) -> Any:
        if value is not None and not vault.is_sealed(value):
            msg = f"{self.model._meta.label}.{self.name} takes sealed values only"
            raise ValueError(msg)
        return super().get_prep_value(value)


class SealsFields(models.Model):
    """A row with sealed columns.

    Its primary key and organization must have their final values before anything is sealed: they
    are part of what makes the value open.
    """

    #: Dotted path from the row to its organization's id; ``None`` when it belongs to none.
    seal_organization: ClassVar[str | None] = "organization_id"

    class Meta:
        abstract = True

    def seal_value(self, column: str, plaintext: str | bytes) -> None:
        """Seal *plaintext* into *column* of this instance. The caller saves."""
        data = plaintext.encode() if isinstance(plaintext, str) else plaintext
        setattr(self, column, vault.seal(data, self.seal_context(column)))

    def open_bytes(self, column: str) -> bytes:
        """The plaintext of *column*; ``DamagedContent`` when it is null or does not open."""
        return vault.unseal(getattr(self, column), self.seal_context(column))

    def open_value(self, column: str) -> str:
        """Like :meth:`open_bytes`, as text."""
        try:
            return self.open_bytes(column).decode()
        except UnicodeDecodeError:
            raise DamagedContent(table=self._meta.db_table, row=str(self.pk)) from None

    def seal_context(self, column: str) -> vault.SealContext:
        """Where *column* of this row opens."""
        organization = (
            None if self.seal_organization is None else attrgetter(self.seal_organization)(self)
        )
        if self.pk is None:
            msg = f"{self._meta.label} must have its id before {column} is sealed or opened"
            raise ValueError(msg)
        return seal_context(type(self), column, self.pk, organization)


def seal_context(
    model: type[models.Model], column: str, row_id: UUID | str, organization_id: UUID | None
) -> vault.SealContext:
    """Where a value of *model*'s *column* opens, for readers that hold values but no instance."""
    field = model._meta.get_field(column)
    if not isinstance(field, SealedField):
        msg = f"{model._meta.label}.{column} is not a sealed column"
        raise TypeError(msg)
    return vault.SealContext(
        store=router.db_for_write(model),
        table=model._meta.db_table,
        column=field.attname,
        row_id=row_id,
        organization_id=organization_id,
    )


@dataclass(frozen=True, slots=True)
class SealedColumn:
    """One sealed column of one table in one store."""

    model: type[SealsFields]
    field: SealedField

    @property
    def store(self) -> str:
        return router.db_for_write(self.model)

    @property
    def table(self) -> str:
        return self.model._meta.db_table

    @property
    def purpose(self) -> str:
        return vault.wrapping_purpose(self.store, self.table, self.name)

    @property
    def name(self) -> str:
        return self.field.attname

    def __str__(self) -> str:
        return f"{self.table}.{self.name}"


def sealed_columns() -> Iterator[SealedColumn]:
    """Every sealed column of the product, found by its field class."""
    for model in apps.get_models(include_auto_created=True):
        for field in model._meta.local_fields:
            if isinstance(field, SealedField):
                if not issubclass(model, SealsFields):
                    msg = f"{model._meta.label} has a SealedField and must use SealsFields"
                    raise TypeError(msg)
                yield SealedColumn(model, field)


class InstallationSecret(SealsFields):
    """A secret that this installation made for itself once and that never rotates."""

    seal_organization = None

    name = models.CharField(primary_key=True, max_length=32)
    sealed = SealedField()

    def __str__(self) -> str:
        return self.name
