"""One line that tells how far a run of tests is, instead of a dot for each of thousands."""

from __future__ import annotations

import pytest

WIDTH = 40
# Where nobody watches, say in CI, a line is written for each tenth.
PART = 10


class Progress:
    """Draws a bar on a terminal. What failed or was skipped is told at the end, as always."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._session: pytest.Session | None = None
        self._failed: set[str] = set()
        self._done = 0
        self._told = 0

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Remember who knows how many tests there are."""
        self._session = session

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Count a test that ran as usual, and write nothing."""
        is_usual = report.outcome != "failed" and not hasattr(report, "wasxfail")
        if is_usual and (report.when == "call" or report.skipped):
            return report.outcome, "", report.outcome.upper()
        return None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Move on when a test has been cleaned up."""
        if report.failed:
            self._failed.add(report.nodeid)
        if report.when == "teardown":
            self._done += 1
            self._show()

    def _show(self) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        total = self._session.testscollected if self._session else 0
        if reporter is None or not total:
            return
        percent = 100 * self._done // total
        said = f"{percent:3} %  {self._done} of {total}"
        if self._failed:
            said += f", {len(self._failed)} failed"
        if reporter.isatty:
            full = WIDTH * self._done // total
            reporter.rewrite(f"[{'#' * full}{'.' * (WIDTH - full)}] {said}", erase=True)
        elif percent // PART > self._told:
            self._told = percent // PART
            reporter.ensure_newline()
            reporter.write_line(said)


def install_progress(config: pytest.Config) -> None:
    """Show progress, unless each test is to be named or this is one of several processes."""
    if config.get_verbosity() <= 0 and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config), "progress")
