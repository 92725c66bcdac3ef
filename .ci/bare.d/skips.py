"""Pytest plugin: write the skipped test functions to the file named by ANYCHUNK_SKIPS.

Functions, not parametrized cases, whose names depend on the tools and files that are present.
"""

import os
from pathlib import Path

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = {
        report.nodeid.partition("[")[0] for report in terminalreporter.stats.get("skipped", [])
    }
    Path(os.environ["ANYCHUNK_SKIPS"]).write_text("".join(f"{name}\n" for name in sorted(skipped)))
