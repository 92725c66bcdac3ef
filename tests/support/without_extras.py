"""Pytest plugin of `make test-in ENV=minimal`: skip tests that need an extra that is not installed.

A test is skipped if its module, a fixture or the test itself fails because a package of an extra is
missing, in this process or in one that it starts, and its source mentions the extra. One that does
not mention it must work without, and fails.
"""

import ast
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORDS = {
    "dask": ("dask", "distributed", "scheduler"),
    "icechunk": ("icechunk", "anychunk.append("),
    "serve": ("serve", "starlette", "uvicorn"),
}
"""What a source that needs an extra mentions, if not only the extra's own name."""
INDIRECT = {"distributed": "dask", "obspec_utils": "virtualizarr", "pandas": "xarray"}
"""Packages that come with those of an extra."""
MISSING = re.compile(r"""No module named '(\w+)|pip install "anychunk\[(\w+)\]""")


def packages() -> dict[str, str]:
    """Return the extra that each package that is not installed belongs to."""
    extras = PROJECT["optional-dependencies"]
    named = {
        re.match(r"[\w-]+", requirement)[0].replace("-", "_"): extra
        for extra in extras
        if extra != "all"
        for requirement in extras[extra]
    }
    return {
        package: extra
        for package, extra in (named | INDIRECT).items()
        if importlib.util.find_spec(package) is None
    }


PACKAGES = packages()


def missing_extra(text: str) -> str | None:
    """Return the extra that an error message says is missing."""
    for package, extra in MISSING.findall(text):
        if extra in PACKAGES.values() or package in PACKAGES:
            return extra or PACKAGES[package]
    return None


def mentions(path: Path, extra: str) -> bool:
    text = path.read_text("utf-8").lower()
    return any(word in text for word in WORDS.get(extra, (extra,)))


def messages(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        yield str(getattr(error, "stderr", None) or "")
        error = error.__cause__ or error.__context__


def skip_for(error: BaseException, path: Path) -> None:
    """Skip if the error is that an extra is missing, and the file mentions the extra."""
    extra = missing_extra("\n".join(messages(error)))
    if extra is not None and mentions(path, extra):
        pytest.skip(f'{extra} is not installed: pip install "anychunk[{extra}]"')


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    try:
        return (yield)
    except Exception as e:
        skip_for(e, pyfuncitem.path)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: pytest.FixtureRequest) -> Any:
    try:
        return (yield)
    except Exception as e:
        skip_for(e, request.path)
        raise


def imports(path: Path) -> set[str]:
    """Return the packages that a file imports when it is itself imported."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out a folder whose conftest needs an extra: pytest could not even start."""
    conftest = collection_path / "conftest.py"
    if collection_path.is_dir() and conftest.exists() and imports(conftest) & PACKAGES.keys():
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """Skip a module that cannot be imported without an extra."""
    report = yield
    if report.outcome == "failed" and isinstance(collector, pytest.Module):
        extra = missing_extra(str(report.longrepr))
        if extra is not None:
            reason = f'Skipped: {extra} is not installed: pip install "anychunk[{extra}]"'
            report.outcome, report.longrepr = "skipped", (str(collector.path), 1, reason)
    return report
