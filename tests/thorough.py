"""How much of the long tests runs: a sample of their examples, or everything with `make test SLOW=1`.

Without it, tests marked `slow` do not run: others test the same with fewer examples, or another command of CI does.
"""

import os
import zlib
from collections.abc import Sequence

import pytest

IS_THOROUGH = bool(os.environ.get("ANYCHUNK_SLOW"))
SAMPLED = {
    "tests/readers/test_matrix.py": 8,
    "tests/formats/test_jpeg2000.py": 3,
    "tests/formats/test_jpeg2000_edits.py": 2,
    "tests/formats/test_jpeg2000_windows.py": 3,
    "tests/formats/test_jnrrd_write.py": 2,
    "tests/formats/test_n5_peers.py": 2,
    "tests/formats/test_nitf.py": 2,
    "tests/formats/test_nitf_hostile.py": 2,
    "tests/formats/test_tiff_edits.py": 2,
    "tests/formats/test_two_steps.py": 2,
    "tests/codecs/seek/": 2,
    "tests/codecs/test_hostile_chunks.py": 2,
    "tests/codecs/test_streams.py": 2,
    "tests/codecs/test_tiff_rows.py": 2,
    "tests/read/test_many_chunks.py": 2,
    "tests/page/test_colours.py": 2,
    "tests/page/test_drawing.py": 2,
    "tests/page/test_tools.py": 2,
    "tests/page/test_viewer.py": 3,
    "tests/conversion/test_tiff_files.py": 2,
    "tests/server/test_clients.py": 2,
    "tests/decode/test_pieces.py": 2,
    "tests/test_archive_killed.py": 3,
    "tests/test_specs.py": 2,
    "tests/test_systems.py": 2,
}
"""Tests with many combinations of parameters that take long together: one of how many combinations runs."""


def chosen(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that run, of every function at least one."""
    if IS_THOROUGH:
        return list(items)
    found, functions = [], set()
    for item in items:
        of = next((n for start, n in SAMPLED.items() if item.nodeid.startswith(start)), 1)
        function = item.nodeid.partition("[")[0]
        # by its name, so that the same ones run whatever else is collected
        is_in = of == 1 or zlib.crc32(item.nodeid.encode()) % of == 0 or function not in functions
        if is_in and "slow" not in item.keywords:
            found.append(item)
            functions.add(function)
    return found


def examples(count: int) -> int:
    """Return how many examples Hypothesis makes."""
    return count if IS_THOROUGH else count // 8


def sample[T](cases: Sequence[T], *, of: int, start: int = 0) -> Sequence[T]:
    """Return one of every `of` cases, or all."""
    return cases if IS_THOROUGH else cases[start % of :: of]
