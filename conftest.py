"""What all tests share, those of every package: hooks and checks after each test."""

import os
import sys

import hypothesis
import pytest

import anychunk
from anychunk import native
from anychunk.errors import InternalError
from tests.support.patience import PATIENCE_S

# how long an example takes, or the choice of one, depends on what else the machine does
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")
# read by dask in every process: by default it gives up connections after 30 s
for _timeout in ("CONNECT", "TCP"):
    os.environ[f"DASK_DISTRIBUTED__COMM__TIMEOUTS__{_timeout}"] = f"{PATIENCE_S}s"

DEFECTS = []
"""Arguments of every InternalError of the running test."""


def record(self, *args):
    DEFECTS.append(args)
    super(InternalError, self).__init__(*args)


@pytest.fixture
def enabled():
    """Make our codecs, data types and pipeline zarr's choice for one test."""
    anychunk.enable()
    yield
    anychunk.disable()


# Hooks, not fixtures that every test uses: those take a third as long as the shortest tests.
def pytest_configure(config):
    InternalError.__init__ = record


def pytest_sessionfinish():
    """Save what a worker has covered: xdist kills workers that take more than 10 s to exit."""
    running = sys.modules["coverage"].Coverage.current() if "coverage" in sys.modules else None
    if running is not None:
        running.save()


def pytest_terminal_summary(terminalreporter):
    ran = sum(len(terminalreporter.stats.get(outcome, ())) for outcome in ("passed", "failed"))
    how = "without" if native.loops is None else "with"
    terminalreporter.write_line(f"{ran} cases ran {how} the compiled module")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    DEFECTS.clear()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    """Fail a test that blames anychunk, or leaves a Dask client, for whose workers others would wait."""
    result = yield
    if "distributed" in sys.modules:
        clients = sys.modules["distributed"].client._global_clients
        left = list(clients.values())
        clients.clear()
        assert not left, left
    if "defect" not in item.keywords:
        assert not DEFECTS, f"InternalError, even if an AnychunkError is expected: {DEFECTS}"
    return result
