"""Pytest plugin of `make test-in ENV=minimal`: skip tests that need an extra that is not installed.

A test is skipped if its module, a fixture or the test itself fails because a package of an extra is
missing, in this process or in one that it starts, and its source mentions the extra. One that does
not mention it must work without, and fails.
"""

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
REASON = '{0} is not installed: pip install "anychunk[{0}]"'
MISSING = re.compile(r"""No module named '(\w+)|pip install "anychunk\[(\w+)\]""")
PACKAGES = INDIRECT | {
    re.match(r"[\w-]+", requirement)[0].replace("-", "_"): extra
    for extra in EXTRAS.keys() - {"all"}
    for requirement in EXTRAS[extra]
}
"""The extra of each package that is not installed."""
PACKAGES = {name: PACKAGES[name] for name in PACKAGES if importlib.util.find_spec(name) is None}


def missing_extra(text: str) -> str | None:
    """Return the extra that an error message says is missing."""
    for package, extra in MISSING.findall(text):
        if extra in PACKAGES.values() or package in PACKAGES:
            return extra or PACKAGES[package]
    return None


def messages(error: BaseException | None) -> str:
    if error is None:
        return ""
    told = f"{error}\n{getattr(error, 'stderr', None) or ''}\n"
    return told + messages(error.__cause__ or error.__context__)


def attempt(path: Path) -> Iterator[Any]:
    """Skip if an extra is missing that the file mentions."""
    try:
        return (yield)
    except Exception as e:
        extra, text = missing_extra(messages(e)), path.read_text("utf-8").lower()
        if extra is not None and any(word in text for word in WORDS.get(extra, (extra,))):
            pytest.skip(REASON.format(extra))
        raise


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[Any]:
    return (yield from attempt(pyfuncitem.path))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Iterator[Any]:
    return (yield from attempt(request.path))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a folder whose conftest needs an extra: pytest could not even start."""
    conftest = collection_path / "conftest.py"
    text = conftest.read_text("utf-8") if conftest.is_file() else ""
    return bool(PACKAGES.keys() & re.findall(r"(?m)^(?:import|from) (\w+)", text)) or None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[Any]:
    """Skip a module that cannot be imported without an extra."""
    report = yield
    if report.outcome == "failed" and isinstance(collector, pytest.Module):
        extra = missing_extra(str(report.longrepr))
        if extra is not None:
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 1, f"Skipped: {REASON.format(extra)}")
    return report
