"""Add what indexes of osml-imagery-io 0.2.2 do not record about TIFF and NITF files.

They call the samples of every TIFF little-endian, and leave out FillOrder, YCbCrSubSampling and
what else its chunks depend on; pixels would be wrong, silently. So the directories of local files
are parsed when such an index is loaded. Remote files are not: loading an index makes no request to
the files it refers to.

The last strip may be shorter than the others. Their decoder pads it; the codec `bytes`, which they
use for one uncompressed band, does not.
"""

from dataclasses import replace

import numpy as np

from anychunk.codecs.jbp_block import JbpBlock
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.errors import AnychunkError, UnsupportedError
from anychunk.formats import tiff
from anychunk.io.block_cache import buffered
from anychunk.io.opening import open_source
from anychunk.io.source import is_remote
from anychunk.model.index import INLINE, ArrayIndex, ByteRanges, GroupIndex, Json, Node, Parts

BIG_ENDIAN = (b"MM\0*", b"MM\0+")
"""How a big-endian TIFF or BigTIFF begins."""
LITTLE: Json = {"name": "bytes", "configuration": {"endian": "little"}}
BIG: Json = {"name": "bytes", "configuration": {"endian": "big"}}
OURS = (
    "byte_order",
    "fill_order",
    "subsampling",
    "ycbcr_coefficients",
    "reference_black_white",
    "last_height",
)
"""The keys of `tiff-tile` that osml-imagery-io does not write."""
YCBCR, JPEG = 6, (6, 7)
"""Values of the tags PhotometricInterpretation and Compression."""
FORMATS = {"u": 1, "i": 2, "f": 3}
"""SampleFormat, by the kind of a numpy type."""


def corrected(node: Node, where: str) -> Node:
    """Return an index of osml-imagery-io with what it does not record; any other as it is.

    Raises:
        UnsupportedError: The pixels depend on something that is not recorded, in a remote file.
    """
    if not isinstance(node, GroupIndex) or not _is_osml(node):
        return node
    members: dict[str, Node] = {}
    known: dict[str, list[ArrayIndex]] = {}
    for name, group in node.members.items():
        array = group.members.get("data") if isinstance(group, GroupIndex) else None
        if isinstance(group, GroupIndex) and isinstance(array, ArrayIndex):
            array = _with_bands_apart(array, f"{where} {name}/data")
            keys = _missing_keys(array, node.roots, known)
            if keys is None:
                _check_chroma(array, f"{where} {name}/data")
            changed = _with_keys(array, {**_short_strip(array), **(keys or {})})
            group = replace(group, members={**group.members, "data": changed})  # noqa: PLW2901
        members[name] = group
    return replace(node, members=members)


def _is_osml(node: GroupIndex) -> bool:
    """Return whether osml-imagery-io wrote an index: ours has the attribute `anychunk`."""
    return {"source", "multiscales"} <= set(node.attributes) and "anychunk" not in node.attributes


def _missing_keys(
    array: ArrayIndex, roots: tuple[str, ...], known: dict[str, list[ArrayIndex]]
) -> dict[str, Json] | None:
    """Return the keys of `tiff-tile` that decode the chunks of an array, and are not in its index.

    None if that is not known: the file is remote, or cannot be parsed, or is not a TIFF file.

    Parameters:
        array: An array of the index.
        roots: The folders that its file may be in.
        known: The arrays of the files that were parsed before, by url; added to.
    """
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges) or not chunks.lengths.any():
        return None
    urls = [url for url in chunks.urls if url != INLINE]
    if len(urls) != 1 or is_remote(urls[0]):
        return None
    if urls[0] not in known:
        known[urls[0]] = _tiff_arrays(urls[0], roots)
    first = chunks.offsets[chunks.lengths > 0][0]
    for own in known[urls[0]]:
        table = own.chunks
        if isinstance(table, ByteRanges) and (table.offsets[table.lengths > 0] == first).any():
            return _keys_of(own)
    return {"byte_order": "big"} if _head(urls[0], roots) in BIG_ENDIAN else None


def _head(url: str, roots: tuple[str, ...]) -> bytes:
    """Return the first bytes of a file; none if it cannot be read: reading chunks says why."""
    try:
        source = open_source(url, roots=roots)
        return source.read(0, min(4, source.size())).tobytes()
    except AnychunkError:
        return b""


def _tiff_arrays(url: str, roots: tuple[str, ...]) -> list[ArrayIndex]:
    """Return the arrays of a file; none if it is not a TIFF file that we parse."""
    if not tiff.sniff(_head(url, roots)):
        return []
    try:
        node = tiff.parse(buffered(open_source(url, roots=roots)))
    except AnychunkError:
        return []
    return [array for _, array in node.arrays()]


def _keys_of(array: ArrayIndex) -> dict[str, Json]:
    """Return those of our keys that an array's codecs use."""
    named = {codec["name"]: codec.get("configuration", {}) for codec in array.codecs}
    if TiffTile.name in named:
        return {key: named[TiffTile.name][key] for key in OURS if key in named[TiffTile.name]}
    return {"byte_order": "big"} if named.get("bytes", {}).get("endian") == "big" else {}


def _names(array: ArrayIndex) -> list[Json]:
    return [codec.get("name") if isinstance(codec, dict) else codec for codec in array.codecs]


def _with_keys(array: ArrayIndex, keys: dict[str, Json]) -> ArrayIndex:
    """Return an array whose chunks are decoded with these keys of `tiff-tile`, too."""
    names, tile = _names(array), _one_band(array)
    if keys == {"byte_order": "big"} and names == ["bytes"]:
        return replace(array, codecs=(BIG,))
    if keys and tile is not None:
        own = {"name": TiffTile.name, "configuration": {**tile, **keys}}
        return replace(array, codecs=(LITTLE, own))
    if not keys or names != ["bytes", TiffTile.name]:
        return array
    first, second = array.codecs
    configuration = {**keys, **second.get("configuration", {})}
    return replace(array, codecs=(first, {**second, "configuration": configuration}))


def _check_chroma(array: ArrayIndex, where: str) -> None:
    """Refuse YCbCr that is not JPEG if nothing says whether it is subsampled."""
    if _names(array) != ["bytes", TiffTile.name]:
        return
    found = array.codecs[1].get("configuration", {})
    is_known = "subsampling" in found or found.get("compression") in JPEG
    if found.get("photometric") == YCBCR and not is_known:
        raise UnsupportedError(
            f"{where}: YCbCr without JPEG, of which osml-imagery-io does not record the "
            "subsampling; index the TIFF file itself"
        )


def _with_bands_apart(array: ArrayIndex, where: str) -> ArrayIndex:
    """Return an array of NITF blocks in IMODE S with the byte ranges of all bands.

    In this mode all blocks of a band precede those of the next. The index gives a chunk the blocks
    of one band that follow its own, so ranges overlap.
    """
    chunks = array.chunks
    if _names(array) != ["bytes", JbpBlock.name] or not isinstance(chunks, ByteRanges):
        return array
    found = array.codecs[1].get("configuration", {})
    bands, count = array.chunk_shape[0], chunks.offsets.size
    if found.get("imode") != "S" or bands == 1 or count == 1 or chunks.parts is not None:
        return array
    starts, lengths = chunks.offsets.ravel(), chunks.lengths.ravel()
    length = int(lengths[0]) // bands
    expected = starts[0] + np.arange(count, dtype=np.uint64) * np.uint64(length)
    if (lengths != length * bands).any() or (starts != expected).any():
        raise UnsupportedError(
            f"{where}: NITF blocks in IMODE S, of which osml-imagery-io does not record where the "
            "bands are; index the NITF file itself"
        )
    step = np.uint64(count * length)
    further = starts[:, None] + np.arange(1, bands, dtype=np.uint64) * step
    parts = Parts(
        starts=np.arange(count + 1, dtype=np.uint64) * np.uint64(bands - 1),
        offsets=further.ravel(),
        lengths=np.full(further.size, length, np.uint64),
    )
    own = np.full_like(chunks.lengths, length)
    return replace(array, chunks=replace(chunks, lengths=own, parts=parts))


def _one_band(array: ArrayIndex) -> dict[str, Json] | None:
    """Return the `tiff-tile` that decodes one uncompressed band, which they leave to `bytes`."""
    if _names(array) != ["bytes"] or array.chunk_shape[:-2] != (1,):
        return None
    dtype = np.dtype(array.data_type) if array.data_type in np.sctypeDict else None
    if dtype is None or dtype.kind not in FORMATS:
        return None
    return {
        "bits_per_sample": 8 * dtype.itemsize,
        "sample_format": FORMATS[dtype.kind],
        "tile_width": array.chunk_shape[-1],
        "tile_height": array.chunk_shape[-2],
    }


def _short_strip(array: ArrayIndex) -> dict[str, Json]:
    """Return the height of the last strip of one uncompressed band, if it is stored short."""
    tile, chunks = _one_band(array), array.chunks
    is_strip = array.shape[-1] == array.chunk_shape[-1]
    if tile is None or not is_strip or not isinstance(chunks, ByteRanges):
        return {}
    rows, step = array.shape[-2], array.chunk_shape[-2]
    left = rows - (rows - 1) // step * step
    size = left * array.shape[-1] * tile["bits_per_sample"] // 8
    is_short = left < step and bool((chunks.lengths[:, -1, :] == size).all())
    return {"last_height": left} if is_short else {}
