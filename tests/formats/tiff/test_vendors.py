"""Slides and microscopes: small files with the structure of each vendor, compared with tifffile."""

import io
import json
import struct

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

import anychunk
from anychunk.errors import AnychunkError, ChunkDecodeError

RNG = np.random.default_rng(21)
BYTE, ASCII, SHORT, LONG, RATIONAL, DOUBLE = 1, 2, 3, 4, 5, 12
SIZES = {BYTE: 1, ASCII: 1, SHORT: 2, LONG: 4, RATIONAL: 8, DOUBLE: 8}


class Writer:
    """A classic TIFF, little-endian; data may lie anywhere, so that files may be sparse."""

    def __init__(self, path, *, is_ndpi=False):
        self.file = path.open("w+b")
        self.is_ndpi = is_ndpi
        self.link = 4
        self.file.write(struct.pack("<2sH", b"II", 42) + bytes(8 if is_ndpi else 4))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def append(self, data, at=None):
        """Write data at the end or at an offset; return where."""
        if at is None:
            at = self.file.seek(0, 2)
            at = self.file.seek(at + at % 2)
        self.file.seek(at)
        self.file.write(data)
        return at

    def page(self, tags, at=None):
        """Add a directory; `tags` are (type, values), or (type, (count, bytes)).

        Values that do not fit their entry are put in front of it, from `at` on.
        """
        entries = []
        for code, (kind, values) in sorted(tags.items()):
            if isinstance(values, bytes):
                count, packed = len(values) // SIZES[kind], values
            elif isinstance(values, tuple):
                count, packed = values
            else:
                letter = {SHORT: "H", LONG: "I", DOUBLE: "d"}[kind]
                count, packed = len(values), struct.pack(f"<{len(values)}{letter}", *values)
            # NDPI: the upper halves of values follow the directory
            is_inline = len(packed) <= (8 if self.is_ndpi and kind == LONG and count == 1 else 4)
            is_inline &= not (self.is_ndpi and kind == ASCII)
            field = packed.ljust(8, b"\0")
            if not is_inline:
                field = struct.pack("<Q", self.append(packed, at))
                at = None if at is None else at + len(packed) + len(packed) % 2
            entries.append((struct.pack("<HHI", code, kind, count), field))
        at = self.append(struct.pack("<H", len(entries)), at)
        self.file.write(b"".join(head + field[:4] for head, field in entries))
        following = self.file.tell()
        if self.is_ndpi:
            self.file.write(bytes(8) + b"".join(field[4:] for _, field in entries))
        else:
            self.file.write(bytes(4))
        self.file.seek(self.link)
        self.file.write(struct.pack("<Q" if self.is_ndpi else "<I", at))
        self.link = following
        return at


def tags(shape, dtype, offsets, lengths, **more):
    """Return the tags of an uncompressed page of (y, x)."""
    bits = np.dtype(dtype).itemsize * 8
    height, width = shape
    return {
        254: (LONG, [0]),
        256: (LONG, [width]),
        257: (LONG, [height]),
        258: (SHORT, [bits]),
        259: (SHORT, [1]),
        262: (SHORT, [1]),
        273: (LONG, offsets),
        277: (SHORT, [1]),
        278: (LONG, [height]),
        279: (LONG, lengths),
        **{int(code[1:]): value for code, value in more.items()},
    }


def by_tifffile(path, **options):
    """Return the levels of each series, with axes t, c, z, y, x, without those of length 1."""
    found = []
    with tifffile.TiffFile(path, **options) as tif:
        for series in tif.series:
            levels = []
            for level in series.levels:
                array, axes = level.asarray(), level.axes
                order = sorted(range(len(axes)), key=lambda i: "TCSZIQYX".index(axes[i]))
                levels.append(array.transpose(order).squeeze())
            found.append(levels)
    return found


def hold(path, expected):
    """Check that a file holds these images, each a list of levels."""
    group = anychunk.open(path)
    names = [name for name in group if name.isdigit()]
    assert len(names) == len(expected)
    for name, levels in zip(sorted(names, key=int), expected, strict=True):
        for number, level in enumerate(levels):
            found = group[f"{name}/{number}/image"][...]
            np.testing.assert_array_equal(found.squeeze(), level.squeeze())
            assert found.dtype == level.dtype


def stack(planes, height=24, width=30, dtype="uint16"):
    return RNG.integers(0, 250, (planes, height, width)).astype(dtype)


# --- MetaMorph STK: one directory, planes one after the other, their number in UIC2Tag


def write_stk(path, planes, *, rows=None, compression=1):
    count, height, width = planes.shape
    rows = rows or height
    with Writer(path) as file:
        at = file.append(planes.tobytes())
        step = rows * width * planes.itemsize
        starts = range(at, at + planes[0].nbytes, step)
        lengths = [min(step, at + planes[0].nbytes - start) for start in starts]
        per_plane = np.array(
            [[i + 1, 1, 2450000, 1000 * i, 2450000, 0] for i in range(count)], "<u4"
        )
        made = tags((height, width), planes.dtype, list(starts), lengths)
        made[259] = (SHORT, [compression])
        made[278] = (LONG, [rows])
        made[33628] = (LONG, (1, struct.pack("<II", 0, 0)))  # UIC1Tag: AutoScale
        made[33629] = (RATIONAL, (count, per_plane.tobytes()))
        file.page(made)
    return path


@pytest.mark.parametrize("rows", [24, 7])
def test_stk(tmp_path, rows):
    planes = stack(5)
    path = write_stk(tmp_path / "a.stk", planes, rows=rows)
    hold(path, [[planes]])
    hold(path, by_tifffile(path))


def test_stk_with_compression_is_not_read_wrong(tmp_path):
    """Offsets of the other planes are not in the file: only the first can be found."""
    path = write_stk(tmp_path / "a.stk", stack(5), compression=5)
    with pytest.raises(AnychunkError):
        anychunk.open(path)["0/0/image"][...]


def test_stk_that_is_truncated(tmp_path):
    planes = stack(5)
    path = write_stk(tmp_path / "a.stk", planes)
    data = bytearray(path.read_bytes())
    place = data.index(struct.pack("<HHI", 33629, RATIONAL, 5))
    data[place + 4 : place + 8] = struct.pack("<I", 9000)  # more planes than the file has
    path.write_bytes(data)
    with pytest.raises(AnychunkError):
        anychunk.open(path)["0/0/image"][...]


# --- Zeiss LSM: a thumbnail behind each page, bands in separate strips, offsets of 32 bits


def lsm_info(**values):
    info = np.zeros(1, np.dtype(tifffile.TIFF.CZ_LSMINFO).newbyteorder("<"))
    info["MagicNumber"], info["StructureSize"] = 67127628, info.itemsize
    for name, value in values.items():
        info[name] = value
    return info.tobytes()


def lsm(path, planes, *, lzw=False, gap=0):
    """Write (z, c, y, x), return the thumbnails; `gap` bytes in front of the pixels of each page."""
    count, bands, height, width = planes.shape
    info = lsm_info(
        DimensionX=width, DimensionY=height, DimensionZ=count, DimensionChannels=bands,
        DimensionTime=1, DataType=1, ThumbnailX=8, ThumbnailY=8, ScanType=0,
    )  # fmt: skip
    thumbnails = RNG.integers(0, 255, (count, bands, 8, 8)).astype(np.uint8)
    arrays = [array for pair in zip(planes, thumbnails, strict=True) for array in pair]
    with Writer(path) as file:
        # directories come first, so that 32 bits are enough for their offsets
        end = 4096 * (1 + len(arrays))
        for number, array in enumerate(arrays):
            is_thumbnail = bool(number % 2)
            end += 0 if is_thumbnail else gap
            places = []
            for band in array:
                data = band.tobytes()
                if lzw and not is_thumbnail:
                    data = imagecodecs.lzw_encode(data)
                places.append(file.append(data, end))
                end += len(data) + len(data) % 2
            # as in real files, byte counts are those of uncompressed data
            made = tags(
                array.shape[1:], array.dtype, [p % (1 << 32) for p in places],
                [array[0].nbytes] * bands, _254=(LONG, [int(is_thumbnail)]),
                _258=(SHORT, [8 * array.itemsize] * bands), _277=(SHORT, [bands]),
                _284=(SHORT, [2]), _259=(SHORT, [5 if lzw and not is_thumbnail else 1]),
            )  # fmt: skip
            if number == 0:
                made[34412] = (BYTE, info)
            file.page(made, at=4096 * number + 16)
    return thumbnails


@pytest.mark.parametrize("lzw", [False, True])
@pytest.mark.parametrize("bands", [1, 3, 4])
def test_lsm(tmp_path, lzw, bands):
    planes = stack(4 * bands, dtype="uint8").reshape(4, bands, 24, 30)
    planes[..., :20] = planes[..., :1]
    path = tmp_path / "a.lsm"
    thumbnails = lsm(path, planes, lzw=lzw)
    hold(path, [[planes.swapaxes(0, 1)], [thumbnails.swapaxes(0, 1)]])
    hold(path, by_tifffile(path))


def test_lsm_above_4_gb(tmp_path):
    """Offsets wrap around at 4 GB; they are unwrapped in the order of the pages."""
    planes = stack(12, dtype="uint8").reshape(4, 3, 24, 30)
    path = tmp_path / "a.lsm"
    thumbnails = lsm(path, planes, gap=3 << 30)
    assert path.stat().st_size > 3 << 32
    hold(path, [[planes.swapaxes(0, 1)], [thumbnails.swapaxes(0, 1)]])
    hold(path, by_tifffile(path))


# --- Hamamatsu NDPI: offsets of 64 bits, JPEG streams cut at their restart markers


def restart_jpeg(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(
        out, "JPEG", quality=85, subsampling="4:4:4", restart_marker_blocks=4
    )
    return out.getvalue()


def scan_starts(stream):
    """Return where the entropy-coded segments between restart markers begin."""
    at = stream.index(b"\xff\xda")
    starts = [at + 2 + struct.unpack(">H", stream[at + 2 : at + 4])[0]]
    place = starts[0]
    while (place := stream.find(b"\xff", place)) >= 0:
        if 0xD0 <= stream[place + 1] <= 0xD7:
            starts.append(place + 2)
        place += 2
    return starts


def write_ndpi(path, images, gap=0, *, is_huge=False):
    with Writer(path, is_ndpi=True) as file:
        for magnification, pixels in images:
            stream = bytearray(restart_jpeg(pixels))
            if is_huge:  # JPEG has no sides above 65535: they are 0
                frame = stream.index(b"\xff\xc0")
                stream[frame + 5 : frame + 9] = bytes(4)
            end = file.file.seek(0, 2) + gap
            at = file.append(stream, end + end % 2)
            height, width = pixels.shape[:2]
            made = tags((height, width), "uint8", [0], [len(stream)])
            made |= {
                258: (SHORT, [8] * 3),
                259: (SHORT, [7]),
                262: (SHORT, [6]),
                271: (ASCII, b"Hamamatsu\0"),
                272: (ASCII, b"NanoZoomer\0"),
                273: (LONG, (1, struct.pack("<Q", at))),
                277: (SHORT, [3]),
                284: (SHORT, [1]),
                530: (SHORT, [1, 1]),
                65420: (LONG, [1]),
                65421: (DOUBLE, [magnification]),
                65426: (LONG, scan_starts(stream)),
            }
            file.page(made)
    return path


def smooth(height, width):
    y, x = np.mgrid[:height, :width]
    wave = 128 + 100 * np.sin(x / 17) * np.cos(y / 13)
    return np.dstack([wave, 255 - wave, np.roll(wave, 20, 1)]).astype(np.uint8)


@pytest.mark.parametrize("gap", [0, 5 << 30])
def test_ndpi(tmp_path, gap):
    """The second case lies beyond 4 GB, where offsets need their upper halves."""
    images = [(20.0, smooth(64, 128)), (5.0, smooth(32, 64)), (-1.0, smooth(48, 96))]
    path = write_ndpi(tmp_path / "a.ndpi", images, gap)
    expected = by_tifffile(path)
    hold(path, expected)
    assert np.abs(expected[0][0].astype(int) - np.moveaxis(images[0][1], -1, 0)).mean() < 3


def test_ndpi_without_a_size_in_the_stream(tmp_path):
    """Compared with the same pixels and a size: tifffile reads only large ones without it."""
    images = [(20.0, smooth(64, 128))]
    path = write_ndpi(tmp_path / "a.ndpi", images, is_huge=True)
    hold(path, by_tifffile(write_ndpi(tmp_path / "b.ndpi", images)))


def test_ndpi_tile_that_is_cut(tmp_path):
    path = write_ndpi(tmp_path / "a.ndpi", [(20.0, smooth(64, 128))])
    data = bytearray(path.read_bytes())
    start = data.index(b"\xff\xd0")  # the end of the first tile
    data[start : start + 2] = b"\x12\x34"
    path.write_bytes(data)
    array = anychunk.open(path)["0/0/image"]
    with pytest.raises(ChunkDecodeError):
        array[..., :8, :8]
    assert array[..., 8:16, 40:].shape == (3, 8, 88)


# --- Leica SCN, Ventana BIF: tiles, and XML that names the images


def test_scn(tmp_path):
    path = tmp_path / "a.scn"
    levels = [smooth(128, 192), smooth(64, 96), smooth(32, 48)]
    xml = (
        '<?xml version="1.0"?><scn xmlns="http://www.leica-microsystems.com/scn/2010/10/01">'
        '<collection name="c"><image name="macro"><pixels sizeX="48" sizeY="32">'
        '<dimension sizeX="48" sizeY="32" r="0" ifd="2"/></pixels></image>'
        '<image name="slide"><pixels sizeX="192" sizeY="128">'
        '<dimension sizeX="192" sizeY="128" r="0" ifd="0"/>'
        '<dimension sizeX="96" sizeY="64" r="1" ifd="1"/></pixels></image></collection></scn>'
    )
    with tifffile.TiffWriter(path, bigtiff=True) as file:
        for number, level in enumerate(levels):
            file.write(
                level, tile=(32, 32), photometric="rgb", metadata=None,
                description=xml if number == 0 else None, compression="deflate",
            )  # fmt: skip
    hold(path, [[np.moveaxis(levels[2], -1, 0)], [np.moveaxis(a, -1, 0) for a in levels[:2]]])
    hold(path, by_tifffile(path))


def test_bif(tmp_path):
    path = tmp_path / "a.bif"
    pages = [
        ("Label Image", smooth(40, 60)),
        ("Thumbnail", smooth(20, 30)),
        ("level=0 mag=40 quality=90", smooth(128, 192)),
        ("level=1 mag=20 quality=90", smooth(64, 96)),
    ]
    with tifffile.TiffWriter(path, bigtiff=True) as file:
        for number, (description, pixels) in enumerate(pages):
            file.write(
                pixels, tile=(32, 32), photometric="rgb", metadata=None, description=description,
                software="ScanOutputManager 1.1.0.15854", compression="deflate",
                extratags=[(700, 7, None, b"<iScan Magnification='40'/>", True)] if number == 0 else (),
            )  # fmt: skip
    hold(path, by_tifffile(path))
    expected = [[2, 3], [0], [1]]
    hold(path, [[np.moveaxis(pages[i][1], -1, 0) for i in image] for image in expected])


# --- ImageJ: one directory for all planes, beyond 4 GB


def test_imagej_stack_above_4_gb(tmp_path):
    count, side = 2100, 1024
    path = tmp_path / "a.tif"
    plane = 2 * side * side
    assert count * plane > 1 << 32
    description = f"ImageJ=1.53t\nimages={count}\nslices={count}\nloop=false\n".encode() + b"\0"
    chosen = {n: stack(1, side, side)[0].astype(">u2") for n in (0, 1, 1999, 2047, 2048, 2099)}
    with path.open("w+b") as file:
        first = 1024
        made = tags((side, side), "uint16", [first], [plane])
        del made[254]
        entries, heap = b"", bytearray()
        made[270] = (ASCII, description)
        letters = {SHORT: "H", LONG: "I"}
        for code, (kind, values) in sorted(made.items()):
            packed = values
            if kind in letters:
                packed = struct.pack(f">{len(values)}{letters[kind]}", *values)
            field = packed.ljust(4, b"\0")
            if len(packed) > 4:
                field = struct.pack(">I", 512 + len(heap))
                heap += packed
            entries += struct.pack(">HHI", code, kind, len(packed) // SIZES[kind]) + field
        file.write(struct.pack(">2sHIH", b"MM", 42, 8, len(made)) + entries + bytes(4))
        file.seek(512)
        file.write(heap)
        for number, pixels in chosen.items():
            file.seek(first + number * plane)
            file.write(pixels.tobytes())
        file.truncate(first + count * plane)
    array = anychunk.open(path)["0/0/image"]
    assert (array.shape[0], *array.shape[-2:]) == (count, side, side)
    with tifffile.TiffFile(path) as tif:
        assert tif.series[0].shape == (count, side, side)
    for number, pixels in chosen.items():
        np.testing.assert_array_equal(array[number].squeeze(), pixels)
    assert not array[1000].any()


def test_imagej_stack_with_a_broken_chain_has_the_pages_that_are_there(tmp_path):
    """Where later pages begin is unknown: without three bytes, those behind them are shifted."""
    path = tmp_path / "a.tif"
    planes = stack(6, 20, 24)
    tifffile.imwrite(path, planes, imagej=True, metadata={"axes": "ZYX"})
    with tifffile.TiffFile(path) as tif:
        first = tif.pages[0].dataoffsets[0]
    data = path.read_bytes()
    lost = first + 3 * planes[0].nbytes
    path.write_bytes(data[:lost] + data[lost + 3 :])
    group = anychunk.open(path)
    np.testing.assert_array_equal(group["0/0/image"][...].squeeze(), planes[0])
    (reason,) = group.attrs["tiff"]["refused"]
    assert "page 1" in reason


# --- Micro-Manager: an index map in front, pages at fixed distances


def write_micromanager(path, planes):
    """Write (t, c, y, x): directories of 162 bytes in front of their pixels."""
    frames, channels, height, width = planes.shape
    summary = {
        "MicroManagerVersion": "2.0.0", "Frames": frames, "Channels": channels, "Slices": 1,
        "Positions": 1, "Width": width, "Height": height, "SlicesFirst": True, "TimeFirst": False,
        "PixelType": "GRAY16", "Prefix": "a",
    }  # fmt: skip
    text = json.dumps(summary).encode()
    head = 40 + len(text)
    head += -head % 2
    size = planes[0, 0].nbytes
    out = bytearray(head)
    offsets, index = [], []
    for t in range(frames):
        for c in range(channels):
            at = len(out)
            offsets.append(at)
            index.append((c, 0, t, 0, at))
            made = tags((height, width), "uint16", [at + 162], [size])
            entries = b""
            for code, (kind, values) in sorted(made.items()):
                packed = struct.pack(f"<{len(values)}{'H' if kind == SHORT else 'I'}", *values)
                entries += struct.pack("<HHI", code, kind, len(values)) + packed.ljust(4, b"\0")
            # the metadata of every page: the summary in front of the file will do
            entries += struct.pack("<HHII", 51123, ASCII, len(text), 40)
            directory = struct.pack("<H", len(made) + 1) + entries
            following = at + 162 + size + size % 2
            is_last = (t, c) == (frames - 1, channels - 1)
            directory += struct.pack("<I", 0 if is_last else following)
            out += directory.ljust(162, b"\0") + planes[t, c].tobytes() + bytes(size % 2)
    at = len(out)
    out += struct.pack("<II", 3453623, len(index)) + np.array(index, "<u4").tobytes()
    out[:head] = (
        struct.pack("<2sHI", b"II", 42, offsets[0])
        + struct.pack("<8I", 54773648, at, 483765892, 0, 99384722, 0, 2355492, len(text))
        + text
    ).ljust(head, b"\0")
    path.write_bytes(out)
    return path


def test_micromanager(tmp_path):
    planes = stack(6, 20, 26).reshape(3, 2, 20, 26)
    path = write_micromanager(tmp_path / "a_MMStack.ome.tif", planes)
    with tifffile.TiffFile(path) as tif:
        assert tif.series[0].kind == "mmstack"
    hold(path, [[planes]])
    hold(path, by_tifffile(path))
