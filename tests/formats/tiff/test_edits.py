"""Single-entry edits of TIFF files: pixels are those of another reader, or there are none."""

import re
from collections import Counter

import pytest

from tests.support.tiff_edits import EXPLAINED, Peers, by_anychunk, edits, seeds, verdict

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
    outcomes = {edit: verdict(arrays, data, path, peers) for edit, data in edits(seed)}
    explained = {edit for edit in outcomes if re.fullmatch(EXPLAINED.get(name, "-"), edit)}
    # no pixels of our own, and no explanation that is not needed
    assert {edit for edit, outcome in outcomes.items() if outcome in ("wrong", "lost")} == explained
    # not everything may be refused: many edits change nothing that matters, or are legal
    assert Counter(outcomes.values())["as another reader"] > len(outcomes) / 10
