"""NIfTI: one volume or a series of volumes, as a single file, compressed by gzip or not.

Spec:    NIfTI-1.1 (nifti1.h) and NIfTI-2 (nifti2.h), https://nifti.nimh.nih.gov.
Axes:    x is the fastest in the file, so shapes are reversed: (t, z, y, x), as far as present; the
         fifth axis is c, and so are the samples of RGB; with further axes all are dim_0 …
Opened:  versions 1 and 2, both byte orders, every integer, real and complex type up to 64 bits per
         number, RGB24 and RGBA32; `.nii` and `.nii.gz`.
Refused: pairs of `.hdr` and `.img`, ANALYZE 7.5, bits, and numbers of 128 bits.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats import _gzip, _pieces, _raw
from anychunk.formats._axes import image_axes, transposed, without_axis
from anychunk.io.source import Source
from anychunk.metadata import drawing
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Axis, Band, Display, Level, Meaning, Space
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, GroupIndex, Json

EXTENSIONS = (".nii", ".nii.gz")
CHUNK_BYTES = 4 * limits.MIB
"""Desired length of a chunk of samples that are not compressed."""

# nifti1.h and nifti2.h: name, offset and type of the fields that are used here
FIELDS_1 = {
    "dim": (40, "8h"), "intent_code": (68, "h"), "datatype": (70, "h"), "pixdim": (76, "8f"),
    "vox_offset": (108, "f"), "scl_slope": (112, "f"), "scl_inter": (116, "f"),
    "xyzt_units": (123, "B"), "cal_max": (124, "f"), "cal_min": (128, "f"), "toffset": (136, "f"),
    "descrip": (148, "80s"),
    "qform_code": (252, "h"), "sform_code": (254, "h"), "quatern": (256, "3f"),
    "qoffset": (268, "3f"), "srow": (280, "12f"), "intent_name": (328, "16s"),
}  # fmt: skip
FIELDS_2 = {
    "datatype": (12, "h"), "dim": (16, "8q"), "pixdim": (104, "8d"), "vox_offset": (168, "q"),
    "scl_slope": (176, "d"), "scl_inter": (184, "d"), "cal_max": (192, "d"), "cal_min": (200, "d"),
    "toffset": (216, "d"), "descrip": (240, "80s"), "qform_code": (344, "i"),
    "sform_code": (348, "i"), "quatern": (352, "3d"), "qoffset": (376, "3d"),
    "srow": (400, "12d"), "xyzt_units": (500, "i"), "intent_code": (504, "i"),
    "intent_name": (508, "16s"),
}  # fmt: skip
SIZES = {1: 348, 2: 540}
MAGICS = {1: (344, b"n+1\0", b"ni1\0"), 2: (4, b"n+2\0", b"ni2\0")}
"""Where the signature is; that of a single file, and that of a pair of files."""
DATATYPES = {
    2: "uint8", 4: "int16", 8: "int32", 16: "float32", 32: "complex64", 64: "float64",
    256: "int8", 512: "uint16", 768: "uint32", 1024: "int64", 1280: "uint64", 1792: "complex128",
    128: "uint8", 2304: "uint8",
}  # fmt: skip
COLORS = {128: 3, 2304: 4}
"""Samples per voxel of RGB24 and RGBA32."""
SPACE_UNITS = {1: ("meter", 1000.0), 2: ("millimeter", 1.0), 3: ("micrometer", 0.001)}
"""Names, and millimetres per unit."""
TIME_UNITS = {8: "second", 16: "millisecond", 24: "microsecond"}
AXES = ("x", "y", "z", "t", "c", None, None)
"""Meanings of the axes, the fastest first."""


@dataclass(frozen=True, kw_only=True)
class Header:
    """The fields of a header that samples and their place depend on."""

    version: int
    is_big: bool
    sizes: Shape
    """Sizes of the axes, the fastest first."""
    datatype: int
    offset: int
    """Where the samples begin, in decoded bytes."""
    fields: Mapping[str, Any]
    """All fields that were read, by their names in the specification."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(DATATYPES[self.datatype])

    @property
    def shape(self) -> Shape:
        """The shape of the array: sizes reversed, then the samples of a colour."""
        colors = COLORS.get(self.datatype)
        return (*self.sizes[::-1], *(() if colors is None else (colors,)))


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a NIfTI file."""
    if head.startswith(_gzip.MAGIC):
        head = _gzip.head_of(head, SIZES[1])
    return _version(head) is not None


def _version(head: bytes) -> tuple[int, bool] | None:
    """Return the version, and whether the header is big-endian; None if it is not NIfTI."""
    for version, (place, *magics) in MAGICS.items():
        for order in ("little", "big"):
            size = int.from_bytes(head[:4], order)
            if size == SIZES[version] and head[place : place + 4] in magics:
                return version, order == "big"
    return None


def parse(source: Source) -> GroupIndex:
    """Index a NIfTI file."""
    is_compressed = source.read(0, min(2, source.size())).tobytes() == _gzip.MAGIC

    def read(nbytes: int) -> bytes:
        if is_compressed:
            return _gzip.read_head(source, nbytes)
        return source.read(0, nbytes).tobytes()

    found = _version(read(SIZES[1]))
    if found is None:
        raise FormatError(f"{source.url}: no NIfTI header, expected n+1 or n+2 in it")
    version, is_big = found
    header = read_header(read(SIZES[version]), version, is_big=is_big, url=source.url)
    itemsize, shape = header.dtype.itemsize, header.shape
    # of a compressed file the end is not known
    size = _raw.MOST_BYTES if is_compressed else source.size()
    _raw.check_extent(shape, itemsize, offset=header.offset, size=size, where=source.url)
    endian = "big" if is_big else "little"
    if is_compressed:
        raw = _pieces.compressed(
            shape,
            itemsize,
            endian=endian,
            url=source.url,
            length=source.size(),
            skip=header.offset,
        )
    else:
        raw = _raw.cut(
            shape,
            itemsize,
            endian=endian,
            url=source.url,
            offset=header.offset,
            chunk_bytes=CHUNK_BYTES,
        )
    return group_index(header, raw)


def read_header(data: bytes, version: int, *, is_big: bool, url: str) -> Header:
    """Read the fields of a header."""
    order, layout = ">" if is_big else "<", FIELDS_1 if version == 1 else FIELDS_2
    fields: dict[str, Any] = {}
    for name, (offset, kind) in layout.items():
        values = struct.unpack_from(order + kind, data, offset)
        fields[name] = values[0] if len(values) == 1 else values
    place, _, pair = MAGICS[version]
    if data[place : place + 4] == pair:
        raise UnsupportedError(
            f"{url}: a pair of a header and an image file is not supported; supported: single files"
        )
    datatype = int(fields["datatype"])
    if datatype not in DATATYPES:
        raise UnsupportedError(
            f"{url}: datatype {datatype} is not supported; supported: "
            f"{' '.join(str(n) for n in sorted(DATATYPES))}"
        )
    ndim, *sizes = fields["dim"]
    if not 1 <= ndim <= 7 or any(n < 1 for n in sizes[:ndim]):
        raise FormatError(
            f"{url}: dim is {fields['dim']}, expected 1 to 7 and as many positive sizes"
        )
    start = float(fields["vox_offset"])
    # the header is followed by four bytes that say whether extensions follow
    least = SIZES[version] + 4
    if not (math.isfinite(start) and start == int(start) and (start >= least or start == 0)):
        raise FormatError(f"{url}: vox_offset is {start}, expected an integer of at least {least}")
    return Header(
        version=version,
        is_big=is_big,
        sizes=tuple(int(n) for n in sizes[:ndim]),
        datatype=datatype,
        offset=int(start) or least,
        fields=fields,
    )


def scaling(header: Header) -> tuple[float, float] | None:
    """Return the factor and the offset of stored values; None if they are the values.

    nifti1.h: a slope of 0 means that there is no scaling; it does not apply to colours.
    """
    slope, offset = float(header.fields["scl_slope"]), float(header.fields["scl_inter"])
    if not slope or not math.isfinite(slope) or header.datatype in COLORS:
        return None
    if not math.isfinite(offset):
        return None
    return None if (slope, offset) == (1.0, 0.0) else (slope, offset)


def quaternion_affine(fields: Mapping[str, Any]) -> npt.NDArray[np.float64] | None:
    """Return the matrix of method 2 of nifti1.h, from voxel indices to the units of the file."""
    b, c, d = (float(v) for v in fields["quatern"])
    square = 1.0 - (b * b + c * c + d * d)
    if not math.isfinite(square) or square < -1e-5:
        return None
    a = math.sqrt(max(square, 0.0))
    norm = math.sqrt(a * a + b * b + c * c + d * d)
    a, b, c, d = a / norm, b / norm, c / norm, d / norm
    rotation = np.array(
        [
            [a * a + b * b - c * c - d * d, 2 * b * c - 2 * a * d, 2 * b * d + 2 * a * c],
            [2 * b * c + 2 * a * d, a * a + c * c - b * b - d * d, 2 * c * d - 2 * a * b],
            [2 * b * d - 2 * a * c, 2 * c * d + 2 * a * b, a * a + d * d - c * c - b * b],
        ]
    )
    sizes = np.array([abs(float(v)) for v in fields["pixdim"][1:4]])
    if float(fields["pixdim"][0]) < 0:
        sizes[2] = -sizes[2]  # nifti1.h: pixdim[0] is the sign of the third column
    affine = np.eye(4)
    affine[:3, :3] = rotation * sizes
    affine[:3, 3] = fields["qoffset"]
    return affine if bool(np.isfinite(affine).all()) else None


def affine_of(header: Header) -> npt.NDArray[np.float64] | None:
    """Return the matrix from (x, y, z) indices to millimetres of the RAS+ frame, or None.

    The sform is preferred to the qform, as other readers do; without either there is no frame.
    """
    fields, affine = header.fields, None
    if fields["sform_code"] > 0:
        affine = np.eye(4)
        affine[:3] = np.reshape(fields["srow"], (3, 4))
    elif fields["qform_code"] > 0:
        affine = quaternion_affine(fields)
    if affine is None or not np.isfinite(affine).all():
        return None
    affine[:3] *= SPACE_UNITS.get(fields["xyzt_units"] & 7, ("", 1.0))[1]
    return affine


def spacing(header: Header) -> list[float | None]:
    """Return the distance of elements along each axis, the fastest first; None if not given."""
    found = [abs(float(v)) for v in header.fields["pixdim"][1 : len(header.sizes) + 1]]
    return [v if math.isfinite(v) and v > 0 else None for v in found]


def group_index(header: Header, raw: _raw.RawChunks) -> GroupIndex:
    """Turn the header into an index."""
    colors = ("c",) if header.datatype in COLORS else ()
    known = [*AXES[: len(header.sizes)][::-1], *colors]
    array = ArrayIndex(
        shape=header.shape,
        chunk_shape=raw.chunk_shape,
        data_type=header.dtype.name,
        codecs=raw.codecs,
        chunks=raw.chunks,
        dimension_names=tuple(name or f"dim_{n}" for n, name in enumerate(known)),
    )
    if known.count("c") == 1:
        single = without_axis(array, known.index("c"))
        if single is not None:  # an axis of one channel is left out
            array, known = single, [name for name in known if name != "c"]
    names, order = image_axes(known)
    array = replace(transposed(array, order), dimension_names=names)
    return root_group({"0": image_group(meaning(header, array), [Level(name="0", image=array)])})


def meaning(header: Header, array: ArrayIndex) -> Meaning:
    """Return what the samples mean."""
    names = tuple(name or "" for name in array.dimension_names)
    affine = affine_of(header)
    space = None
    if affine is not None:
        unit = "millimeter" if header.fields["xyzt_units"] & 7 in SPACE_UNITS else None
        space = Space(affine=tuple(map(tuple, affine.tolist())), frame="RAS", unit=unit)
    scaled = scaling(header)
    bands: tuple[Band, ...] = ()
    if scaled is not None:
        count = array.shape[names.index("c")] if "c" in names else 1
        bands = (Band(scale=scaled[0], offset=scaled[1]),) * count
    return Meaning(
        axes=axes(header, names),
        bands=bands,
        display=display(header, names),
        space=space,
        native={"nifti": native(header)},
    )


def axes(header: Header, names: tuple[str, ...]) -> tuple[Axis, ...]:
    """Return the axes of the array, with the steps, units and origins that the file states.

    Steps are those of the matrix, if there is one. OME-Zarr 0.5 has no rotation and no reflection,
    so spatial axes have an origin only if each points along its own positive axis of the space.
    """
    units = header.fields["xyzt_units"]
    unit, millimetres = SPACE_UNITS.get(units & 7, (None, 1.0))
    time = TIME_UNITS.get(units & 56)
    steps = dict(zip(AXES, spacing(header), strict=False))
    origins: dict[str, float] = {}
    affine = affine_of(header)
    if affine is not None:
        affine = affine[:3] / millimetres
        square = affine[:, :3]
        norms = np.sqrt((square**2).sum(axis=0)).tolist()
        steps |= {name: norm for name, norm in zip("xyz", norms, strict=True) if norm > 0}
        if np.array_equal(square, np.diag(np.diag(square))) and (np.diag(square) > 0).all():
            origins = dict(zip("xyz", affine[:, 3].tolist(), strict=True))
    start = float(header.fields["toffset"])
    if math.isfinite(start):
        origins["t"] = start
    found = []
    for name in names:
        if name in ("x", "y", "z", "t"):
            step = steps.get(name)
            origin = origins.get(name, 0.0) if step is not None else 0.0
            found.append(
                Axis(name=name, unit=time if name == "t" else unit, scale=step, origin=origin)
            )
        else:
            found.append(Axis(name=name))
    return tuple(found)


def display(header: Header, names: tuple[str, ...]) -> Display | None:
    """Return how colours are drawn; None if there are none."""
    count = COLORS.get(header.datatype)
    if count is None or "c" not in names:
        return None
    shown = drawing.rgb(limits=drawing.limits_of("uint8"))
    return shown if count == 3 else drawing.with_alpha(shown, 3, limits=(0, 255))


def native(header: Header) -> dict[str, Json]:
    """Return the fields of the header as JSON; numbers that JSON does not have are null."""

    def shown(value: Any) -> Json:
        if isinstance(value, bytes):
            return value.split(b"\0")[0].decode("latin1")
        if isinstance(value, tuple):
            return [shown(v) for v in value]
        return value if isinstance(value, int) or math.isfinite(value) else None

    return {"version": header.version, **{k: shown(v) for k, v in header.fields.items()}}
