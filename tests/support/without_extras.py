"""Pytest plug-in of `make test-in ENV=minimal`: skip tests that need an extra that is not installed.

A test is skipped if it fails because a package of an extra is missing, in this process or in one
that it starts, and its source mentions the extra. One that does not mention it must work without.
"""

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
EXTRAS = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
WORDS = {
    "dask": ("dask", "distributed", "scheduler"),
    "icechunk": ("icechunk", "anychunk.append("),
    "serve": ("serve", "starlette", "uvicorn"),
}
"""What a source that needs an extra mentions, if not only the extra's own name."""
INDIRECT = {"distributed": "dask", "obspec_utils": "virtualizarr", "pandas": "xarray"}
"""Packages that come with those of an extra."""
MISSING = re.compile(r"""No module named '(\w+)|pip install "anychunk\[(\w+)\]""")
PACKAGES = INDIRECT | {
    re.match(r"[\w-]+", requirement)[0].replace("-", "_"): extra
    for extra in EXTRAS.keys() - {"all"}
    for requirement in EXTRAS[extra]
}
PACKAGES = {name: PACKAGES[name] for name in PACKAGES if importlib.util.find_spec(name) is None}
"""The extra of each package that is not installed."""


def messages(error: BaseException | None) -> str:
    if error is None:
        return ""
    told = f"{error}\n{getattr(error, 'stderr', None) or ''}\n"
    return told + messages(error.__cause__ or error.__context__)


def skip(report: pytest.TestReport | pytest.CollectReport, path: Path, told: str) -> None:
    """Make a failure a skip if an extra is missing that the file mentions."""
    text = path.read_text("utf-8").lower()
    for package, named in MISSING.findall(told) if report.failed else ():
        extra = named or PACKAGES.get(package)
        if extra in PACKAGES.values() and any(w in text for w in WORDS.get(extra, (extra,))):
            report.outcome = "skipped"
            report.longrepr = (str(path), 1, f'Skipped: pip install "anychunk[{extra}]"')
            return


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    report = yield
    skip(report, item.path, messages(call.excinfo and call.excinfo.value))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    if isinstance(collector, pytest.Module):
        skip(report, collector.path, str(report.longrepr))
    return report
