from dataclasses import replace

import numpy as np
import pytest
import rasterio
import tifffile
import xarray
from rasterio.merge import merge
from rasterio.transform import from_origin

import anychunk
from anychunk.combine.joining import combine, group_names
from anychunk.combine.tables import gather
from anychunk.errors import FormatError, UnsupportedError
from anychunk.model.index import INLINE, ByteRanges, Computed, GroupIndex, Objects, Parts
from tests.indexes import array, uint64


def save_all(folder, values, **options):
    """Write one tiled TIFF a value; give their paths."""
    paths = []
    for i, value in enumerate(values):
        path = folder / f"{i}.tif"
        tifffile.imwrite(path, value, tile=(16, 16), **options)
        paths.append(str(path))
    return paths


RANDOM = np.random.default_rng(5)
IMAGES = RANDOM.integers(0, 4000, (3, 40, 50), dtype="uint16")


@pytest.mark.parametrize("options", [{}, {"compression": "zlib", "predictor": True}])
def test_stack(tmp_path, options):
    paths = save_all(tmp_path, IMAGES, **options)
    node = anychunk.index(paths, combine="stack", along="t")
    level = node["0/0"]
    assert level.dimension_names[0] == "t"
    assert level.shape[0] == 3
    found = anychunk.open(node)["0/0"][...]
    np.testing.assert_array_equal(found.reshape(IMAGES.shape), IMAGES)
    assert set(node.pins) == set(paths)
    assert node.attributes["anychunk"]["files"] == 3
    axes = node["0"].attributes["ome"]["multiscales"][0]["axes"]
    assert axes[0] == {"name": "t", "type": "time"}
    assert len(axes) == len(level.shape)


def test_stack_of_cropped_chunks(tmp_path):
    """Headers in front of chunks get the new axis too."""
    values = np.arange(2 * 23 * 3, dtype="int32").reshape(2, 23, 3)
    for i in range(2):
        np.save(tmp_path / f"{i}.npy", values[i])
    import anychunk.formats.npy as npy

    header = npy.Header((23, 3), False, np.dtype("int32"), 128)
    whole = npy.array_index(header, url=str(tmp_path / "0.npy"), chunk_bytes=120)
    assert whole.chunks.fronts
    other = npy.array_index(header, url=str(tmp_path / "1.npy"), chunk_bytes=120)
    files = {u: GroupIndex(members={"a": a}) for u, a in (("0", whole), ("1", other))}
    found = anychunk.open(combine(files, "stack"))["a"][...]
    np.testing.assert_array_equal(found, values)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_stack_of_jpeg2000_and_transposed(tmp_path):
    values = RANDOM.integers(0, 255, (2, 100, 130), dtype="uint8")
    for i, value in enumerate(values):
        with rasterio.open(
            tmp_path / f"{i}.jp2", "w", driver="JP2OpenJPEG", height=100, width=130, count=1,
            dtype="uint8", QUALITY=100, REVERSIBLE="YES", BLOCKXSIZE=64, BLOCKYSIZE=64,
        ) as file:  # fmt: skip
            file.write(value, 1)
        np.save(tmp_path / f"{i}.npy", np.asfortranarray(value))
    for ending in ("jp2", "npy"):
        node = anychunk.index(str(tmp_path / f"*.{ending}"), combine="stack")
        found = anychunk.open(node)["0/0"][...]
        np.testing.assert_array_equal(found.reshape(values.shape), values)


@pytest.mark.parametrize("axis", ["y", "x"])
def test_concat(tmp_path, axis):
    shapes = [(32, 48), (16, 48), (21, 48)] if axis == "y" else [(32, 48), (32, 16), (32, 11)]
    values = [RANDOM.integers(0, 255, shape, dtype="uint8") for shape in shapes]
    paths = save_all(tmp_path, values, compression="zlib")
    found = anychunk.open(paths, combine="concat", along=axis)["0/0"][...]
    truth = np.concatenate(values, axis=0 if axis == "y" else 1)
    np.testing.assert_array_equal(found.reshape(truth.shape), truth)


def test_concat_only_where_chunks_end(tmp_path):
    paths = save_all(tmp_path, [np.zeros((20, 16), "u1"), np.zeros((16, 16), "u1")])
    with pytest.raises(FormatError, match=r"0.tif 0/0: 20 along 'y' end inside a chunk of 16"):
        anychunk.index(paths, combine="concat", along="y")
    with pytest.raises(ValueError, match="needs along="):
        anychunk.index(paths, combine="concat")
    with pytest.raises(FormatError, match="has no axis 'q'"):
        anychunk.index(paths, combine="concat", along="q")


def test_mismatches_are_named_file_by_file(tmp_path):
    paths = save_all(
        tmp_path, [np.zeros((16, 16), "u1"), np.zeros((16, 16), "u2"), np.zeros((32, 16), "u1")]
    )
    with pytest.raises(FormatError) as e:
        anychunk.index(paths, combine="stack")
    assert "1.tif 0/0: data_type uint16" in str(e.value)
    assert "2.tif 0/0: shape" in str(e.value)
    with pytest.raises(ValueError, match="say combine="):
        anychunk.index(paths)


def test_group(tmp_path):
    paths = save_all(tmp_path, IMAGES)
    group = anychunk.open(str(tmp_path / "?.tif"), combine="group")
    assert sorted(group.group_keys()) == ["0", "1", "2"]
    for i in range(3):
        np.testing.assert_array_equal(group[f"{i}/0/0"][...].reshape(40, 50), IMAGES[i])
    assert group.attrs["anychunk"]["combine"] == "group"
    assert len(paths) == 3


def test_group_names():
    assert group_names(["a/x.tif", "b/y.tif"]) == ["x", "y"]
    assert group_names(["a/x.tif", "b/x.tif"]) == ["a_x", "b_x"]
    assert group_names(["a/x.tif", "a/x.ntf"]) == ["a_x.tif", "a_x.ntf"]
    with pytest.raises(FormatError, match="given twice"):
        group_names(["a/x.tif", "a/x.tif"])


def write_geotiff(path, values, west, north, size=10.0, **options):
    profile = {"driver": "GTiff", "tiled": True, "blockxsize": 16, "blockysize": 16}
    profile |= {"crs": "EPSG:32633", **options}
    with rasterio.open(
        path, "w", height=values.shape[0], width=values.shape[1], count=1, dtype=values.dtype,
        transform=from_origin(west, north, size, size), **profile,
    ) as file:  # fmt: skip
        file.write(values, 1)
    return str(path)


def test_mosaic(tmp_path):
    """Four quarters of an image, the last row and column cut, one quarter missing."""
    whole = RANDOM.integers(1, 255, (50, 60), dtype="uint8")
    cuts = {"nw": (0, 0, 32, 32), "ne": (0, 32, 32, 60), "se": (32, 32, 50, 60)}
    paths = [
        write_geotiff(
            tmp_path / f"{name}.tif",
            whole[top:bottom, left:right],
            5000 + left * 10,
            9000 - top * 10,
            compress="deflate",
        )
        for name, (top, left, bottom, right) in cuts.items()
    ]
    node = anychunk.index(paths, combine="mosaic")
    truth = whole.copy()
    truth[32:, :32] = node["0/0"].fill_value
    np.testing.assert_array_equal(anychunk.open(node)["0/0"][...].reshape(50, 60), truth)
    attributes = node["0"].attributes
    assert attributes["spatial:shape"] == [50, 60]
    assert attributes["spatial:transform"] == [10.0, 0.0, 5000.0, 0.0, -10.0, 9000.0]
    assert attributes["spatial:bbox"] == [5000.0, 8500.0, 5600.0, 9000.0]


def test_mosaic_refuses_what_does_not_fit(tmp_path):
    values = np.ones((32, 32), "u1")
    first = write_geotiff(tmp_path / "a.tif", values, 0, 1000)
    half = write_geotiff(tmp_path / "half.tif", values, 325, 1000)
    off = write_geotiff(tmp_path / "off.tif", values, 400, 1000)
    big = write_geotiff(tmp_path / "big.tif", values, 320, 1000, size=20)
    same = write_geotiff(tmp_path / "same.tif", values * 2, 0, 1000)
    short = write_geotiff(tmp_path / "short.tif", np.ones((32, 20), "u1"), 0, 1000)
    beside = write_geotiff(tmp_path / "beside.tif", values, 320, 1000)
    plain = tmp_path / "plain.tif"
    tifffile.imwrite(plain, values, tile=(16, 16))
    for files, message in [
        ([first, half], "pixels off the grid"),
        ([first, off], "not a multiple of 16"),
        ([first, big], "pixels of 20.0"),
        ([first, same], "covers 4 chunks of .*a.tif"),
        ([short, beside], "inside a chunk of 16, and others go on behind it"),
        ([first, plain], "has no georeference"),
    ]:
        with pytest.raises(FormatError, match=message):
            anychunk.index(files, combine="mosaic")
    for overlap, value in (("first", 1), ("last", 2)):
        found = anychunk.open([first, same], combine="mosaic", overlap=overlap)["0/0"][...]
        assert (found == value).all()


def test_gather_keeps_parts_fronts_and_inline(tmp_path):
    """Every kind of chunk of two tables, in a shuffled order, against a plain reading."""
    (tmp_path / "f").write_bytes(bytes(range(100)))
    file = str(tmp_path / "f")
    first = ByteRanges(
        offsets=uint64([0, 10]), lengths=uint64([2, 3]), urls=(file,),
        parts=Parts(starts=uint64([0, 2, 3]), offsets=uint64([50, 60, 70]), lengths=uint64([1, 1, 1])),
    )  # fmt: skip
    second = ByteRanges(
        offsets=uint64([0, 1, 20]), lengths=uint64([4, 3, 3]), urls=(INLINE, file),
        url_ids=np.array([0, 0, 1], np.uint8), inline=b"ABCD", fronts=(b"", b"!"),
        front_ids=np.array([0, 1, 1], np.uint8),
    )  # fmt: skip
    owners, numbers = np.array([1, 0, -1, 1, 0, 1]), np.array([2, 1, 0, 0, 0, 1])
    table = gather([first, second], owners, numbers)
    node = GroupIndex(members={"a": array((24,), (4,), table)})
    found = bytes(anychunk.open(node)["a"][...])
    assert (
        found
        == b"!\x14\x15\x16"
        + bytes([10, 11, 12, 70])
        + b"\t" * 4
        + b"ABCD"
        + bytes([0, 1, 50, 60])
        + b"!BCD"
    )


def test_chunks_that_are_objects_are_refused(tmp_path):
    chunks = Objects(base=str(tmp_path), pattern="{0}", grid=(2,))
    node = GroupIndex(members={"a": array((4,), (2,), chunks)})
    with pytest.raises(UnsupportedError, match="combine='group'"):
        combine({"x": node, "y": node}, "stack")
    odd = replace(
        array((4,), (2,), ByteRanges(offsets=uint64([0, 2]), lengths=uint64([2, 2]), urls=("u",))),
        codecs=({"name": "n5_default", "configuration": {"codecs": [{"name": "bytes"}]}},),
    )
    other = GroupIndex(members={"a": odd})
    with pytest.raises(UnsupportedError, match="does not stand a further axis"):
        combine({"x": other, "y": other}, "stack")


def test_levels_of_a_mosaic_say_where_they_are(tmp_path):
    """The first file is not the north-west one; every level is placed as the whole is."""
    whole = RANDOM.integers(1, 255, (448, 512), dtype="uint8")
    paths = []
    tiles = {"blockxsize": 64, "blockysize": 64}
    for name, (top, left) in {"se": (256, 256), "nw": (0, 0), "ne": (0, 256)}.items():
        path = tmp_path / f"{name}.tif"
        part = whole[top : top + 256, left : left + 256]
        paths.append(write_geotiff(path, part, 5000 + left * 10, 9000 - top * 10, **tiles))
        with rasterio.Env(GDAL_TIFF_OVR_BLOCKSIZE=64), rasterio.open(path, "r+") as file:
            file.build_overviews([2, 4], rasterio.enums.Resampling.nearest)
    node = anychunk.index(paths, combine="mosaic")
    truth, transform = merge(paths)
    np.testing.assert_array_equal(anychunk.open(node)["0/0"][...], truth)
    for level, factor in (("0", 1), ("1", 2), ("2", 4)):
        array = node[f"0/{level}"]
        found = array.attributes
        a, b, c, d, e, f = transform[:6]
        assert found["spatial:transform"] == [a * factor, b, c, d, e * factor, f]
        assert found["spatial:shape"] == list(array.shape[-2:])
        assert found["spatial:bbox"] == node["0"].attributes["spatial:bbox"]
    opened = xarray.open_dataset(paths[1], engine="anychunk", level=1)
    again = anychunk.open(node)["0/1"][0, :128, :128]
    np.testing.assert_array_equal(again, opened["image"].to_numpy().reshape(128, 128))


def test_other_systems_without_a_code_are_told_apart(tmp_path):
    values = np.ones((32, 32), "u1")
    lambert = "+proj=lcc +lat_1={} +lat_2=60 +lat_0=40 +lon_0=10 +datum=WGS84 +units=m"
    paths = []
    for i, parallel in enumerate((30, 35, 30)):
        path = tmp_path / f"{i}.tif"
        crs = rasterio.crs.CRS.from_string(lambert.format(parallel))
        paths.append(write_geotiff(path, values, 320 * i, 1000, crs=crs))
    assert "proj:code" not in anychunk.index(paths[0])["0"].attributes
    with pytest.raises(FormatError, match="another reference system"):
        anychunk.index(paths[:2], combine="mosaic")
    assert anychunk.index(paths[::2], combine="mosaic")["0/0"].shape == (1, 32, 96)


def test_files_at_several_places_lose_their_place(tmp_path):
    values = np.ones((32, 32), "u1")
    first = write_geotiff(tmp_path / "a.tif", values, 0, 1000)
    same = write_geotiff(tmp_path / "b.tif", values, 0, 1000)
    other = write_geotiff(tmp_path / "c.tif", values, 320, 1000)
    node = anychunk.index([first, same], combine="stack")
    for found in (node["0"], node["0/0"]):
        assert found.attributes["spatial:transform"] == [10.0, 0.0, 0.0, 0.0, -10.0, 1000.0]
    with pytest.warns(UserWarning, match="image 0: files lie at several places"):
        node = anychunk.index([first, other], combine="stack")
    bands = anychunk.index([first, same], combine="concat", along=0)
    assert "spatial:transform" in bands["0"].attributes
    longer = anychunk.index([first, other], combine="concat", along="x")
    numbered = anychunk.index([first, other], combine="concat", along=-1)
    for index in (node, longer, numbered):
        for found in (index["0"], index["0/0"]):
            assert not [key for key in found.attributes if key.startswith("spatial:")]
            assert found.attributes["proj:code"] == "EPSG:32633"


def test_samples_that_stand_for_other_values_are_refused(tmp_path):
    values = np.ones((32, 32), "u1")
    paths = [write_geotiff(tmp_path / f"{i}.tif", values, 0, 1000) for i in range(3)]
    with rasterio.open(paths[1], "r+") as file:
        file.scales, file.offsets = [0.1], [5.0]
    with rasterio.open(paths[2], "r+") as file:
        file.nodata = 0
    for other, message in ((1, "scale and offset of band 0"), (2, "nodata")):
        for how in ("stack", "mosaic"):
            with pytest.raises(FormatError, match=rf"{other}.tif 0: {message}"):
                anychunk.index([paths[0], paths[other]], combine=how, overlap="last")
        with pytest.raises(FormatError, match=message):
            anychunk.append([paths[0], paths[other]], tmp_path / "r.ice", combine="stack", batch=1)
    chunks = ByteRanges(offsets=uint64([0]), lengths=uint64([4]), urls=("u",))
    days = [
        GroupIndex(
            members={"t": array((4,), (4,), chunks, attributes={"units": f"days since {year}"})},
            attributes={"title": "series", "year": year},
        )
        for year in (2001, 2002, 2001)
    ]
    with pytest.raises(FormatError, match="y t: units is not that of x"):
        combine({"x": days[0], "y": days[1]}, "concat", along="y")
    made = combine({"x": days[0], "y": days[2]}, "concat", along="y")
    assert (made.attributes["title"], made.attributes["year"]) == ("series", 2001)
    other = replace(days[2], attributes={"title": "series", "year": 2002})
    made = combine({"x": days[0], "y": other}, "concat", along="y")
    assert made.attributes["title"] == "series"
    assert "year" not in made.attributes


def test_a_level_that_is_computed_is_left_out_of_a_mosaic(tmp_path):
    values = np.ones((32, 32), "u1")
    files = {}
    for i in range(2):
        path = write_geotiff(tmp_path / f"{i}.tif", values, 320 * i, 1000)
        node = anychunk.index(path)
        full = node["0/0"]
        chunks = Computed(source="0/0", method="mean", configuration={}, grid=(1, 1, 1))
        level = replace(full, shape=(1, 16, 16), chunks=chunks)
        image = replace(node["0"], members={**node["0"].members, "1": level})
        files[path] = replace(node, members={"0": image})
    with pytest.warns(UserWarning, match="image 0: 1 do not fit"):
        node = combine(files, "mosaic")
    assert list(node["0"].members) == ["0"]


def test_several_systems_are_left_out(tmp_path):
    """Also of files that say nothing else of their place."""
    paths = []
    for i in range(2):
        keys = [(34735, 3, 8, (1, 1, 0, 1, 3072, 0, 1, 32631 + i))]
        paths.append(str(tmp_path / f"{i}.tif"))
        tifffile.imwrite(paths[-1], IMAGES[i], tile=(16, 16), extratags=keys)
    with pytest.warns(UserWarning, match="several places"):
        node = anychunk.index(paths, combine="stack")
    assert "proj:code" not in node["0"].attributes
