"""Pytest plugin of `.ci/run`: what passed with only Python and make does not run again with all tools.

ANYCHUNK_PASSED names a file with the names of these tests. The first run writes it, a later one
leaves them out. Tests of the compiled module run in both, because the first has no compiler.
"""

import os
from pathlib import Path

import pytest

PASSED = Path(os.environ["ANYCHUNK_PASSED"])
COMPILED = (
    "tests/codestream/",
    "tests/formats/test_jpeg2000_windows.py",
    "tests/io/test_copying.py",
)
IS_FIRST = not PASSED.exists()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if IS_FIRST:
        return
    done = set(PASSED.read_text("utf-8").splitlines())
    left = [i for i in items if i.nodeid not in done or i.nodeid.startswith(COMPILED)]
    config.hook.pytest_deselected(items=[i for i in items if i not in set(left)])
    items[:] = left


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if IS_FIRST:
        passed = {report.nodeid for report in terminalreporter.stats.get("passed", [])}
        PASSED.write_text("".join(f"{name}\n" for name in sorted(passed)), "utf-8")
