"""The two stores: how an address becomes Django's DATABASES entry, and the router between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.db.models import Model

CONTENT = "content"
CONTROL = "default"


def database_from_url(url: str, fallback: Path) -> dict[str, Any]:
    """Return Django's settings of one database.

    ``sqlite:///relative.db`` and ``sqlite:////absolute.db`` name files; an empty address names
    *fallback*. PostgreSQL addresses take libpq's options as a query string.
    """
    parts = urlsplit(url)
    if parts.scheme in {"postgres", "postgresql"}:
        # The pool's connections outlive a request, as CONN_MAX_AGE does not under ASGI.
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": unquote(parts.path.lstrip("/")),
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or dict(parse_qsl(parts.query)).get("host", ""),
            "PORT": str(parts.port or ""),
            "OPTIONS": {
                **{k: v for k, v in parse_qsl(parts.query) if k != "host"},
                # One stuck transaction elsewhere must not hold up everybody behind it.
                "options": "-c lock_timeout=5s -c idle_in_transaction_session_timeout=15s",
                "pool": {"min_size": 0, "max_size": 16, "timeout": 20},
            },
            # A connection that a restart of the server broke is replaced before it is used.
            "CONN_HEALTH_CHECKS": True,
        }
    name = unquote(parts.path[1:]) if url else str(fallback)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": name,
        "OPTIONS": {
            # IMMEDIATE takes the write lock at BEGIN, so that a read-then-write transaction
            # waits its turn and never fails half way with "database is locked".
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
        },
        "TEST": {"NAME": f"{name}.test"},
    }


class StoreRouter:
    """Keeps every model in its store. Nothing joins across, and no migration runs in both."""

    def __init__(self) -> None:
        from django.conf import settings

        self.content_models = frozenset(m.lower() for m in settings.CONTENT_MODELS)

    def _alias(self, label: str) -> str:
        return CONTENT if label in self.content_models else CONTROL

    def db_for_read(self, model: type[Model], **_hints: Any) -> str:
        return self._alias(model._meta.label_lower)

    db_for_write = db_for_read

    def allow_relation(self, obj1: Model, obj2: Model, **_hints: Any) -> bool:
        return self._alias(obj1._meta.label_lower) == self._alias(obj2._meta.label_lower)

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        if "store" in hints:  # RunSQL and RunPython name their store themselves.
            return bool(hints["store"] == db)
        if model_name is None:
            return None
        return self._alias(f"{app_label}.{model_name}".lower()) == db
