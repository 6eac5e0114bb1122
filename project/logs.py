"""Log lines that tell what failed and where, and nothing of what was being handled."""

from __future__ import annotations

import logging
import traceback
from types import TracebackType
from typing import TypeAlias

ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)


class TypeOnlyFormatter(logging.Formatter):
    """Shows an exception as its type and its frames.

    The text of an exception quotes values: rows, prompts, upstream answers. It stays out of the
    log, and so do the texts of the exceptions that caused it.
    """

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802  # the standard library's name
        lines: list[str] = []
        error = ei[1]
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            lines += [
                f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
                for frame in traceback.extract_tb(error.__traceback__)
            ]
            lines.append(f"{type(error).__module__}.{type(error).__qualname__}")
            hidden = error.__suppress_context__
            error = error.__cause__ or (None if hidden else error.__context__)
        return "\n".join(lines)
