"""The header of a file that is written: its lines, their order and their length.

Spec: JNRRD Tiling Extension 1.0.0 section 5; docs/formats/jnrrd.md.

The header contains the offsets of tiles, which depend on its own length, and tiles are written
before their sizes are known. So space is reserved first (`room` computes a fixed point), tiles are
written after it, and the header is written last, padded with spaces at the end of its last line.
"""

import math

import numpy as np
import numpy.typing as npt

from anychunk.errors import FormatError
from anychunk.formats.jnrrd.header import Line, make_line, rebuild, rewrite
from anychunk.formats.jnrrd.tiling_fields import KNOWN_URI, SPARSE_URI, URI, Layout
from anychunk.formats.jnrrd.write_plan import Plan
from anychunk.model.index import Json

ALIGNMENT = 1024
"""Data begins at a multiple of this."""
# fields of a kept header that describe how its own data was stored
REPLACED = (
    *("encoding", "endian", "block_size", "data_file", "data_files", "data_file_pattern"),
    *("line_skip", "byte_skip"),
)
LONGEST_FLOAT = -1.7976931348623157e308
"""A float with the longest possible text."""


class Written:
    """Where every tile was written, in table order."""

    def __init__(self, tiles: int, *, has_metadata: bool) -> None:
        """Prepare tables for a number of tiles."""
        self.offsets: npt.NDArray[np.uint64] = np.zeros(tiles, np.uint64)
        self.sizes = np.zeros(tiles, np.uint64)
        self.metadata: list[Json] | None = [None] * tiles if has_metadata else None

    def add(self, place: int, offset: int, size: int, metadata: Json) -> None:
        """Record a tile."""
        self.offsets[place], self.sizes[place] = offset, size
        if self.metadata is not None:
            self.metadata[place] = metadata

    def is_contiguous(self) -> bool:
        """Return whether tiles follow each other in table order, without gaps."""
        return bool((self.offsets[:-1] + self.sizes[:-1] == self.offsets[1:]).all())


def needs_sizes(plan: Plan) -> bool:
    """Return whether the stored sizes of tiles must be listed: `tile:sizes` does not imply them."""
    tiling = plan.tiling
    has_one_size = len(set(tiling.level_tile_sizes)) == 1 and tiling.edge_handling == "pad"
    is_plain = tiling.compression == "raw" and has_one_size and not tiling.sparse
    return not is_plain or any(tiling.overlap)


def lines(plan: Plan, written: Written, quality: list[Json] | None) -> list[Line]:
    """Return the lines of the header; the longest table comes last."""
    volume, fields = plan.volume, dict(plan.fields)
    is_newer = plan.tiling.sparse or fields.get("padding_value", 0) is None
    prefix, extensions = declared(plan.lines, SPARSE_URI if is_newer else URI)
    tables: dict[str, Json] = {}
    if plan.tiling.sparse and "files" in fields:
        files = zip(fields["files"], written.sizes, strict=True)
        fields["files"] = [entry for entry, size in files if size]
    if written.metadata is not None:
        tables["metadata"] = written.metadata
    if quality is not None:
        tables["level_quality"] = quality
    if plan.tiling.storage == "internal":
        fields["format"] = "contiguous" if written.is_contiguous() else "chunked"
        if plan.tiling.levels > 1:
            tables["level_offsets"] = level_offsets(plan, written)
        if needs_sizes(plan):
            tables["size_table"] = written.sizes.tolist()
        tables["offset_table"] = written.offsets.tolist()
    changes: dict[str, Json] = {
        "jnrrd": "0004",
        "type": volume.type,
        "dimension": len(volume.sizes),
        "sizes": list(volume.sizes),
        **({"endian": volume.endian} if volume.itemsize > 1 else {}),
        "encoding": "raw",
        "extensions": extensions,
    }
    # the magic must be the first line, whatever the kept header begins with
    kept = [make_line("jnrrd", "0004"), *(x for x in plan.lines if x.key != "jnrrd")]
    ordered = rewrite(
        merged_extensions(kept), changes, drop=(f"{prefix}:", *(set(REPLACED) - changes.keys()))
    )
    return ordered + [make_line(f"{prefix}:{k}", v) for k, v in {**fields, **tables}.items()]


def merged_extensions(kept: list[Line]) -> list[Line]:
    """Return the lines with one `extensions` line, to be replaced by the merged declaration."""
    found = [x for x in kept if x.key.partition(".")[0] == "extensions"]
    return [x for x in kept if x not in found or x is found[0]]


def declared(kept: tuple[Line, ...], uri: str) -> tuple[str, dict[str, str]]:
    """Return the prefix of the tiling extension, and all extensions to declare.

    A kept header may already declare it under another prefix, or use `tile` for something else.
    """
    lines = [x for x in kept if x.key.partition(".")[0] == "extensions"]
    merged = rebuild(lines, "jnrrd").get("extensions")
    found: dict[str, str] = merged if isinstance(merged, dict) else {}
    ours = [p for p, known in found.items() if KNOWN_URI.fullmatch(str(known))]
    prefix = ours[0] if ours else "tile" if "tile" not in found else "tiling"
    return prefix, {**{p: u for p, u in found.items() if p not in ours}, prefix: uri}


def level_offsets(plan: Plan, written: Written) -> list[int]:
    """Return where each level begins; 0 for virtual levels."""
    found, before = [0] * plan.tiling.levels, 0
    for layout in plan.layouts:
        found[layout.level.number] = int(written.offsets[before : before + layout.tiles].min())
        before += layout.tiles
    return found


def encoded(made: list[Line]) -> bytes:
    """Return the lines as bytes."""
    return "".join(f"{line.text}\n" for line in made).encode()


def room(plan: Plan) -> int:
    """Return how many bytes to reserve for the header: its length if known, or else a bound.

    A longer header moves the tiles, and larger offsets may need more digits, so the length is
    computed again until it no longer grows. This converges quickly: another digit takes a factor of
    ten.
    """
    tile_bytes = [_bound(plan, layout) for layout in plan.layouts]
    counts = [layout.tiles for layout in plan.layouts]
    is_known = plan.tiling.compression == "raw" and plan.tiling.edge_handling == "pad"
    is_known = is_known and not plan.tiling.sparse
    longest = Written(plan.tiles, has_metadata=plan.tile_metadata)
    longest.sizes[:] = np.repeat(np.array(tile_bytes, np.uint64), counts)
    if longest.metadata is not None:
        longest.metadata = [longest_entry(plan)] * plan.tiles
    quality = [{"psnr": LONGEST_FLOAT, "rmse": LONGEST_FLOAT}] * plan.tiling.levels
    start = 0
    while True:
        ends = np.cumsum(longest.sizes, dtype=np.uint64) + np.uint64(start)
        # unless sizes are known, assume that every offset has as many digits as the last
        longest.offsets = ends - longest.sizes if is_known else np.full_like(ends, ends[-1])
        length = len(encoded(lines(plan, longest, quality if plan.quality else None))) + 1
        length += len("contiguous")  # tile:format is known only when all tiles are written
        needed = -(-length // ALIGNMENT) * ALIGNMENT
        if needed <= start:
            return start
        start = needed


def _bound(plan: Plan, layout: Layout) -> int:
    """Return an upper bound for the length of a stored tile."""
    overlap = dict(zip(plan.tiling.dimensions, plan.tiling.overlap, strict=True))
    tile = math.prod(t + 2 * overlap.get(a, 0) for a, t in enumerate(layout.level.tile))
    nbytes = tile * plan.volume.itemsize
    # incompressible data grows by far less than an eighth with any of the compressions
    return nbytes if plan.tiling.compression == "raw" else nbytes + nbytes // 8 + 1024


def longest_entry(plan: Plan) -> Json:
    """Return the longest possible entry of `tile:metadata`."""
    entry: dict[str, Json] = {"checksum": "0" * 8, "checksum_algorithm": "crc32"}
    kind = plan.volume.dtype.kind
    if kind in "iu":
        bounds = np.iinfo(plan.volume.dtype)
        longest = max(bounds.min, bounds.max, key=lambda n: len(str(n)))
        return {"min": longest, "max": longest, **entry}
    return entry if kind == "c" else {"min": LONGEST_FLOAT, "max": LONGEST_FLOAT, **entry}


def text(plan: Plan, written: Written, *, quality: list[Json] | None, length: int | None) -> bytes:
    """Return the header and its blank line, padded to `length` bytes if data follows."""
    made = encoded(lines(plan, written, quality))
    if length is None:
        return made + b"\n"
    spaces = length - len(made) - 1
    if spaces < 0:
        raise FormatError(f"jnrrd: a header of {len(made)} bytes, expected at most {length - 1}")

    return made[:-1] + b" " * spaces + b"\n\n"
