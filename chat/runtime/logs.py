"""Logs that cannot carry content: run ids, codes and types, never a message of somebody else.

Libraries put model text, tool arguments and addresses into their log records and exceptions. So
only records of the runtime's own loggers keep their text; of all others, and of every exception,
the name and the type remain.
"""

from __future__ import annotations

import logging
import sys
import warnings
from types import TracebackType

OWN = "chat.runtime"

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class ContentFreeFormatter(logging.Formatter):
    """Own records as written; foreign ones as logger, level and exception type."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        if record.name != OWN and not record.name.startswith(f"{OWN}."):
            record = logging.LogRecord(
                record.name,
                record.levelno,
                record.pathname,
                record.lineno,
                "-",
                None,
                record.exc_info,
            )
        record.exc_text = None
        return super().format(record)

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - the base class's name
        """The types of the chain and where each was raised, without any message."""
        lines: list[str] = []
        error = ei[1]
        while error is not None and len(lines) < 8:
            lines.append(f"  {type(error).__module__}.{type(error).__qualname__}{_place(error)}")
            error = error.__cause__ or error.__context__
        return "\n".join(lines)


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""


def configure_logging(level: str) -> None:
    """Send everything to stderr through :class:`ContentFreeFormatter`; silence Python warnings."""
    warnings.simplefilter("ignore")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ContentFreeFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OWN).setLevel(level)
