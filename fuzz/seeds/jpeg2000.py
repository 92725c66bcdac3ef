"""JPEG 2000 by OpenJPEG (imagecodecs, GDAL) and OpenJPH; the map follows T.800 annexes A and I."""

from collections.abc import Iterator
from typing import Any

import imagecodecs
import numpy as np

from fuzz.cases import Field, Seed
from fuzz.seeds.pictures import field

SIZ = [(4, 2), (6, 4), (10, 4), (14, 4), (18, 4), (22, 4), (26, 4), (30, 4), (34, 4), (38, 2),
       (40, 1), (41, 1), (42, 1)]  # fmt: skip
SOT = [(4, 2), (6, 4), (10, 1), (11, 1)]
COD = [(4, 1), (5, 1), (6, 2), (8, 1), (9, 1), (10, 1), (11, 1), (12, 1), (13, 1)]


def _spot(name: str, at: int, width: int, label: str, weight: float = 1.0) -> Field:
    return Field(file=name, kind="uint", label=label, offset=at, length=width, weight=weight)


def codestream_fields(
    name: str, data: bytes, at: int, end: int, *, label: str = ""
) -> Iterator[Field]:
    """Map markers, their parameters, and the packets of each tile-part."""
    label = f"{label} " if label else ""
    at += 2
    while at + 4 <= end:
        marker, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at] != 0xFF or marker == 0xD9:
            break
        here = f"{label}marker ff{marker:02x}"
        known = {0x51: SIZ, 0x90: SOT, 0x52: COD}.get(marker)
        spots = known or [(4 + i, 1) for i in range(min(size - 2, 8))]
        yield _spot(name, at + 1, 1, here, 0.5)
        yield _spot(name, at + 2, 2, f"{here} length", 0.5)
        for offset, width in spots:
            if offset + width <= size + 2:
                yield _spot(name, at + offset, width, f"{here} +{offset}", 1 if known else 0.3)
        if marker != 0x90:
            at += 2 + size
            continue
        length = int.from_bytes(data[at + 6 : at + 10], "big") or end - 2 - at
        start = data.index(b"\xff\x93", at) + 2
        for offset, width in ((start - 1, 1),):
            yield _spot(name, offset, width, f"{label}SOD", 0.3)
        packets = at + length - start
        if packets > 0:
            yield Field(
                file=name, kind="data", label=f"{label}packets", offset=start, length=packets,
                weight=4,
            )  # fmt: skip
        at += length
    if at + 2 <= end:
        yield Field(file=name, kind="data", label=f"{label}end", offset=at, length=end - at)


def box_fields(name: str, data: bytes, at: int = 0, end: int | None = None) -> Iterator[Field]:
    """Map JP2 boxes, and the codestream inside them."""
    end = len(data) if end is None else end
    while at + 8 <= end:
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        stop = end if size == 0 else at + size
        here = f"box {kind.decode('latin-1')}"
        yield _spot(name, at, 4, f"{here} length")
        yield Field(
            file=name, kind="text", label=f"{here} type", offset=at + 4, length=4, weight=0.5,
            more={"only": ("jp2c", "jp2h", "ihdr", "free", "ftyp", "uuid")},
        )  # fmt: skip
        if kind == b"jp2c":
            yield from codestream_fields(name, data, at + 8, stop)
        elif kind == b"jp2h":
            yield from box_fields(name, data, at + 8, stop)
        elif stop > at + 8:
            yield Field(
                file=name, kind="data", label=here, offset=at + 8, length=stop - at - 8, weight=0.5
            )
        at = stop


def tiled(plane: np.ndarray, width: int, height: int) -> bytes:
    """Return a reversible codestream in tiles, by GDAL."""
    from fuzz.seeds.tiff import by_gdal

    size = {"BLOCKXSIZE": width, "BLOCKYSIZE": height, "RESOLUTIONS": 3}
    options = {"driver": "JP2OpenJPEG", "suffix": ".j2k", "QUALITY": 100, "REVERSIBLE": "YES"}
    return by_gdal(plane[None], CODEC="J2K", **size, **options)


def made() -> Iterator[tuple[str, bytes]]:
    """Yield (name, file)."""
    from fuzz.seeds.tiff import by_gdal

    grey, rgb = field((70, 90)), field((64, 64, 3))
    encode: Any = imagecodecs.jpeg2k_encode
    yield "one-tile", encode(grey, level=0, codecformat="J2K")
    yield "tiles", tiled(grey, 48, 32)
    yield "u2", encode(field((40, 50), "u2"), level=0, codecformat="J2K", resolutions=3)
    yield "rgb-jp2", encode(rgb, level=0, codecformat="JP2", mct=True)
    gdal: dict[str, Any] = {
        "driver": "JP2OpenJPEG",
        "suffix": ".jp2",
        "QUALITY": 100,
        "REVERSIBLE": "YES",
    }
    array = np.stack([field((96, 80))] * 2)
    small: dict[str, Any] = {"BLOCKXSIZE": 64, "BLOCKYSIZE": 64, "RESOLUTIONS": 3}
    yield "markers", by_gdal(array, **gdal, **small, SOP="YES", EPH="YES", TLM="YES", PLT="YES")
    yield (
        "precincts",
        by_gdal(array[:1], **gdal, **small, PRECINCTS="{32,32},{16,16}", PROGRESSION="RPCL"),
    )
    yield "jp2-16", by_gdal(field((1, 50, 70), "u2"), **gdal, RESOLUTIONS=2)
    yield (
        "layers",
        by_gdal(array[:1], **{**gdal, "QUALITY": "20,50,100"}, RESOLUTIONS=3, PROGRESSION="LRCP"),
    )
    yield "ht", bytes(imagecodecs.htj2k_encode(grey, reversible=True))


def seeds() -> Iterator[Seed]:
    """Yield raw codestreams and JP2 files."""
    for name, raw in made():
        data = bytes(raw)
        is_box = data[4:8] == b"jP  "
        file = "a.jp2" if is_box else "a.j2k"
        fields = box_fields(file, data) if is_box else codestream_fields(file, data, 0, len(data))
        yield Seed(
            name=f"jpeg2000/{name}", format="jpeg2000", files={file: data}, entry=file,
            fields=tuple(fields), peers=("rasterio",) if name == "ht" else ("openjpeg", "rasterio"),
        )  # fmt: skip
