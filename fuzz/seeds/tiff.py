"""TIFF, BigTIFF and OME-TIFF, written by tifffile and GDAL; the map is our reading of TIFF 6.0."""

import io
import struct
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tifffile

from fuzz.cases import Field, Seed
from fuzz.seeds.jpeg2000 import codestream_fields
from fuzz.seeds.pictures import field

SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8,
         17: 8, 18: 8}  # fmt: skip
NAMES = {
    254: "NewSubfileType", 256: "ImageWidth", 257: "ImageLength", 258: "BitsPerSample",
    259: "Compression", 262: "Photometric", 266: "FillOrder", 270: "ImageDescription",
    273: "StripOffsets", 274: "Orientation", 277: "SamplesPerPixel", 278: "RowsPerStrip",
    279: "StripByteCounts", 284: "PlanarConfig", 292: "T4Options", 317: "Predictor",
    320: "ColorMap", 322: "TileWidth", 323: "TileLength", 324: "TileOffsets",
    325: "TileByteCounts", 330: "SubIFDs", 338: "ExtraSamples", 339: "SampleFormat",
    347: "JPEGTables", 530: "YCbCrSubSampling", 532: "ReferenceBlackWhite",
}  # fmt: skip
STRUCTURAL = {n for n in NAMES if n not in (254, 270, 274, 320)}
VALUES = {
    259: [1, 2, 3, 4, 5, 6, 7, 8, 32773, 32946, 34712, 34887, 34925, 50000, 50001, 50002, 65535],
    262: [0, 1, 2, 3, 4, 5, 6, 8, 32803],
    258: [0, 1, 2, 4, 8, 10, 12, 16, 24, 32, 64, 65535],
    277: [0, 1, 2, 3, 4, 5, 100, 65535],
    284: [0, 1, 2, 3],
    317: [0, 1, 2, 3, 4, 34892],
    339: [0, 1, 2, 3, 4, 5, 6],
    266: [0, 1, 2, 3],
}
BOMBS = {8: "zlib", 32946: "zlib", 50000: "zstd", 34925: "xz", 5: "lzw", 32773: "packbits",
         7: "jpeg", 50002: "jpegxl", 50001: "webp", 34887: "lerc", 34712: "jpeg2k"}  # fmt: skip


class Reader:
    """Unsigned integers of one file, in its byte order."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.order: Literal["little", "big"] = "little" if data[:2] == b"II" else "big"
        self.is_big = self.uint(2, 2) == 43
        self.wide = 8 if self.is_big else 4

    def uint(self, at: int, width: int) -> int:
        return int.from_bytes(self.data[at : at + width], self.order)


def fields_of(name: str, data: bytes) -> tuple[Field, ...]:
    """Map the header, every entry of every IFD, values behind offsets, and stored samples."""
    r = Reader(data)
    made = [_uint(r, name, 2, 2, "version"), _uint(r, name, 8 if r.is_big else 4, r.wide, "first")]
    waiting, seen = [(r.uint(8 if r.is_big else 4, r.wide), "IFD0")], set()
    while waiting:
        at, label = waiting.pop(0)
        if at == 0 or at in seen or at >= len(data):
            continue
        seen.add(at)
        made += list(_ifd(r, name, at, label, waiting))
    return tuple(made)


def _uint(r: Reader, name: str, at: int, width: int, label: str, **more: Any) -> Field:
    weight = more.pop("weight", 1.0)
    return Field(
        file=name, kind="uint", label=label, offset=at, length=width,
        more={"order": r.order, **more}, weight=weight,
    )  # fmt: skip


def _ifd(r: Reader, name: str, at: int, label: str, waiting: list[Any]) -> Iterator[Field]:
    head, step = (8, 20) if r.is_big else (2, 12)
    count = r.uint(at, head)
    yield _uint(r, name, at, head, f"{label} count")
    end = at + head + count * step
    yield _uint(r, name, end, r.wide, f"{label} next")
    waiting.append((r.uint(end, r.wide), f"IFD{int(label[3:].partition('/')[0]) + 1}"))
    values: dict[int, tuple[int, int, list[int]]] = {}
    for number in range(count):
        spot = at + head + number * step
        tag, kind = r.uint(spot, 2), r.uint(spot + 2, 2)
        length, size = r.uint(spot + 4, r.wide), SIZES.get(kind, 1)
        where = spot + 4 + r.wide
        here = f"{label}/{NAMES.get(tag, tag)}"
        weight = 1.0 if tag in STRUCTURAL else 0.3
        yield _uint(r, name, spot, 2, f"{here} tag", only=list(NAMES), weight=weight / 2)
        yield _uint(r, name, spot + 2, 2, f"{here} type", only=list(range(20)), weight=weight)
        yield _uint(r, name, spot + 4, r.wide, f"{here} count", weight=weight)
        if length * size > r.wide:
            yield _uint(r, name, where, r.wide, f"{here} offset", weight=weight / 2)
            where = r.uint(where, r.wide)
        found = [r.uint(where + i * size, size) for i in range(min(length, 64))]
        values[tag] = where, size, found
        if tag == 270 and length > 200:
            continue
        for i in range(min(length, 6 if tag in STRUCTURAL else 1)):
            share = weight / max(1, min(length, 6))
            more = {"only": VALUES[tag]} if tag in VALUES else {"hints": tuple(found[:8])}
            at_value = where + i * size
            yield _uint(r, name, at_value, size, f"{here} value", weight=share, **more)
        if tag == 330:
            waiting += [(value, f"{label}/sub{i}") for i, value in enumerate(found)]
        if tag == 347:
            yield from jpeg_fields(name, r.data, where, length * size, here)
    yield from _chunks(r, name, label, values)


def _chunks(r: Reader, name: str, label: str, values: dict[int, Any]) -> Iterator[Field]:
    offsets, lengths = values.get(324, values.get(273)), values.get(325, values.get(279))
    if offsets is None or lengths is None:
        return
    compression = values.get(259, (0, 0, [1]))[2][0]
    for i, (at, length) in enumerate(zip(offsets[2][:4], lengths[2][:4], strict=False)):
        here = f"{label} data of chunk {i}"
        yield Field(file=name, kind="data", label=here, offset=at, length=length, weight=1.5)
        if compression in (6, 7):
            yield from jpeg_fields(name, r.data, at, length, here)
        if compression == 34712:
            yield from codestream_fields(name, r.data, at, at + length, label=here)
        if compression in BOMBS and i == 0:
            more = {
                "codec": BOMBS[compression],
                "order": r.order,
                "offset_at": (offsets[0], offsets[1]),
                "length_at": (lengths[0], lengths[1]),
            }
            yield Field(file=name, kind="bomb", label=here, weight=0.4, more=more)


def jpeg_fields(name: str, data: bytes, at: int, length: int, label: str) -> Iterator[Field]:
    """Map the marker segments of a JPEG stream."""
    end = at + length
    at += 2
    while at + 4 <= end and data[at] == 0xFF:
        marker, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        here = f"{label} JPEG {marker:02x}"
        spots = [(at + 1, 1), (at + 2, 2), (at + 4 + size // 3, 1)]
        if marker in (0xC0, 0xC1, 0xC2, 0xC3):
            spots += [(at + 4, 1), (at + 5, 2), (at + 7, 2), (at + 9, 1), (at + 11, 1)]
        for offset, width in spots:
            yield Field(file=name, kind="uint", label=here, offset=offset, length=width, weight=0.5)
        if marker in (0xDA, 0xD9):
            return
        at += 2 + size


def _written(array: Any, *, name: str = "a.tif", **options: Any) -> bytes:
    out = io.BytesIO()
    with tifffile.TiffWriter(
        out, bigtiff=options.pop("bigtiff", False), byteorder=options.pop("byteorder", "<"),
        ome=False, imagej=options.pop("imagej", False), shaped=False,
    ) as file:  # fmt: skip
        for page in array if isinstance(array, list) else [array]:
            file.write(page, metadata=options.pop("metadata", None), **options)
    return out.getvalue()


def by_gdal(
    array: np.ndarray, *, driver: str = "GTiff", suffix: str = ".tif", **options: Any
) -> bytes:
    """Return what GDAL writes for (band, y, x)."""
    import rasterio

    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder, f"a{suffix}")
        bands, height, width = array.shape
        dtype = options.pop("dtype", array.dtype.name)
        shape = {"count": bands, "height": height, "width": width, "dtype": dtype}
        with rasterio.open(path, "w", driver, **shape, **options) as file:
            file.write(array)
        return path.read_bytes()


def _pyramid() -> bytes:
    out = io.BytesIO()
    with tifffile.TiffWriter(out, ome=False, shaped=False) as file:
        options = {"tile": (16, 16), "compression": "zlib", "metadata": None}
        file.write(field((40, 48)), subifds=1, **options)
        file.write(field((20, 24)), subfiletype=1, **options)
    return out.getvalue()


def made() -> Iterator[tuple[str, bytes, float]]:
    """Yield (name, file, tolerance)."""
    grey, rgb = field((40, 50), "u2"), field((40, 48, 3))
    tiles: dict[str, Any] = {"tile": (16, 16)}
    yield "tiles", _written(grey, **tiles), 0
    yield "strips-big", _written(grey, rowsperstrip=16, byteorder=">"), 0
    yield "bigtiff", _written(grey, bigtiff=True, **tiles), 0
    yield "bigtiff-big", _written(grey, bigtiff=True, byteorder=">", rowsperstrip=9), 0
    yield "one-strip", _written(field((20, 50))), 0
    yield "rgb", _written(rgb, photometric="rgb", **tiles), 0
    rgba = np.concatenate([rgb, rgb[..., :1]], axis=-1)
    yield "rgba", _written(rgba, photometric="rgb", extrasamples=["unassalpha"], rowsperstrip=13), 0
    planar = {"planarconfig": "separate", "photometric": "rgb"}
    yield "planar", _written(np.moveaxis(rgb, -1, 0), **planar, **tiles), 0
    yield "pages", _written([field((20, 24)), field((20, 24), "u2")], **tiles), 0
    yield "pyramid", _pyramid(), 0
    yield "float", _written(field((40, 50), "f4"), compression="zlib", predictor=3, **tiles), 0
    for name in ("zlib", "lzw", "zstd", "packbits", "lzma"):
        yield name, _written(grey, compression=name, predictor=name in ("zlib", "lzw"), **tiles), 0
    for name, at_most in (("jpeg", 3), ("webp", 3), ("jpegxl", 3), ("jpeg2000", 1)):
        options = {"photometric": "rgb", "compression": name, **tiles}
        yield name, _written(rgb, **options), at_most
    yield "jpeg-grey", _written(field((40, 50)), compression="jpeg", rowsperstrip=16), 3
    colours = np.arange(768, dtype="u2").reshape(3, 256)
    yield "palette", _written(field((20, 30)) >> 2, photometric="palette", colormap=colours), 0
    yield "bits", _written(field((20, 30)) > 100, photometric="minisblack"), 0
    yield "imagej", _written(field((6, 20, 24), "u2"), imagej=True, metadata={"axes": "ZYX"}), 0
    gdal: dict[str, dict[str, Any]] = {
        "fax4": {"compress": "CCITTFAX4", "nbits": 1},
        "fax3": {"compress": "CCITTFAX3", "nbits": 1},
        "rle": {"compress": "CCITTRLE", "nbits": 1},
        "bits12": {"nbits": 12},
        "lerc": {"compress": "lerc", "tiled": True, "blockxsize": 16, "blockysize": 16},
        "lerc-zstd": {"compress": "lerc_zstd"},
        "ycbcr": {"compress": "jpeg", "photometric": "YCBCR", "tiled": True, "blockxsize": 32,
                  "blockysize": 32},
        "geo": {"compress": "deflate", "predictor": 2, "nodata": 7, "crs": "EPSG:32633"},
    }  # fmt: skip
    for name, options in gdal.items():
        array = field((1, 40, 50), "u2" if name in ("bits12", "geo", "lerc") else "u1")
        if "nbits" in options and options["nbits"] == 1:
            array = (array > 100).astype("u1")
        if name == "bits12":
            array = array >> 4
        if name == "ycbcr":
            array = np.moveaxis(field((40, 48, 3)), -1, 0)
        yield name, by_gdal(array, **options), 3 if name == "ycbcr" else 0
    yield "old-jpeg", old_jpeg(), 3


def old_jpeg() -> bytes:
    """Return a strip of old-style JPEG (Compression 6) by our own bytes."""
    import imagecodecs

    stream = bytes(imagecodecs.jpeg8_encode(field((16, 24))))
    entries = [
        (256, 4, 24), (257, 4, 16), (258, 3, 8), (259, 3, 6), (262, 3, 1), (273, 4, 200),
        (277, 3, 1), (278, 4, 16), (279, 4, len(stream)), (513, 4, 200), (514, 4, len(stream)),
    ]  # fmt: skip
    data = struct.pack("<2sHIH", b"II", 42, 8, len(entries))
    data += b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return (data + bytes(4)).ljust(200, b"\0") + stream


def seeds() -> Iterator[Seed]:
    """Yield TIFF files."""
    for name, data, tolerance in made():
        yield Seed(
            name=f"tiff/{name}",
            format="tiff",
            files={"a.tif": data},
            entry="a.tif",
            fields=fields_of("a.tif", data),
            peers=("tifffile", "rasterio"),
            tolerance=tolerance,
        )


XML = """<?xml version="1.0" encoding="UTF-8"?>
<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:1-1">
<Image ID="Image:0" Name="a"><Pixels ID="Pixels:0" DimensionOrder="{order}" Type="{type}"
 SizeX="{x}" SizeY="{y}" SizeC="{c}" SizeZ="{z}" SizeT="{t}" PhysicalSizeX="0.5" BigEndian="false"
 Interleaved="false" SignificantBits="16">{channels}{data}</Pixels></Image></OME>"""


def ome(order: str, sizes: dict[str, int], data: str, *, pages: int, **options: Any) -> bytes:
    """Write pages whose first carries padded OME-XML, so that its values may become longer."""
    channels = "".join(f'<Channel ID="C:{i}" SamplesPerPixel="1"/>' for i in range(sizes["c"]))
    text = XML.format(order=order, type="uint16", channels=channels, data=data, **sizes)
    text += " " * 120
    out = io.BytesIO()
    with tifffile.TiffWriter(out, ome=False, shaped=False, **options) as file:
        for i in range(pages):
            page = field((sizes["y"], sizes["x"]), "u2") + np.uint16(i)
            description = text if i == 0 else None
            file.write(page, description=description, metadata=None, tile=(16, 16))
    return out.getvalue()


def ome_seeds() -> Iterator[Seed]:
    """Yield OME-TIFF files, one of them a set of two."""
    sizes = {"x": 20, "y": 18, "c": 2, "z": 2, "t": 1}
    one = '<TiffData IFD="0" PlaneCount="4"/>'
    each = "".join(
        f'<TiffData FirstC="{i // 2}" FirstZ="{i % 2}" FirstT="0" IFD="{i}" PlaneCount="1"/>'
        for i in range(4)
    )
    files = {
        "one": {"a.ome.tif": ome("XYZCT", sizes, one, pages=4)},
        "each": {"a.ome.tif": ome("XYCZT", sizes, each, pages=4)},
        "big": {"a.ome.tif": ome("XYZTC", sizes, one, pages=4, bigtiff=True)},
    }
    parts = "".join(
        f'<TiffData FirstC="{i // 2}" FirstZ="{i % 2}" IFD="{i % 2}" PlaneCount="1">'
        f'<UUID FileName="{"ab"[i // 2]}.ome.tif">urn:uuid:1-{i // 2 + 1}</UUID></TiffData>'
        for i in range(4)
    )
    first = ome("XYZCT", sizes, parts, pages=2)
    files["set"] = {
        "a.ome.tif": first,
        "b.ome.tif": first.replace(b'UUID="urn:uuid:1-1"', b'UUID="urn:uuid:1-2"'),
    }
    for name, some in files.items():
        data = some["a.ome.tif"]
        start = data.index(b"<?xml")
        end = data.index(b"</OME>") + 6 + 120
        text = Field(
            file="a.ome.tif", kind="padded", label="OME-XML", offset=start, length=end - start,
            more={"values": r'\w+="([^"]*)"', "only": (b"XYCZT", b"XYTZC", b"uint8", b"float")},
        )  # fmt: skip
        fields = fields_of("a.ome.tif", data)
        weight = sum(spot.weight for spot in fields)
        fields = (*fields, Field(**{**text.__dict__, "weight": weight}))
        yield Seed(
            name=f"ome-tiff/{name}", format="ome-tiff", files=some, entry="a.ome.tif",
            fields=fields, peers=("tifffile", "rasterio"),
        )  # fmt: skip
