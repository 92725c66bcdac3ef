"""Frame headers and sizes are checked before anything is allocated, in every codec."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile_chunks import cases

pytestmark = pytest.mark.processes


ROOT = Path(__file__).parents[2]

MOST = 24 << 20
"""How much memory a refused chunk of 4 KiB may take."""
NAMES = sorted(cases())

type Outcome = tuple[str, str, int]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """Decode all cases in one process, which reserves little address space and resets its peak."""
    command = [sys.executable, "-m", "tests.support.hostile_chunks"]
    done = subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return json.loads(done.stdout)


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs Linux: peak memory is read from /proc"
)
@pytest.mark.parametrize("name", NAMES)
def test_hostile_chunk(name: str, outcomes: dict[str, Outcome]) -> None:
    kind, message, grown = outcomes[name]
    codec, _, what = name.partition(": ")
    if codec == "tiff packbits" and what == "larger":
        # as in libtiff, streams without a checksum stop at the last row
        assert (kind, message) == ("decoded", "(1, 64, 64) 0")
    else:
        assert kind == "AnychunkError", message
        assert message
    assert grown < MOST
