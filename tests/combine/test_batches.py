"""Files indexed in batches: the same index as if all were combined at once."""

import pickle
from functools import partial

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.combine import combine
from anychunk.combine.batches import Item, Recipe, index_part, joined
from anychunk.errors import FormatError
from anychunk.formats import tiff
from anychunk.metadata.dates import Rules
from tests.support.combined_files import write_geotiff

VALUES = np.random.default_rng(5).integers(0, 4000, (64, 80), dtype="uint16")


def write(path, values, **options):
    tifffile.imwrite(path, values, tile=(16, 16), compression="zlib", **options)
    return str(path)


def in_parts(urls, how, size, **options):
    """Index files in parts of `size`, which travel as they do from another process."""
    recipe = Recipe(parse=anychunk.index, how=how, **options)
    parts = [
        pickle.loads(pickle.dumps(index_part(recipe, [Item(u, f"g{urls.index(u)}") for u in some])))
        for some in (urls[i : i + size] for i in range(0, len(urls), size))
    ]
    return joined([p.node for p in parts], [p.urls[-1] for p in parts], how)


def made(tmp_path):
    """Return files with dates, as microscopes write them, with bands, and on a map."""
    dated = [
        write(tmp_path / f"d{i}.tif", VALUES + i, datetime=f"2026:03:{i + 1:02} 10:00:00")
        for i in range(5)
    ]
    half = [*dated[:3], write(tmp_path / "undated.tif", VALUES)]
    bands = [
        write(tmp_path / f"b{i}.tif", np.stack([VALUES, VALUES + i]), planarconfig="separate")
        for i in range(3)
    ]
    return {"dated": dated, "half": half, "bands": bands}


@pytest.mark.filterwarnings("ignore:.*some files have no date")
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    ("which", "how", "along"),
    [
        ("dated", "stack", None),
        ("dated", "stack", "z"),
        ("dated", "stack", "c"),
        ("half", "stack", None),
        ("bands", "stack", "t"),
        ("dated", "concat", "y"),
        ("bands", "concat", "c"),
        ("bands", "group", None),
    ],
)
def test_parts_make_what_all_at_once_make(tmp_path, which, how, along, size):
    urls = made(tmp_path)[which]
    files = {url: anychunk.index(url) for url in urls}
    truth = combine(files, how, along=along, names=[f"g{i}" for i in range(len(urls))])
    found = in_parts(urls, how, size, along=along)
    assert found == truth
    first = next(path for path, _ in truth.arrays())
    np.testing.assert_array_equal(
        anychunk.open(found)[first][...], anychunk.open(truth)[first][...]
    )


def test_warnings_of_workers_reach_the_caller(tmp_path):
    urls = []
    for i in range(40):
        urls.append(str(tmp_path / f"{i:02}.tif"))
        write_geotiff(urls[-1], VALUES, 100.0 * (i % 2), 1000.0)
    recipe = Recipe(parse=anychunk.index, how="stack", rules=Rules(georeference="drop"))
    part = index_part(recipe, [Item(url, url) for url in urls[:2]])
    assert len(part.warnings) == 1
    with pytest.warns(UserWarning, match="georeference") as caught:
        node = anychunk.index(urls, combine="stack", georeference="drop")
    assert len(caught) == 1
    assert node["0/0/image"].shape[0] == 40
    assert "spatial:transform" not in node["0"].attributes


def test_files_of_different_parts_must_fit(tmp_path):
    urls = [write(tmp_path / f"{i}.tif", VALUES) for i in range(3)]
    urls.append(write(tmp_path / "other.tif", VALUES.astype("uint8")))
    with pytest.raises(FormatError, match="other.tif"):
        in_parts(urls, "stack", 3)


def test_a_part_without_files_is_left_out(tmp_path):
    bad = tmp_path / "bad.tif"
    bad.write_bytes(b"II*\0")
    part = index_part(Recipe(parse=partial(anychunk.index), how="stack"), [Item(str(bad), "bad")])
    assert part.node is None
    assert list(part.failures) == [str(bad)]
    assert part.count == 1


@pytest.mark.parametrize("how", ["stack", "group"])
def test_files_that_are_combined_are_parsed_once(tmp_path, monkeypatch, how):
    urls = made(tmp_path)["dated"]
    expected = combine({url: anychunk.index(url) for url in urls}, how)
    tried = []
    monkeypatch.setattr(tiff, "plain_array", tried.append)
    assert anychunk.index(urls, combine=how).members == expected.members
    assert tried == []
    anychunk.index(urls[0])
    assert len(tried) == 1
