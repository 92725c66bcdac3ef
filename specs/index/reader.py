"""A reference reader of index format 1, on numpy and imagecodecs alone: see README.md.

    names("scene.json")
    read("scene.json", "0/0/image", [(0, 9), (5, 7)])  # (start, stop) per axis; None: all

It is short rather than fast. What it does not decode raises NotImplementedError.
"""

import base64
import bz2
import itertools
import json
import lzma
import math
import struct
import zlib
from contextlib import suppress
from functools import reduce
from pathlib import Path

import imagecodecs
import numpy as np

URI = "https://awslabs.github.io/osml-imagery-io/codecs/"


def names(path):
    """Return the names of the arrays in an index."""
    return sorted(Index(path).arrays)


def read(path, name, box=None):
    """Return an array, or the part of it that a box of (start, stop) per axis selects."""
    index = Index(path)
    about = index.arrays[name]
    if "chunk_grid" not in about:
        raise NotImplementedError("metadata of Zarr v2")
    sizes, dtype = about["chunk_grid"]["configuration"]["chunk_shape"], dtype_of(about["data_type"])
    fill = scalar(about["fill_value"], dtype)
    box = [(0, n) for n in about["shape"]] if box is None else box
    out = np.empty([stop - start for start, stop in box], dtype)
    separator = about["chunk_key_encoding"].get("configuration", {}).get("separator", "/")
    spans = [range(a // n, -(-b // n)) for (a, b), n in zip(box, sizes, strict=True)]
    for coords in itertools.product(*spans):
        data = index.stored(separator.join([f"{name}/c".lstrip("/"), *map(str, coords)]))
        at = [c * n for c, n in zip(coords, sizes, strict=True)]
        chunk = Chunk(tuple(sizes), dtype, fill, at)
        array = chunk.padded(None) if data is None else decode(data, about["codecs"], chunk)
        here = [
            (slice(max(a, o) - a, min(b, o + n) - a), slice(max(a, o) - o, min(b, o + n) - o))
            for (a, b), o, n in zip(box, at, sizes, strict=True)
        ]
        out[tuple(target for target, _ in here)] = array[tuple(source for _, source in here)]
    return out


class Index:
    """The file, its arrays, and where chunks are: sections 1, 2 and 4."""

    def __init__(self, path):
        self.folder = str(Path(path).absolute().parent)
        found = json.loads(Path(path).read_bytes())
        self.refs = found["refs"]
        self.templates = found.get("templates", {}) | {"base": self.folder}
        documents = {
            key.rpartition("/")[0]: json.loads(value) if isinstance(value, str) else value
            for key, value in self.refs.items()
            if key.endswith(("zarr.json", ".zarray"))
        }
        self.arrays = {k: v for k, v in documents.items() if v.get("node_type") != "group"}
        about = documents.get("", {}).get("attributes", {}).get("anychunk", {})
        if about.get("index", 1) > 1:
            raise NotImplementedError(f"index version {about['index']}, expected 1")
        self.base = about.get("base", self.folder).rstrip("/")
        for url, pin in about.get("pins", {}).items():
            status = self.path(url).stat()
            is_same = self.base != self.folder or pin.get("mtime_ns") in (None, status.st_mtime_ns)
            if status.st_size != pin["size"] or not is_same:
                raise ValueError(f"{url} is not the file that was indexed")

    def path(self, url):
        for name, value in self.templates.items():
            url = url.replace("{{" + name + "}}", value)
        url = url.removeprefix("file://")
        if "://" in url:
            raise NotImplementedError(f"{url}: only local files are read")
        is_below = url.startswith(self.base + "/")
        return Path(self.folder, url[len(self.base) + 1 :] if is_below else url)

    def stored(self, key):
        found = self.refs.get(key)
        if found is None or isinstance(found, str):
            is_base64 = found is not None and found.startswith("base64:")
            return base64.b64decode(found[7:]) if is_base64 else found and found.encode()
        url, *where = found
        parts = []
        with self.path(url).open("rb") as file:
            for offset, length in where[0] if len(where) == 1 else [where or (0, -1)]:
                file.seek(offset)
                parts.append(file.read(length))
                if length >= 0 and len(parts[-1]) != length:
                    raise ValueError(f"{url} ends inside a chunk")
        return b"".join(parts)


class Chunk:
    """What a codec is told: shape, type and fill value of the decoded chunk, and its position."""

    def __init__(self, shape, dtype, fill=0, at=None):
        self.shape, self.dtype, self.fill, self.at = tuple(shape), dtype, fill, at
        self.nbytes = math.prod(shape) * dtype.itemsize

    def padded(self, array, shape=None):
        """Return the chunk, in little-endian order, with a smaller array in its first corner."""
        whole = np.full(shape or self.shape, self.fill, self.dtype.newbyteorder("<"))
        if array is not None:
            whole[tuple(map(slice, array.shape))] = array
        return whole


def dtype_of(name):
    name, options = parts_of(name)
    if name in ("string", "variable_length_bytes", "bytes"):
        return np.dtype(object)
    if name == "numpy.datetime64":
        return np.dtype(f"M8[{options['scale_factor']}{options['unit']}]")
    return np.dtype(name)


def scalar(value, dtype):
    if isinstance(value, str) and dtype.kind == "f":
        if value.startswith("0x"):
            return np.frombuffer(bytes.fromhex(value[2:]), dtype.newbyteorder(">"))[0]
        return dtype.type(value.replace("Infinity", "inf"))
    if dtype.kind == "c":
        return complex(*(scalar(v, np.dtype(f"f{dtype.itemsize // 2}")) for v in value))
    return value


def parts_of(found):
    found = {"name": found} if isinstance(found, str) else found
    return found["name"], found.get("configuration", {})


def decode(data, codecs, chunk):
    """Decode a chunk by a chain of codecs, the last one first: section 3."""
    undo, at = [], chunk.at
    chain = [parts_of(codec) for codec in codecs]
    while chain[0][0] in ("transpose", "cast_value"):
        (name, options), *chain = chain
        if "scalar_map" in options:
            raise NotImplementedError("cast_value with a scalar_map")
        if name == "transpose":
            order = options["order"]
            undo.insert(0, lambda a, order=order: a.transpose(np.argsort(order)))
            chunk = Chunk([chunk.shape[axis] for axis in order], chunk.dtype, chunk.fill)
        else:
            undo.insert(0, lambda a, dtype=chunk.dtype: a.astype(dtype))
            chunk = Chunk(chunk.shape, dtype_of(options["data_type"]), 0, at)
    (serializer, options), *filters = [(n.removeprefix("anychunk."), o) for n, o in chain]
    for name, more in reversed(filters):
        if name.removeprefix(URI) not in BYTES:
            raise NotImplementedError(f"codec {name}")
        data = BYTES[name.removeprefix(URI)](data, more, chunk)
        data = data.tobytes() if isinstance(data, np.ndarray) else bytes(data)
    if serializer not in ARRAYS:
        raise NotImplementedError(f"codec {serializer}")
    return reduce(lambda a, f: f(a), undo, ARRAYS[serializer](data, options, chunk))


def plain(data, options, chunk):
    order = ">" if options.get("endian") == "big" else "<"
    return np.frombuffer(data, chunk.dtype.newbyteorder(order)).reshape(chunk.shape)


def vlen(data, options, chunk):
    out, at = np.empty(int.from_bytes(data[:4], "little"), object), 4
    for number in range(len(out)):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        out[number], at = data[at + 4 : end].decode(), end
    return out.reshape(chunk.shape)


def n5(data, options, chunk):
    if not data:
        return chunk.padded(None)
    mode, ndim = struct.unpack_from(">HH", data)
    if mode or options.get("content") == "bytes":
        raise NotImplementedError("N5 blocks of mode 1 or 2, or as bytes")
    step = -1 if options.get("reversed") else 1
    inner = Chunk(struct.unpack_from(f">{ndim}I", data, 4)[::step], chunk.dtype, chunk.fill)
    array = decode(data[4 + 4 * ndim :], options["codecs"], inner)
    return chunk.padded(array[tuple(map(slice, chunk.shape))])


def window(data, options, chunk):
    ndim = len(chunk.shape)
    stored, start, size = np.frombuffer(data, "<u4", 3 * ndim).reshape(3, ndim).tolist()
    array = decode(data[12 * ndim :], options["codecs"], Chunk(stored, chunk.dtype, chunk.fill))
    return chunk.padded(array[tuple(slice(a, a + n) for a, n in zip(start, size, strict=True))])


def text(data, options, chunk):
    if options.get("style") == "hex":
        return plain(bytes.fromhex(data.decode()), options, chunk)
    words = data.decode().replace(",", " ").split()
    kind = np.dtype(f"f{chunk.dtype.itemsize // 2}") if chunk.dtype.kind == "c" else chunk.dtype
    found = np.array([int(w) if kind.kind in "iu" else w for w in words]).astype(kind)
    return found.view(chunk.dtype).reshape(chunk.shape)


ARRAYS = {
    "bytes": plain,
    "vlen-utf8": vlen,
    **dict.fromkeys(("n5", "n5_default"), n5),
    "window": window,
    "choice": lambda d, o, c: decode(d[1:], o["choices"][d[0]], c),
    "text": text,
}


def members(data, make):
    found, start = b"", data[:3]
    while data[:3] == start:
        one = make()
        found, data = found + one.decompress(data), one.unused_data
    return found


def lz4_java(data, size):
    if data[:8] != b"LZ4Block":
        is_frame = data[:4] == bytes.fromhex("04224d18")
        return imagecodecs.lz4f_decode(data) if is_frame else imagecodecs.lz4_decode(data, out=size)
    at, parts = 0, []
    while at < len(data):
        token, stored, length = struct.unpack_from("<Bii", data, at + 8)
        block = data[at + 21 : at + 21 + stored]
        parts.append(imagecodecs.lz4_decode(block, out=length) if token & 0x20 else block)
        at += 21 + stored
    return b"".join(parts)


STREAMS = {
    "raw": lambda data, size: data,
    "gzip": lambda data, size: members(data, lambda: zlib.decompressobj(31)),
    "zlib": lambda data, size: zlib.decompressobj().decompress(data),
    "bzip2": lambda data, size: members(data, bz2.BZ2Decompressor),
    "xz": lambda data, size: lzma.LZMADecompressor().decompress(data),
    "zstd": lambda data, size: imagecodecs.zstd_decode(data),
    "lz4": lambda data, size: imagecodecs.lz4f_decode(data),
    "lz4_java": lz4_java,
}


def stream(data, options, chunk):
    if options.get("checksum"):
        if data[0] and zlib.crc32(data[5:]) != int.from_bytes(data[1:5], "little"):
            raise ValueError("a chunk has another checksum")
        data = data[5:]
    found, skip = STREAMS[options["compression"]](data, chunk.nbytes), options.get("skip", 0)
    if not options.get("leading"):
        return found
    return found[-chunk.nbytes :] if skip == -1 else found[skip : skip + chunk.nbytes]


def piece(data, options, chunk):
    if options.get("points") or options["compression"] == "lzw":
        raise NotImplementedError("anychunk.piece with points, or of LZW")
    is_whole, start, length, size = struct.unpack_from("<B7xQQQ", data)
    found = data[64:]
    found = STREAMS[options["compression"]](found, size) if is_whole else bytes(start) + found
    return found[start : start + length].ljust(size, b"\0")


def unpack_bits(data, count, bits, is_signed):
    if bits > 32:
        raise NotImplementedError(f"integers of {bits} bits")
    size = max(8, 1 << (bits - 1).bit_length())
    values = imagecodecs.packints_decode(data, f"u{size // 8}", bits, runlen=count)
    return values.view(f"i{size // 8}") << size - bits >> size - bits if is_signed else values


def jbp_block(data, options, chunk):
    rows, columns, bands = (options[k] for k in ("block_height", "block_width", "num_bands"))
    bits, mode, kind = options["nbpp"], options["imode"], options["pvtype"]
    if options.keys() & {"compression", "complex_pairs", "abpp"}:
        raise NotImplementedError("NITF blocks that are compressed, complex, or have unused bits")
    if kind in "RC" or (bits in (8, 16, 32, 64) and kind != "B"):
        letter = {"R": "f", "C": "c", "SI": "i"}.get(kind, "u")
        values = np.frombuffer(data, f">{letter}{bits // 8}")
    else:
        run = rows * columns * (1 if mode in "BS" else bands)
        values = unpack_bits(data, run, bits, kind == "SI")
    if mode == "P":
        values = values.reshape(rows, columns, bands).transpose(2, 0, 1)
    elif mode == "R":
        values = values.reshape(rows, bands, columns).transpose(1, 0, 2)
    return values.astype(values.dtype.newbyteorder("<"))


def jpeg(data, options, chunk):
    bands, end = [], 0
    while len(bands) < options["num_bands"]:
        start, end = end, end + 2
        while data[end : end + 2] != b"\xff\xd9":  # segments, and between them entropy-coded data
            if data[end] == 0xFF and data[end + 1] not in (0, 0xFF, *range(0xD0, 0xD8)):
                end += 2 + int.from_bytes(data[end + 2 : end + 4], "big")
            else:
                end += 1
        end += 2
        bands += [*np.moveaxis(np.atleast_3d(imagecodecs.jpeg8_decode(data[start:end])), -1, 0)]
    return np.stack(bands)


def jpeg2000(data, options, chunk):
    level, shape = options.get("resolution_level") or 0, (-1, *chunk.shape[-2:])
    out = chunk.padded(None).reshape(shape)
    if options.get("window"):
        raise NotImplementedError("windows of JPEG 2000 tiles")
    header, end = data, 2
    if options.get("main_header") is not None:
        header = base64.b64decode(options["main_header"].removeprefix("base64:"))
    if any(header[43 + 3 * n : 45 + 3 * n] != b"\1\1" for n in range(len(out))):
        raise NotImplementedError("JPEG 2000 with subsampled components")
    if header is data:
        return chunk.padded(opened(data, level), out.shape)
    while end < len(header) and header[end : end + 2] != b"\xff\x90":
        end += 2 + int.from_bytes(header[end + 2 : end + 4], "big")
    packed = dict(tile_parts(header[end:]))
    right, bottom, left, top, width, height, x0, y0 = struct.unpack_from(">8I", header, 8)
    tiles = {}
    for tile, part in tile_parts(data):
        tiles.setdefault(tile, [packed[tile]] if tile in packed else []).append(part)
    for tile, parts in tiles.items():
        row, column = divmod(tile, -(-(right - x0) // width))
        x, y = x0 + column * width, y0 + row * height
        area = (max(x, left), max(y, top), min(x + width, right), min(y + height, bottom))
        own = bytearray(header[:end])
        struct.pack_into(">8I", own, 8, *area[2:], *area[:2], width, height, x, y)
        for number, part in enumerate(parts):
            part[4:6], part[10:12] = b"\0\0", bytes((number & 255, len(parts) & 255))
        planes = opened(bytes(own) + b"".join(parts) + b"\xff\xd9", level)
        x, y, x1, y1 = (-(-edge >> level) for edge in area)  # T.800 B-15: rounded up
        if planes.shape[1:] != (y1 - y, x1 - x):
            raise NotImplementedError("a JPEG 2000 level that imagecodecs rounds otherwise")
        y -= -(-top >> level) + chunk.at[-2]
        x -= -(-left >> level) + chunk.at[-1]
        part = planes[:, max(0, -y) : out.shape[1] - y, max(0, -x) : out.shape[2] - x]
        y, x = max(y, 0), max(x, 0)
        out[:, y : y + part.shape[1], x : x + part.shape[2]] = part
    return out


def tile_parts(data):
    at = 0
    while data[at : at + 2] == b"\xff\x90":
        tile, length = struct.unpack_from(">HI", data, at + 4)
        part = bytearray(data[at : at + (length or len(data))])
        struct.pack_into(">I", part, 6, len(part))
        yield tile, part
        at += len(part)


def opened(codestream, level):
    array = imagecodecs.jpeg2k_decode(codestream, planar=True, skipres=level)
    return array if array.ndim == 3 else array[None]


PICTURES = {
    **dict.fromkeys((34712, 33003, 33004, 33005), imagecodecs.jpeg2k_decode),
    **dict.fromkeys((34934, 22610), imagecodecs.jpegxr_decode),
    **dict.fromkeys((50002, 52546), imagecodecs.jpegxl_decode),
    **dict.fromkeys((50001, 34927), imagecodecs.webp_decode),
    34933: imagecodecs.png_decode,
}
LIBTIFF = {n: n for n in (1, 2, 3, 4, 5, 8, 32771, 32773, 32946, 34925, 50000)}
LIBTIFF |= {50013: 8, 34926: 50000}  # other numbers of deflate and zstd
TILE = {
    **dict.fromkeys(("compression", "samples_per_pixel", "photometric", "predictor"), 1),
    **dict.fromkeys(("sample_format", "fill_order", "tile_depth"), 1),
    **dict.fromkeys(("tile_width", "tile_height"), 256),
    "bits_per_sample": 8,
    "byte_order": "little",
}


def tiff_tile(data, options, chunk):
    options = TILE | options
    kind, bits, form = (options[k] for k in ("compression", "bits_per_sample", "sample_format"))
    bands, depth = options["samples_per_pixel"], options["tile_depth"]
    if kind in LIBTIFF:
        array = tiff_strip(data, options, kind, bits, form)
    elif kind in (7, 33007, 34892):
        array = tiff_jpeg(data, options, bands)
    elif kind == 34887:
        array = tiff_lerc(data, options)
    elif kind in PICTURES:
        array = PICTURES[kind](data)
    else:
        raise NotImplementedError(f"TIFF compression {kind}")
    array = np.atleast_3d(array)[: depth * options["tile_height"]]
    if array.shape[2] != bands or array.shape[1] > options["tile_width"]:
        raise NotImplementedError(f"TIFF pictures of {array.shape}, expected {bands} bands")
    if array.dtype.kind in "biu" and array.dtype.itemsize == chunk.dtype.itemsize:
        array = np.ascontiguousarray(array).view(chunk.dtype)
    planes = np.moveaxis(array.reshape(depth, -1, *array.shape[1:]), -1, 1)
    return chunk.padded(planes, (depth, bands, options["tile_height"], options["tile_width"]))


def tiff_strip(data, options, kind, bits, form):
    """Decode by libtiff: the chunk is the only strip of a TIFF file with the same tags.

    Samples of other than whole words are decompressed as bytes, and unpacked here.
    """
    columns, bands = options["tile_width"], options["samples_per_pixel"]
    predictor = options["predictor"]
    is_plain = (bits in (8, 16, 32, 64) and form < 4) or kind in (2, 3, 4, 32771)
    if predictor > (3 if is_plain else 1):
        raise NotImplementedError(f"TIFF predictor {predictor} of {bits} bits")
    if options["photometric"] == 6 or isinstance(bits, list) or form == 5:
        raise NotImplementedError("TIFF: YCbCr without JPEG, or samples of several depths")
    big = ">" if options["byte_order"] == "big" else "<"
    order = big if is_plain else "<"
    width, depth = (columns, bits) if is_plain else (-(-columns * bands * bits // 8), 8)
    full = options["tile_height"] * options["tile_depth"]
    for height in (full, options.get("last_height") or full):
        tags = {256: width, 257: height, 258: depth, 259: LIBTIFF[kind]}
        tags |= {262: int(options["photometric"] != 0), 266: options["fill_order"], 273: 8}
        tags |= {277: bands if is_plain else 1, 278: height, 279: len(data), 284: 1}
        tags |= {292: options.get("t4_options", 0), 317: predictor, 339: form if is_plain else 1}
        body = data + bytes(len(data) % 2)
        head = struct.pack(order + "2sHI", b"MM" if order == ">" else b"II", 42, 8 + len(body))
        entries = b"".join(struct.pack(order + "HHII", t, 4, 1, n) for t, n in tags.items())
        file = head + body + struct.pack(order + "H", len(tags)) + entries + bytes(4)
        with suppress(imagecodecs.TiffError, ValueError, IndexError):
            array = imagecodecs.tiff_decode(file)
            break
    else:
        raise ValueError(f"libtiff does not decode a strip of compression {kind}")
    if form == 3 and not is_plain:
        array = imagecodecs.float24_decode(array.tobytes(), byteorder=big)
    elif form == 6:
        array = array.reshape(-1).view(f"{big}c{bits // 8}")
    elif not is_plain:
        array = array.reshape(-1, 3)[:, ::-1] if bits == 24 and big == ">" else array
        array = unpack_bits(array.tobytes(), columns * bands, bits, form == 2)
    return array.reshape(height, columns, bands)


def tiff_jpeg(data, options, bands):
    tables, colors = options.get("jpeg_tables"), options["photometric"]
    tables = None if tables is None else base64.b64decode(tables)
    if tables == b"":  # they precede the stream
        end = 2
        while data[end : end + 2] != b"\xff\xd9":
            end += 2 + int.from_bytes(data[end + 2 : end + 4], "big")
        tables, data = data[: end + 2] if end > 2 else None, data[end + 2 :]
    source, target = None, {(6, 3): "RGB", (5, 4): "CMYK", (2, 3): "RGB"}.get((colors, bands))
    if bands == 3 and colors != 6 and data[6:10] != b"JFIF":
        source = target = "RGB"  # without a marker, three bands are taken for YCbCr
    if b"\xff\xd9" not in data:
        data = data[:-2] + b"\xff\xd9"  # NDPI: a restart interval
    try:
        return imagecodecs.jpeg8_decode(
            data, tables=tables, colorspace=source, outcolorspace=target
        )
    except imagecodecs.Jpeg8Error:  # lossless JPEG of DNG
        array = imagecodecs.ljpeg_decode(data)
        return array.reshape(array.shape[0], -1, bands)


def tiff_lerc(data, options):
    if data[:4] != b"Lerc":
        raise NotImplementedError("LERC 1, or compressed again")
    array, mask = imagecodecs.lerc_decode(data, masks=True)
    if mask is not None and (array.dtype.kind != "f" or mask.ndim != array.ndim):
        raise NotImplementedError("LERC with a mask of integers or pixels")
    array = array.byteswap() if options["byte_order"] == "big" else array
    return array if mask is None else np.where(mask, array, array.dtype.type(np.nan))


BYTES = {
    "gzip": lambda d, o, c: STREAMS["gzip"](d, 0),
    "zstd": lambda d, o, c: imagecodecs.zstd_decode(d),
    "blosc": lambda d, o, c: imagecodecs.blosc_decode(d),
    "numcodecs.zlib": lambda d, o, c: STREAMS["zlib"](d, 0),
    "numcodecs.bz2": lambda d, o, c: bz2.decompress(d),
    "numcodecs.lzma": lambda d, o, c: STREAMS["xz"](d, 0),
    "pad": lambda d, o, c: (
        d[: -o["nbytes"] or None] if o["location"] == "end" else d[o["nbytes"] :]
    ),
    "offset": lambda d, o, c: d[o["offset"] :],
    "stream": stream,
    "piece": piece,
    "jbp-block": jbp_block,
    "jpeg": jpeg,
    "jpeg2000": jpeg2000,
    "tiff-tile": tiff_tile,
}
