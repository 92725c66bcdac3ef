"""Plans: runs of levels, groups, and the fingerprint by which a conversion is resumed."""

from dataclasses import replace

import numpy as np
import pytest

import anychunk
from anychunk.conversion.levels import Level, ZarrOptions
from anychunk.conversion.plan import fingerprint, make_plan, parents, split_runs
from anychunk.errors import FormatError
from anychunk.model.index import GroupIndex
from anychunk.resample import output_shape


def levels(shape, count, *, region=(64, 64), source=None):
    """Return a level that is copied, and those that are computed from it."""
    found = []
    for number in range(count):
        found.append(
            Level(
                path=str(number),
                source="0" if number == 0 else source,
                order=(0, 1),
                ratio=(1, 1) if number == 0 else (2, 2),
                shape=shape,
                outer=(32, 32),
                region=region,
                nodata=None,
                method="average",
                itemsize=2,
                metadata={"shape": shape},
            )
        )
        shape = output_shape(shape, (2, 2))
    return tuple(found)


def firsts(runs):
    return [(run.first, len(run.levels) - 1) for run in runs]


@pytest.mark.parametrize(
    ("shape", "count", "workers", "expected"),
    [
        # 16 x 16 regions, 8 x 8, 4 x 4, ...: tasks of at most 16 regions, enough for every worker
        ((1024, 1024), 1, 1, [(0, 0)]),
        ((1024, 1024), 3, 1, [(0, 2)]),
        ((1024, 1024), 4, 1, [(0, 2), (3, 3)]),
        ((1024, 1024), 3, 4, [(0, 2)]),
        ((1024, 1024), 3, 5, [(0, 1), (2, 2)]),
        ((1024, 1024), 3, 100, [(0, 0), (1, 1), (2, 2)]),
        ((64, 64), 3, 1, [(0, 0), (1, 1), (2, 2)]),
    ],
)
def test_runs(shape, count, workers, expected):
    assert firsts(split_runs(levels(shape, count), workers)) == expected


def test_copied_levels_are_runs_of_their_own():
    runs = split_runs(levels((1024, 1024), 3, source="1"), 1)
    assert firsts(runs) == [(0, 0), (1, 1), (2, 2)]
    assert [run.top.path for run in runs] == ["0", "1", "2"]


def test_every_level_is_written_by_one_run():
    for workers in (1, 2, 8, 64):
        runs = split_runs(levels((5000, 3000), 7), workers)
        written = [n for run in runs for n in range(run.first, len(run.levels))]
        assert written == list(range(7))


def test_parents():
    assert parents("") == [""]
    assert parents("a") == [""]
    assert parents("a/b/c") == ["", "a", "a/b"]


@pytest.fixture
def source(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((40, 50), "uint8"))
    return anychunk.index(tmp_path / "a.npy")


def plan(source, workers=1, **options):
    return make_plan(source, ZarrOptions(axes="yx", **options), workers)


def test_the_fingerprint_names_source_and_result(source):
    first = plan(source).fingerprint
    assert plan(source).fingerprint == first
    # how the work is split does not matter, what is written does
    assert plan(source, workers=7).fingerprint == first
    others = [
        plan(source, chunk=(8, 8)).fingerprint,
        plan(source, compression_level=4).fingerprint,
        plan(source, levels=2).fingerprint,
        plan(source, levels=2, method="max").fingerprint,
        make_plan(source, ZarrOptions(axes="zx"), 1).fingerprint,
    ]
    assert len({first, *others}) == 6


def test_a_changed_source_has_another_fingerprint(source):
    (url, pin), *_ = source.pins.items()
    changed = replace(source, pins={url: replace(pin, size=pin.size + 1)})
    assert plan(changed).fingerprint != plan(source).fingerprint


def test_numpy_values_are_hashed_as_their_python_values(source):
    arrays = plan(source).arrays
    groups = {"": {"n": np.float64(1.5)}}
    assert fingerprint(source, arrays, groups) == fingerprint(source, arrays, {"": {"n": 1.5}})
    with pytest.raises(TypeError, match="set"):
        fingerprint(source, arrays, {"": {"n": {1}}})


def test_one_image_is_the_root_and_several_are_groups(source):
    one = plan(source)
    assert list(one.groups) == ["", "0"]
    assert [level.path for level in one.arrays] == ["0/image"]
    assert one.nbytes == 40 * 50
    image = source["0"]
    deep = GroupIndex(
        members={"a": GroupIndex(members={"b": image}, attributes={"k": 1}), "1": image}
    )
    several = plan(deep)
    assert set(several.groups) == {"", "a", "a/b", "a/b/0", "1", "1/0"}
    assert several.groups["a"] == {"k": 1}
    assert [level.path for level in several.arrays] == ["a/b/0/image", "1/0/image"]
    assert "bioformats2raw.layout" not in several.groups[""].get("ome", {})
    numbered = plan(GroupIndex(members={"0": image, "1": image}))
    assert numbered.groups[""]["ome"]["bioformats2raw.layout"] == 3
    assert [level.path for level in plan(deep, image=1).arrays] == ["0/image"]


def test_nothing_to_convert(source):
    with pytest.raises(FormatError, match="convert"):
        make_plan(GroupIndex(members={}), ZarrOptions(), 1)
    with pytest.raises(KeyError, match="image 7"):
        plan(source, image=7)
