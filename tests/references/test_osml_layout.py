"""Indexes exchanged with osml-imagery-io, which needs an older zarr and so a separate environment.

`make test-in ENV=osml` makes it and runs these; `ANYCHUNK_OSML_PYTHON` names the interpreter of another one.
"""

import json
import os
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import fsspec
import numpy as np
import pytest
import rasterio
import tifffile
import zarr
from rasterio.shutil import copy

import anychunk
from anychunk.model.images import images
from anychunk.model.index import GroupIndex
from anychunk.references import icechunk
from tests.support import j2k_streams
from tests.support.dted_cells import gdal_cell, made_cell, terrain
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("ANYCHUNK_OSML_PYTHON") or ROOT / ".venv-osml" / "bin" / "python")
needs_osml = pytest.mark.skipif(
    not PYTHON.exists(),
    reason="osml-imagery-io is not here: make test-in ENV=osml, or set ANYCHUNK_OSML_PYTHON",
)

IMAGE = np.random.default_rng(0).integers(0, 4000, (300, 500)).astype("uint16")
WRITE = """
import sys
from aws.osml.io.virtualizarr_parsers import OversightMLParser, write_tile_index
write_tile_index(OversightMLParser()(url="file://" + sys.argv[1]), sys.argv[2], zarr_format=int(sys.argv[3]))
"""
READ = """
import sys, numpy, zarr
from aws.osml.io.multi_reference_fs import MultiReferenceFileSystem
from zarr.storage._fsspec import FsspecStore
fs = MultiReferenceFileSystem(
    fo=sys.argv[1], asynchronous=True, remote_options={"asynchronous": True}, skip_instance_cache=True
)
store = FsspecStore(fs=fs, read_only=True, path="")
root = zarr.open_group(store, mode="r", zarr_format=int(sys.argv[3]))
numpy.save(sys.argv[2], root[sys.argv[4] if sys.argv[4:] else "0/data"][...])
"""


def run(code, *arguments):
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def make(kind, folder):
    """Write the image with a third party's software."""
    file = folder / f"a.{kind}"
    if kind == "tif":
        tifffile.imwrite(file, IMAGE, tile=(128, 128), compression="zlib", predictor=True)
    elif kind == "ntf":
        options = {"driver": "NITF", "BLOCKXSIZE": 128, "BLOCKYSIZE": 128}
        with rasterio.open(
            file, "w", width=500, height=300, count=1, dtype="uint16", **options
        ) as out:
            out.write(IMAGE, 1)
    else:
        file.write_bytes(j2k_streams.compress([IMAGE], "-t", "192,192", depth=16))
    return file


KINDS = [
    pytest.param("tif"),
    pytest.param("ntf", marks=pytest.mark.filterwarnings("ignore::UserWarning")),
    pytest.param(
        "j2k",
        marks=j2k_streams.needs_openjpeg,
    ),
]


@pytest.mark.processes
@needs_osml
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_theirs_opens_here(tmp_path, kind, zarr_format):
    """Also where they decode other pixels: JPEG 2000 tiles of 192, which they move to the origin."""
    run(WRITE, make(kind, tmp_path), tmp_path / "index.json", zarr_format)
    group = anychunk.open(tmp_path / "index.json")
    np.testing.assert_array_equal(np.squeeze(group["0/data"][...]), IMAGE)


TARGETS = ["2.json", "3.json", "2.parquet"]
"""Names of saved indexes, which begin with the Zarr version of their metadata."""


def save_for_them(node, target):
    """Save an index in the osml layout; parquet has only Zarr v2."""
    options = {"zarr_format": int(target.name[0])} if target.suffix == ".json" else {}
    node.save(target, layout="osml", **options)


def read_there(target, path="0/data"):
    """Return an array of a saved index as osml-imagery-io reads it."""
    out = target.with_name("found.npy")
    run(READ, target, out, target.name[0], path)
    return np.load(out)


@pytest.mark.processes
@needs_osml
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS[:2])
def test_ours_opens_there(tmp_path, kind, target):
    save_for_them(anychunk.index(make(kind, tmp_path)), tmp_path / target)
    np.testing.assert_array_equal(np.squeeze(read_there(tmp_path / target)), IMAGE)


@pytest.mark.processes
@needs_osml
@j2k_streams.needs_openjpeg
@pytest.mark.parametrize("target", TARGETS)
def test_chunks_of_several_parts_open_there(tmp_path, target):
    stream = j2k_streams.compress([SMALL], "-t", "64,64", "-p", "RLCP", "-TP", "R", depth=16)
    (tmp_path / "a.j2k").write_bytes(j2k_streams.interleaved(stream))
    node = anychunk.index(tmp_path / "a.j2k")
    save_for_them(node, tmp_path / target)
    assert anychunk.index(tmp_path / target)["0/data"].chunks.parts is not None
    np.testing.assert_array_equal(read_there(tmp_path / target)[0], SMALL)
    node.save(tmp_path / "copied.parquet", layout="osml", copy="needed")
    assert anychunk.index(tmp_path / "copied.parquet")["0/data"].chunks.parts is not None


def test_parquet_without_all_arrays_is_refused(tmp_path):
    """What Zarr v2 cannot express is missing from other parquet; they would find no image."""
    anychunk.write(IMAGE, tmp_path / "a.n5")
    with pytest.raises(anychunk.errors.UnsupportedError, match="no Zarr v2 form"):
        node = GroupIndex(members={"0": anychunk.index(tmp_path / "a.n5")})
        node.save(tmp_path / "i.parquet", layout="osml")
    assert not (tmp_path / "i.parquet").exists()


@pytest.mark.parametrize("target", ["i.json", "i.parquet"])
def test_another_layout_is_refused(tmp_path, target):
    with pytest.raises(ValueError, match="layout is 'else', expected 'anychunk' or 'osml'"):
        anychunk.index(make("tif", tmp_path)).save(tmp_path / target, layout="else")


LEVELS = [IMAGE, IMAGE[::2, ::2], IMAGE[::4, ::4]]


def make_pyramid(folder):
    with tifffile.TiffWriter(folder / "a.tif") as out:
        for number, level in enumerate(LEVELS):
            out.write(level, tile=(128, 128), compression="zlib", subfiletype=min(number, 1))
    return folder / "a.tif"


def assert_is_pyramid(file):
    """As osml-imagery-io names the levels; and they are recognised as those of one image."""
    group = anychunk.open(file)
    (image,) = images(anychunk.index(file))
    assert image.levels == ("0/data", "1/data", "2/data")
    for number, level in enumerate(LEVELS):
        np.testing.assert_array_equal(np.squeeze(group[f"{number}/data"][...]), level)
    return group.attrs["multiscales"]["layout"]


@pytest.mark.processes
@needs_osml
@pytest.mark.parametrize("target", TARGETS)
def test_levels_are_exchanged(tmp_path, target):
    file = make_pyramid(tmp_path)
    theirs = tmp_path / f"theirs-{target}"
    run(WRITE, file, theirs, target[0])
    save_for_them(anychunk.index(file), tmp_path / target)
    assert assert_is_pyramid(tmp_path / target) == assert_is_pyramid(theirs)
    for number, level in enumerate(LEVELS):
        found = read_there(tmp_path / target, f"{number}/data")
        np.testing.assert_array_equal(np.squeeze(found), level)


def test_levels_are_those_of_the_root(tmp_path):
    anychunk.index(make_pyramid(tmp_path)).save(tmp_path / "index.json", layout="osml")
    layout = assert_is_pyramid(tmp_path / "index.json")
    scales = [entry["transform"]["scale"] for entry in layout]
    assert scales == [[1, 1], [2, 2], [2, 2]]


def test_an_image_without_pixels_has_a_level(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((0, 5), "uint8"))
    anychunk.index(tmp_path / "a.npy").save(tmp_path / "index.json", layout="osml")
    group = anychunk.open(tmp_path / "index.json")
    assert group["0/data"].shape == (1, 0, 5)
    assert group.attrs["multiscales"]["layout"][0]["transform"]["scale"] == [1, 1]


def test_several_images_have_a_group_each(tmp_path):
    pages = [IMAGE, IMAGE[:200, :130].astype("uint8")]
    with tifffile.TiffWriter(tmp_path / "a.tif") as out:
        for page in pages:
            out.write(page, tile=(128, 128), compression="zlib")
    anychunk.index(tmp_path / "a.tif").save(tmp_path / "index.json", layout="osml")
    group = anychunk.open(tmp_path / "index.json")
    for number, page in enumerate(pages):
        np.testing.assert_array_equal(np.squeeze(group[f"{number}/data"][...]), page)
    assert "multiscales" not in group.attrs


WRITE_ALL = """
import sys
from aws.osml.io.virtualizarr_parsers import OversightMLParser, write_tile_index
for file in sys.argv[1:]:
    store = OversightMLParser()(url="file://" + file)
    for name in ("2.json", "3.json", "2.parquet"):
        write_tile_index(store, f"{file}.{name}", zarr_format=int(name[0]))
        portable = f"{file}.portable-{name}"
        write_tile_index(store, portable, template_base="{{base}}", zarr_format=int(name[0]))
"""
RGB = np.random.default_rng(1).integers(0, 255, (3, 300, 500)).astype("uint8")
TIFFS = {
    "tiles": (IMAGE, {}),
    "lzw": (IMAGE, {"compression": "lzw"}),
    "packbits": (IMAGE, {"compression": "packbits"}),
    "signed": (IMAGE.astype("int16") - 2000, {"compression": "zlib"}),
    "float": (IMAGE.astype("float32") / 7, {"compression": "zlib", "predictor": True}),
    "big-endian": (IMAGE, {"byteorder": ">", "compression": "zlib"}),
    "bigtiff": (IMAGE, {"bigtiff": True}),
    "planar": (RGB, {"planarconfig": "separate", "photometric": "rgb"}),
    "strips": (IMAGE, {"tile": None, "rowsperstrip": 64}),
    "big-endian strips": (IMAGE, {"tile": None, "rowsperstrip": 64, "byteorder": ">"}),
    "rgb": (np.moveaxis(RGB, 0, -1), {"compression": "zlib", "predictor": True}),
}


@pytest.mark.processes
@needs_osml
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_theirs_of_every_kind(tmp_path):
    expected = {}
    for name, (array, options) in TIFFS.items():
        tifffile.imwrite(tmp_path / f"{name}.tif", array, **{"tile": (128, 128), **options})
        expected[tmp_path / f"{name}.tif"] = RGB if name == "rgb" else array
    for name, tags in TAGS.items():
        file = made_tiff(tmp_path / f"{name}.tif", tags)
        expected[file] = read_by_gdal(file)
    expected[gdal_cell(tmp_path / "a.dt0", terrain())] = terrain()
    expected[made_cell(tmp_path / "b.dt1", terrain(7, 5))] = terrain(7, 5)
    for imode in "BPRS":
        file = tmp_path / f"{imode}.ntf"
        options = {"driver": "NITF", "BLOCKXSIZE": 128, "BLOCKYSIZE": 128, "IMODE": imode}
        with rasterio.open(
            file, "w", width=500, height=300, count=3, dtype="uint8", **options
        ) as out:
            out.write(RGB)
        expected[file] = RGB
    for kind in ("C3", "C8"):
        file = tmp_path / f"{kind}.ntf"
        copy(tmp_path / "B.ntf", file, driver="NITF", IC=kind, BLOCKXSIZE=128, BLOCKYSIZE=128)
        expected[file] = read_by_gdal(file)
    if shutil.which("opj_compress"):
        # tile-parts: chunks of several byte ranges
        stream = j2k_streams.compress([SMALL], "-t", "64,64", "-p", "RLCP", "-TP", "R", depth=16)
        (tmp_path / "parts.j2k").write_bytes(j2k_streams.interleaved(stream))
        expected[tmp_path / "parts.j2k"] = SMALL
    run(WRITE_ALL, *expected)
    for file, array in expected.items():
        for name in (*TARGETS, *(f"portable-{name}" for name in TARGETS)):
            found = anychunk.open(f"{file}.{name}")["0/data"][...]
            np.testing.assert_array_equal(np.squeeze(found), array, err_msg=f"{file.name} {name}")


STACK = np.random.default_rng(3).integers(0, 255, (4, 30, 50, 3)).astype("uint8")
STACKS = {
    "tiff-tile": {"tile": (32, 32), "compression": "lzw", "photometric": "rgb"},
    "uncompressed": {"tile": (32, 32), "photometric": "rgb"},
    "planar": {"compression": "lzw", "photometric": "rgb", "planarconfig": "separate"},
}


@pytest.mark.processes
@needs_osml
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", STACKS)
def test_stacks_open_there(tmp_path, name, target):
    """Its arrays are (bands, y, x): where its codecs or Zarr v2 need that, planes are groups."""
    pixels = np.moveaxis(STACK, -1, 1) if name == "planar" else STACK
    tifffile.imwrite(tmp_path / "a.tif", pixels, metadata={"axes": "ZYXS"}, **STACKS[name])
    save_for_them(anychunk.index(tmp_path / "a.tif"), tmp_path / target)
    group = anychunk.open(tmp_path / target)
    planes = np.moveaxis(STACK, -1, 1)
    if len(list(group.group_keys())) == 1:
        assert (name, target) == ("uncompressed", "3.json")
        np.testing.assert_array_equal(read_there(tmp_path / target), np.moveaxis(STACK, -1, 0))
        return
    for number, plane in enumerate(planes):
        np.testing.assert_array_equal(group[f"{number}/data"][...], plane)
        np.testing.assert_array_equal(read_there(tmp_path / target, f"{number}/data"), plane)


@pytest.mark.processes
@needs_osml
def test_interleaved_samples_open_there_in_v2(tmp_path):
    """As `tiff-tile`, because Zarr v2 has no transposition; whole chunks, as `bytes` has them."""
    pixels = np.moveaxis(RGB, 0, -1).astype("float64") / 7
    tifffile.imwrite(tmp_path / "a.tif", pixels, tile=(128, 128), photometric="rgb")
    save_for_them(anychunk.index(tmp_path / "a.tif"), tmp_path / "2.json")
    assert "last_height" not in (tmp_path / "2.json").read_text()
    found = read_there(tmp_path / "2.json")
    np.testing.assert_array_equal(found, np.moveaxis(pixels, -1, 0))


SHORT, LONG = 3, 4
TAGS = {
    "subsampled": {259: (SHORT, 8), 262: (SHORT, 6), 277: (SHORT, 3), 530: (SHORT, 2, 2)},
    "fill order": {259: (SHORT, 1), 262: (SHORT, 1), 266: (SHORT, 2), 277: (SHORT, 1)},
}
"""What tifffile does not write: YCbCr with chroma of 2 x 2 that is not JPEG, and reversed bits."""


def made_tiff(file, tags):
    """8 x 4 pixels in one strip."""
    data = np.random.default_rng(2).integers(16, 240, 48 if 530 in tags else 32).astype("u1")
    stored = zlib.compress(data.tobytes()) if tags[259] == (SHORT, 8) else data.tobytes()
    depth = (SHORT, 8, 8, 8) if 530 in tags else (SHORT, 8)
    tags = {256: (SHORT, 8), 257: (SHORT, 4), 258: depth, 273: (LONG, 200), 278: (SHORT, 4),
            279: (LONG, len(stored)), **tags}  # fmt: skip
    head, far = struct.pack("<4sIH", b"II*\0", 8, len(tags)), b""
    for tag, (kind, *values) in sorted(tags.items()):
        packed = struct.pack(f"<{len(values)}{'H' if kind == SHORT else 'I'}", *values)
        if len(packed) > 4:
            packed, far = struct.pack("<I", 190), packed
        head += struct.pack("<HHI4s", tag, kind, len(values), packed)
    file.write_bytes(head.ljust(190, b"\0") + far.ljust(10, b"\0") + stored)
    return file


def read_by_gdal(file):
    with rasterio.open(file) as opened:
        return np.squeeze(opened.read())


@pytest.mark.processes
@needs_osml
def test_dted_opens_there(tmp_path):
    values = terrain()
    for checksums in (True, False):
        node = anychunk.index(gdal_cell(tmp_path / "a.dt0", values), checksums=checksums)
        node.save(tmp_path / "index.json", layout="osml")
        run(READ, tmp_path / "index.json", tmp_path / "found.npy", 3)
        np.testing.assert_array_equal(np.squeeze(np.load(tmp_path / "found.npy")), values)


def test_ycbcr_of_remote_files_is_refused(tmp_path):
    """Nothing records the subsampling, and loading an index makes no request."""
    tile = {
        "compression": 8,
        "photometric": 6,
        "samples_per_pixel": 3,
        "tile_width": 8,
        "tile_height": 4,
    }
    codecs = [
        {"name": "bytes"},
        {
            "name": "https://awslabs.github.io/osml-imagery-io/codecs/tiff-tile",
            "configuration": tile,
        },
    ]
    array = {
        "shape": [3, 4, 8], "data_type": "uint8", "fill_value": 0, "codecs": codecs, "attributes": {},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 4, 8]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "dimension_names": ["bands", "y", "x"], "zarr_format": 3, "node_type": "array",
    }  # fmt: skip
    group = {"zarr_format": 3, "node_type": "group"}
    root = {"source": "https://example.org/a.tif", "multiscales": {"layout": [{"asset": "0"}]}}
    refs = {
        "zarr.json": json.dumps({**group, "attributes": root}),
        "0/zarr.json": json.dumps({**group, "attributes": {}}),
        "0/data/zarr.json": json.dumps(array),
        "0/data/c.0.0.0": ["https://example.org/a.tif", 130, 40],
    }
    (tmp_path / "index.json").write_text(json.dumps({"version": 1, "refs": refs}))
    with pytest.raises(anychunk.errors.UnsupportedError, match="subsampling"):
        anychunk.index(tmp_path / "index.json", allow=["https://example.org"])


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("bigtiff", [False, True])
def test_big_endian_files_in_their_indexes(tmp_path, compression, bigtiff):
    """They call every TIFF little-endian; this is what 0.2.2 writes."""
    file = tmp_path / "a.tif"
    options = {"tile": (128, 128), "compression": compression, "byteorder": ">", "bigtiff": bigtiff}
    tifffile.imwrite(file, IMAGE, **options)
    with tifffile.TiffFile(file) as opened:
        places = list(zip(opened.pages[0].dataoffsets, opened.pages[0].databytecounts, strict=True))
    codecs = [{"name": "bytes", "configuration": {"endian": "little"}}]
    if compression:
        configuration = {
            "compression": 8, "bits_per_sample": 16, "samples_per_pixel": 1, "photometric": 1, "planar_config": 1,
            "predictor": 1, "tile_width": 128, "tile_height": 128, "sample_format": 1, "jpeg_tables": None,
        }  # fmt: skip
        name = "https://awslabs.github.io/osml-imagery-io/codecs/tiff-tile"
        codecs.append({"name": name, "configuration": configuration})
    array = {
        "shape": [1, 300, 500], "data_type": "uint16", "fill_value": 0, "codecs": codecs, "attributes": {},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 128, 128]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "dimension_names": ["bands", "y", "x"], "zarr_format": 3, "node_type": "array",
    }  # fmt: skip
    group = {"zarr_format": 3, "node_type": "group"}
    root = {"source": f"file://{file}", "multiscales": {"layout": [{"asset": "0"}]}}
    refs = {
        "zarr.json": json.dumps({**group, "attributes": root}),
        "0/zarr.json": json.dumps({**group, "attributes": {}}),
        "0/data/zarr.json": json.dumps(array),
    }
    for number, (offset, length) in enumerate(places):
        refs[f"0/data/c.0.{number // 4}.{number % 4}"] = [f"file://{file}", offset, length]
    (tmp_path / "index.json").write_text(json.dumps({"version": 1, "refs": refs}))
    found = anychunk.open(tmp_path / "index.json")["0/data"][0]
    np.testing.assert_array_equal(found, IMAGE)


@pytest.mark.processes
@needs_osml
@pytest.mark.parametrize("rowsperstrip", [100, 64])
def test_keys_that_only_check_are_left_out(tmp_path, rowsperstrip):
    """Strips, the last of them short or not: no key that they do not know is in the index."""
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, rowsperstrip=rowsperstrip, compression="packbits")
    node = anychunk.index(tmp_path / "a.tif")
    assert "last_height" in str(node["0/0/image"].codecs)
    node.save(tmp_path / "index.json", layout="osml")
    assert "last_" not in (tmp_path / "index.json").read_text()
    np.testing.assert_array_equal(
        np.squeeze(anychunk.open(tmp_path / "index.json")["0/data"][...]), IMAGE
    )
    if rowsperstrip == 100:
        run(READ, tmp_path / "index.json", tmp_path / "found.npy", 3)
        np.testing.assert_array_equal(np.squeeze(np.load(tmp_path / "found.npy")), IMAGE)


def test_what_they_would_read_wrong_is_refused(tmp_path):
    """They ignore `byte_order`, and swap the bytes of every sample."""
    options = {"tile": (128, 128), "compression": "zlib", "byteorder": ">"}
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, **options)
    node = anychunk.index(tmp_path / "a.tif")
    with pytest.raises(anychunk.errors.UnsupportedError, match="byte_order of anychunk.tiff-tile"):
        node.save(tmp_path / "index.json", layout="osml")
    assert not (tmp_path / "index.json").exists()
    node.save(tmp_path / "index.json")
    np.testing.assert_array_equal(
        np.squeeze(anychunk.open(tmp_path / "index.json")["0/0/image"][...]), IMAGE
    )


SMALL = IMAGE[:150, :130]
GOOD = {
    "powers of two": ("-t", "64,32", "-n", "6"),
    "one tile": (),
    "one tile, larger than the image": ("-t", "300,300"),
    "one column of tiles": ("-t", "130,64"),
    "precincts, layers": ("-t", "64,64", "-c", "[32,32]", "-r", "5,1"),
    "image offset of whole code-blocks": ("-d", "2048,4096"),
    "image offset, one resolution": ("-d", "64,128", "-n", "1"),
    "image and tile offset": ("-d", "2048,2048", "-T", "1024,0"),
}
WRONG = {
    "tiles of 96": ("-t", "96,96"),
    "rows of 100": ("-t", "128,100"),
    "one column of tiles of 100 rows": ("-t", "256,100"),
    "image offset": ("-d", "13,7"),
    "image offset of 64": ("-d", "64,64"),
    "image offset of half a code-block": ("-d", "2080,0"),
    "image offset, tiles": ("-d", "13,7", "-t", "64,64"),
    "tile offset": ("-d", "13,7", "-T", "13,7", "-t", "64,64"),
}
"""How osml-imagery-io 0.2.2 reads these: 33 to 99 % of the pixels are wrong."""


@j2k_streams.needs_openjpeg
@pytest.mark.parametrize("name", WRONG)
def test_jpeg2000_that_they_would_read_wrong_is_refused(tmp_path, name):
    (tmp_path / "a.j2k").write_bytes(j2k_streams.compress([SMALL], *WRONG[name], depth=16))
    node = anychunk.index(tmp_path / "a.j2k")
    with pytest.raises(anychunk.errors.UnsupportedError, match=r"0/data.*(offset|power)"):
        node.save(tmp_path / "index.json", layout="osml")
    assert not (tmp_path / "index.json").exists()


@j2k_streams.needs_openjpeg
def test_jpeg2000_subsampled_by_3_is_refused(tmp_path):
    """They repeat other samples."""
    luma, chroma = SMALL[:129, :129], SMALL[:43, :43]
    stream = j2k_streams.compress([luma, chroma], "-mct", "0", depth=16, sampling="@1x1:3x3")
    (tmp_path / "a.j2k").write_bytes(stream)
    node = anychunk.index(tmp_path / "a.j2k")
    with pytest.raises(anychunk.errors.UnsupportedError, match=r"subsampled by \[1, 3\]"):
        node.save(tmp_path / "index.json", layout="osml")


@j2k_streams.needs_openjpeg
@pytest.mark.parametrize("name", GOOD)
def test_jpeg2000_that_they_read_right_is_saved(tmp_path, name):
    (tmp_path / "a.j2k").write_bytes(j2k_streams.compress([SMALL], *GOOD[name], depth=16))
    anychunk.index(tmp_path / "a.j2k").save(tmp_path / "index.json", layout="osml")
    np.testing.assert_array_equal(anychunk.open(tmp_path / "index.json")["0/data"][0], SMALL)


@pytest.mark.processes
@needs_osml
@j2k_streams.needs_openjpeg
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", GOOD)
def test_jpeg2000_opens_there(tmp_path, name, target):
    (tmp_path / "a.j2k").write_bytes(j2k_streams.compress([SMALL], *GOOD[name], depth=16))
    truth = anychunk.open(tmp_path / "a.j2k")
    save_for_them(anychunk.index(tmp_path / "a.j2k"), tmp_path / target)
    ours = anychunk.open(tmp_path / target)
    for number in range(min(3, len(list(ours.group_keys())))):
        path = f"{number}/data"
        np.testing.assert_array_equal(ours[path][0], truth[f"0/{number}/image"][...])
        np.testing.assert_array_equal(read_there(tmp_path / target, path), ours[path][...])


@pytest.mark.parametrize("is_known", [True, False])
def test_bands_of_imode_s_in_their_indexes(tmp_path, is_known):
    """All blocks of a band precede those of the next; 0.2.2 writes ranges that overlap."""
    bands = np.arange(3 * 4 * 4, dtype="uint8").reshape(3, 2, 2, 2, 2)  # band, grid, block
    (tmp_path / "a.bin").write_bytes(bytes(7) + bands.tobytes())
    image = bands.transpose(0, 1, 3, 2, 4).reshape(3, 4, 4)
    block = {
        "num_bands": 3,
        "block_height": 2,
        "block_width": 2,
        "nbpp": 8,
        "imode": "S",
        "pvtype": "INT",
    }
    name = "https://awslabs.github.io/osml-imagery-io/codecs/jbp-block"
    array = {
        "shape": [3, 4, 4], "data_type": "uint8", "fill_value": 0, "attributes": {},
        "codecs": [{"name": "bytes"}, {"name": name, "configuration": block}],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 2, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "dimension_names": ["bands", "y", "x"], "zarr_format": 3, "node_type": "array",
    }  # fmt: skip
    group = {"zarr_format": 3, "node_type": "group"}
    root = {"source": "a.bin", "multiscales": {"layout": [{"asset": "0"}]}}
    refs = {
        "zarr.json": json.dumps({**group, "attributes": root}),
        "0/zarr.json": json.dumps({**group, "attributes": {}}),
        "0/data/zarr.json": json.dumps(array),
    }
    for number in range(4):
        offset = 7 + number * 4 + (0 if is_known or number < 3 else 1)
        key = f"0/data/c.0.{number // 2}.{number % 2}"
        refs[key] = [f"file://{tmp_path}/a.bin", offset, 12]
    (tmp_path / "index.json").write_text(json.dumps({"version": 1, "refs": refs}))
    if is_known:
        found = anychunk.open(tmp_path / "index.json")["0/data"][...]
        np.testing.assert_array_equal(found, image)
        return
    with pytest.raises(anychunk.errors.UnsupportedError, match="IMODE S"):
        anychunk.index(tmp_path / "index.json")


SHARED = "https://awslabs.github.io/osml-imagery-io/codecs/"


def big_endian(file):
    tifffile.imwrite(file, IMAGE, tile=(128, 128), compression="lzw", byteorder=">", predictor=True)
    return IMAGE


def packbits_predicted(file):
    """A predictor that tifffile applies, and libtiff does not know for this compression."""
    tifffile.imwrite(file, IMAGE, tile=(128, 128), compression="packbits", predictor=True)
    return tifffile.imread(file)


def reversed_bits(file):
    return read_by_gdal(made_tiff(file, TAGS["fill order"]))


def subsampled(file):
    return read_by_gdal(made_tiff(file, TAGS["subsampled"]))


def ycbcr(file):
    """Without a tag for the subsampling, which they do not pass on, libtiff takes 2 x 2 for it."""
    options = {"photometric": "ycbcr", "subsampling": (1, 1), "compression": "lzw"}
    tifffile.imwrite(file, np.moveaxis(RGB, 0, -1), tile=(128, 128), **options)
    return RGB


def left_justified(file):
    """GDAL writes 16 significant bits; the header then says that they are the upper 12."""
    options = {"driver": "NITF", "BLOCKXSIZE": 128, "BLOCKYSIZE": 128}
    with rasterio.open(file, "w", width=500, height=300, count=1, dtype="uint16", **options) as out:
        out.write(IMAGE << 4, 1)
    data = file.read_bytes()
    assert data[:1000].count(b"16R") == 1
    file.write_bytes(data.replace(b"16R", b"12L", 1))
    return IMAGE


def moved_tiles(file):
    file.write_bytes(j2k_streams.compress([SMALL], *WRONG["tiles of 96"], depth=16))
    return SMALL


MISREAD = [
    pytest.param(big_endian, "tiff-tile"),
    pytest.param(packbits_predicted, "tiff-tile"),
    pytest.param(reversed_bits, "tiff-tile"),
    pytest.param(subsampled, "tiff-tile"),
    pytest.param(ycbcr, "tiff-tile"),
    pytest.param(left_justified, "jbp-block"),
    pytest.param(moved_tiles, "jpeg2000", marks=j2k_streams.needs_openjpeg),
]
"""Images that osml-imagery-io 0.2.2 reads wrong if their codecs have its names."""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
@pytest.mark.parametrize("target", ["2.json", "3.json", "2.parquet", "3.icechunk"])
@pytest.mark.parametrize(("make_file", "codec"), MISREAD)
def test_what_they_would_read_wrong_has_our_name(tmp_path, make_file, codec, target):
    expected = make_file(tmp_path / "a.file")
    options = {"zarr_format": int(target[0])} if target.endswith("json") else {}
    anychunk.index(tmp_path / "a.file").save(tmp_path / target, **options)
    found = anychunk.open(tmp_path / target)["0/0/image"][...]
    np.testing.assert_array_equal(np.squeeze(found), expected)
    array = opened_by_zarr(tmp_path / target)
    assert f"anychunk.{codec}" in str(array.metadata.to_dict())
    assert SHARED not in str(array.metadata.to_dict())
    np.testing.assert_array_equal(np.squeeze(array[...]), expected)


def opened_by_zarr(index):
    """Open an index without our store: zarr finds our classes by their names."""
    if index.suffix == ".icechunk":
        store = icechunk.open_repository(str(index)).readonly_session("main").store
    else:
        options = {"fo": str(index), "remote_protocol": "file", "asynchronous": True}
        fs = fsspec.filesystem("reference", remote_options={"asynchronous": True}, **options)
        store = zarr.storage.FsspecStore(fs=fs, read_only=True, path="")
    return zarr.open_group(store, mode="r", zarr_format=int(index.name[0]))["0/0/image"]


@pytest.mark.processes
@needs_osml
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(("make_file", "codec"), MISREAD)
def test_what_they_would_read_wrong_is_refused_there(tmp_path, make_file, codec, zarr_format):
    make_file(tmp_path / "a.file")
    anychunk.index(tmp_path / "a.file").save(tmp_path / "index.json", zarr_format=zarr_format)
    with pytest.raises(AssertionError, match=rf"[Cc]odec.*anychunk\.{codec}"):
        run(READ, tmp_path / "index.json", tmp_path / "found.npy", zarr_format, "0/0/image")


@pytest.mark.parametrize("byteorder", "<>")
def test_what_they_read_right_has_their_name(tmp_path, byteorder):
    """The byte order of 8-bit samples changes nothing."""
    pixels, options = np.moveaxis(RGB, 0, -1), {"photometric": "rgb", "compression": "zlib"}
    tifffile.imwrite(
        tmp_path / "a.tif", pixels, tile=(128, 128), predictor=True, byteorder=byteorder, **options
    )
    anychunk.index(tmp_path / "a.tif").save(tmp_path / "index.json")
    text = (tmp_path / "index.json").read_text()
    assert f"{SHARED}tiff-tile" in text
    assert "anychunk.tiff-tile" not in text


REFUSED = {
    "no axis of bands": (IMAGE, {"tile": (128, 128)}),
    "a short strip": (np.moveaxis(RGB, 0, -1), {"rowsperstrip": 64, "photometric": "rgb"}),
    "half floats": (
        np.moveaxis(RGB, 0, -1).astype("f2"),
        {"tile": (128, 128), "photometric": "rgb"},
    ),
}
"""Images whose chunks osml-imagery-io 0.2.2 refuses, although it would not misread them."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_they_refuse_has_our_name(tmp_path, name):
    pixels, options = REFUSED[name]
    tifffile.imwrite(tmp_path / "a.tif", pixels, compression="lzw", **options)
    anychunk.index(tmp_path / "a.tif").save(tmp_path / "index.json")
    text = (tmp_path / "index.json").read_text()
    assert SHARED not in text
    assert "anychunk.tiff-tile" in text
