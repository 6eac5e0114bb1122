"""Refusals before a run starts, as problem documents (RFC 9457)."""

from __future__ import annotations

from pydantic_core import to_json


class Problem(Exception):
    """A refusal with its HTTP status and stable code. It never shows anything of the input."""

    def __init__(self, status: int, code: str, title: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.title = title


def problem_body(problem: Problem) -> bytes:
    return to_json(
        {
            "type": "about:blank",
            "title": problem.title,
            "status": problem.status,
            "code": problem.code,
        }
    )
