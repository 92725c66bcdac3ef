"""TIFF files with one damaged directory entry, and what each reader makes of them."""

import io
import json
import math
import struct
import subprocess
import sys
import warnings
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
import tifffile

from tests.support.tiff_images import image_arrays, pages_of_array

BYTE, ASCII, SHORT, LONG, RATIONAL, SBYTE, UNDEFINED = 1, 2, 3, 4, 5, 6, 7
SSHORT, SLONG, FLOAT, DOUBLE, IFD, LONG8 = 8, 9, 11, 12, 13, 16
FORMATS = {
    BYTE: "B", ASCII: "B", SHORT: "H", LONG: "I", RATIONAL: "2I", SBYTE: "b", UNDEFINED: "B",
    SSHORT: "h", SLONG: "i", 10: "2i", FLOAT: "f", DOUBLE: "d", IFD: "I", LONG8: "Q", 17: "q",
    18: "Q",
}  # fmt: skip
INTEGERS = (BYTE, SHORT, LONG, LONG8, IFD, 18)
TILE = {"tile": (32, 48)}
LARGE = 1 << 24
"""Arrays with more elements are not read."""


@dataclass(frozen=True)
class Entry:
    """A directory entry with its value, wherever that is stored."""

    code: int
    type: int
    count: int
    value: bytes
    pointer: int | None = None
    """Where to say that the value is; None for where it is."""


@dataclass(frozen=True)
class Seed:
    """A TIFF file, and the directory in it that is edited."""

    data: bytes
    directory: int = 0
    """0: the first directory; 1: the second of the chain; -1: the first SubIFD of the first."""

    @property
    def order(self):
        return "<" if self.data[:2] == b"II" else ">"

    @property
    def is_big(self):
        return self.data[2:4] in (b"\0+", b"+\0")

    @property
    def place(self):
        """Where the offset of the edited directory is stored."""
        first = 8 if self.is_big else 4
        if not self.directory:
            return first
        _, following, values = self.read(first)
        return following if self.directory == 1 else values[330]

    def number(self, offset, kind=None):
        kind = kind or ("Q" if self.is_big else "I")
        return struct.unpack_from(self.order + kind, self.data, offset)[0]

    def read(self, place):
        """Return the entries of a directory, where the next offset is, and where values are."""
        offset = self.number(place)
        count = self.number(offset, "Q" if self.is_big else "H")
        offset += 8 if self.is_big else 2
        size, inline = (20, 8) if self.is_big else (12, 4)
        entries, values = [], {}
        for _ in range(count):
            code, kind = (self.number(offset + at, "H") for at in (0, 2))
            number = self.number(offset + 4)
            length = number * struct.calcsize("<" + FORMATS[kind])
            at = offset + size - inline
            at = self.number(at) if length > inline else at
            entries.append(Entry(code, kind, number, self.data[at : at + length]))
            values[code] = at
            offset += size
        return entries, offset, values

    def entries(self):
        return self.read(self.place)[0]

    def written(self, entries):
        """Return the file with another directory, at its end, in place of the edited one."""
        _, following, _ = self.read(self.place)
        inline, wide = (8, "Q") if self.is_big else (4, "I")
        data = bytearray(self.data + bytes(-len(self.data) % 16))
        stored = []
        for e in entries:
            if e.pointer is not None:
                stored.append(struct.pack(self.order + wide, e.pointer % (1 << 8 * inline)))
            elif len(e.value) <= inline:
                stored.append(e.value.ljust(inline, b"\0"))
            else:
                stored.append(struct.pack(self.order + wide, len(data)))
                data += e.value + bytes(-len(e.value) % 16)
        start = len(data)
        data += struct.pack(self.order + ("Q" if self.is_big else "H"), len(entries))
        for e, value in zip(entries, stored, strict=True):
            data += struct.pack(self.order + "HH" + wide, e.code, e.type, e.count) + value
        data += self.data[following : following + inline]
        struct.pack_into(self.order + wide, data, self.place, start)
        return bytes(data)


def numbers(seed, entry):
    """Return the numbers of an entry."""
    return list(struct.iter_unpack(seed.order + FORMATS[entry.type], entry.value))


def as_type(seed, entry, kind, values=None):
    """Return the entry with its numbers stored as another type, as far as they fit in it."""
    values = [v[0] for v in numbers(seed, entry)] if values is None else values
    form = FORMATS[kind]
    if kind == ASCII:
        stored = " ".join(str(v) for v in values).encode() + b"\0"
        return replace(entry, type=kind, count=len(stored), value=stored)
    if form in "BHIQbhiq":
        bits = 8 * struct.calcsize(form)
        most = (1 << (bits - form.islower())) - 1
        values = [min(int(v), most) for v in values]
    items = [(v, 1) if len(form) == 2 else (v,) for v in values]
    packed = b"".join(struct.pack(seed.order + form, *item) for item in items)
    return replace(entry, type=kind, count=len(values), value=packed)


def edited_entries(seed, entry):
    """Yield (name of the edit, entries that replace the entry)."""
    size = len(seed.data)
    inline = 8 if seed.is_big else 4
    for kind in (0, *FORMATS, 99):
        if kind != entry.type:
            yield f"called type {kind}", [replace(entry, type=kind)]
    if entry.type in INTEGERS:
        for kind in (BYTE, ASCII, SHORT, LONG, RATIONAL, SLONG, FLOAT, DOUBLE, IFD, LONG8):
            if kind != entry.type:
                yield f"stored as type {kind}", [as_type(seed, entry, kind)]
        values = [v[0] for v in numbers(seed, entry)]
        most = (1 << 8 * struct.calcsize(FORMATS[entry.type])) - 1
        first = values[0] if values else 0
        for value in {0, 1, 2, 3, first - 1, first + 1, first * 2, first // 2, most // 2, most}:
            if 0 <= value <= most and value != first:
                other = as_type(seed, entry, entry.type, [value, *values[1:]])
                yield f"value {value}", [other]
                yield f"repeated as {value}", [entry, other]
                yield f"repeated after {value}", [other, entry]
        if len(values) > 1:
            yield "values reversed", [as_type(seed, entry, entry.type, values[::-1])]
            yield "last value 0", [as_type(seed, entry, entry.type, [*values[:-1], 0])]
            yield "last value lost", [as_type(seed, entry, entry.type, values[:-1])]
            yield "all values lost but one", [as_type(seed, entry, entry.type, values[:1])]
        yield "one value more", [as_type(seed, entry, entry.type, [*values, first])]
    for count in {0, 1, 2, 3, entry.count - 1, entry.count + 1, 65535, (1 << 31), (1 << 32) - 1}:
        if count >= 0 and count != entry.count:
            yield f"count {count}", [replace(entry, count=count)]
    if len(entry.value) > inline:
        for pointer in (0, 1, 8, size - 1, size + 4096, (1 << 31), (1 << 32) - 1):
            yield f"pointer {pointer}", [replace(entry, pointer=pointer)]
    yield "removed", []
    for code in (0, entry.code - 1, entry.code + 1, 60000):
        yield f"called tag {code}", [replace(entry, code=code)]


def edits(seed):
    """Yield (name, bytes) of every file with one edited entry."""
    entries = seed.entries()
    for i, entry in enumerate(entries):
        for name, found in edited_entries(seed, entry):
            yield f"{entry.code} {name}", seed.written([*entries[:i], *found, *entries[i + 1 :]])


def written(*pages, **options):
    """Return the bytes of a TIFF with these pages: (array, options of tifffile)."""
    file = io.BytesIO()
    with tifffile.TiffWriter(file, **options) as tif:
        for array, page in pages:
            tif.write(array, metadata=None, **page)
    return file.getvalue()


def with_tables(quality_from):
    """Return a TIFF of JPEG tiles that share their tables (JPEGTables), from rasterio's writer."""
    import rasterio
    from rasterio.io import MemoryFile

    bands, height, width = quality_from.shape
    profile = {"count": bands, "height": height, "width": width, "dtype": "uint8"}
    with MemoryFile() as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with file.open(driver="GTiff", tiled=True, blockxsize=32, blockysize=32, compress="jpeg",
                       photometric="ycbcr", **profile) as opened:  # fmt: skip
            opened.write(quality_from)
        return file.read()


def seeds():
    """Return the seeds by name."""
    random = np.random.default_rng(7)
    y, x = np.mgrid[:70, :100]
    grey = (x * 300 + y * 7 + random.integers(0, 50, x.shape)).astype("uint16")
    byte = (grey >> 7).astype("uint8")
    rgb = np.stack([byte, byte.T.repeat(2, 0)[:70, :70].repeat(2, 1)[:, :100], 255 - byte], -1)
    bilevel = random.integers(0, 2, (70, 100)).astype(bool)
    palette = random.integers(0, 65535, (3, 256)).astype("uint16")
    small = grey[::2, ::2]
    plain = {"photometric": "minisblack"}
    return {
        "grey tiles": Seed(written((grey, {**TILE, **plain}))),
        "deflate tiles, predictor": Seed(
            written((grey, {**TILE, **plain, "compression": "zlib", "predictor": 2}))
        ),
        "rgb strips": Seed(
            written((rgb, {"photometric": "rgb", "rowsperstrip": 16, "compression": "packbits"}))
        ),
        "uncompressed rgb strips": Seed(written((rgb, {"photometric": "rgb", "rowsperstrip": 16}))),
        "palette": Seed(
            written((byte, {"photometric": "palette", "colormap": palette, "rowsperstrip": 30}))
        ),
        "1 bit": Seed(written((bilevel, {**plain, "rowsperstrip": 20}))),
        "planar": Seed(
            written(
                (
                    np.moveaxis(rgb, -1, 0),
                    {
                        "photometric": "rgb",
                        "planarconfig": "separate",
                        "rowsperstrip": 40,
                        "compression": "lzw",
                    },
                )
            )
        ),
        "alpha": Seed(
            written((np.dstack([rgb, byte]), {"photometric": "rgb", "extrasamples": [2], **TILE}))
        ),
        "jpeg with tables": Seed(with_tables(np.moveaxis(rgb, -1, 0))),
        "float, predictor": Seed(
            written(
                (grey.astype("float32"), {**TILE, **plain, "compression": "zlib", "predictor": 3})
            )
        ),
        "bigtiff": Seed(
            written((grey, {**plain, "rowsperstrip": 20, "compression": "zlib"}), bigtiff=True)
        ),
        "big-endian": Seed(
            written((grey, {**plain, "rowsperstrip": 20, "compression": "lzw"}), byteorder=">")
        ),
        "overview": Seed(
            written((grey, {**TILE, **plain}), (small, {**TILE, **plain, "subfiletype": 1})),
            directory=1,
        ),
        "subifd": Seed(
            written(
                (grey, {**TILE, **plain, "subifds": 1}),
                (small, {**TILE, **plain, "subfiletype": 1}),
            ),
            directory=-1,
        ),
        "subifd's parent": Seed(
            written(
                (grey, {**TILE, **plain, "subifds": 1}),
                (small, {**TILE, **plain, "subfiletype": 1}),
            )
        ),
        "second page": Seed(
            written((grey, {**plain, "rowsperstrip": 20}), (small, {**plain, "rowsperstrip": 20})),
            directory=1,
        ),
    }


# What readers see -----------------------------------------------------------------------------


def digest(array):
    """Return a short name of the values of an array (band, y, x), with its shape."""
    array = np.ascontiguousarray(array)
    array = array.view("u1") if array.dtype == bool else array
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return f"{array.dtype.name}{array.shape} {sha256(array.tobytes()).hexdigest()[:16]}".replace(
        " ", ""
    )


def by_tifffile(data):
    """Return the digests of all pages, SubIFDs too, and the number of pages."""
    found = []
    with tifffile.TiffFile(io.BytesIO(data)) as tif:
        pages = [page.aspage() for page in tif.pages]
        pages += [sub.aspage() for page in pages if page.subifds for sub in page.pages]
        for page in pages:
            try:
                planes, depth, height, width, samples = page.shaped
                array = page.asarray().reshape(page.shaped)
            except Exception:
                continue
            moved = np.moveaxis(array, (0, 1, 4), (1, 0, 2))
            found.append(digest(moved.reshape(depth, planes * samples, height, width)[0]))
    return found


def by_rasterio(data):
    """Return the digests of all directories, SubIFDs too."""
    import rasterio
    from rasterio.io import MemoryFile

    found = []
    with MemoryFile(data, ext=".tif") as file:
        offsets = []
        try:
            with tifffile.TiffFile(io.BytesIO(data)) as tif:
                offsets = [sub.offset for page in tif.pages for sub in (page.pages or ())]
        except Exception:
            offsets = []
        names = [file.name, f"GTIFF_DIR:2:{file.name}"]
        for name in [*names, *(f"GTIFF_DIR:off:{n}:{file.name}" for n in offsets)]:
            try:
                with rasterio.open(name) as opened:
                    # of 65535 bands, it takes minutes
                    if opened.count * opened.height * opened.width <= LARGE:
                        found.append(digest(opened.read()))
            except Exception:
                continue
    return found


def serve():
    """Answer on stdout for each file on stdin: the child process."""
    import logging
    import resource
    import signal

    logging.disable()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30,) * 2)
    while len(head := sys.stdin.buffer.read(8)) == 8:
        data = sys.stdin.buffer.read(int.from_bytes(head, "big"))
        signal.setitimer(signal.ITIMER_PROF, 20)  # which ends the process
        answer = {}
        for reader in (by_tifffile, by_rasterio):
            try:
                answer[reader.__name__] = reader(data)
            except Exception as e:
                answer[reader.__name__] = []
                answer[reader.__name__ + " error"] = repr(e)[:200]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


class Peers:
    """tifffile and rasterio in a child process, which a damaged file may kill."""

    def __init__(self):
        self.child = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        if self.child is not None:
            self.child.kill()
            self.child.communicate()
            self.child = None

    def read(self, data):
        """Return the digests by reader; none of one that dies, or takes 20 s of processor time."""
        if self.child is None:
            self.child = subprocess.Popen(
                [sys.executable, "-c", "from tests.support import tiff_edits; tiff_edits.serve()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        try:
            self.child.stdin.write(len(data).to_bytes(8, "big") + data)
            self.child.stdin.flush()
            line = self.child.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            self.end()
            return {"by_tifffile": [], "by_rasterio": []}
        return json.loads(line)


# What we see, and who agrees -------------------------------------------------------------------

EXPLAINED = {
    # without the tag there is no SubIFD to be found (TIFF Technical Note 1)
    "subifd's parent": r"330 (removed|called tag .*)",
}
"""Edits by seed, as patterns, where neither rasterio nor tifffile agrees with us, with the reason."""


def by_anychunk(path):
    """Return the digests of the planes of each array, and what is not read, with the reason."""
    import anychunk
    from anychunk.errors import LimitError

    try:
        group = anychunk.open(path)
    except anychunk.AnychunkError as e:
        return {}, [str(e)]
    found, errors = {}, list(group.attrs["tiff"].get("refused", []))
    for name, array in image_arrays(group.store.index):
        try:
            if math.prod(array.shape) > LARGE:
                raise LimitError(f"{name}: {array.shape} is not read by this test")
            data = group[name][...]
        except anychunk.AnychunkError as e:
            errors.append(str(e))
            continue
        if array.codecs[0]["name"] == "cast_value":
            data = data // 255  # a mask that is stored as bits
        pages = pages_of_array(data, array.dimension_names) if data.size else []
        found[name] = [digest(page) for page in pages]
    return found, errors


def verdict(seed, data, path, peers):
    """Read an edited file with all readers; return what became of it.

    Parameters:
        seed: the arrays of the file that was edited, as `by_anychunk` returns them.
        data: the bytes of the edited file.
        path: where to write them.
        peers: the other readers.
    """
    path.write_bytes(data)
    found, errors = by_anychunk(path)
    planes = [plane for array in found.values() for plane in array]
    if not found:
        return "refused"
    if len(found) + len(errors) < len(seed):
        return "lost"
    if not planes:
        return "empty or unreadable"
    theirs = peers.read(data)
    known = {*theirs["by_tifffile"], *theirs["by_rasterio"]}
    if all(plane in known for plane in planes):
        return "as another reader"
    undamaged = {plane for array in seed.values() for plane in array}
    if all(plane in known | undamaged for plane in planes):
        return "as before the edit"
    return "wrong"
