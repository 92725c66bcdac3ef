"""A pytest plug-in: write the outcome of every case to the file named by $NEIGHBOUR_OUTCOMES.

With NEIGHBOUR_MODE=enabled, `anychunk.enable()` is called before each case, because fixtures reset
zarr's configuration. It is not called before collection: cases are made of zarr's list of data
types, which has ours, too, while anychunk is enabled.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

ENABLED = os.environ.get("NEIGHBOUR_MODE") == "enabled"
WORST = ("passed", "xpassed", "xfailed", "skipped", "failed", "error")
outcomes: dict[str, str] = {}

if ENABLED:
    import anychunk


def pytest_collection() -> None:
    """Replace the profile of the suite: a few examples, the same in each run."""
    hypothesis.settings.register_profile(
        "neighbours",
        derandomize=True,
        max_examples=20,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("neighbours")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Enable anychunk after the fixtures of the case."""
    if ENABLED:
        anychunk.enable()
    yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the worst outcome of set-up, call and tear-down."""
    found = report.outcome
    if hasattr(report, "wasxfail"):
        found = "xfailed" if report.skipped else "xpassed"
    elif report.failed and report.when != "call":
        found = "error"
    known = outcomes.get(report.nodeid, "passed")
    outcomes[report.nodeid] = max(known, found, key=WORST.index)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Count a file that cannot be collected as one case."""
    if report.failed:
        outcomes[report.nodeid] = "error"


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the outcomes, in the process that gathers them."""
    if not hasattr(session.config, "workerinput"):
        Path(os.environ["NEIGHBOUR_OUTCOMES"]).write_text(json.dumps(outcomes))
