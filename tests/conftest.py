import contextlib
import gc
import importlib
import os
import sys
from pathlib import Path

import hypothesis
import pytest

from anychunk.errors import InternalError
from tests import thorough
from tests.patience import PATIENCE_S

# how long an example takes, or the choice of one, depends on what else the machine does
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")
# read by dask in every process: by default it gives up connections after 30 s
for _timeout in ("CONNECT", "TCP"):
    os.environ[f"DASK_DISTRIBUTED__COMM__TIMEOUTS__{_timeout}"] = f"{PATIENCE_S}s"

TESTS = Path(__file__).parent

# Files are handed to workers in this order, then the others: a long file that comes last keeps one worker busy alone.
LONGEST = [
    "page/test_viewer.py",
    "page/test_tools.py",
    "page/test_drawing.py",
    "page/test_colours.py",
    "test_examples.py",
    "readers/test_matrix.py",
    "server/test_clients.py",
    "references/test_matrix.py",
    "formats/test_n5_hostile.py",
    "test_import.py",
    "conversion/test_staging.py",
    "test_archive.py",
    "conversion/test_conversion.py",
    "server/test_connection.py",
    "formats/test_jpeg2000.py",
    "formats/test_tiff_edits.py",
    "formats/test_jnrrd_hostile.py",
    "test_cli.py",
    "formats/test_tiff.py",
    "test_plugins.py",
    "codecs/test_registry.py",
    "codecs/test_zarr_suite.py",
    "codecs/test_cast_plan.py",
    "fuzz/test_fuzz.py",
    "server/test_corpus.py",
    "test_systems.py",
    "test_neighbours.py",
    "test_specs.py",
]

MEASURED = pytest.StashKey()

# Coverage takes as long to start as most commands. Elsewhere, children run nothing that is not measured in tests of
# the same process.
MEASURED_CHILDREN = ("conversion/", "server/", "test_archive.py")
"""Folders and files of tests whose child processes are measured: servers, workers of Dask, interrupted commands."""


def import_from_different_ends(config):
    """Import the test modules of the folders to test, each worker starting with another one.

    In a fresh clone, every worker would compile all modules, and those of the packages they use. This way
    each finds most of them compiled by the others.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None:
        return
    ignored = [Path(name).resolve() for name in config.option.ignore or ()]
    names = [
        ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        for argument in config.args
        for path in sorted(Path(argument).resolve().rglob("test_*.py"))
        if path.is_relative_to(TESTS) and not any(path.is_relative_to(i) for i in ignored)
    ]
    start = len(names) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for name in names[start:] + names[:start]:
        # what cannot be imported is reported when it is collected
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(name)


def pytest_xdist_make_scheduler(config, log):
    """Distribute tests by file, those of the page as one: they share a browser."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrPage(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return (
                "tests/page" if nodeid.startswith("tests/page/") else super()._split_scope(nodeid)
            )

    return ByFileOrPage(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session):
    """Keep the garbage collector from looking at modules and tests, which stay until the end.

    Afterwards it looks less often: the tests take a tenth less time.
    """
    gc.disable()
    try:
        import_from_different_ends(session.config)
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000)
        gc.enable()


def pytest_collection_modifyitems(config, items):
    rank = {TESTS / name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))
    chosen = set(found := thorough.chosen(items))
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = found


# Hooks, not fixtures that every test uses: those take a third as long as the shortest tests.
DEFECTS = []
"""Arguments of every InternalError of the running test."""
IN_CHILDREN = "COVERAGE_PROCESS_CONFIG"


def record(self, *args):
    DEFECTS.append(args)
    super(InternalError, self).__init__(*args)


def pytest_configure(config):
    InternalError.__init__ = record
    if IN_CHILDREN in os.environ and config.pluginmanager.hasplugin("xdist"):
        from xdist.workermanage import NodeManager

        # workers are killed after 10 s: on a busy machine before their coverage is saved
        NodeManager.EXIT_TIMEOUT = PATIENCE_S


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    DEFECTS.clear()
    if not item.path.relative_to(TESTS).as_posix().startswith(MEASURED_CHILDREN):
        item.stash[MEASURED] = os.environ.pop(IN_CHILDREN, None)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    try:
        result = yield
    finally:
        measured = item.stash.get(MEASURED, None)
        if measured is not None:
            os.environ[IN_CHILDREN] = measured
    assert_no_dask_client()
    if "defect" not in item.keywords:
        assert not DEFECTS, (
            f"anychunk blames itself, even if an AnychunkError is expected: {DEFECTS}"
        )
    return result


def assert_no_dask_client():
    """Fail a test that leaves a Dask client behind: later tests would wait for its workers."""
    if "distributed" in sys.modules:
        from distributed.client import _global_clients

        left = list(_global_clients.values())
        _global_clients.clear()
        assert not left, left
