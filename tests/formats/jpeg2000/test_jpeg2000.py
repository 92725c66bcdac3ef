import struct
import subprocess
import sys

import imagecodecs
import numpy as np
import pytest

import anychunk
from anychunk import limits
from anychunk.codecs.jpeg2000 import tiles, tiny_tiles
from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.errors import AnychunkError, FormatError, LimitError, TruncatedError, UnsupportedError
from anychunk.testing.formats import FormatContract
from tests.support.corpus import needs_corpus, samples, sha256
from tests.support.effort import at_most
from tests.support.gdal import without_band
from tests.support.j2k_streams import (
    compress,
    decompress,
    field,
    interleaved,
    needs_openjpeg,
    opened,
    with_packed_headers,
)
from tests.support.patience import PATIENCE_S

IMAGE = field((701, 653), depth=12)
RGB = field((300, 260), bands=3)
STEPS = 1_000_000
"""Importing what the format needs is the most of it; a stream takes some thousands."""


def box(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(body), kind) + body


def jp2(stream: bytes, *boxes: bytes, inside: bytes = b"") -> bytes:
    siz = read_main_header(stream).siz
    ihdr = struct.pack(
        ">IIHBBBB", siz.image.height, siz.image.width, len(siz.components), 7, 7, 0, 0
    )
    colr = box(b"colr", b"\1\0\0\0\0\0\x11")
    return (
        b"\0\0\0\x0cjP  \r\n\x87\n"
        + box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
        + box(b"jp2h", box(b"ihdr", ihdr) + colr + inside)
        + b"".join(boxes)
        + box(b"jp2c", stream)
    )


def assert_levels(group, stream: bytes, *, tolerance: int = 0) -> None:
    """Every level equals what opj_decompress gives for the whole stream."""
    levels = sorted(int(name) for name in group["0"].group_keys())
    assert levels == list(range(read_main_header(stream).levels + 1))
    for level in levels:
        expected = without_band(np.stack(decompress(stream, level=level)))
        found = group[f"0/{level}/image"][...]
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        difference = np.abs(found.astype(np.int64) - expected)
        assert difference.max() <= tolerance, f"level {level}"


@needs_openjpeg
class TestJpeg2000(FormatContract):
    def samples(self, folder):
        made = {
            "a.j2k": compress(list(RGB[:, :90, :70]), "-t", "32,32", "-n", "3"),
            "b.jp2": jp2(compress(list(RGB[:, :64, :50]), "-r", "10,1", "-TP", "R")),
            "c.jph": jp2(imagecodecs.htj2k_encode(RGB[0, :64, :50], tile=(32, 32))),
        }
        for name, data in made.items():
            file = folder / name
            file.write_bytes(data)
            bands, height, width = {"a.j2k": (3, 90, 70), "b.jp2": (3, 64, 50), "c.jph": (1, 64, 50)}[name]  # fmt: skip
            yield file, {"0/0/image": without_band(RGB[:bands, :height, :width])}


@needs_openjpeg
@pytest.mark.parametrize("tile", [(64, 64), (192, 192), (256, 256), (301, 203), (320, 320), (500, 500), (640, 640), (1000, 1000)])  # fmt: skip
@pytest.mark.parametrize("options", [(), ("-I", "-r", "10")], ids=["5/3", "9/7"])
def test_tile_sizes(tmp_path, tile, options):
    stream = compress(list(IMAGE), "-t", f"{tile[0]},{tile[1]}", *options, depth=12)
    group = opened(tmp_path / "a.j2k", stream)
    assert group["0/0/image"].chunks == (min(tile[1], 701), min(tile[0], 653))
    if not options:
        np.testing.assert_array_equal(group["0/0/image"][...], IMAGE[0])
    assert_levels(group, stream, tolerance=1 if options else 0)


@needs_openjpeg
@pytest.mark.parametrize("tile", ["128,128", "301,203"])
@pytest.mark.parametrize(
    ("image", "grid"), [("37,21", "0,0"), ("37,21", "37,21"), ("100,3", "0,0"), ("37,21", "11,5")]
)
def test_offsets(tmp_path, tile, image, grid):
    stream = compress(list(IMAGE), "-t", tile, "-d", image, "-T", grid, depth=12)
    group = opened(tmp_path / "a.j2k", stream)
    np.testing.assert_array_equal(group["0/0/image"][...], IMAGE[0])
    np.testing.assert_array_equal(
        group["0/0/image"][250:390, 100:600:7], IMAGE[0, 250:390, 100:600:7]
    )
    assert_levels(group, stream)
    origin = [int(n) for n in image.split(",")]
    for level in group["0"].attrs["ome"]["multiscales"][0]["datasets"]:
        step = 2 ** int(level["path"].removesuffix("/image"))
        *_, shift = level["coordinateTransformations"]
        moved = shift.get("translation", [0, 0])
        assert moved == [-origin[1] % step, -origin[0] % step]


@needs_openjpeg
@pytest.mark.parametrize("progression", ["LRCP", "RLCP", "RPCL", "PCRL", "CPRL"])
@pytest.mark.parametrize(
    "options",
    [
        ("-r", "20,5,1", "-c", "[64,64],[32,32]", "-t", "100,100"),
        ("-TP", "R", "-SOP", "-EPH", "-TLM", "-PLT", "-t", "128,96"),
        ("-TP", "C", "-t", "128,96"),
        ("-I", "-r", "30,10", "-t", "111,77"),
    ],
    ids=["layers+precincts", "parts+markers", "parts", "9/7"],
)
def test_progressions(tmp_path, progression, options):
    stream = compress(list(RGB), "-p", progression, *options)
    group = opened(tmp_path / "a.j2k", stream)
    assert group["0"].attrs["j2k"]["progression"] == progression
    if "-I" not in options:
        np.testing.assert_array_equal(group["0/0/image"][...], RGB)
    assert_levels(group, stream, tolerance=1 if "-I" in options else 0)


@needs_openjpeg
@pytest.mark.parametrize("options", [("-TP", "R"), ("-TP", "R", "-p", "RPCL"), ("-TP", "C", "-p", "CPRL")])  # fmt: skip
def test_interleaved_tile_parts(tmp_path, options):
    stream = interleaved(compress(list(RGB), "-t", "128,96", *options))
    np.testing.assert_array_equal(np.stack(decompress(stream)), RGB)
    group = opened(tmp_path / "a.j2k", stream)
    np.testing.assert_array_equal(group["0/0/image"][...], RGB)
    assert group.store.index["0/0/image"].chunks.parts is not None
    assert_levels(group, stream)


@needs_openjpeg
@pytest.mark.parametrize("options", [(), ("-TP", "R"), ("-TP", "C", "-p", "CPRL")])
def test_packed_packet_headers(tmp_path, options):
    """PPT are numbered in each tile-part anew, where OpenJPEG wants a number once in a tile."""
    markers = ("-SOP", "-EPH", "-t", "128,96", "-r", "20,5,1")
    stream = with_packed_headers(compress(list(RGB), *markers, *options))
    if not options:
        np.testing.assert_array_equal(np.stack(decompress(stream)), RGB)
    group = opened(tmp_path / "a.j2k", stream)
    np.testing.assert_array_equal(group["0/0/image"][...], RGB)


@needs_openjpeg
@pytest.mark.parametrize("options", [(), ("-TP", "R"), ("-TP", "C", "-p", "CPRL")])
@pytest.mark.parametrize(
    "tiles", [("-t", "128,96"), ("-t", "101,77"), ("-t", "51,37", "-d", "13,9", "-T", "5,3")]
)
@pytest.mark.parametrize("is_interleaved", [False, True])
def test_packet_headers_in_the_main_header(tmp_path, options, tiles, is_interleaved):
    """Each tile reads alone; OpenJPEG reads one PPM of tile-parts that do not interleave."""
    markers = ("-SOP", "-EPH", "-r", "20,5,1", "-n", "4")
    plain = compress(list(RGB), *markers, *tiles, *options)
    plain = interleaved(plain) if is_interleaved else plain
    if not is_interleaved:
        whole = decompress(with_packed_headers(plain, in_main=1))
        np.testing.assert_array_equal(np.stack(whole), RGB)
    group = opened(tmp_path / "a.j2k", with_packed_headers(plain, in_main=3))
    array = group["0/0/image"]
    assert group.store.index["0/0/image"].chunks.grid[1] > 1
    assert group.store.index["0/0/image"].codecs[1]["configuration"]["main_header"]
    np.testing.assert_array_equal(array[:, 140:150, 130:190], RGB[:, 140:150, 130:190])
    assert_levels(group, plain)
    anychunk.save(anychunk.index(tmp_path / "a.j2k"), tmp_path / "index.json")
    assert_levels(anychunk.open(tmp_path / "index.json"), plain)


@needs_openjpeg
@pytest.mark.parametrize("is_interleaved", [False, True])
def test_packet_headers_in_the_main_header_of_whole_streams(tmp_path, is_interleaved):
    """Chunks that are whole codestreams: mixed subsampling with gaps, older saved indexes."""
    options = ("-SOP", "-EPH", "-t", "50,40", "-d", "3,1", "-TP", "R", "-n", "3")
    small = RGB[:1, :50, :65]
    plain = compress(
        [RGB[0, :100, :130], *np.repeat(small, 2, axis=0)], *options, sampling="@1x1:2x2:2x2", size=(100, 130)
    )  # fmt: skip
    plain = interleaved(plain) if is_interleaved else plain
    group = opened(tmp_path / "a.j2k", with_packed_headers(plain, in_main=2))
    codec = group.store.index["0/0/image"].codecs[1]["configuration"]
    assert codec["main_header"] is None
    reference = opened(tmp_path / "b.j2k", plain)
    for level in range(3):
        np.testing.assert_array_equal(
            group[f"0/{level}/image"][...], reference[f"0/{level}/image"][...]
        )


@needs_openjpeg
def test_damaged_packet_headers_in_the_main_header(tmp_path):
    options = ("-SOP", "-EPH", "-t", "128,96", "-TP", "R")
    stream = with_packed_headers(compress(list(RGB), *options), in_main=1)
    at = stream.index(b"\xff\x60")
    length, first = struct.unpack_from(">HxI", stream, at + 2)
    for data, error, words in (
        # one byte more or less in the first series, and a second marker of the same number
        (stream[: at + 5] + struct.pack(">I", first + 1) + stream[at + 9 :], FormatError, "PPM"),
        (stream[: at + 5] + b"\xff" * 4 + stream[at + 9 :], TruncatedError, "tile-part 1 "),
        (stream[: at + 2 + length] + stream[at : at + 2 + length] + stream[at + 2 + length :], FormatError, "Zppm"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            opened(tmp_path / "a.j2k", data)
    # a bit of a packet header: refused when its tile is read
    damaged = bytearray(stream)
    damaged[at + 12] ^= 0x40
    group = opened(tmp_path / "b.j2k", bytes(damaged))
    with pytest.raises(AnychunkError):
        group["0/0/image"][...]


@pytest.mark.parametrize("rest", [b"\xff" * 20, struct.pack(">I4s", 500, b"uuid") + b"cut"])
def test_what_is_no_box_behind_the_codestream(tmp_path, rest):
    stream = imagecodecs.jpeg2k_encode(IMAGE[0, :50, :60], level=0, codecformat="J2K")
    data = jp2(stream) + rest
    np.testing.assert_array_equal(imagecodecs.jpeg2k_decode(data), IMAGE[0, :50, :60])
    np.testing.assert_array_equal(
        opened(tmp_path / "a.jp2", data)["0/0/image"][...], IMAGE[0, :50, :60]
    )
    with pytest.raises(FormatError):
        opened(tmp_path / "b.jp2", data.replace(b"jp2c", b"jp2x"))


@needs_openjpeg
def test_one_tile_part_more_than_announced(tmp_path):
    stream = compress(list(RGB), "-TP", "R")
    made = stream.replace(b"\x06\xff\x93", b"\x05\xff\x93")  # TNsot, at the end of SOT
    assert made != stream
    np.testing.assert_array_equal(np.stack(decompress(made)), RGB)
    np.testing.assert_array_equal(opened(tmp_path / "a.j2k", made)["0/0/image"][...], RGB)


@needs_openjpeg
@pytest.mark.parametrize(
    "changes",
    ["T1=0,0,1,3,3,RLCP/T1=3,0,1,6,3,CPRL", "T1=0,0,1,6,1,LRCP/T1=0,1,1,6,3,PCRL"],
)
def test_progression_changes(tmp_path, changes):
    stream = compress(list(RGB), "-POC", changes)
    group = opened(tmp_path / "a.j2k", stream)
    np.testing.assert_array_equal(group["0/0/image"][...], RGB)
    assert_levels(group, stream)


@needs_openjpeg
@pytest.mark.parametrize("mode", [1, 2, 4, 8, 16, 32, 5, 63])
def test_block_styles(tmp_path, mode):
    stream = compress(list(RGB), "-M", str(mode), "-r", "20,5,1", "-t", "128,128")
    np.testing.assert_array_equal(opened(tmp_path / "a.j2k", stream)["0/0/image"][...], RGB)


@needs_openjpeg
@pytest.mark.parametrize("depth", range(1, 17))
@pytest.mark.parametrize("is_signed", [False, True])
def test_depths(tmp_path, depth, is_signed):
    if is_signed and depth == 1:
        pytest.skip("opj_compress reads no signed samples of one bit")
    image = field((130, 97), depth=depth, is_signed=is_signed)
    stream = compress(list(image), "-t", "64,50", "-n", "4", depth=depth)
    group = opened(tmp_path / "a.j2k", stream)
    assert group["0/0/image"].dtype == image.dtype
    np.testing.assert_array_equal(group["0/0/image"][...], without_band(image))


@needs_openjpeg
@pytest.mark.parametrize("tile", ["64,64", "48,50", "1000,1000"])
@pytest.mark.parametrize(("dx", "dy"), [(2, 2), (2, 1)])
def test_subsampled_components_are_brought_to_the_full_grid(tmp_path, tile, dx, dy):
    luma, chroma = field((130, 98))[0], field((130 // dy, 98 // dx), depth=7)[0]
    sampling = f"@1x1:{dx}x{dy}:{dx}x{dy}"
    stream = compress([luma, chroma, chroma], "-mct", "0", "-n", "3", "-t", tile, sampling=sampling)
    found = opened(tmp_path / "a.j2k", stream)["0/0/image"][...]
    np.testing.assert_array_equal(found[0], luma)
    for band in found[1:]:
        np.testing.assert_array_equal(band, chroma.repeat(dy, 0).repeat(dx, 1))


@needs_openjpeg
def test_all_components_subsampled_alike(tmp_path):
    image = field((130, 98))[0]
    stream = compress([image], "-t", "64,64", "-n", "3", sampling="@2x2", size=(260, 196))
    np.testing.assert_array_equal(opened(tmp_path / "a.j2k", stream)["0/0/image"][...], image)


@needs_openjpeg
def test_missing_tiles_without_samples(tmp_path):
    """Samples at every second column and row: the tiles that begin at 65 and end at 66 have none."""
    image = field((33, 33))[0]
    whole = compress([image], "-n", "3", sampling="@2x2", size=(65, 65))
    (expected,) = decompress(whole)
    wider = bytearray(whole)
    struct.pack_into(">2I", wider, 8, 66, 66)
    (seen,) = decompress(bytes(wider))
    np.testing.assert_array_equal(seen, expected)
    group = opened(tmp_path / "a.j2k", bytes(wider))
    assert group["0"].attrs["j2k"]["tiles"]["columns"] == 2
    np.testing.assert_array_equal(group["0/0/image"][...], expected)
    (lower,) = decompress(whole, level=1)
    np.testing.assert_array_equal(group["0/1/image"][...], lower)
    struct.pack_into(">2I", wider, 8, 67, 66)
    with pytest.raises(TruncatedError, match="1 of 4 tiles are missing, the first is tile 1"):
        opened(tmp_path / "a.j2k", bytes(wider))


EXCEPTIONS = {
    "float32_ieee754_split_reversible.jp2": "GDAL clips components of 1, 8 and 23 bits to bytes",
    "security_line_decode_dfs_vert.j2k": "decomposition styles of part 2 (DFS) are refused",
    "security_marker_com_underflow.j2k": "a marker segment shorter than its own length",
    "00r0_gray_l.jp2": "damaged: 251 bytes follow the packets that its header announces",
    "oj36.j2k": "its only reading takes three subsampled components for YCbCr and makes them RGB",
    "simple_dec_rev53_64x64_tiles_yuv.jph": "likewise",
    "simple_dec_rev53_64x64_yuv.jph": "likewise",
    "simple_enc_rev53_64x64_yuv.j2c": "likewise",
}
"""Files of the corpus that do not equal a reading, and why."""


def name(sample) -> str:
    return sample.file.name


@needs_corpus
@pytest.mark.parametrize("sample", [s for s in samples("jpeg2000/") if name(s) not in EXCEPTIONS], ids=name)  # fmt: skip
def test_corpus(sample):
    group = anychunk.open(sample.file)
    readings = sample.readings()
    full = group["0/0/image"][...]
    equal = [reader for reader, reading in readings.items() if equals(full, reading)]
    assert equal, "no reader agrees"
    half = readings.get("glymur[::2,::2]")
    has_offset = group["0"].attrs["j2k"]["image"]["x0"] > 0  # glymur begins elsewhere there
    if half is not None and "glymur[:]" in equal and not has_offset:
        assert equals(group["0/1/image"][...], half)
    if not name(sample).startswith("simple_dec_irv97"):  # they take seconds a level
        for level in group["0"].group_keys():
            assert group[f"0/{level}/image"][...].size


def equals(found: np.ndarray, reading) -> bool:
    expected, shape, dtype = reading
    shaped = found[None] if found.ndim == 2 and len(shape) == 3 else found
    if len(shape) == 3 and shaped.shape != shape:
        shaped = np.moveaxis(shaped, 0, -1)
    return shaped.shape == shape and str(found.dtype) == dtype and sha256(shaped) == expected


@needs_corpus
@needs_openjpeg
@pytest.mark.parametrize("file", ["float32_ieee754_split_reversible.jp2", "simple_dec_rev53_64x64_yuv.jph", "simple_enc_rev53_64x64_yuv.j2c", "simple_dec_rev53_64x64_tiles_yuv.jph"])  # fmt: skip
def test_corpus_components_as_stored(file):
    """Where readers convert, the first component is still that of opj_decompress' own decoder."""
    (sample,) = (s for s in samples("jpeg2000/") if name(s) == file)
    group = anychunk.open(sample.file)
    full = group["0/0/image"][...]
    data = sample.file.read_bytes()
    stream = data[data.index(b"\xff\x4f\xff\x51") :]
    assert full.shape[0] == len(read_main_header(stream).siz.components)
    if "yuv" in file:
        # the same pictures as a tiled and an untiled stream
        (twin,) = (s for s in samples("jpeg2000/") if name(s) == "simple_enc_rev53_64x64_yuv.j2c")
        np.testing.assert_array_equal(full, anychunk.open_array(twin.file)[...])
        rgb = ycc_to_rgb(full)
        expected = imagecodecs.jpeg2k_decode(stream, planar=True)
        assert np.abs(rgb - expected).max() <= 1
    else:
        assert (full.min(), full.max()) >= (-(2**22), 0)
        assert set(np.unique(full[0])) <= {0, 1}


def ycc_to_rgb(image: np.ndarray) -> np.ndarray:
    """T.871, as OpenJPEG's tools do."""
    y, cb, cr = image.astype(float)
    cb, cr = cb - 128, cr - 128
    rgb = np.stack([y + 1.402 * cr, y - 0.344 * cb - 0.714 * cr, y + 1.772 * cb])
    return np.clip(rgb.astype(int), 0, 255)


@needs_corpus
@pytest.mark.parametrize("file", ["00r0_gray_l.jp2", "security_line_decode_dfs_vert.j2k", "security_marker_com_underflow.j2k"])  # fmt: skip
def test_corpus_refused(file):
    (sample,) = (s for s in samples("jpeg2000/") if name(s) == file)
    with pytest.raises(AnychunkError):
        anychunk.open_array(sample.file)[...]


@needs_corpus
@pytest.mark.parametrize("sample", samples("malformed/jpeg2000/"), ids=name)
def test_malformed(sample):
    with at_most(STEPS), pytest.raises(AnychunkError):
        anychunk.open_array(sample.file)[...]


@needs_openjpeg
def test_palette_stays_indices(tmp_path):
    indices = field((64, 50), depth=2)
    table = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 9, 9]]
    pclr = struct.pack(">HB3B", 4, 3, 7, 7, 7) + bytes(n for row in table for n in row)
    cmap = b"".join(struct.pack(">HBB", 0, 1, n) for n in range(3))
    data = jp2(compress(list(indices), depth=2), inside=box(b"pclr", pclr) + box(b"cmap", cmap))
    group = opened(tmp_path / "a.jp2", data)
    np.testing.assert_array_equal(group["0/0/image"][...], indices[0])
    assert list(group["0"].group_keys()) == ["0"], "a mean of indices is no index"
    assert group["0"].attrs["j2k"]["palette"] == {"depths": [8, 8, 8], "entries": table}
    mapping = [{"component": 0, "column": n} for n in range(3)]
    assert group["0"].attrs["j2k"]["mapping"] == mapping
    rgb = imagecodecs.jpeg2k_decode(data)
    np.testing.assert_array_equal(np.array(table)[indices[0]], rgb)


@needs_openjpeg
def test_several_codestreams(tmp_path):
    first, second = compress(list(RGB), "-t", "64,64"), compress(list(IMAGE), depth=12)
    group = opened(tmp_path / "a.jpx", jp2(first) + box(b"jp2c", second))
    np.testing.assert_array_equal(group["0/0/image"][...], RGB)
    np.testing.assert_array_equal(group["1/0/image"][...], IMAGE[0])


@needs_openjpeg
@pytest.mark.parametrize("length", [0, 1, 2**31])
def test_length_of_the_codestream_box(tmp_path, length):
    """To the end of the file; of 64 bits; beyond the file, while the stream itself is whole."""
    stream = compress(list(RGB))
    start = jp2(stream)[: -len(stream) - 8]
    head = struct.pack(">I4s", length, b"jp2c")
    if length == 1:
        head += struct.pack(">Q", len(stream) + 16)
    np.testing.assert_array_equal(
        opened(tmp_path / "a.jp2", start + head + stream)["0/0/image"][...], RGB
    )


@needs_openjpeg
def test_fragment_tables_are_refused(tmp_path):
    data = jp2(compress(list(RGB)), box(b"ftbl", box(b"flst", bytes(16))))
    with pytest.raises(UnsupportedError, match=r"a\.jpx.*ftbl"):
        opened(tmp_path / "a.jpx", data)


@needs_openjpeg
@pytest.mark.parametrize(
    ("offset", "kind", "value", "error"),
    [
        (24, ">I", 0, FormatError),  # XTsiz = 0
        (40, ">H", 65535, FormatError),  # components
        (8, ">I", 2**32 - 1, FormatError),  # wide: more tiles than have numbers
        (8, ">I", 2**19, TruncatedError),  # wide: tiles that are not there
        (8, ">I", 0, FormatError),
        (32, ">I", 2**31, FormatError),  # tiles begin behind the image
        (44, ">B", 0, FormatError),  # XRsiz
        (42, ">B", 37, FormatError),  # 38 bits beside 8, with a colour transform
        (42, "9s", bytes((37, 1, 1)) * 3, UnsupportedError),  # 38 bits
    ],
)
def test_bad_size(tmp_path, offset, kind, value, error):
    stream = bytearray(compress(list(RGB), "-t", "100,100"))
    struct.pack_into(kind, stream, offset, value)
    with at_most(STEPS), pytest.raises(error):
        opened(tmp_path / "a.j2k", bytes(stream))["0/0/image"][...]


@needs_openjpeg
def test_one_tile_of_2_to_the_32(tmp_path):
    stream = bytearray(compress(list(RGB)))
    struct.pack_into(">I", stream, 8, 2**32 - 1)
    struct.pack_into(">I", stream, 24, 2**32 - 1)
    with pytest.raises(LimitError, match=r"a\.j2k.*\d{9}"):
        opened(tmp_path / "a.j2k", bytes(stream))


@needs_openjpeg
@pytest.mark.parametrize("length", [13, 2**31, 0])
def test_tile_part_length(tmp_path, length):
    stream = bytearray(compress(list(RGB), "-t", "100,100"))
    struct.pack_into(">I", stream, read_main_header(bytes(stream)).length + 6, length)
    with pytest.raises(AnychunkError):
        opened(tmp_path / "a.j2k", bytes(stream))["0/0/image"][...]


def test_samples_of_no_format(tmp_path):
    for data in (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51", jp2_header_only()):
        with pytest.raises(AnychunkError):
            opened(tmp_path / "a.jp2", data)


def jp2_header_only() -> bytes:
    return b"\0\0\0\x0cjP  \r\n\x87\n" + box(b"jp2h", box(b"ihdr", bytes(14)))


@needs_openjpeg
def test_a_chunk_over_the_limit(tmp_path):
    with limits.override(chunk_bytes=1000), pytest.raises(LimitError, match=r"a\.j2k.*\b1000\b"):
        opened(tmp_path / "a.j2k", compress(list(RGB)))


HUNGRY = """
import resource, sys, time
import anychunk
start, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    anychunk.open_array(sys.argv[1])[...]
    print("a picture")
except anychunk.AnychunkError:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(time.process_time() - start, used - before)
"""


@needs_openjpeg
def test_a_large_image_in_few_bytes_costs_little(tmp_path):
    """8000 x 8000 announced for the payload of 64 x 64: found out before anything is allocated."""
    stream = bytearray(compress(list(RGB[:1, :64, :64])))
    for place in (8, 24):
        struct.pack_into(">2I", stream, place, 8000, 8000)
    file = tmp_path / "a.j2k"
    file.write_bytes(bytes(stream))
    command = [sys.executable, "-c", HUNGRY, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    seconds, kibibytes = done.stdout.split()
    assert float(seconds) < 5
    assert int(kibibytes) < 256 << 10


def test_a_codestream_that_contradicts_its_image_header(tmp_path):
    """OpenJPEG refuses it, too; without the check, a damaged SIZ makes a picture of another size."""
    data = bytearray(imagecodecs.jpeg2k_encode(np.zeros((40, 30), "u1"), level=0))
    siz = data.index(b"\xff\x4f\xff\x51") + 8
    data[siz + 12 : siz + 16] = struct.pack(">I", 3)  # YOsiz
    (tmp_path / "a.jp2").write_bytes(data)
    with pytest.raises(imagecodecs.Jpeg2kError):
        imagecodecs.jpeg2k_decode(bytes(data))
    with pytest.raises(FormatError, match=r"37 x 30 .*40 x 30"):
        anychunk.index(tmp_path / "a.jp2")


@needs_openjpeg
def test_packets_of_small_tiles_are_walked_once(tmp_path, monkeypatch):
    """A tile is decoded at every resolution; another tile of the same number is walked, too."""
    # those are walked together, and others without a table
    monkeypatch.setattr(tiny_tiles, "TINY_PIXELS", 0)
    monkeypatch.setattr(tiles, "is_exact_tile", lambda *_: False)
    samples = np.arange(64 * 64).reshape(64, 64).astype("u1")
    data = compress([samples], "-t", "16,16", "-n", "3")
    (tmp_path / "a.j2k").write_bytes(data)
    walked = []
    walk = tiles.walk_tile
    monkeypatch.setattr(tiles, "walk_tile", lambda *a: walked.append(a[1].number) or walk(*a))
    tiles.WALKED.clear()
    root = anychunk.open(tmp_path / "a.j2k")
    for level in ("2", "1", "0"):
        found = root[f"0/{level}/image"][...]
    np.testing.assert_array_equal(found, samples)
    if tiles.loops is not None:
        assert sorted(walked) == list(range(16))
    last = data.rindex(b"\xff\x90")  # SOT: Psot is 6 bytes behind it
    length = int.from_bytes(data[last + 6 : last + 10], "big")
    short = data[:last] + data[last : last + 6] + (length - 9).to_bytes(4, "big")
    (tmp_path / "b.j2k").write_bytes(short + data[last + 10 : last + length - 9] + b"\xff\xd9")
    with pytest.raises(AnychunkError):
        anychunk.open_array(tmp_path / "b.j2k")[...]
