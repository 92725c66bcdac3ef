"""Pytest plugin of `.ci/run`: what passed with only Python and make does not run again with all tools.

ANYCHUNK_PASSED names a file with the names of these tests. The first run writes it, a later one
leaves them out, and does not even import files of which every test passed. Tests of the compiled
module run in both, because the first has no compiler.
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
CORPUS = "tests.corpus"
"""Files that import it have more tests where there are real files."""
IS_FIRST = not PASSED.exists()


def pytest_configure(config: pytest.Config) -> None:
    if not IS_FIRST:
        names = [line for line in PASSED.read_text("utf-8").splitlines() if "::" not in line]
        config.option.ignore = [*(config.option.ignore or ()), *names]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if IS_FIRST:
        return
    done = set(PASSED.read_text("utf-8").splitlines())
    left = [i for i in items if i.nodeid not in done or i.nodeid.startswith(COMPILED)]
    chosen = set(left)
    config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
    items[:] = left


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if IS_FIRST:
        stats = terminalreporter.stats
        passed = {report.nodeid for report in stats.get("passed", [])}
        others = {
            getattr(report, "nodeid", "").partition("::")[0]
            for outcome, reports in stats.items()
            if outcome not in ("", "passed", "rerun", "warnings")
            for report in reports
        }
        files = {name.partition("::")[0] for name in passed} - others
        whole = {
            name
            for name in files
            if not name.startswith(COMPILED) and CORPUS not in Path(name).read_text("utf-8")
        }
        PASSED.write_text("".join(f"{name}\n" for name in sorted(passed | whole)), "utf-8")
