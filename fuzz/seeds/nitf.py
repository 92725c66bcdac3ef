"""NITF by GDAL and by the bytes of the tests' own writer; jbpy tells where its fields are."""

import io
import logging
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np

from fuzz.cases import Field, Seed
from fuzz.seeds.jpeg2000 import codestream_fields, tiled
from fuzz.seeds.pictures import field
from fuzz.seeds.tiff import jpeg_fields
from tests.support.gdal import gdal_write
from tests.support.nitf_writer import Image, fax, image_data, nitf, tre, vq_header, vq_image

WORDS = {
    "IC": (
        "NC",
        "NM",
        "C1",
        "M1",
        "C3",
        "M3",
        "C4",
        "M4",
        "C5",
        "M5",
        "C8",
        "M8",
        "I1",
        "CD",
        "C7",
    ),
    "IMODE": ("B", "P", "R", "S"),
    "PVTYPE": ("INT", "B  ", "SI ", "R  ", "C  "),
    "PJUST": ("L", "R"),
    "IREP": ("MONO", "RGB", "RGB/LUT", "MULTI", "NODISPLY", "NVECTOR", "POLAR", "VPH", "YCbCr601"),
    "ICORDS": (" ", "G", "D", "U", "N", "S", "C"),
    "COMRAT": ("1D", "2DS", "2DH", "0.75", "00.0", "01.0", "N010", "V020"),
    "FVER": ("02.10", "02.00", "01.10", "01.00"),
    "FHDR": ("NITF", "NSIF"),
}
SHAPE = ("NROWS", "NCOLS", "ABPP", "NBPP", "IC", "NBANDS", "XBANDS", "IMODE", "NBPR", "NBPC",
         "NPPBH", "NPPBV", "PVTYPE", "PJUST", "COMRAT", "NUMI", "FL", "HL", "NLUTS",
         "NELUT")  # fmt: skip


def fields_of(name: str, data: bytes) -> Iterator[Field]:
    """Map every field by its width; image data by its compression."""
    import jbpy

    logging.getLogger("jbpy").setLevel(logging.CRITICAL)
    if data[4:9] != b"02.10":  # jbpy reads 2.1 only
        yield from _numbers(name, data)
        return
    file = jbpy.Jbp()
    file.load(io.BytesIO(data))
    yield from _group(name, file)
    for number, segment in enumerate(file["ImageSegments"]):
        sub = segment["subheader"]
        start, size = segment["Data"].get_offset(), segment["Data"].get_size()
        yield from _pixels(name, data, start, size, sub["IC"].value, f"image {number}")


def _group(name: str, group: Any, path: str = "") -> Iterator[Field]:
    parts = group.items() if hasattr(group, "items") else enumerate(group)
    for key, part in parts:
        if (
            hasattr(part, "items")
            or isinstance(part, list | tuple)
            or type(part).__name__.endswith("List")
        ):
            yield from _group(name, part, f"{path}{key}/")
            continue
        if str(key) == "Data" or not hasattr(part, "get_offset") or not part.get_size():
            continue
        size = part.get_size()
        if size > 100:
            continue
        short = str(key).rstrip("0123456789")
        weight = 2.0 if short in SHAPE or short in ("LI", "LISH") else 0.15
        encoded = getattr(part, "encoded_value", b"")
        kind = "digits" if bytes(encoded).isdigit() and short not in WORDS else "text"
        more = {"only": WORDS[short]} if short in WORDS else {}
        yield Field(
            file=name, kind=kind, label=f"{path}{key}", offset=part.get_offset(), length=size,
            more=more, weight=weight,
        )  # fmt: skip


def _numbers(name: str, data: bytes) -> Iterator[Field]:
    """Map every number in the text of the headers."""
    for match in re.finditer(rb"\d{2,10}", data[:900]):
        at, length = match.start(), match.end() - match.start()
        yield Field(file=name, kind="digits", label="number", offset=at, length=length)
    yield Field(file=name, kind="data", label="data", offset=900, length=len(data) - 900)


def _pixels(name: str, data: bytes, start: int, size: int, ic: str, label: str) -> Iterator[Field]:
    end = start + size
    yield Field(file=name, kind="data", label=f"{label} data", offset=start, length=size, weight=4)
    if ic == "NM" or ic.startswith("M"):
        for at, width in ((0, 4), (4, 2), (6, 2), (8, 2), (10, 4), (14, 4), (18, 4)):
            yield Field(
                file=name, kind="uint", label=f"{label} mask +{at}", offset=start + at,
                length=width, weight=1.5,
            )  # fmt: skip
        start += int.from_bytes(data[start : start + 4], "big")
    if ic in ("C8", "M8"):
        yield from codestream_fields(name, data, start, end, label=label)
    if ic in ("C3", "M3", "I1"):
        yield from jpeg_fields(name, data, start, end - start, label)
    if ic in ("C4", "M4"):
        for at in range(0, 80, 2):
            yield Field(
                file=name, kind="uint", label=f"{label} VQ +{at}", offset=start + at, length=2,
                weight=0.3,
            )  # fmt: skip


def _jpeg(plane: np.ndarray) -> bytes:
    return bytes(imagecodecs.jpeg8_encode(plane, level=92))


def _copied(array: np.ndarray, **options: Any) -> bytes:
    """Return what GDAL writes as NITF."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.ntf")
        gdal_write(path, array, driver="NITF", **options)
        return path.read_bytes()


def made() -> Iterator[tuple[str, bytes, tuple[str, ...], float]]:
    """Yield (name, file, peers, tolerance)."""
    gdal = ("rasterio",)
    grey = field((1, 40, 48))
    rgb = np.moveaxis(field((40, 48, 3)), -1, 0)
    corners = {"icords": "G", "igeolo": "325902N0840005E" * 4}
    yield "nc", nitf([Image(grey, block=(16, 16), **corners)]), gdal, 0
    yield "nc-p", nitf([Image(rgb, imode="P", block=(16, 16), irep="MULTI")]), gdal, 0
    yield "nc-r", nitf([Image(rgb, imode="R", irep="MULTI")], version="NITF02.00"), gdal, 0
    yield "nc-s", nitf([Image(rgb, imode="S", block=(16, 16), irep="MULTI")]), gdal, 0
    masked = Image(grey, ic="NM", block=(16, 16), absent={(0, 1), (2, 2)}, pad=b"\1")
    yield "nm", nitf([masked]), gdal, 0
    yield "bits12", nitf([Image(field((1, 20, 24), "u2") >> 4, nbpp=12)]), (), 0
    yield "bit", nitf([Image((grey > 99).astype("u1"), nbpp=1, pvtype="B")]), gdal, 0
    yield "float", nitf([Image(field((1, 20, 24), "f4"), block=(10, 12))]), gdal, 0
    tres = tre("BLOCKA", b"0" * 123) + tre("ABCDEF", b"0" * 7)
    yield "two", nitf([Image(grey, tres=tres), Image(field((1, 10, 12), "u2"))]), gdal, 0
    yield "c3", nitf([Image(grey, ic="C3", payload=_jpeg(grey[0]))]), gdal, 3
    streams = {
        (i, j): _jpeg(np.ascontiguousarray(grey[0, 16 * i : 16 * i + 16, 16 * j : 16 * j + 16]))
        for i in range(2) for j in range(3)
    }  # fmt: skip
    image = Image(grey[:, :32], ic="M3", block=(16, 16))
    image.payload = image_data(image, streams)
    yield "m3", nitf([image]), gdal, 3
    stream: Any = imagecodecs.jpeg2k_encode(grey[0], level=0, codecformat="J2K")
    yield "c8", nitf([Image(grey, ic="C8", comrat="N010", payload=bytes(stream))]), gdal, 0
    yield "c8-tiles", nitf(
        [Image(grey, ic="C8", comrat="N010", block=(32, 32), payload=tiled(grey[0], 32, 32))]
    ), gdal, 0  # fmt: skip
    pixels = (grey > 100).astype("u1")
    options = {"ic": "C1", "nbpp": 1, "pvtype": "B"}
    yield "c1", nitf([Image(pixels, comrat="1D  ", payload=fax(pixels[0], 0), **options)]), (), 0
    tables, values, data = vq_image(1)
    vq = Image(values, ic="C4", comrat="0.75", payload=vq_header(tables) + data[0])
    yield "c4", nitf([vq]), (), 0
    yield "gdal-c3", _copied(rgb, IC="C3"), gdal, 3
    yield "gdal-c8", _copied(rgb, IC="C8"), gdal, 1


def seeds() -> Iterator[Seed]:
    """Yield NITF files."""
    for name, data, peers, tolerance in made():
        yield Seed(
            name=f"nitf/{name}", format="nitf", files={"a.ntf": data}, entry="a.ntf",
            fields=tuple(fields_of("a.ntf", data)), peers=peers, tolerance=tolerance,
        )  # fmt: skip
