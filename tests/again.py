"""Pytest plugin of `.ci/run`: a test that fails is run once more, and listed as RERUN.

pytest-rerunfailures asks a server in another process about every test, those that pass too, which
takes longer than a short test.
"""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from _pytest.runner import runtestprotocol

OUTCOME = "rerun"
LISTED_S = 0.5
"""Setting up and taking down are reported if they fail or take so long, for `--durations`.

Passing a report from a worker to the process that prints it takes longer than a short test.
"""


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    failed = [report for report in reports if report.failed]
    if failed:
        for report in failed:
            report.outcome = OUTCOME
            hook.pytest_runtest_logreport(report=report)
        # what its fixtures made is made again; what cannot be taken down fails again, and is reported
        with suppress(Exception):
            item.session._setupstate.teardown_exact(None)
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
    for report in reports:
        if report.when == "call" or not report.passed or report.duration >= LISTED_S:
            hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, object] | None:
    return (OUTCOME, "R", ("RERUN", {"yellow": True})) if report.outcome == OUTCOME else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in reasons(terminalreporter.stats.get(OUTCOME, [])):
        terminalreporter.write_line(line)


def reasons(reports: list[pytest.TestReport]) -> Iterator[str]:
    """Yield a line for each test that failed at first: its name and why."""
    for report in reports:
        text = getattr(report.longrepr, "reprcrash", None)
        why = (text.message if text else str(report.longrepr)).strip().splitlines()
        yield f"RERUN {report.nodeid} ({report.when}): {why[0] if why else ''}"
