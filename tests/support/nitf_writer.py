"""A NITF writer that shares nothing with the package: text by str.format, samples bit by bit."""

import io
import itertools
import struct
from dataclasses import dataclass, field

import numpy as np
import tifffile
from PIL import Image as PillowImage

ABSENT = 0xFFFFFFFF


@dataclass
class Image:
    """One image segment; `payload` overrides the blocks that would be made of `array`."""

    array: np.ndarray
    ic: str = "NC"
    imode: str = "B"
    block: tuple[int, int] | None = None
    """Height and width of a block; None: the image in one block."""
    nbpp: int | None = None
    abpp: int | None = None
    pjust: str = "R"
    pvtype: str | None = None
    absent: set = field(default_factory=set)
    """Blocks that are not stored: (down, across), or (band, down, across) for IMODE S."""
    pad: bytes = b""
    comrat: str = "00.0"
    irep: str = "MONO"
    payload: bytes | None = None
    icords: str = " "
    igeolo: str = ""
    tres: bytes = b""
    lut: tuple[bytes, ...] = ()
    size: tuple[int, int] | None = None
    """NROWS and NCOLS where they differ from the array's."""
    fields: dict = field(default_factory=dict)
    """Fields that say something else than they should."""
    icat: str = "VIS"
    isubcat: tuple[str, ...] = ()
    irepband: tuple[str, ...] = ()
    """M for every band if empty."""
    comments: tuple[str, ...] = ()
    level: str = "001000"
    location: str = "0000000000"

    @property
    def shown(self):
        """The array as it is opened: without an axis of bands if there is one band."""
        return self.array[0] if len(self.array) == 1 else self.array


def bits_of(value, nbpp, pvtype):
    """Give one sample as a text of 0 and 1."""
    if pvtype in ("R", "C"):
        raw = np.asarray(value).astype(np.asarray(value).dtype.newbyteorder(">")).tobytes()
        return "".join(f"{byte:08b}" for byte in raw)
    return f"{int(value) & ((1 << nbpp) - 1):0{nbpp}b}"


def to_bytes(bits):
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big") if bits else b""


def block_of(image, down, across, height, width):
    """Cut a block out, zeros beyond the edge."""
    block = np.zeros((len(image.array), height, width), image.array.dtype)
    part = image.array[
        :, down * height : (down + 1) * height, across * width : (across + 1) * width
    ]
    block[:, : part.shape[1], : part.shape[2]] = part
    return block


def encode_block(block, imode, nbpp, pvtype):
    """Give the bytes of a block: each IMODE is one order of three loops."""
    bands, height, width = block.shape
    b, y, x = range(bands), range(height), range(width)
    if nbpp % 8 == 0 and nbpp // 8 == block.dtype.itemsize:
        big = block.astype(block.dtype.newbyteorder(">"))
        order = {"B": (0, 1, 2), "S": (0, 1, 2), "P": (1, 2, 0), "R": (1, 0, 2)}[imode]
        return big.transpose(order).tobytes()
    if imode in ("B", "S"):
        planes = (
            "".join(bits_of(block[i, j, k], nbpp, pvtype) for j, k in itertools.product(y, x))
            for i in b
        )
        return b"".join(to_bytes(plane) for plane in planes)
    if imode == "P":
        order = [(i, j, k) for j in y for k in x for i in b]
    else:
        order = [(i, j, k) for j in y for i in b for k in x]
    return to_bytes("".join(bits_of(block[at], nbpp, pvtype) for at in order))


def justified(image, nbpp, abpp):
    """Move samples to where ABPP and PJUST say they are stored."""
    if abpp == nbpp or image.array.dtype.kind not in "ui":
        return image.array
    wide = image.array.astype(object)
    if image.pjust == "L":
        wide = wide << (nbpp - abpp)
    return np.vectorize(lambda v: v & ((1 << nbpp) - 1), otypes=[object])(
        wide
        if image.pjust == "L"
        else np.vectorize(lambda v: v & ((1 << abpp) - 1), otypes=[object])(wide)
    )


def default_pvtype(dtype):
    return {"u": "INT", "i": "SI", "f": "R", "c": "C"}[dtype.kind]


def image_data(image, streams=None):
    """Give the image data of a segment: the mask, if any, and the blocks."""
    bands, rows, columns = image.array.shape
    height, width = image.block or (rows, columns)
    nbpp = image.nbpp or 8 * image.array.dtype.itemsize
    pvtype = image.pvtype or default_pvtype(image.array.dtype)
    stored = Image(**{**image.__dict__, "array": justified(image, nbpp, image.abpp or nbpp)})
    down, across = -(-rows // height), -(-columns // width)
    grid = list(itertools.product(range(down), range(across)))
    keys = [(b, *at) for b in range(bands) for at in grid] if image.imode == "S" else grid
    blocks = {}
    for key in keys:
        if streams is not None:
            blocks[key] = streams[key]
            continue
        block = block_of(stored, *key[-2:], height, width)
        if image.imode == "S":
            block = block[key[0] : key[0] + 1]
        blocks[key] = encode_block(block, image.imode, nbpp, pvtype)
    data, offsets = b"", []
    for key in keys:
        if key in image.absent:
            offsets.append(ABSENT)
            continue
        offsets.append(len(data))
        data += blocks[key]
    if not (image.ic.startswith("M") or image.ic == "NM"):
        return data
    table = b"".join(offset.to_bytes(4, "big") for offset in offsets)
    pad_bits = nbpp if image.pad else 0
    head = 10 + len(image.pad) + len(table)
    return (
        head.to_bytes(4, "big") + (4).to_bytes(2, "big") + (0).to_bytes(2, "big")
        + pad_bits.to_bytes(2, "big") + image.pad + table + data
    )  # fmt: skip


def security(version):
    if version == "NITF02.00":
        return "U" + " " * 166
    return "U" + " " * 166


def subheader(image, version):
    bands, rows, columns = image.array.shape
    if image.size:
        rows, columns = image.size
    height, width = image.block or (rows, columns)
    nbpp = image.nbpp or 8 * image.array.dtype.itemsize
    values = {
        "NROWS": f"{rows:08d}",
        "NCOLS": f"{columns:08d}",
        "ABPP": f"{image.abpp or nbpp:02d}",
        "IC": image.ic,
        "NBANDS": str(bands) if bands < 10 else "0",
        "IMODE": image.imode,
        "NBPR": f"{-(-columns // width):04d}",
        "NBPC": f"{-(-rows // height):04d}",
        "NPPBH": f"{width if width <= 8192 else 0:04d}",
        "NPPBV": f"{height if height <= 8192 else 0:04d}",
        "NBPP": f"{nbpp:02d}",
        "PVTYPE": (image.pvtype or default_pvtype(image.array.dtype)).ljust(3),
        "ENCRYP": "0",
        **image.fields,
    }
    text = "IM" + "test".ljust(10) + "20260101000000" + " " * 17 + " " * 80 + security(version)
    text += values["ENCRYP"] + " " * 42 + values["NROWS"] + values["NCOLS"] + values["PVTYPE"]
    text += image.irep.ljust(8) + image.icat.ljust(8) + values["ABPP"] + image.pjust
    icords = "N" if version == "NITF02.00" and image.icords == " " else image.icords
    text += icords + image.igeolo + str(len(image.comments))
    text += "".join(comment.ljust(80) for comment in image.comments) + values["IC"]
    text += "" if image.ic in ("NC", "NM") else image.comrat
    text += values["NBANDS"] + (f"{bands:05d}" if bands >= 10 else "")
    raw = text.encode("latin-1")
    for i in range(bands):
        category = image.isubcat[i] if image.isubcat else ""
        colour = image.irepband[i] if image.irepband else "M"
        raw += colour.ljust(2).encode() + category.ljust(6).encode() + b"N" + b"   "
        if image.lut and i == 0:
            raw += f"{len(image.lut)}{len(image.lut[0]):05d}".encode() + b"".join(image.lut)
        else:
            raw += b"0"
    raw += ("0" + values["IMODE"] + values["NBPR"] + values["NBPC"]).encode()
    raw += (values["NPPBH"] + values["NPPBV"] + values["NBPP"]).encode()
    raw += (image.level + image.location + "1.0 ").encode()
    raw += b"00000" + (
        f"{len(image.tres) + 3:05d}000".encode() + image.tres if image.tres else b"00000"
    )
    return raw


def nitf(images, version="NITF02.10", texts=(), graphics=(), des=()):
    """Give a whole file."""
    parts = [
        (subheader(i, version), image_data(i) if i.payload is None else i.payload) for i in images
    ]
    lengths = f"{len(parts):03d}" + "".join(f"{len(h):06d}{len(d):010d}" for h, d in parts)
    lengths += f"{len(graphics):03d}" + "".join(f"{len(h):04d}{len(d):06d}" for h, d in graphics)
    lengths += "000"
    lengths += f"{len(texts):03d}" + "".join(f"{len(h):04d}{len(d):05d}" for h, d in texts)
    lengths += f"{len(des):03d}" + "".join(f"{len(h):04d}{len(d):09d}" for h, d in des)
    lengths += "000" + "00000" + "00000"
    start = version + "03" + "BF01" + " " * 10 + "20260101000000" + " " * 80 + security(version)
    start += "0" * 10 + "0"
    raw = start.encode()
    raw += b" " * 27 if version == "NITF02.00" else b"\0\0\0" + b" " * 24
    raw += b" " * 18
    segments = [*parts, *graphics, *texts, *des]
    body = b"".join(h + d for h, d in segments)
    header = len(raw) + 12 + 6 + len(lengths)
    return raw + f"{header + len(body):012d}{header:06d}{lengths}".encode() + body


def text_segment(data, version="NITF02.10"):
    head = "TE000000100020260101000000" + "a text".ljust(80) + security(version) + "0STA00000"
    return head.encode(), data


def graphic_segment(data):
    head = (
        "SY" + "graphic".ljust(10) + " " * 20 + security("NITF02.10") + "0C" + "0" * 13 + "002000"
    )
    return (head + "0000000000" * 2 + "C" + "0000000000" + "00" + "00000").encode(), data


def des_segment(name, data, overflow="", item=0):
    head = "DE" + name.ljust(25) + "01" + security("NITF02.10")
    head += f"{overflow.ljust(6)}{item:03d}" if overflow else ""
    return (head + "0000").encode(), data


def tre(tag, data):
    return tag.ljust(6).encode() + b"%05d" % len(data) + data


def fax(pixels, options):
    """Encode with libtiff; without the page end that NITF asks for."""
    out = io.BytesIO()
    PillowImage.fromarray(pixels.astype(bool)).save(
        out, "TIFF", compression="group3", tiffinfo={292: options, 278: len(pixels)}
    )
    page = tifffile.TiffFile(io.BytesIO(out.getvalue())).pages[0]
    return b"".join(
        out.getvalue()[o : o + n]
        for o, n in zip(page.dataoffsets, page.databytecounts, strict=True)
    )


def vq_header(tables):
    """Image display parameters, compression section and look-up section (MIL-STD-188-199)."""
    head = (
        struct.pack(">IIB", 64, 64, 12) + struct.pack(">HHH", 1, 4, 0) + struct.pack(">IH", 6, 14)
    )
    records = b"".join(
        struct.pack(">HIHHI", i + 1, 4096, 4, 8, 6 + 56 + i * 16384) for i in range(4)
    )
    return head + records + b"".join(table.tobytes() for table in tables)


def vq_image(blocks):
    """Tables, samples and coded blocks of a random vector-quantised image, `blocks` squared."""
    rng = np.random.default_rng(blocks)
    tables = rng.integers(0, 216, (4, 4096, 4), "u1")
    codes = rng.integers(0, 4096, (blocks * blocks, 64, 64))
    values = np.zeros((1, 256 * blocks, 256 * blocks), "u1")
    data = []
    for number, grid in enumerate(codes):
        down, across = divmod(number, blocks)
        for i in range(64):
            for j in range(64):
                patch = tables[:, grid[i, j]]
                y, x = down * 256 + i * 4, across * 256 + j * 4
                values[0, y : y + 4, x : x + 4] = patch
        flat = grid.reshape(-1)
        bits = "".join(f"{c:012b}" for c in flat)
        data.append(int(bits, 2).to_bytes(6144, "big"))
    return tables, values, data
