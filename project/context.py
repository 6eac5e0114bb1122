"""What every page's frame shows: filled by the pages' own selectors."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest


def navigation(request: HttpRequest) -> dict[str, Any]:
    """Counts and names of the rail; nothing for a visitor who has not signed in."""
    return {}
