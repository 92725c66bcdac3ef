"""Long streams whose checksum is wrong, or that go on after their last row."""

import gzip
import warnings
import zlib
from dataclasses import replace
from pathlib import Path

import nibabel
import nrrd
import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
from anychunk import limits
from anychunk.cli import main
from anychunk.errors import AnychunkError, ChunkDecodeError
from anychunk.model.index import Computed, GroupIndex
from anychunk.zarr.store import IndexStore
from tests.support.http_server import serve

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

RNG = np.random.default_rng(11)
VOLUME = (np.cumsum(RNG.normal(0, 3, (64, 64, 80)), axis=2) + 1000).astype(np.int16)
PLANE = VOLUME.reshape(-1, 80)
FIRST, LAST = 3, 60
"""Slices in the first and in the last piece."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Cut streams into pieces of 128 KiB, so that small volumes have several."""
    monkeypatch.setattr("anychunk.formats._pieces.LEAST", 1 << 17)
    monkeypatch.setattr("anychunk.formats.tiff.byte_ranges.LEAST", 1 << 17)


@pytest.fixture
def long_streams(monkeypatch):
    """Take every stream for one that is too long to be read to its end at first."""
    monkeypatch.setattr("anychunk.decode.pieces.MOST_CHECKED", 0)


def write_npy(path):
    with gzip.GzipFile(path, "wb", compresslevel=0) as file:
        np.save(file, VOLUME)


def write_nifti(path):
    image = nibabel.Nifti1Image(VOLUME.transpose(), np.eye(4)).to_bytes()
    Path(path).write_bytes(gzip.compress(image, 0))


def write_nrrd(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pynrrd: datetime.utcnow
        nrrd.write(path, VOLUME, {"encoding": "gzip"}, compression_level=0, index_order="C")


def write_tiff(path, *strips, rows=len(PLANE), height=len(PLANE)):
    with tifffile.TiffWriter(path) as writer:
        writer.write(
            iter(strips or [zlib.compress(PLANE.tobytes(), 0)]),
            shape=(height, PLANE.shape[1]),
            dtype=PLANE.dtype,
            compression="adobe_deflate",
            rowsperstrip=rows,
            photometric="minisblack",
            metadata=None,
        )


WRITE = {"a.npy.gz": write_npy, "a.nii.gz": write_nifti, "a.nrrd": write_nrrd, "a.tif": write_tiff}


def stream_end(path):
    """Return where the stream of a file ends."""
    if path.suffix != ".tif":
        return path.stat().st_size
    with tifffile.TiffFile(path) as opened:
        page = opened.pages[0]
        return page.dataoffsets[0] + page.databytecounts[0]


@pytest.fixture(params=WRITE)
def sound(request, tmp_path):
    WRITE[request.param](str(tmp_path / request.param))
    return tmp_path / request.param


@pytest.fixture(params=["checksum", "middle"])
def damaged(request, sound):
    """Damage the checksum, or a sample that is stored as it is."""
    data, end = bytearray(sound.read_bytes()), stream_end(sound)
    data[end - 5 if request.param == "checksum" and sound.suffix != ".tif" else end - 3] ^= 1
    if request.param == "middle":
        data = bytearray(sound.read_bytes())
        data[end - VOLUME.nbytes // 2] ^= 1
    sound.write_bytes(data)
    return sound


class Slices:
    """An array as slices, of a volume or of rows of a page."""

    def __init__(self, url):
        self.array = anychunk.open_array(str(url))

    def __getitem__(self, number):
        if self.array.ndim == 3:
            return self.array[number]
        return self.array[64 * number : 64 * number + 64]

    @property
    def decoded(self):
        """How many bytes of the stream were decoded so far."""
        walkers = self.array.store.chunk_reader(self.array.path).pieces._walkers.values()
        return sum(walker.decoded for walker in walkers)


def test_sound_streams_are_decoded_to_their_end_once(sound):
    with limits.override(recent_bytes=0):
        slices = Slices(sound)
        np.testing.assert_array_equal(slices[FIRST], VOLUME[FIRST])
        whole = slices.decoded
        assert VOLUME.nbytes <= whole <= VOLUME.nbytes + 512  # a header precedes the samples
        np.testing.assert_array_equal(slices[FIRST + 1], VOLUME[FIRST + 1])
        np.testing.assert_array_equal(slices[LAST], VOLUME[LAST])
        assert slices.decoded - whole < VOLUME.nbytes


def test_a_stream_that_was_read_whole_is_not_checked_again(sound):
    with limits.override(recent_bytes=0):
        slices = Slices(sound)
        np.testing.assert_array_equal(slices.array[...].reshape(VOLUME.shape), VOLUME)
        np.testing.assert_array_equal(slices[FIRST], VOLUME[FIRST])
        assert slices.decoded < VOLUME.nbytes


def test_the_first_window_of_a_damaged_stream_raises(damaged):
    slices = Slices(damaged)
    for number in (FIRST, FIRST, LAST, 30):
        with pytest.raises(ChunkDecodeError, match=r"chunk \("):
            _ = slices[number]
    with pytest.raises(ChunkDecodeError):
        _ = slices.array[...]
    with pytest.raises(ChunkDecodeError):
        _ = Slices(damaged)[LAST]


@pytest.mark.usefixtures("long_streams")
def test_a_long_stream_raises_once_its_end_was_reached(damaged):
    """Cached pieces, too: the window before the end is in memory."""
    slices = Slices(damaged)
    np.testing.assert_array_equal(slices[FIRST], VOLUME[FIRST])
    with pytest.raises(ChunkDecodeError):
        _ = slices[LAST]
    for number in (FIRST, FIRST + 1, LAST):
        with pytest.raises(ChunkDecodeError):
            _ = slices[number]


@pytest.mark.usefixtures("long_streams")
def test_most_of_a_long_stream_raises(damaged):
    """What is decoded at once reaches the end, even if the last piece is not wanted."""
    slices = Slices(damaged)
    with pytest.raises(ChunkDecodeError):
        _ = slices.array[: slices.array.shape[0] * 3 // 4]
    with pytest.raises(ChunkDecodeError):
        _ = slices[FIRST]


@pytest.mark.processes
def test_remote_streams_raise_once_their_end_was_reached(damaged):
    with serve(damaged.parent) as server:
        slices = Slices(f"{server.url}/{damaged.name}")
        np.testing.assert_array_equal(slices[FIRST], VOLUME[FIRST])
        with pytest.raises(ChunkDecodeError):
            _ = slices[LAST]
        for number in (FIRST, LAST):
            with pytest.raises(ChunkDecodeError):
                _ = slices[number]


def test_many_streams(tmp_path, monkeypatch):
    """What is known of streams outlives the states to continue from."""
    monkeypatch.setattr("anychunk.decode.pieces.MOST_WALKERS", 1)
    rows = PLANE.reshape(2, 2048, 80)
    strips = [zlib.compress(part.tobytes()) for part in rows]
    write_tiff(str(tmp_path / "a.tif"), strips[0], strips[1][:-1] + b"\0", rows=2048)
    with limits.override(recent_bytes=0):
        slices = Slices(tmp_path / "a.tif")
        for _ in range(2):
            np.testing.assert_array_equal(slices[FIRST], VOLUME[FIRST])
            with pytest.raises(ChunkDecodeError):
                _ = slices[LAST]
        assert slices.array.store.chunk_reader(slices.array.path).pieces.damaged == 1


LONGER = {
    "a row": PLANE[:1].tobytes(),
    "a byte": b"\0",
    "as many": PLANE.tobytes(),
}


@pytest.mark.parametrize("level", [0, 6])
@pytest.mark.parametrize("more", LONGER)
def test_strips_of_too_many_rows(more, level, tmp_path):
    """A long strip is refused as a short one is, at the first window."""
    strip = zlib.compress(PLANE.tobytes() + LONGER[more], level)
    write_tiff(str(tmp_path / "a.tif"), strip)
    for selection in (slice(0, 10), slice(4000, 4010), ...):
        with pytest.raises(ChunkDecodeError):
            _ = anychunk.open_array(str(tmp_path / "a.tif"))[selection]
    with pytest.raises(ChunkDecodeError):
        anychunk.index(str(tmp_path / "a.tif")).save(str(tmp_path / "a.json"))
    small = zlib.compress(PLANE[:100].tobytes() + LONGER[more], level)
    write_tiff(str(tmp_path / "small.tif"), small, rows=100, height=100)
    with pytest.raises(ChunkDecodeError):
        _ = anychunk.open_array(str(tmp_path / "small.tif"))[:10]


def test_strips_before_the_last_have_their_rows(tmp_path):
    parts = [PLANE[:2049], PLANE[2048:]]
    write_tiff(str(tmp_path / "a.tif"), *(zlib.compress(p.tobytes()) for p in parts), rows=2048)
    array = anychunk.open_array(str(tmp_path / "a.tif"))
    np.testing.assert_array_equal(array[2048:], PLANE[2048:])
    with pytest.raises(ChunkDecodeError):
        _ = array[:10]


@pytest.mark.parametrize("rows", [2000, 2048], ids=["short", "padded"])
def test_last_strips_may_be_padded(rows, tmp_path):
    """The last strip has the rows of the image, or as many as the others."""
    path, height = str(tmp_path / "a.tif"), 4048
    parts = [PLANE[:2048], PLANE[2048 : 2048 + rows]]
    write_tiff(path, *(zlib.compress(p.tobytes()) for p in parts), rows=2048, height=height)
    with rasterio.open(path) as opened:
        expected = opened.read(1)
    np.testing.assert_array_equal(expected, PLANE[:height])
    anychunk.index(path).save(str(tmp_path / "a.json"))
    for target in (path, str(tmp_path / "a.json")):
        array = anychunk.open_array(target)
        np.testing.assert_array_equal(array[4000:], expected[4000:])
        np.testing.assert_array_equal(array[...], expected)


@pytest.mark.parametrize("rows", [1999, 2001, 2047, 2049])
def test_last_strips_of_other_lengths(rows, tmp_path):
    path = str(tmp_path / "a.tif")
    parts = [PLANE[:2048], np.resize(PLANE, (rows, 80))]
    write_tiff(path, *(zlib.compress(p.tobytes()) for p in parts), rows=2048, height=4048)
    with pytest.raises(AnychunkError):
        _ = anychunk.open_array(path)[2100:2110]


def info(capsys, url):
    with pytest.raises(SystemExit) as ended:
        main(["info", str(url)])
    assert ended.value.code in (0, None)
    return "before the end of their stream" in capsys.readouterr().out


@pytest.mark.processes
def test_info_says_what_is_not_checked_at_first(sound, capsys, monkeypatch):
    assert not info(capsys, sound)
    with serve(sound.parent) as server:
        assert info(capsys, f"{server.url}/{sound.name}")
    monkeypatch.setattr("anychunk.decode.pieces.MOST_CHECKED", 0)
    assert info(capsys, sound)
    tifffile.imwrite(sound.parent / "lzw.tif", PLANE, compression="lzw", rowsperstrip=4096)
    assert not info(capsys, sound.parent / "lzw.tif"), "without a checksum"


@pytest.mark.usefixtures("long_streams")
def test_verification_finds_damage(damaged):
    report = anychunk.verify(str(damaged))
    assert not report.is_good


@pytest.mark.usefixtures("long_streams")
def test_computed_chunks_are_not_kept(tmp_path):
    """A chunk that was computed from pieces raises once their stream is known to be damaged."""
    write_nrrd(str(tmp_path / "a.nrrd"))
    data = bytearray((tmp_path / "a.nrrd").read_bytes())
    data[-5] ^= 1
    (tmp_path / "a.nrrd").write_bytes(data)
    base = anychunk.index(str(tmp_path / "a.nrrd"))["0/0/image"]
    chunks = Computed(
        source="base",
        method="downsample",
        configuration={"ratio": (2, 2, 2), "method": "average"},
        grid=(4, 1, 1),
    )
    shape = {"shape": (32, 32, 40), "chunk_shape": (8, 32, 40)}
    codecs = ({"name": "bytes", "configuration": {"endian": "little"}},)
    half = replace(base, codecs=codecs, chunks=chunks, **shape)
    opened = IndexStore(GroupIndex(members={"base": base, "half": half}))
    assert opened.get_sync("half/c/0/0/0") is not None
    for key in ("half/c/3/0/0", "half/c/0/0/0", "base/c/0/0/0"):
        with pytest.raises(ChunkDecodeError):
            opened.get_sync(key)
