"""A plugin for ``make test``: a skipped test fails the run, for it shows nothing."""

from __future__ import annotations

import pytest


class NoSkips:
    """Remembers what was skipped and turns a passing run into a failing one."""

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self.skipped.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name in self.skipped:
            terminalreporter.write_line(f"SKIPPED, which counts as failed: {name}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(NoSkips())
