import asyncio
import json
import pickle
import struct
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import rasterio
import zarr

import anychunk
from anychunk.demo import write as write_demo
from anychunk.errors import TruncatedError
from anychunk.io import buffers
from anychunk.model.grid import plan_box, spans
from anychunk.model.index import Objects
from anychunk.zarr.array import Array, Group
from anychunk.zarr.pipeline import IndexPipeline
from tests.support.http_server import serve

VALUES = np.arange(30 * 40 * 20, dtype="uint16").reshape(30, 40, 20)


@pytest.fixture
def array(tmp_path):
    anychunk.write(VALUES, tmp_path / "a.n5", chunk=(8, 16, 7), compression="zstd")
    return anychunk.open(tmp_path / "a.n5")


SELECTIONS = [
    np.s_[3],
    np.s_[-1, -2],
    np.s_[1, 2, 3],
    np.s_[...],
    np.s_[:],
    np.s_[2:9, 3:5],
    np.s_[2:9, ..., 4],
    np.s_[..., -1],
    np.s_[5, ..., 2:19],
    np.s_[7:9, 15:17, 6:8],
    np.s_[-5:-2, -1:, :3],
    np.s_[9:2],
    np.s_[50:60],
    np.s_[::3, 1],
    np.s_[1:20:2, :, 5],
    np.s_[2:4, [1, 5], 3],
]


@pytest.mark.parametrize("at", SELECTIONS, ids=str)
def test_selections_equal_numpy_and_zarr(array, at):
    assert type(array) is Array
    assert isinstance(array, zarr.Array)
    plain = zarr.Array(array.async_array)
    found = array[at]
    expected = (
        VALUES[at] if not isinstance(at, tuple) or [1, 5] not in at else VALUES[2:4, [1, 5], 3]
    )
    np.testing.assert_array_equal(found, expected)
    other = plain[at]
    assert np.shape(found) == np.shape(other)
    assert type(found) is type(other)
    assert found.dtype == other.dtype


@pytest.mark.parametrize("at", [30, -31, (0, 0, 0, 0), (..., ...), "field"], ids=str)
def test_refused_selections_are_refused_by_zarr(array, at):
    plain = zarr.Array(array.async_array)
    with pytest.raises(Exception) as expected:
        plain[at]
    with pytest.raises(expected.type):
        array[at]


def test_other_selections(array):
    mask = VALUES % 1000 == 0
    np.testing.assert_array_equal(array[mask], VALUES[mask])
    np.testing.assert_array_equal(array.oindex[[1, 9], 3, [0, 19]], VALUES[[1, 9], 3][:, [0, 19]])
    np.testing.assert_array_equal(array[np.int64(3)], VALUES[3])
    np.testing.assert_array_equal(np.asarray(array), VALUES)


def test_a_scalar_has_no_axes_to_pick_from(tmp_path):
    np.save(tmp_path / "a.npy", np.float32(3.5))
    ours, peer = anychunk.open_array(tmp_path / "a.npy"), zarr.array(np.float32(3.5))
    assert ours.oindex[()] == ours.oindex[...] == peer.oindex[()] == 3.5
    for array in (ours, peer):
        with pytest.raises(IndexError, match="tuple index"):
            array.vindex[()]


def test_a_long_slice_is_not_listed(tmp_path):
    """As numbers, the columns of a row that a small file claims would take eight times the result."""
    header = struct.pack("<2sHIH", b"II", 42, 8, 6)
    tags = ((256, 1 << 31), (257, 1), (258, 8), (273, 8), (278, 1), (279, (1 << 31) - 8))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    (tmp_path / "a.tif").write_bytes(header + entries + bytes(4))
    array = anychunk.open_array(tmp_path / "a.tif")
    assert array.shape == (1, 1 << 31)
    tracemalloc.start()
    with pytest.raises(TruncatedError):
        array[:, :: 1 << 10]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 23


def test_local_reads_do_without_the_event_loop(array, monkeypatch):
    async def never(*args, **kwargs):
        raise AssertionError("went by the event loop")

    monkeypatch.setattr(IndexPipeline, "read", never)
    np.testing.assert_array_equal(array[2:9, 3, 4:6], VALUES[2:9, 3, 4:6])
    np.testing.assert_array_equal(array[...], VALUES)
    np.testing.assert_array_equal(array[::2, 5:1], VALUES[::2, 5:1])
    np.testing.assert_array_equal(array[1::7, ::3, 4], VALUES[1::7, ::3, 4])
    np.testing.assert_array_equal(array.oindex[[9, -1, 9], :, 4], VALUES[[9, -1, 9], :, 4])
    np.testing.assert_array_equal(array.vindex[[9, -1], [1, 2], 0], VALUES[[9, -1], [1, 2], 0])
    assert array[3, 4, 5] == VALUES[3, 4, 5]
    with pytest.raises(AssertionError, match="event loop"):
        array[VALUES > 0]


def test_members_of_groups_are_read_that_way_too(tmp_path):
    anychunk.write(VALUES, tmp_path / "a.n5/deep/volume", chunk=(8, 16, 7))
    group = anychunk.open(tmp_path / "a.n5")
    assert isinstance(group, zarr.Group)
    level = group["deep/volume/0"]
    found = [group["deep/volume/0/image"], level["image"], level.get("image")]
    found += [array for _, array in level.arrays()]
    found += [node for _, node in group.members(max_depth=None) if isinstance(node, zarr.Array)]
    found += [next(level.array_values())]
    for array in found:
        assert type(array) is Array
        np.testing.assert_array_equal(array[...], VALUES)
    with pytest.raises(KeyError):
        group["nothing"]


def test_many_readers_at_once_share_the_pool(tmp_path):
    """More reads than threads: each must end, whoever runs its chunks."""
    data = np.random.default_rng(0).integers(0, 999, (64, 256, 256), dtype="uint16")
    anychunk.write(data, tmp_path / "a.n5", chunk=(8, 128, 128), compression="zstd")
    array = anychunk.open(tmp_path / "a.n5")
    with ThreadPoolExecutor(12) as threads:
        for found in threads.map(lambda _: array[...], range(24)):
            np.testing.assert_array_equal(found, data)


def test_plan_numbers_and_places():
    plan = plan_box([(3, 11), (0, 5)], (4, 5))
    assert plan.numbers((3, 1)) == [0, 1, 2]
    assert plan.numbers((9, 2)) == [0, 2, 4]
    many = plan_box([(3, 90), (2, 11)], (4, 5))
    assert many.grid == (23, 3)
    assert many.numbers((23, 4)).tolist() == [y * 4 + x for y in range(23) for x in range(3)]
    assert list(many.places(range(4, 5))) == [
        ((slice(0, 4), slice(0, 5)), (slice(1, 5), slice(3, 8)))
    ]
    assert list(plan.places(range(1, 3))) == [
        ((slice(0, 4), slice(0, 5)), (slice(1, 5), slice(0, 5))),
        ((slice(0, 3), slice(0, 5)), (slice(5, 8), slice(0, 5))),
    ]
    assert len(plan_box([(3, 3), (0, 5)], (4, 5))) == 0
    assert list(plan_box([], ()).places(range(1))) == [((), ())]


def test_inside_a_running_loop_and_in_threads(array):
    async def inside():
        return array[1:3, 4]

    np.testing.assert_array_equal(asyncio.run(inside()), VALUES[1:3, 4])
    wrong = []

    def read(number):
        for i in range(50):
            at = (slice(number, number + 9), slice(i % 20, i % 20 + 9), i % 20)
            if not np.array_equal(array[at], VALUES[at]):
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_pickles(array):
    array[0, 0, 0]
    again = pickle.loads(pickle.dumps(array))
    np.testing.assert_array_equal(again[3:5], VALUES[3:5])


def test_a_result_is_the_callers_own(array):
    first = array[0:4, 0:4, 0]
    kept = first.copy()
    array[8:12, 0:4, 0]
    np.testing.assert_array_equal(first, kept)
    first[...] = 7
    np.testing.assert_array_equal(array[0:4, 0:4, 0], kept)


def test_spans():
    assert spans(np.s_[1:3, ..., -1], (5, 6, 7)) == ([(1, 3), (0, 6), (6, 7)], (2,))
    assert spans(np.s_[::2], (5,)) is None
    assert spans(5, (5,)) is None
    assert spans((), ()) == ([], ())


def test_memory_is_lent_once_at_a_time():
    with buffers.borrowed("test", 100) as first:
        with buffers.borrowed("test", 100) as second:
            assert not np.shares_memory(first, second)
        assert len(first) == 100
    with buffers.borrowed("test", 50) as third:
        assert len(third) == 50
        assert np.shares_memory(third, first) or np.shares_memory(third, second)
    with buffers.borrowed("test", buffers.KEPT_BYTES + 1):
        pass
    with buffers.borrowed("test", 10) as fourth:
        assert fourth.ctypes.data % buffers.PAGE == 0


def test_shards(tmp_path):
    """A shard is a chunk of the index, whatever zarr calls its pieces."""
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(64, 96), chunks=(8, 8), shards=(32, 48), dtype="uint16"
    )
    array[...] = values = np.arange(64 * 96, dtype="uint16").reshape(64, 96)
    data = json.loads((tmp_path / "a.zarr/zarr.json").read_text())
    index = anychunk.ArrayIndex(
        shape=(64, 96),
        chunk_shape=(32, 48),
        data_type="uint16",
        codecs=tuple(data["codecs"]),
        chunks=Objects(base=str(tmp_path / "a.zarr/c"), pattern="{0}/{1}", grid=(2, 2)),
        dimension_names=("y", "x"),
    )
    opened = anychunk.open(index)
    np.testing.assert_array_equal(opened[...], values)
    np.testing.assert_array_equal(opened[30:50, 40:60], values[30:50, 40:60])
    np.testing.assert_array_equal(zarr.Array(opened.async_array)[30:50], values[30:50])


@pytest.fixture
def demo(tmp_path):
    """Return the folder with the files of `anychunk demo`."""
    list(write_demo(tmp_path))
    return tmp_path


def test_images_say_what_other_readers_say(demo):
    scene = anychunk.open_group(demo / "scene.tif").images[0]
    with rasterio.open(demo / "scene.tif") as known:
        assert scene.crs == known.crs.to_string()
        assert tuple(scene.pixel_size[name] for name in "xy") == known.res
        factors = [1, *known.overviews(1)]
        shapes = [(known.count, known.height // n, known.width // n) for n in factors]
        assert [level.shape for level in scene.levels] == shapes
        np.testing.assert_array_equal(scene.levels[0][...], known.read())
    assert scene.axes == {"c": None, "y": None, "x": None}
    assert scene.path == "0"

    (cells,) = anychunk.open_group(demo / "cells.ome.tif").images
    import ome_types

    pixels = ome_types.from_tiff(demo / "cells.ome.tif").images[0].pixels
    sizes = (pixels.physical_size_z, pixels.physical_size_y, pixels.physical_size_x)
    assert tuple(cells.pixel_size.values()) == sizes
    assert [*cells.pixel_size] == ["z", "y", "x"]
    assert cells.axes == {"c": None, "z": "micrometer", "y": "micrometer", "x": "micrometer"}
    assert cells.crs is None


def test_images_of_groups_below(demo):
    group = anychunk.open_group([demo / "scene.tif", demo / "cells.ome.tif"], combine="group")
    assert [image.path for image in group.images] == ["scene/0", "cells.ome/0"]
    (image,) = group["scene/0"].images
    assert image.path == ""
    assert image.levels[2].path == "scene/0/2/image"
    assert image.crs == "EPSG:32611"
    with pytest.raises(TypeError, match="anychunk"):
        Group(zarr.create_group({})._async_group).image(0)


def test_images_without_a_code_have_wkt(tmp_path):
    crs = rasterio.CRS.from_proj4("+proj=laea +lat_0=12 +lon_0=34 +ellps=GRS80 +units=m")
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", count=1, height=9, width=9, dtype="uint8",
        crs=crs, transform=rasterio.Affine(2, 0, 5, 0, -3, 9),
    ) as out:  # fmt: skip
        out.write(np.zeros((1, 9, 9), "uint8"))
    (image,) = anychunk.open_group(tmp_path / "a.tif").images
    assert rasterio.CRS.from_wkt(image.crs).to_dict()["proj"] == "laea"
    assert image.pixel_size == {"y": 3.0, "x": 2.0}


def test_keys_are_completed(demo, tmp_path):
    group = anychunk.open_group(demo / "scene.tif")
    completer = pytest.importorskip("IPython.core.completer")
    known = completer.IPCompleter(namespace={"group": group}, use_jedi=False)
    with completer.provisionalcompleter():
        found = {one.text for one in known.completions('group["0/1', 10)}
    assert {"0/1", "0/1/image", "0/1/x"} <= {text.strip('"]') for text in found}
    zarr.open_group(tmp_path / "a.zarr", mode="w").create_group("b")
    with serve(tmp_path) as served:
        remote = anychunk.open_group(f"{served.url}/a.zarr")
        before = len(served.requests)
        assert remote._ipython_key_completions_() == []
        assert len(served.requests) == before
