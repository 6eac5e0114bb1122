"""Static files from where Django's finders see them, in every mode and without a copying step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import finders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles


class FoundFiles(StaticFiles):
    """Serves what the finders find below STATIC_URL; browsers revalidate by ETag."""

    def __init__(self) -> None:
        super().__init__()
        self.prefix = f"/{settings.STATIC_URL.lstrip('/')}"

    def get_path(self, scope: Any) -> str:
        path: str = scope["path"].removeprefix(self.prefix)
        return os.path.normpath(path)

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        found = None if path.startswith(("/", "..")) else finders.find(path)
        return (found, Path(found).stat()) if isinstance(found, str) else ("", None)

    async def get_response(self, path: str, scope: Any) -> Response:
        try:
            response = await super().get_response(path, scope)
        except HTTPException as refusal:
            return PlainTextResponse(
                f"{refusal.detail}\n", status_code=refusal.status_code, headers=refusal.headers
            )
        response.headers["cache-control"] = "no-cache"
        response.headers["x-content-type-options"] = "nosniff"
        return response
