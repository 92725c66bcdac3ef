"""Files with one ordinary page: the quick parser finds what the general one finds, or nothing."""

import pickle
import struct

import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
from anychunk.errors import AnychunkError, SourceChangedError
from anychunk.formats import tiff
from anychunk.formats.tiff import tifffile_source
from anychunk.formats.tiff.plain import plain_array
from anychunk.io.file import FileSource
from anychunk.model.index import find, known_arrays

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 255, (70, 90), "u1")
PLAIN = {
    "deflate": (GREY, {"compression": "zlib"}),
    "strips": (GREY, {"compression": "zlib", "rowsperstrip": 9}),
    "predictor": (GREY.astype("u2"), {"compression": "zlib", "predictor": True}),
    "lzw": (GREY, {"compression": "lzw"}),
    "packbits": (GREY, {"compression": "packbits"}),
    "zstd": (GREY, {"compression": "zstd"}),
    "uncompressed": (GREY.astype("f4"), {}),
    "uncompressed strips": (GREY, {"rowsperstrip": 7}),
    "long": (np.zeros((3000, 1000), "u1"), {"rowsperstrip": 100}),
    "tiles": (GREY, {"compression": "zlib", "tile": (32, 32)}),
    "uncompressed tiles": (GREY.astype("i2"), {"tile": (32, 48)}),
    "big-endian": (GREY.astype("u4"), {"byteorder": ">", "compression": "zlib"}),
    "bigtiff": (GREY.astype("f8"), {"bigtiff": True, "compression": "zlib"}),
    "big-endian bigtiff": (GREY.astype("u2"), {"bigtiff": True, "byteorder": ">"}),
    "rgb": (np.stack([GREY] * 3, -1), {"compression": "zlib", "tile": (32, 32)}),
    "rgb uncompressed": (np.stack([GREY] * 3, -1), {"rowsperstrip": 7}),
    "planar": (
        np.stack([GREY, GREY + 1, GREY // 2]),
        {"compression": "zlib", "planarconfig": "separate", "photometric": "rgb"},
    ),
    "planar uncompressed": (
        np.stack([GREY, GREY + 1, GREY // 2]),
        {"planarconfig": "separate", "photometric": "rgb", "rowsperstrip": 7},
    ),
    "bands": (
        np.stack([GREY] * 5, -1),
        {"compression": "zlib", "photometric": "minisblack", "planarconfig": "contig"},
    ),
    "no metadata": (GREY, {"compression": "zlib", "metadata": None, "software": False}),
    "resolution": (GREY, {"resolution": (300, 300), "resolutionunit": "inch"}),
}
RGB = np.stack([GREY, GREY[::-1], GREY // 2], -1)
PICTURES = {
    "jpeg": (GREY, {"compression": "jpeg"}),
    "jpeg strips": (GREY, {"compression": "jpeg", "rowsperstrip": 16}),
    "jpeg tiles": (GREY, {"compression": "jpeg", "tile": (32, 32)}),
    "jpeg rgb": (RGB, {"compression": "jpeg", "photometric": "rgb", "tile": (32, 32)}),
    "jpeg 4:4:4": (RGB, {"compression": "jpeg", "photometric": "ycbcr", "subsampling": (1, 1)}),
    "jpeg 4:2:0": (RGB, {"compression": "jpeg", "photometric": "ycbcr", "tile": (64, 64)}),
    "jpeg bands": (
        RGB,
        {"compression": "jpeg", "photometric": "minisblack", "planarconfig": "contig"},
    ),
    "jpeg planar": (
        np.moveaxis(RGB, -1, 0),
        {"compression": "jpeg", "photometric": "minisblack", "planarconfig": "separate"},
    ),
    "webp": (RGB, {"compression": "webp", "compressionargs": {"lossless": True}, "tile": (32, 32)}),
    "jpeg 2000": (GREY, {"compression": "jpeg2000", "tile": (32, 32)}),
    "jpeg 2000 strips": (GREY.astype("u2") << 7, {"compression": "jpeg2000", "rowsperstrip": 16}),
    "jpeg 2000 rgb": (RGB, {"compression": "jpeg2000", "photometric": "rgb", "tile": (64, 64)}),
    "lerc": (GREY.astype("f4"), {"compression": "lerc", "tile": (32, 32)}),
    "lerc zstd": (
        GREY.astype("u2"),
        {"compression": "lerc", "compressionargs": {"compression": "zstd"}},
    ),
}
OTHERS = {
    "bits": (GREY > 9, {}),
    "jpeg xr": (GREY, {"compression": "jpegxr"}),
    "imagej": (GREY, {"imagej": True}),
    "ome": (GREY, {"ome": True}),
    "pages": (np.stack([GREY] * 3), {"compression": "zlib", "photometric": "minisblack"}),
    "description": (GREY, {"description": "Aperio Image Library", "metadata": None}),
    "reduced": (GREY, {"subfiletype": 1}),
    "software": (GREY, {"software": "MetaSeries"}),
    "tag": (GREY, {"extratags": [(34412, "I", 1, 0, True)]}),
}


def quick(path):
    return plain_array(FileSource(str(path)))


def assert_same(path):
    """The array of the quick parser, and all that is made later, are those of the general one."""
    found, general = anychunk.index(path), tiff.parse_file(FileSource(str(path)))
    image = find(found, "0/0/image")
    for name, value in quick(path).fields.items():
        assert value == getattr(find(general, "0/0/image"), name), name
    assert known_arrays(found) is not None  # nothing has asked for more
    assert image == find(general, "0/0/image")
    assert dict(found.members) == dict(general.members)
    assert {k: v for k, v in found.attributes.items() if k != "anychunk"} == general.attributes
    assert set(found.pins) >= set(general.pins)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("case", PLAIN)
def test_plain_files(case, tmp_path, monkeypatch):
    values, options = PLAIN[case]
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, values, **options)
    assert_same(path)
    monkeypatch.setattr(tifffile, "TiffFile", lambda *_, **__: pytest.fail("asks tifffile"))
    array = anychunk.open_array(path)[...]
    expected = values if values.ndim == 2 or "planar" in case else np.moveaxis(values, -1, 0)
    np.testing.assert_array_equal(array, expected)
    monkeypatch.undo()
    with rasterio.open(path) as peer:
        np.testing.assert_array_equal(array.reshape(peer.count, *peer.shape), peer.read())


@pytest.mark.parametrize("case", PICTURES)
def test_pictures(case, tmp_path, monkeypatch):
    values, options = PICTURES[case]
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, values, **options)
    assert_same(path)
    expected = tifffile.imread(path)
    monkeypatch.setattr(tifffile, "TiffFile", lambda *_, **__: pytest.fail("asks tifffile"))
    array = anychunk.open_array(path)[...]
    is_last = expected.ndim == 3 and expected.shape[-1] == 3
    np.testing.assert_array_equal(array, np.moveaxis(expected, -1, 0) if is_last else expected)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_jpeg_of_gdal(tmp_path):
    """With its tables in a tag, and the tags of its colours."""
    path = tmp_path / "a.tif"
    profile = {"driver": "GTiff", "count": 3, "height": 70, "width": 90, "dtype": "uint8"}
    options = {"tiled": True, "blockxsize": 32, "blockysize": 32, "photometric": "ycbcr"}
    with rasterio.open(path, "w", compress="jpeg", **profile, **options) as file:
        file.write(np.moveaxis(RGB, -1, 0))
    assert_same(path)
    array = anychunk.open_array(path)[...]
    np.testing.assert_array_equal(array, np.moveaxis(tifffile.imread(path), -1, 0))


def test_subsampled_rgb_is_left_to_the_general_parser(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, RGB, compression="jpeg", photometric="ycbcr", tile=(64, 64))
    assert quick(path) is not None
    with tifffile.TiffFile(path, mode="r+b") as file:
        file.pages[0].tags["PhotometricInterpretation"].overwrite(2)
    assert quick(path) is None


@pytest.mark.parametrize("case", OTHERS)
def test_other_files_are_left_to_the_general_parser(case, tmp_path):
    values, options = OTHERS[case]
    tifffile.imwrite(tmp_path / "a.tif", values, **options)
    assert quick(tmp_path / "a.tif") is None
    assert anychunk.open_array(tmp_path / "a.tif").shape[-2:] == (70, 90)


def test_a_file_of_gdal_with_a_place(tmp_path):
    path = tmp_path / "a.tif"
    profile = {"driver": "GTiff", "width": 90, "height": 70, "count": 1, "dtype": "uint8"}
    transform = rasterio.transform.from_origin(500000, 4600000, 10, 10)
    with rasterio.open(
        path, "w", crs="EPSG:32633", transform=transform, nodata=7, compress="lzw", **profile
    ) as file:
        file.write(GREY, 1)
        file.update_tags(note="text")
    assert_same(path)
    group = anychunk.open_group(path)
    array = group.image(0)
    assert (array.fill_value, array.attrs["_FillValue"]) == (7, 7)
    assert group["0"].attrs["proj:code"] == "EPSG:32633"


def write_fax(path, **options):
    profile = {"driver": "GTiff", "width": 90, "height": 70, "count": 1, "dtype": "uint8"}
    with rasterio.open(path, "w", compress="CCITTFAX4", nbits=1, **profile, **options) as file:
        file.write((GREY > 99).astype("u1"), 1)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("photometric", ["minisblack", "miniswhite"])
def test_facsimile(photometric, tmp_path, monkeypatch):
    path = tmp_path / "a.tif"
    write_fax(path, blockysize=16, photometric=photometric)
    assert_same(path)
    monkeypatch.setattr(tifffile, "TiffFile", lambda *_, **__: pytest.fail("asks tifffile"))
    with rasterio.open(path) as peer:
        np.testing.assert_array_equal(anychunk.open_array(path)[...], peer.read(1))


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("seed", range(5))
def test_damaged_facsimile(seed, tmp_path):
    path = tmp_path / "a.tif"
    write_fax(path, blockysize=16)
    data, rng, agreed = path.read_bytes(), np.random.default_rng(seed), 0
    for _ in range(80):
        damaged = bytearray(data)
        damaged[int(rng.integers(8, 200))] = int(rng.choice([0, 1, 2, 3, 4, 255]))
        path.write_bytes(damaged)
        if quick(path) is not None:
            agreed += 1
            assert_same(path)
    assert agreed


@pytest.mark.parametrize("seed", range(40))
def test_damaged_files(seed, tmp_path):
    """Whatever bytes of a directory change, the quick parser agrees, or gives up."""
    every = PLAIN | PICTURES
    values, options = every[sorted(every)[seed % len(every)]]
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, values[:40], **options)
    data, rng = path.read_bytes(), np.random.default_rng(seed)
    with tifffile.TiffFile(path) as tif:
        page = tif.pages[0]
        first = page.offset
        last = min(page.dataoffsets[0], first + 20 * len(page.tags) + 16)
    agreed = 0
    for _ in range(40):
        damaged = bytearray(data)
        place = int(rng.integers(first, max(last, first + 2)))
        damaged[place] = int(rng.choice([0, 1, 2, 3, 255, rng.integers(256)]))
        path.write_bytes(damaged)
        if quick(path) is None:
            continue
        agreed += 1
        assert_same(path)
    assert agreed


def test_truncated_files(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, GREY, compression="zlib", tile=(32, 32))
    data = path.read_bytes()
    for length in range(0, len(data), 97):
        path.write_bytes(data[:length])
        assert quick(path) is None
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(AnychunkError):
        anychunk.open_array(path)[...]


def test_a_chain_of_directories_is_not_plain(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, GREY, compression="zlib")
    data = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, first)
    struct.pack_into("<I", data, first + 2 + 12 * count, first)
    path.write_bytes(data)
    assert quick(path) is None


def test_attributes_are_those_of_the_file_that_was_opened(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, GREY, compression="zlib", datetime="2026:03:01 10:00:00")
    expected = anychunk.open_array(path).attrs.asdict(), dict(anychunk.open(path)["0"].attrs)
    opened = anychunk.open(path)
    tifffile.imwrite(path, GREY[:50], compression="zlib", datetime="1999:03:01 10:00:00")
    array = opened.image(0)
    assert (array.attrs.asdict(), dict(opened["0"].attrs)) == expected
    with pytest.raises(SourceChangedError):
        array[...]


def test_side_files_are_found_when_asked_for(tmp_path, monkeypatch):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, GREY, compression="zlib")
    (tmp_path / "a.tfw").write_text("10\n0\n0\n-10\n500005\n4599995\n")
    opened = []
    real = tifffile_source.tiff_file
    monkeypatch.setattr(tiff, "tiff_file", lambda *a: opened.append(a) or real(*a))
    index = anychunk.index(path)
    np.testing.assert_array_equal(anychunk.open_array(index)[...], GREY)
    assert not opened
    assert index["0"].attributes["spatial:transform"][:3] == [10, 0, 500000]
    assert len(opened) == 1  # once, whatever is asked for
    assert {name.rpartition("/")[2] for name in index.pins} == {"a.tif", "a.tfw"}


@pytest.mark.parametrize("kind", ["index", "group", "array"])
def test_pickle(kind, tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, GREY, compression="zlib")
    made = {"index": anychunk.index, "group": anychunk.open, "array": anychunk.open_array}
    found = pickle.loads(pickle.dumps(made[kind](path)))
    if kind == "index":
        assert found == anychunk.index(path)
    else:
        array = found if kind == "array" else found.image(0)
        np.testing.assert_array_equal(array[...], GREY)
        assert array.metadata == anychunk.open_array(path).metadata
