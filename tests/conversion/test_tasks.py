"""Tasks: every object written once, the same again when computed again."""

import itertools
import math
import pickle

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import anychunk
from anychunk.conversion.levels import Level, ZarrOptions
from anychunk.conversion.plan import make_plan
from anychunk.conversion.tasks import (
    Conversion,
    Encoder,
    Stopped,
    Task,
    children,
    reduced,
    same,
)
from anychunk.errors import ChunkEncodeError, UnsupportedError
from anychunk.resample import output_shape

VALUES = np.random.default_rng(3).integers(0, 500, (70, 90)).astype("uint16")


def level(shape, region, ratio=(2, 2), **more):
    given = {
        "path": "0",
        "source": None,
        "order": (0, 1),
        "ratio": ratio,
        "shape": shape,
        "outer": region,
        "region": region,
        "nodata": None,
        "method": "average",
        "itemsize": 2,
        "metadata": {},
    }
    return Level(**(given | more))


@given(
    shape=st.tuples(*[st.integers(1, 60)] * 2),
    region=st.tuples(*[st.sampled_from([2, 4, 8])] * 2),
    ratio=st.tuples(*[st.sampled_from([1, 2])] * 2),
)
@settings(max_examples=200, deadline=None)
def test_every_finer_region_belongs_to_one_coarser(shape, region, ratio):
    finer = level(shape, region)
    coarser = level(output_shape(shape, ratio), region, ratio)
    found = [
        child
        for coords in itertools.product(*map(range, coarser.grid))
        for child in children(coarser, finer, coords)
    ]
    assert sorted(found) == list(itertools.product(*map(range, finer.grid)))


def test_reduced_drops_incomplete_windows():
    piece = np.arange(15, dtype="uint16").reshape(3, 5)
    assert reduced(piece, (2, 2), "max", None).tolist() == [[6, 8]]
    assert reduced(piece, (1, 5), "min", None).tolist() == [[0], [5], [10]]
    assert reduced(piece, (4, 2), "max", None).shape == (0, 2)
    assert reduced(piece, (1, 5), "average", 0).tolist() == [[2], [7], [12]]


def test_same():
    a = np.array([1.0, np.nan, np.nan, -0.0])
    b = np.array([1.0, np.nan, 2.0, 0.0])
    assert same(a, b).tolist() == [True, True, False, True]
    assert same(np.array([1 + 0j, np.nan]), np.array([1 + 0j, np.nan])).all()
    assert same(np.array(["a", "b"]), np.array(["a", "c"])).tolist() == [True, False]


@pytest.fixture
def conversion(tmp_path, monkeypatch):
    """A conversion of three levels in many small regions."""
    monkeypatch.setattr("anychunk.conversion.levels.REGION_BYTES", 1024)
    np.save(tmp_path / "a.npy", VALUES)
    options = ZarrOptions(axes="yx", levels=3, chunk=(8, 8), shard=(16, 16))
    plan = make_plan(anychunk.index(tmp_path / "a.npy"), options, 1)
    return Conversion(plan, str(tmp_path / "b.zarr"))


def every_task(conversion):
    return [task for run in range(len(conversion.plan.runs)) for task in conversion.tasks(run)]


def test_tasks_cover_every_region_once(conversion):
    tasks = every_task(conversion)
    assert len({task.name() for task in tasks}) == len(tasks)
    found = sorted((one.path, coords) for task in tasks for one, coords in conversion.regions(task))
    expected = sorted(
        (one.path, coords)
        for one in conversion.plan.arrays
        for coords in itertools.product(*map(range, one.grid))
    )
    assert found == expected
    assert sum(map(conversion.nbytes, tasks)) == conversion.plan.nbytes


def test_what_is_computed_is_what_is_written(conversion):
    task = every_task(conversion)[0]
    seen = []
    conversion.compute(task, lambda one, coords, _: seen.append((one.path, coords)))
    assert seen == [(one.path, coords) for one, coords in conversion.regions(task)]
    checksums = {task: conversion.write(task) for task in every_task(conversion)}
    for task, checksum in checksums.items():
        assert conversion.stored_checksum(task) == checksum
        assert conversion.compare(task) == ([], {})
    first = conversion.plan.arrays[0]
    np.testing.assert_array_equal(
        conversion.read_target(first, (slice(0, 70), slice(0, 90))), VALUES
    )


def test_damage_is_found_by_checksum_and_by_comparison(conversion, tmp_path):
    tasks = every_task(conversion)
    checksums = [conversion.write(task) for task in tasks]
    first = conversion.plan.arrays[0]
    box = (slice(0, 16), slice(0, 16))
    changed = conversion.read_target(first, box)
    changed[3, 4] += 1
    (tmp_path / "b.zarr/0/image/c/0/0").write_bytes(
        conversion.encoder(first).encode(changed).tobytes()
    )
    assert conversion.stored_checksum(tasks[0]) != checksums[0]
    (finding,), _ = conversion.compare(tasks[0])
    right = int(VALUES[3, 4])
    assert all(text in finding for text in ("0/image (3, 4)", str(right), str(right + 1), "1 "))
    (tmp_path / "b.zarr/0/image/c/0/0").unlink()
    assert conversion.stored_checksum(tasks[0]) != checksums[0]


def test_a_pickled_conversion_writes_the_same(conversion):
    task = every_task(conversion)[0]
    checksum = conversion.write(task)
    copy = pickle.loads(pickle.dumps(conversion))
    assert copy.write(task) == checksum
    assert copy.compare(task) == ([], {})


def test_a_conversion_stops_between_regions(conversion):
    seen = []

    def use(one, coords, data):
        seen.append(coords)
        conversion.stop.set()

    with pytest.raises(Stopped):
        conversion.compute(every_task(conversion)[0], use)
    assert len(seen) == 1


def test_task_names():
    assert Task(0, ()).name() == "0"
    assert Task(2, (0, 13)).name() == "2/0/13"


def encoder(**options):
    array = zarr.create_array({}, shape=(10, 12), chunks=(4, 4), dtype="int16", **options)
    metadata = array.metadata.to_dict()
    return Encoder(level((10, 12), (8, 8), outer=(4, 4), path="p/0", metadata=metadata))


def test_objects_of_a_region():
    found = dict(encoder(fill_value=0).boxes((1, 1)))
    # the region is cut off by the array after two rows and four columns
    assert found == {"p/0/c/2/2": (slice(0, 2), slice(0, 4))}
    keys = [key for key, _ in encoder(fill_value=0).boxes((0, 0))]
    assert keys == ["p/0/c/0/0", "p/0/c/0/1", "p/0/c/1/0", "p/0/c/1/1"]


@pytest.mark.parametrize("fill", [0, -5])
def test_objects_of_fill_values_are_not_stored(fill):
    made = encoder(fill_value=fill, compressors=None)
    data = np.full((8, 8), fill, "int16")
    data[5, 6] = 9
    stored = {key: one for key, one in made.objects((0, 0), data) if one is not None}
    assert list(stored) == ["p/0/c/1/1"]
    decoded = np.frombuffer(stored["p/0/c/1/1"].tobytes(), "<i2").reshape(4, 4)
    np.testing.assert_array_equal(decoded, data[4:, 4:])


def test_objects_at_the_edge_are_padded_with_fill_values():
    made = encoder(fill_value=-5, compressors=None)
    decoded = np.frombuffer(made.encode(np.ones((2, 3), "int16")).tobytes(), "<i2").reshape(4, 4)
    assert decoded[:2, :3].tolist() == [[1] * 3] * 2
    assert (decoded == -5).sum() == 16 - 6


def test_codecs_that_zarr_rejects():
    array = zarr.create_array({}, shape=(8, 8), chunks=(4, 4), dtype="int16")
    metadata = array.metadata.to_dict() | {"codecs": [{"name": "nope"}]}
    with pytest.raises(UnsupportedError, match="p/0"):
        Encoder(level((8, 8), (4, 4), path="p/0", metadata=metadata))


def test_a_codec_that_fails_is_named(monkeypatch):
    made = encoder(fill_value=0)

    def fail(buffer, spec):
        raise RuntimeError("out of paper")

    monkeypatch.setattr(made, "transform", type("T", (), {"encode_chunk": staticmethod(fail)}))
    with pytest.raises(ChunkEncodeError, match="p/0: out of paper"):
        made.encode(np.ones((4, 4), "int16"))


@pytest.mark.parametrize("order", [(2, 1, 0), (2, 0), (0, 2)])
def test_sources_are_read_in_the_order_of_the_target(tmp_path, order):
    shape = (3, 1, 5) if len(order) == 2 else (3, 4, 5)
    data = np.arange(math.prod(shape), dtype="uint8").reshape(shape)
    np.save(tmp_path / "a.npy", data)
    node = anychunk.index(tmp_path / "a.npy")
    plan = make_plan(node, ZarrOptions(axes="zyx"), 1)
    target = tuple(shape[i] for i in order)
    copied = level(target, target, source="0/0/image", order=order, ratio=(1,) * len(order))
    box = tuple(slice(1, n) for n in target)
    found = Conversion(plan, str(tmp_path / "b.zarr")).read_source(copied, box)
    left_out = tuple(i for i in range(3) if i not in order)
    expected = data.transpose(*order, *left_out).reshape(target)[box]
    np.testing.assert_array_equal(found, expected)
