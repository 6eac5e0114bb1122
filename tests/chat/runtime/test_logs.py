"""What a log line of the runtime can hold."""

import logging

from chat.runtime.logs import ContentFreeFormatter


def line(name: str, message: str, error: BaseException | None = None) -> str:
    info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord(name, logging.ERROR, "/x.py", 1, message, None, info)
    return ContentFreeFormatter().format(record)


def failed() -> BaseException:
    try:
        int("SECRET cause")
    except ValueError as cause:
        effect = RuntimeError("SECRET effect")
        effect.__cause__ = cause
    return effect


def test_own_records_keep_their_text() -> None:
    assert line("chat.runtime.runner", "run 1 success").endswith("run 1 success")


def test_records_of_libraries_keep_name_and_type_only() -> None:
    said = line("openai._base_client", "Request: SECRET", failed())

    assert "SECRET" not in said
    assert "openai._base_client" in said
    assert "builtins.RuntimeError" in said
    assert "builtins.ValueError at " in said


def test_a_name_that_only_looks_like_ours_is_foreign() -> None:
    assert "SECRET" not in line("chat.runtimes", "SECRET")


def test_exceptions_show_no_text_in_our_own_records_either() -> None:
    said = line("chat.runtime.runner", "run 1 failed", failed())

    assert "run 1 failed" in said
    assert "SECRET" not in said


def test_text_that_another_handler_left_on_the_record_is_not_shown() -> None:
    record = logging.LogRecord("chat.runtime.runner", logging.ERROR, "/x.py", 1, "run", None, None)
    record.exc_text = "SECRET traceback"

    assert "SECRET" not in ContentFreeFormatter().format(record)
