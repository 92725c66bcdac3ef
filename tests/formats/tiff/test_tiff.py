"""TIFF files of a dozen projects, each page against tifffile, or against rasterio where it fails."""

import logging
import math
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import AnychunkError
from anychunk.model.index import ArrayIndex
from anychunk.testing.formats import FormatContract
from tests.support.corpus import needs_corpus, samples, sha256
from tests.support.tiff_images import image_arrays, pages_of_array

CORPUS = [*samples("tiff/"), *samples("ome-tiff/")]

NOT_LIKE_TIFFFILE = {
    "lerc_float64_with_mask.tif": "pixels that LERC masks are NaN, as libtiff shows them",
    "int24.tif": "tifffile knows no signed integers of 24 bits; as rasterio",
}
NO_READER = {"uint33.tif": "no reader opens 33 bits"}
LACKS_COMPANIONS = {
    "multifile-Z1.ome.tiff",
    "TSeries-camp-005_Cycle00001_Ch1_000001.ome.tif",
}
"""Parts of sets whose other files are not in the corpus: only their own planes can be read."""
PAGES_NOT_COMPARED = {
    "test_ifd_loop_subifd.tif": "its directories run in a circle, which tifffile follows for ever",
    "second_image_width_above_32bit.tif": "its second image is larger than the file",
    **NOT_LIKE_TIFFFILE,
}
MOST_PLANES = 40
LARGE = 1 << 24


def pages_of(tif):
    """Give the first pages; directories that run in a circle end where tifffile says so."""
    for i in range(MOST_PLANES):
        try:
            yield tif.pages[i]
        except IndexError:
            return


def expected_of(page, array):
    """Turn tifffile's (separate, depth, y, x, contiguous) into (depth, band, y, x)."""
    planes, depth, height, width, samples_ = page.shaped
    moved = np.moveaxis(array.reshape(page.shaped), (0, 1, 4), (1, 0, 2))
    found = moved.reshape(depth, planes * samples_, height, width)
    return found if depth > 1 else found[0]


def first_page(path):
    """Return the first page as (band, y, x), or (z, band, y, x) if it has a depth."""
    array = anychunk.open_array(path)
    names = array.metadata.dimension_names
    depth, bands = tifffile_shape(path)
    keep = {"t": slice(1), "z": slice(depth), "c": slice(bands)}
    data = array[tuple(keep.get(name, slice(None)) for name in names)]
    found = pages_of_array(data, names)
    return found if depth > 1 else found[0]


def tifffile_shape(path):
    """Return the depth and the bands of the first page; bands None if tifffile does not know."""
    try:
        with tifffile.TiffFile(path) as tif:
            return tif.pages[0].imagedepth, tif.pages[0].samplesperpixel
    except Exception:
        return 1, None


@needs_corpus
@pytest.mark.parametrize("sample", CORPUS, ids=lambda s: s.path)
def test_first_page_is_what_the_index_says(sample):
    readings = sample.readings()
    found = first_page(sample.file)
    hashes = {sha256(found), sha256(np.moveaxis(found, -3, -1))}
    if sample.file.name in NO_READER:
        assert found.shape[-2:] == (1, 1)
        return
    theirs = readings.get("tifffile pages[0]")
    if theirs is None or sample.file.name in NOT_LIKE_TIFFFILE:
        assert readings["rasterio.read()"][0] in hashes
    else:
        assert theirs[0] in hashes


def remember(planes, plane):
    planes.setdefault((plane.shape, plane.dtype.name), set()).add(sha256(plane))


@needs_corpus
@pytest.mark.parametrize("sample", CORPUS, ids=lambda s: s.path)
def test_every_page_is_there(sample):
    """Each page that tifffile decodes is a plane of one of our arrays."""
    if sample.file.name in PAGES_NOT_COMPARED | dict.fromkeys(LACKS_COMPANIONS):
        pytest.skip(
            PAGES_NOT_COMPARED.get(sample.file.name, "its companions are not in the corpus")
        )
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)
    planes = {}
    opened = anychunk.open(sample.file)
    for path, array in image_arrays(opened.store.index):
        if math.prod(array.shape[-2:]) > LARGE or math.prod(array.shape) > 4 * LARGE:
            continue
        data = opened[path][...]
        if path.endswith("mask") and set(np.unique(data)) <= {0, 255}:
            remember(planes, (data > 0)[None])  # stored as bits
        names = array.dimension_names
        count = array.shape[names.index("c")] if "c" in names else 1
        for bands in {1, count, *(n for n in (2, 3, 4) if count % n == 0)} if data.size else ():
            found = pages_of_array(data, names, bands)
            for plane in found[:200]:
                remember(planes, plane)
            remember(planes, found)  # a page with a depth
    compared = 0
    with tifffile.TiffFile(sample.file) as tif:
        for page in pages_of(tif):
            if page.size > LARGE:
                compared += 1  # one of these is the first page, which the other test reads
                continue
            try:
                array = page.asarray()
            except Exception:
                continue  # tifffile cannot: the index names another reader for the first page
            if array.size:
                expected = expected_of(page.keyframe, array)
                assert sha256(expected) in planes[expected.shape, expected.dtype.name], page.index
                compared += 1
    assert compared or "tifffile FAILS" in sample.oracle or "(0,0)" in sample.oracle


@needs_corpus
@pytest.mark.parametrize("sample", samples("malformed/tiff"), ids=lambda s: s.path)
def test_malformed(sample):
    """An index or an error of ours; then pixels, or an error of ours."""
    error = None
    try:
        opened = anychunk.open(sample.file)
    except anychunk.AnychunkError as e:
        error = str(e)
    if error is not None:
        assert str(sample.file) in error
        return
    for path, array in opened.store.index.arrays():
        assert isinstance(array, ArrayIndex)
        window = tuple(slice(0, min(n, 300)) for n in array.shape)
        try:
            data = opened[path][window]
        except anychunk.AnychunkError:
            continue
        assert data.shape == tuple(min(n, 300) for n in array.shape)


WITHIN = """
import resource, sys, time, warnings
from pathlib import Path
import anychunk
import anychunk.api, imagecodecs, tifffile
warnings.simplefilter("ignore")

def look(path):
    try:
        opened = anychunk.open(path)
        for name, array in opened.store.index.arrays():
            try:
                opened[name][tuple(slice(0, min(n, 300)) for n in array.shape)]
            except anychunk.AnychunkError:
                pass
    except anychunk.AnychunkError:
        pass

# threads of decoders reserve address space of their own, before anything is counted
look(sys.argv[1])
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)
for path in sys.argv[1:]:
    start = time.process_time()
    look(path)
    print(f"{time.process_time() - start:.2f} {path}", flush=True)
"""


@pytest.mark.processes
@needs_corpus
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is bounded as Linux does")
def test_malformed_files_take_little():
    """Each within 5 seconds of processor time, and all within 512 MiB of memory."""
    files = [str(sample.file) for sample in samples("malformed/tiff")]
    done = subprocess.run(
        [sys.executable, "-c", WITHIN, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    spent = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert [path for _, path in spent] == files
    assert [line for line in spent if float(line[0]) > 5] == []


SMALL = np.random.default_rng(0).integers(0, 4000, (70, 90)).astype("uint16")


class TestTiff(FormatContract):
    prefixes = 25

    def is_incomplete(self, index):
        return bool(index.attributes["tiff"].get("refused"))

    def samples(self, folder):
        rgb = np.stack([SMALL % 256, SMALL % 7, SMALL % 31], -1).astype("uint8")
        stack = np.stack([SMALL, SMALL + 1, SMALL * 2])
        yield self.written(folder / "a.tif", SMALL, tile=(32, 32), compression="zlib", predictor=2)
        yield self.written(folder / "b.tif", SMALL, rowsperstrip=9, compression="lzw")
        yield self.written(folder / "c.tif", SMALL, byteorder=">", bigtiff=True)
        yield self.written(folder / "d.tif", rgb, compression="zstd", tile=(16, 16))
        path, _ = self.written(folder / "e.tif", stack, metadata={"axes": "ZYX"}, ome=True)
        yield path, {"0/0/image": stack}

    @staticmethod
    def written(path, array, **options):
        tifffile.imwrite(path, array, **options)
        bands_first = np.moveaxis(array, -1, 0) if array.ndim == 3 else array
        return path, {"0/0/image": bands_first}


@pytest.mark.parametrize("byteorder", "<>")
@pytest.mark.parametrize("bits", [1, 2, 4, 8, 12, 16, 32])
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_bits_and_bands(tmp_path, byteorder, bits, planar):
    dtype = "bool" if bits == 1 else "uint8" if bits <= 8 else "uint16" if bits <= 16 else "uint32"
    array = np.random.default_rng(bits).integers(0, 2 ** min(bits, 30), (3, 21, 35)).astype(dtype)
    data = array if planar == "separate" else np.moveaxis(array, 0, -1)
    options = {} if dtype == "bool" else {"bitspersample": bits}
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, data, byteorder=byteorder, planarconfig=planar, photometric="rgb",
                     rowsperstrip=8, **options)  # fmt: skip
    # what readers make of it: tifffile writes 1 and 12 bits in an order of its own
    read = tifffile.imread(path)
    expected = read if planar == "separate" else np.moveaxis(read, -1, 0)
    np.testing.assert_array_equal(anychunk.open_array(path)[...], expected)


def test_absent_tiles_are_fill_and_unreadable_ones_are_not(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, SMALL, tile=(32, 32), compression="zlib",
                     extratags=[(42113, "s", 0, "7", True)])  # fmt: skip
    with tifffile.TiffFile(path, mode="r+") as tif:
        tags = tif.pages[0].tags
        offsets, counts = list(tags[324].value), list(tags[325].value)
        offsets[0], counts[0], offsets[1] = 0, 0, 10**6
        tags[324].overwrite(offsets)
        tags[325].overwrite(counts)
    array = anychunk.open_array(path)
    assert (array[:32, :32] == 7).all()
    with pytest.raises(anychunk.AnychunkError, match=r"chunk \(0, 1\).*\b1000000\b"):
        array[:32, 32:64]
    np.testing.assert_array_equal(array[32:, :], SMALL[32:])


def test_table_shorter_than_the_grid_is_not_fill(tmp_path):
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, SMALL, tile=(32, 32), compression="zlib")
    with tifffile.TiffFile(path, mode="r+") as tif:
        tif.pages[0].tags[257].overwrite(170)
    array = anychunk.open_array(path)
    assert array.shape == (170, 90)
    np.testing.assert_array_equal(array[:64], SMALL[:64])
    with pytest.raises(anychunk.AnychunkError):
        array[140:]


def test_levels_and_masks(tmp_path):
    path = tmp_path / "a.tif"
    mask = SMALL > 10
    with tifffile.TiffWriter(path) as tif:
        tif.write(SMALL, tile=(16, 16), metadata=None)
        tif.write(mask, subfiletype=4, metadata=None)
        tif.write(SMALL[::2, ::2], subfiletype=1, metadata=None)
        tif.write(mask[::2, ::2], subfiletype=5, metadata=None)
        tif.write(SMALL[::5, ::5], subfiletype=1, metadata=None)
    group = anychunk.open(path)
    assert sorted(group) == ["0"]
    image = group["0"]
    assert sorted(image) == ["0", "1", "2"]
    assert [sorted(image[name]) for name in "012"] == [
        ["image", "mask"],
        ["image", "mask"],
        ["image"],
    ]
    np.testing.assert_array_equal(image["1/image"][...], SMALL[::2, ::2])
    np.testing.assert_array_equal(image["2/image"][...], SMALL[::5, ::5])
    assert image["0/mask"].dtype == "uint8"
    np.testing.assert_array_equal(image["0/mask"][...], mask * np.uint8(255))
    np.testing.assert_array_equal(image["1/mask"][...], mask[::2, ::2] * np.uint8(255))
    assert image.attrs["anychunk.display"]["mask"] == {"path": "mask", "valid": 255}
    datasets = image.attrs["ome"]["multiscales"][0]["datasets"]
    assert [d["path"] for d in datasets] == ["0/image", "1/image", "2/image"]
    assert datasets[1]["coordinateTransformations"][0]["scale"] == [2.0, 2.0]


def test_subifds_are_levels(tmp_path):
    path = tmp_path / "a.ome.tif"
    big = np.random.default_rng(0).integers(0, 255, (2, 128, 128)).astype("uint8")
    with tifffile.TiffWriter(path, ome=True) as tif:
        tif.write(big, subifds=1, tile=(32, 32), metadata={"axes": "CYX"})
        tif.write(big[:, ::2, ::2], subfiletype=1, tile=(32, 32))
    image = anychunk.open(path)["0"]
    assert image["0/image"].metadata.dimension_names == ("c", "y", "x")
    np.testing.assert_array_equal(image["0/image"][...], big)
    np.testing.assert_array_equal(image["1/image"][...], big[:, ::2, ::2])


def test_stack_of_one_directory(tmp_path):
    """ImageJ writes one directory for many planes that lie one after the other."""
    path = tmp_path / "a.tif"
    stack = np.random.default_rng(0).integers(0, 999, (3, 4, 2, 30, 20)).astype("uint16")
    tifffile.imwrite(path, stack, imagej=True, metadata={"axes": "TZCYX"})
    array = anychunk.open_array(path)
    assert array.metadata.dimension_names == ("t", "c", "z", "y", "x")
    np.testing.assert_array_equal(array[...], stack.swapaxes(1, 2))


def test_many_pages_open_without_reading_each(tmp_path):
    path, count = tmp_path / "a.tif", 20_000
    stack = np.zeros((count, 8, 8), "uint8")
    stack[:, 1, 2] = np.arange(count) % 251
    tifffile.imwrite(path, stack, metadata={"axes": "TYX"}, photometric="minisblack")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array = anychunk.open_array(path)
    assert array.shape == (count, 8, 8)
    np.testing.assert_array_equal(array[count - 99 : count - 89], stack[count - 99 : count - 89])


def test_one_bad_page_among_good_ones_is_named(tmp_path):
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as tif:
        tif.write(SMALL, metadata=None)
        tif.write(SMALL[:10, :10].astype("uint8"), metadata=None)
    with tifffile.TiffFile(path, mode="r+") as tif:
        tif.pages[1].tags[259].overwrite(34676)
    group = anychunk.open(path)
    assert sorted(group) == ["0"]
    assert "page 1" in group.attrs["tiff"]["refused"][0]
    assert "34676" in group.attrs["tiff"]["refused"][0]


def test_zeros_of_a_table_of_another_length_do_not_say_that_there_is_no_data(tmp_path):
    """A damaged count makes the first of the wrong offsets zero; rasterio reads the header."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.full((10, 10), 7, np.uint16), metadata=None, rowsperstrip=10)
    data = bytearray(path.read_bytes()) + bytes(64)
    with tifffile.TiffFile(path) as file:
        entry = file.pages[0].tags["StripOffsets"].offset
    data[entry + 4 : entry + 8] = struct.pack("<I", 9)
    data[entry + 8 : entry + 12] = struct.pack("<I", len(data) - 64)
    path.write_bytes(data)
    with pytest.raises(AnychunkError):
        anychunk.open_array(str(path))[...]


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("compression", [None, "zlib", "lzw"])
def test_the_only_strip_without_a_byte_count_is_not_absent(tmp_path, compression):
    """A count of 0 beside an offset: libtiff takes what follows, GDAL's absent strips have none."""
    import rasterio

    path = tmp_path / "a.tif"
    image = np.arange(600, dtype=np.uint16).reshape(20, 30)
    tifffile.imwrite(path, image, metadata=None, rowsperstrip=20, compression=compression)
    data = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        tag = file.pages[0].tags["StripByteCounts"]
    data[tag.valueoffset : tag.valueoffset + 2] = b"\0\0"
    data[tag.valueoffset + 2 : tag.valueoffset + 4] = b"\0\0"
    path.write_bytes(data)
    with rasterio.open(path) as file:
        np.testing.assert_array_equal(file.read(1), image)
    np.testing.assert_array_equal(anychunk.open_array(str(path))[...], image)
