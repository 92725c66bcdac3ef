"""The pytest plug-ins of `.ci/run`: what failed runs again, what passed does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
UNSTEADY = """
import pytest
count = 0

@pytest.fixture(scope="module")
def server():
    global count
    count += 1
    assert count > 1, "the server is not up"
    yield count

def test_good(): pass
def test_server(server): assert server == 2
def test_server_again(server): assert server == 2
def test_always(): assert not "always"
def test_after(server): assert server == 3  # made anew for the test that failed
@pytest.fixture
def untidy():
    yield
    global count
    count += 1
    assert count > 4, "not tidied up"

def test_untidy(untidy): pass
"""
PARTLY = """
import os
import pytest
def test_good(): pass
@pytest.mark.skipif("TOOL" not in os.environ, reason="no tool")
def test_tool(): pass
"""


def run(folder, *options, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", "-c", os.devnull, "--rootdir", folder,
         "-p", "no:cacheprovider", *options, folder],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "",
             "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_what_fails_is_run_once_more_and_listed(tmp_path):
    (tmp_path / "test_a.py").write_text(UNSTEADY)
    code, out = run(tmp_path, "-p", "xdist", "-p", "tests.again")
    assert code == 1
    assert "1 failed, 5 passed, 3 rerun" in out
    listed = [line for line in out.splitlines() if line.startswith("RERUN")]
    assert [line.partition(": ")[0] for line in listed] == [
        "RERUN test_a.py::test_server (setup)",
        "RERUN test_a.py::test_always (call)",
        "RERUN test_a.py::test_untidy (teardown)",
    ]
    assert "the server is not up" in listed[0]


def test_what_passed_is_left_out(tmp_path):
    (tmp_path / "test_a.py").write_text("def test_good(): pass\n")
    (tmp_path / "test_b.py").write_text(PARTLY)
    # more tests where there are real files
    (tmp_path / "test_c.py").write_text("from tests.corpus import ROOT\ndef test_good(): pass\n")
    options = ("-p", "xdist", "-p", "tests.once")
    names = {"ANYCHUNK_PASSED": str(tmp_path / "passed")}
    code, out = run(tmp_path, *options, **names)
    assert (code, "3 passed, 1 skipped" in out) == (0, True), out
    (tmp_path / "test_a.py").write_text("raise ImportError('not even imported')")
    code, out = run(tmp_path, *options, **names, TOOL="1")
    assert (code, "1 passed" in out) == (0, True), out
