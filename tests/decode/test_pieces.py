"""Arrays that are cut from one compressed stream: NRRD volumes and strips of TIFF."""

import bz2
import gzip
import io
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import nrrd
import numpy as np
import pytest
import rasterio
import tifffile
from PIL import Image

import anychunk
from anychunk import limits
from anychunk.codecs.seek import walk
from anychunk.decode import pieces
from anychunk.errors import AnychunkError, ChunkDecodeError
from tests.support.gdal import without_band
from tests.support.http_server import serve
from tests.support.s3 import needs_s3, serve_s3

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

RNG = np.random.default_rng(7)
VOLUME = (np.cumsum(RNG.normal(0, 3, (61, 70, 90)), axis=2) + 1000).astype(np.int16)
"""769 kB: pieces of 21 slices, the last of them shorter."""
COMPRESS = {"gzip": gzip.compress, "bzip2": lambda data: bz2.compress(data, 1)}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Cut streams into pieces of 256 KiB, so that small volumes have several."""
    monkeypatch.setattr("anychunk.formats._pieces.LEAST", 1 << 18)
    monkeypatch.setattr("anychunk.formats.tiff.byte_ranges.LEAST", 1 << 17)


def nrrd_file(path, encoding="gzip", volume=VOLUME):
    sizes = " ".join(str(n) for n in volume.shape[::-1])
    head = f"NRRD0004\ntype: short\ndimension: 3\nsizes: {sizes}\nendian: little\n"
    data = COMPRESS[encoding](volume.astype("<i2").tobytes())
    path.write_bytes(f"{head}encoding: {encoding}\n\n".encode() + data)
    return str(path)


@pytest.fixture(scope="module", params=["gzip", "bzip2"])
def file(request, tmp_path_factory):
    return nrrd_file(tmp_path_factory.mktemp("nrrd") / f"{request.param}.nrrd", request.param)


def assert_equal(array, expected=VOLUME):
    assert array.shape == expected.shape
    for number in (len(expected) - 1, 0, len(expected) // 2, 3):
        np.testing.assert_array_equal(array[number], expected[number])
    np.testing.assert_array_equal(array[5:30, 7:19, 3:5], expected[5:30, 7:19, 3:5])
    np.testing.assert_array_equal(array[:], expected)


def test_slices_and_all(file):
    array = anychunk.open_array(file)
    assert array.chunks == (21, 70, 90)
    assert_equal(array)
    whole = anychunk.open_array(file)
    np.testing.assert_array_equal(whole[:], nrrd.read(file)[0].transpose())
    copied = pickle.loads(pickle.dumps(array))
    np.testing.assert_array_equal(copied[60], VOLUME[60])


@pytest.mark.parametrize("file", ["gzip"], indirect=True)
def test_a_later_slice_decodes_one_piece(file):
    with limits.override(recent_bytes=0):
        array = anychunk.open_array(file)
        _ = array[60]
        reader = array.store.chunk_reader(array.path)
        (walker,) = reader.pieces._walkers.values()
        before = walker.decoded
        assert before == VOLUME.nbytes
        _ = array[30]
        assert walker.decoded - before == 21 * 70 * 90 * 2


@pytest.mark.parametrize("file", ["bzip2"], indirect=True)
def test_bzip2_is_decoded_in_order(file):
    """Once for its checksum, and once more for all slices; at once if several pieces are wanted."""
    with limits.override(recent_bytes=0):
        array = anychunk.open_array(file)
        for number in (0, 21, 42):
            np.testing.assert_array_equal(array[number], VOLUME[number])
        reader = array.store.chunk_reader(array.path)
        (walker,) = reader.pieces._walkers.values()
        assert walker.decoded <= 2 * VOLUME.nbytes
        whole = anychunk.open_array(file)
        np.testing.assert_array_equal(whole[20:22], VOLUME[20:22])
        assert not whole.store.chunk_reader(whole.path).pieces._walkers


def test_bzip2_has_few_pieces(tmp_path, monkeypatch):
    """Each piece of a saved index is decoded from the start of the stream."""
    monkeypatch.setattr("anychunk.formats._pieces.LEAST", 1 << 14)
    array = anychunk.open_array(nrrd_file(tmp_path / "a.nrrd", "bzip2"))
    assert array.chunks == (4, 70, 90)
    assert_equal(array)


@pytest.mark.parametrize("target", ["json", "parquet", "icechunk"])
def test_saved(file, target, tmp_path):
    saved = str(tmp_path / f"index.{target}")
    anychunk.index(file).save(saved)
    allow = [str(Path(file).parent)]
    assert_equal(anychunk.open_array(saved, allow=allow))
    assert not pieces.compression_of(anychunk.index(saved, allow=allow)["0/0/image"])


PLAIN = """
import sys, fsspec, numpy as np, zarr
from zarr.storage import FsspecStore
options = {"fo": sys.argv[1], "remote_protocol": "file", "asynchronous": True}
files = fsspec.filesystem("reference", remote_options={"asynchronous": True}, **options)
array = zarr.open_group(FsspecStore(files, path=""), mode="r")["0/0/image"]
assert "anychunk.zarr.store" not in sys.modules
np.save(sys.argv[2], array[:])
"""


@pytest.mark.processes
@pytest.mark.parametrize("file", ["gzip"], indirect=True)
def test_plain_zarr_reads_a_saved_index(file, tmp_path):
    saved, out = str(tmp_path / "index.json"), str(tmp_path / "out.npy")
    anychunk.index(file).save(saved)
    subprocess.run([sys.executable, "-c", PLAIN, saved, out], check=True)
    np.testing.assert_array_equal(np.load(out), VOLUME)


@pytest.mark.processes
def test_http(file, tmp_path):
    shutil.copy(file, tmp_path / "a.nrrd")
    with serve(tmp_path) as server:
        assert_equal(anychunk.open_array(f"{server.url}/a.nrrd"))
        array = anychunk.open_array(f"{server.url}/a.nrrd")
        np.testing.assert_array_equal(array[:], VOLUME)
        saved = str(tmp_path / "index.json")
        anychunk.index(f"{server.url}/a.nrrd").save(saved)
        again = anychunk.open_array(saved, allow=[server.url])
        server.requests.clear()
        np.testing.assert_array_equal(again[60], VOLUME[60])
        assert len(server.requests) <= 2
        assert_equal(again)


def test_flipped_bits(tmp_path):
    """Whatever is damaged, reading everything raises, at once or slice by slice."""
    nrrd_file(tmp_path / "clean.nrrd")
    data = (tmp_path / "clean.nrrd").read_bytes()
    start = data.index(b"\n\n") + 2
    for number, place in enumerate(RNG.integers(start + 20, len(data), 8)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(RNG.integers(8))
        path = tmp_path / f"{number}.nrrd"
        path.write_bytes(damaged)
        with pytest.raises(AnychunkError):
            anychunk.open_array(str(path))[:]
        array = anychunk.open_array(str(path))
        with pytest.raises(AnychunkError):
            for piece in range(0, 61, 21):
                _ = array[piece]
        with pytest.raises(AnychunkError):
            anychunk.index(str(path)).save(str(tmp_path / "damaged.json"))


def test_saved_points_find_damage(tmp_path):
    path = tmp_path / "a.nrrd"
    nrrd_file(path)
    anychunk.index(str(path)).save(str(tmp_path / "a.json"))
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 8
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = anychunk.open_array(str(tmp_path / "a.json"), on_change="warn")
        with pytest.raises(ChunkDecodeError):
            array[:]


def test_byte_skip_and_several_files(tmp_path):
    volume = VOLUME[:60]
    for number, part in enumerate(np.split(volume, 2)):
        data = b"skipped" + part.astype("<i2").tobytes() * 1
        (tmp_path / f"s{number}.gz").write_bytes(gzip.compress(data))
    head = [
        "NRRD0004",
        "type: short",
        "dimension: 3",
        "sizes: 90 70 60",
        "endian: little",
        "encoding: gzip",
        "byte skip: 7",
        "data file: LIST",
        "s0.gz",
        "s1.gz",
        "",
    ]
    (tmp_path / "a.nhdr").write_text("\n".join(head))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anychunk.formats._pieces.LEAST", 1 << 17)
        index = anychunk.index(str(tmp_path / "a.nhdr"))
    assert index["0/0/image"].chunk_shape == (15, 70, 90)
    index.save(str(tmp_path / "a.json"))
    for target in ("a.json",):
        assert_equal(anychunk.open_array(str(tmp_path / target)), volume)


def test_few_states(file, monkeypatch):
    monkeypatch.setattr(walk, "MOST_STATES", 2)
    assert_equal(anychunk.open_array(file))


PLANE = (np.cumsum(RNG.normal(0, 3, (2101, 200)), axis=1) + 100).astype(np.int16)
RGB = np.stack([PLANE.astype(np.uint8)] * 3, -1)
STRIPS = {
    "bytes": (PLANE.astype(np.uint8)[:, :], {"rowsperstrip": 2101}),
    "predictor": (PLANE, {"predictor": True, "rowsperstrip": 2101}),
    "floats": (PLANE.astype("f4"), {"predictor": True, "rowsperstrip": 2101}),
    "big": (PLANE.astype(">i2"), {"byteorder": ">", "rowsperstrip": 2101}),
    "strips": (RGB, {"photometric": "rgb", "rowsperstrip": 1000}),
    "planes": (
        np.stack([PLANE] * 3),
        {"photometric": "rgb", "planarconfig": "separate", "rowsperstrip": 2100},
    ),
}


@pytest.mark.parametrize("compression", ["lzw", "deflate"])
@pytest.mark.parametrize("name", STRIPS)
def test_strips_of_tiff(name, compression, tmp_path):
    samples, options = STRIPS[name]
    path = str(tmp_path / "a.tif")
    tifffile.imwrite(path, samples, compression=compression, **options)
    with rasterio.open(path) as opened:
        expected = without_band(opened.read())
    index = anychunk.index(path)
    assert pieces.compression_of(index["0/0/image"])
    index.save(str(tmp_path / "a.json"))
    for target in (path, str(tmp_path / "a.json")):
        array = anychunk.open_array(target)
        for rows in (slice(2090, 2101), slice(0, 5), slice(1000, 1064), slice(699, 703)):
            np.testing.assert_array_equal(array[..., rows, 3:90], expected[..., rows, 3:90])
        np.testing.assert_array_equal(array[...], expected)


@pytest.mark.parametrize("compression", ["lzw", "deflate"])
@pytest.mark.parametrize("cut", [100, 10**7])
def test_a_cut_strip_raises(compression, cut, tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, PLANE, compression=compression, rowsperstrip=2101, metadata=None)
    with tifffile.TiffFile(path) as tiff:
        offset, length = tiff.pages[0].dataoffsets[0], tiff.pages[0].databytecounts[0]
    data = bytearray(path.read_bytes())
    data[offset + length - min(cut, length - 10) : offset + length] = bytes(min(cut, length - 10))
    path.write_bytes(data)
    with pytest.raises(AnychunkError):
        anychunk.open_array(str(path))[...]
    array = anychunk.open_array(str(path))
    with pytest.raises(AnychunkError):
        _ = array[2090:]


def test_small_streams_stay_whole(tmp_path):
    path = nrrd_file(tmp_path / "small.nrrd", volume=VOLUME[:20])
    array = anychunk.open_array(path)
    assert array.chunks == (20, 70, 90)
    assert anychunk.index(path)["0/0/image"].codecs[-1]["name"] == "gzip"


def test_verification(file):
    report = anychunk.verify(file)
    assert report.is_good
    assert not [f for f in report.findings if f.severity != "info"]


@pytest.mark.processes
@needs_s3
def test_s3(tmp_path):
    (tmp_path / "data" / "bucket").mkdir(parents=True)
    nrrd_file(tmp_path / "data" / "bucket" / "a.nrrd")
    with serve_s3(tmp_path / "data") as storage:
        url = "s3://bucket/a.nrrd"
        assert_equal(anychunk.open_array(url, storage=storage))
        saved = str(tmp_path / "a.json")
        anychunk.index(url, storage=storage).save(saved, storage=storage)
        assert_equal(anychunk.open_array(saved, storage=storage, allow=["s3://bucket"]))


@pytest.mark.parametrize("marks", [{}, {"restart_marker_rows": 1}], ids=["plain", "restarts"])
def test_rows_of_a_jpeg_strip(marks, tmp_path):
    """A window of a strip of 9 MB decodes its rows, exactly as a crop of the whole."""
    image = np.cumsum(RNG.integers(-3, 4, (2000, 1500, 3)), axis=0).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", subsampling=2, **marks)
    path = str(tmp_path / "a.tif")
    with tifffile.TiffWriter(path) as writer:
        writer.write(
            iter([file.getvalue()]),
            shape=image.shape,
            dtype=np.uint8,
            photometric="ycbcr",
            subsampling=(2, 2),
            compression="jpeg",
            rowsperstrip=2000,
        )
    array = anychunk.open_array(path)
    assert array.chunks[-2:] == (2000, 1500)
    whole = array[...]
    with rasterio.open(path) as opened:
        np.testing.assert_array_equal(whole, opened.read())
    for first, stop in ((0, 10), (100, 164), (999, 1063), (1500, 1564), (1990, 2000)):
        np.testing.assert_array_equal(array[:, first:stop, 7:90], whole[:, first:stop, 7:90])
        np.testing.assert_array_equal(array[1, first:stop], whole[1, first:stop])


@pytest.mark.parametrize("compression", ["lzw", "deflate"])
@pytest.mark.parametrize("name", ["bytes", "predictor", "strips", "planes"])
def test_strips_stay_whole_for_other_software(name, compression, tmp_path):
    """The layout of osml-imagery-io has the strips of the file, with its codec."""
    samples, options = STRIPS[name]
    path = str(tmp_path / "a.tif")
    tifffile.imwrite(path, samples, compression=compression, **options)
    with rasterio.open(path) as opened:
        expected = opened.read()
    index = anychunk.index(path)
    assert pieces.compression_of(index["0/0/image"])
    index.save(str(tmp_path / "a.json"), layout="osml")
    saved = anychunk.index(str(tmp_path / "a.json"))["0/data"]
    assert [codec["name"] for codec in saved.codecs] == ["bytes", "anychunk.tiff-tile"]
    assert saved.chunk_shape[-2:] == (options["rowsperstrip"], expected.shape[-1])
    found = anychunk.open(str(tmp_path / "a.json"))["0/data"]
    np.testing.assert_array_equal(found[...], expected)
