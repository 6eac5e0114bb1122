"""Opening everything that is sealed: what ``manage.py verify_store`` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from agents import content_store
from agents.errors import DamagedContent
from agents.models import Blob
from agents.models.sealing import SealedColumn, sealed_columns


def verify_store(on_checked: Callable[[], object] = lambda: None) -> Iterator[str]:
    """Open each sealed value of both stores; yields one line for each that is damaged or missing.

    Lines name tables, ids and digests, never content. *on_checked* is called after each value.
    """
    for damage in content_store.verify_all(on_checked):
        yield str(damage)
    for column in sealed_columns():
        if column.model is not Blob:  # Verified above, against its digest too.
            yield from _verify_column(column, on_checked)


def _verify_column(column: SealedColumn, on_checked: Callable[[], object]) -> Iterator[str]:
    rows = column.model._default_manager.exclude(**{column.name: None}).order_by("pk")
    for row in rows.iterator(chunk_size=content_store.BATCH):
        try:
            row.open_bytes(column.name)
        except DamagedContent:
            yield f"damaged: {column} of {row.pk}"
        on_checked()
