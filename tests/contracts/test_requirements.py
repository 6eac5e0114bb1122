"""docs/reference/requirements.md names tests that exist, once for each requirement it lists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "requirements.md"
ROW = re.compile(r"^\| (?P<number>\d+) \| (?P<words>.+?) \| (?P<shown>.+?) \|$")
TEST = re.compile(r"`(?P<path>tests/[\w/]+\.(?:py|mjs))::(?P<name>\w+)`")


def rows() -> list[re.Match[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [match for line in lines if (match := ROW.match(line))]


def test_every_named_test_exists() -> None:
    named = [found for row in rows() for found in TEST.finditer(row["shown"])]
    assert named
    for test in named:
        source = (ROOT / test["path"]).read_text(encoding="utf-8")
        assert re.search(rf"def {test['name']}\(", source), test[0]


def test_every_row_has_a_test_or_a_reason() -> None:
    numbers = [int(row["number"]) for row in rows()]
    assert len(numbers) == len(set(numbers))
    assert all(1 <= number <= 190 for number in numbers)
    for row in rows():
        has_test = TEST.search(row["shown"]) is not None
        assert has_test or row["shown"].startswith(("Not built", "Later", "Does not apply")), row[0]
