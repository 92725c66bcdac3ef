"""Real files as seeds: single files of a folder, no larger than `MOST`."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from fuzz.cases import Field, Seed
from fuzz.seeds import jpeg2000, nitf, tiff

MOST = 256 << 10
type Map = Callable[[str, bytes], Iterator[Field] | tuple[Field, ...]]


def _codestream(name: str, data: bytes) -> Iterator[Field]:
    if data[4:8] == b"jP  ":
        return jpeg2000.box_fields(name, data)
    return jpeg2000.codestream_fields(name, data, 0, len(data))


KINDS: dict[bytes, tuple[str, Map, tuple[str, ...]]] = {
    b"II*\0": ("tiff", tiff.fields_of, ("tifffile", "rasterio")),
    b"MM\0*": ("tiff", tiff.fields_of, ("tifffile", "rasterio")),
    b"II+\0": ("tiff", tiff.fields_of, ("tifffile", "rasterio")),
    b"NITF": ("nitf", nitf.fields_of, ("rasterio",)),
    b"\xff\x4f\xff\x51": ("jpeg2000", _codestream, ("openjpeg", "rasterio")),
    b"\0\0\0\x0c": ("jpeg2000", _codestream, ("openjpeg", "rasterio")),
}
"""{first bytes: (format, map, peers)}"""


@cache
def seeds(folder: Path) -> tuple[Seed, ...]:
    """Return a seed per file whose format has a map."""
    return tuple(_made(folder))


def _made(folder: Path) -> Iterator[Seed]:
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or not 64 < path.stat().st_size <= MOST:
            continue
        data = path.read_bytes()
        if data[:4] not in KINDS:
            continue
        name, mapped, peers = KINDS[data[:4]]
        fields = [Field(file=path.name, kind="data", label="bytes", length=len(data))]
        try:
            fields += mapped(path.name, data)
        except Exception:  # a file that the map does not understand is damaged blindly
            pass
        yield Seed(
            name=f"real/{path.relative_to(folder)}", format=name, files={path.name: data},
            entry=path.name, fields=tuple(fields), peers=peers, tolerance=3,
        )  # fmt: skip
