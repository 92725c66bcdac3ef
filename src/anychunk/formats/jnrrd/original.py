"""The header of the NRRD or JNRRD file that samples come from, for a file that is written from it.

A reader shows axes in the order of OME-Zarr and reads fields as meaning. Where the samples and
their meaning are still those of a header, a writer puts the axes back into the header's order and
keeps its fields one by one, so that nothing is lost, renamed or invented.

Spec: NRRD format section 1.5: an optional field that was never specified must not be invented.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from anychunk.errors import AnychunkError
from anychunk.formats.jnrrd import axes
from anychunk.formats.jnrrd.extension_axes import with_extensions
from anychunk.formats.jnrrd.meaning import PREFIX, described, is_own
from anychunk.formats.jnrrd.tiling_fields import KNOWN_URI
from anychunk.formats.jnrrd.volume import read_volume
from anychunk.metadata.exported import exported, imported
from anychunk.metadata.meaning import Axis, Meaning, Space
from anychunk.model.grid import Shape
from anychunk.model.index import Json

STORAGE = {
    *("jnrrd", "type", "dimension", "sizes", "endian", "encoding", "block_size", "number"),
    *("data_file", "data_files", "data_file_pattern", "line_skip", "byte_skip"),
}
"""Fields that say how samples are stored; a writer has its own."""


@dataclass(frozen=True, kw_only=True)
class Original:
    """A header that still describes the samples."""

    key: str
    """Its format, "nrrd" or "jnrrd"."""
    fields: Mapping[str, Json]
    """Without those about storage and tiles; `extensions` without that of tiles."""
    order: tuple[int | None, ...]
    """For each axis of the file, slowest first, the axis of the array; None for an axis of size one
    that the array does not have."""
    added: Mapping[str, Json]
    """What is known besides, by the names of our own extension."""


def original(meaning: Meaning, shape: Shape) -> Original | None:
    """Return the header that an array comes from; None if there is none, or it no longer fits.

    Parameters:
        meaning: What the samples mean.
        shape: Of the array; its axes are those of `meaning`.
    """
    for key in ("nrrd", "jnrrd"):
        fields = meaning.native.get(key)
        if isinstance(fields, Mapping):
            try:
                return _matching(key, fields, meaning, shape)
            except AnychunkError:
                return None  # of a store that anyone may have written
    return None


def _matching(
    key: str, fields: Mapping[str, Json], meaning: Meaning, shape: Shape
) -> Original | None:
    volume = read_volume({"endian": "little", **fields}, key, is_tiled=True)
    ndim = len(volume.sizes)
    if volume.trailing:
        return None
    known = axes.names(with_extensions(fields), ndim)
    shown = list(reversed(range(ndim)))
    if len(shape) == ndim - 1 and known.count("c") == 1:
        shown.remove(known.index("c"))
    if len(shape) != len(shown):
        return None
    found, order = described(fields, volume, shown, key=key)
    if tuple(volume.sizes[shown[number]] for number in order) != shape:
        return None
    if not is_same_place(found, meaning):
        return None
    place = {shown[number]: axis for axis, number in enumerate(order)}
    full: list[int | None] = [place.get(axis) for axis in reversed(range(ndim))]
    if any(
        axis is None and volume.sizes[ndim - 1 - number] != 1 for number, axis in enumerate(full)
    ):
        return None
    own = {k.removeprefix(f"{PREFIX}:"): v for k, v in fields.items() if is_own(k)}
    stated = exported(imported(found, own))
    added = {k: v for k, v in exported(meaning).items() if k not in stated or stated[k] != v}
    return Original(
        key=key,
        fields=described_only(fields),
        order=tuple(full),
        added={**own, **added},
    )


def described_only(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the fields of a header that describe samples, not how they are stored."""
    declared = fields.get("extensions")
    uris = declared if isinstance(declared, Mapping) else {}
    dropped = {p for p, uri in uris.items() if isinstance(uri, str) and KNOWN_URI.fullmatch(uri)}
    dropped.add(PREFIX)
    kept = {
        key: value
        for key, value in fields.items()
        if key not in STORAGE and (":" not in key or key.partition(":")[0] not in dropped)
    }
    if isinstance(declared, Mapping):
        kept["extensions"] = {p: uri for p, uri in uris.items() if p not in dropped}
    return {key: value for key, value in kept.items() if key != "extensions" or value}


def is_same_place(found: Meaning, meaning: Meaning) -> bool:
    """Return whether two images have the same axes, positions and orientation."""
    if found.names != meaning.names:
        return False
    has_transform = meaning.place.transform is not None
    pairs = zip(found.axes, meaning.axes, strict=True)
    return all(_same_axis(a, b, has_transform) for a, b in pairs) and _same_space(
        found.space, meaning.space
    )


def _same_axis(found: Axis, other: Axis, has_transform: bool) -> bool:
    if has_transform and other.name in ("x", "y"):
        return True  # a georeference has the positions
    if other.values is not None:
        return False
    return (
        found.unit == other.unit
        and _close(found.scale or 1.0, other.scale or 1.0)
        and _close(found.origin, other.origin)
    )


def _same_space(found: Space | None, other: Space | None) -> bool:
    if found is None or other is None:
        return found is other
    flat = [value for row in found.affine for value in row]
    rest = [value for row in other.affine for value in row]
    return (
        len(flat) == len(rest)
        and all(map(_close, flat, rest))
        and replace(found, affine=()) == replace(other, affine=())
    )


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
