"""The API's operations are a contract: adding or moving one shows in docs/reference/api.md."""

from __future__ import annotations

import re
from pathlib import Path

from project.api import api

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"
ROW = re.compile(r"^\| `(GET|POST|PUT|PATCH|DELETE) (\S+)` \| `(\w+)` \|", re.MULTILINE)


def test_the_reference_lists_exactly_the_operations_there_are() -> None:
    document = api.get_openapi_schema(path_prefix="")
    operations = {
        (method.upper(), path, operation["operationId"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(ROW.findall(REFERENCE.read_text(encoding="utf-8"))) == operations
