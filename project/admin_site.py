"""The admin site: our own rows alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.admin import AdminSite, ModelAdmin
from django.db.models import Model

#: Apps whose rows operators look at.
OURS = frozenset({"agents", "definitions", "advertisements", "chat"})


class OperatorSite(AdminSite):
    """Registers rows of our apps only.

    Libraries register theirs by themselves: the queue's pages would let staff edit and requeue
    its rows, and Django's groups grant nothing here.
    """

    site_title = site_header = "Mandate"
    index_title = "Operators"

    def register(
        self,
        model_or_iterable: type[Model] | Iterable[type[Model]],
        admin_class: type[ModelAdmin[Any]] | None = None,
        **options: Any,
    ) -> None:
        offered = [model_or_iterable] if isinstance(model_or_iterable, type) else model_or_iterable
        ours = [model for model in offered if model._meta.app_label in OURS]
        super().register(ours, admin_class, **options)
