"""Single-entry edits of TIFF files: pixels are those of another reader, or there are none.

One edit of `STEP` is tried here; `python -m tests.support.tiff_edits` tries all of them.
"""

import itertools
import re

import pytest

from tests.support.tiff_edits import (
    BAD,
    EXPLAINED,
    Peers,
    by_anychunk,
    edits,
    explanation,
    seeds,
    verdict,
)

STEP = 37
"""Prime, so that the edits of different seeds are different ones."""
SEEDS = seeds()


@pytest.fixture(scope="module")
def peers():
    with Peers() as opened:
        yield opened


@pytest.mark.parametrize("name", SEEDS)
def test_pixels_of_seeds_are_those_of_other_readers(tmp_path, peers, name):
    seed, path = SEEDS[name], tmp_path / "a.tif"
    path.write_bytes(seed.data)
    found, errors = by_anychunk(path)
    theirs = peers.read(seed.data)
    assert not errors
    for planes in found.values():
        for plane in planes:
            assert plane in theirs["by_tifffile"]
            assert plane in theirs["by_rasterio"]
    assert len(found) == len(theirs["by_tifffile"])


@pytest.mark.parametrize("name", SEEDS)
def test_edited_entry_gives_pixels_of_another_reader_or_none(tmp_path, peers, name):
    seed, path = SEEDS[name], tmp_path / "a.tif"
    path.write_bytes(seed.data)
    arrays, _ = by_anychunk(path)
    first = list(SEEDS).index(name) * 5 % STEP
    outcomes = {
        edit: verdict(arrays, data, path, peers)
        for edit, data in itertools.islice(edits(seed), first, None, STEP)
    }
    assert len(outcomes) >= 15
    assert {e: o for e, o in outcomes.items() if o in BAD and not explanation(name, e)} == {}
    # not everything may be refused: many edits change nothing that matters, or are legal
    assert "as another reader" in outcomes.values()


@pytest.mark.parametrize("pattern", EXPLAINED, ids=" ".join)
def test_explained_edits_still_need_it(tmp_path, peers, pattern):
    """An explanation that no edit needs any more is removed."""
    path = tmp_path / "a.tif"
    needed = 0
    for name in SEEDS:
        if not re.fullmatch(pattern[0], name):
            continue
        path.write_bytes(SEEDS[name].data)
        arrays, _ = by_anychunk(path)
        for edit, data in edits(SEEDS[name]):
            if re.fullmatch(pattern[1], edit):
                needed += verdict(arrays, data, path, peers) in BAD
    assert needed
