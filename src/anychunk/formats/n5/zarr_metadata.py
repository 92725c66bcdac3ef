"""`zarr.json` next to `attributes.json`, so that zarr reads the same block files.

If every block is whole, the header of a block is constant, and standard codecs describe it:
`transpose`, `bytes`, the compressor, and `pad`, which skips the header. Otherwise `n5_default` is
needed, because only the header states the size of a cropped block.

Arrays have the dimensions in N5 order, (x, y, z): chunk keys follow the order of the axes, and
blocks are named in N5 order. OME-Zarr does not allow this order, so groups have GeoZarr's
`multiscales` and no `ome`.
"""

import base64
from typing import Any

import numpy as np

from anychunk.codecs.n5_block import write_header
from anychunk.formats.n5.compression import to_codecs
from anychunk.formats.n5.hierarchy import Options, pyramid_image, samples_codec
from anychunk.formats.n5.multiscale import axis_names
from anychunk.io.folder import Folder
from anychunk.metadata.hierarchy import group_attributes
from anychunk.model.index import Json


def array_metadata(attributes: dict[str, Json], *, is_cropped: bool) -> dict[str, Json]:
    """Return the Zarr v3 metadata of a dataset that is written.

    Parameters:
        attributes: The attributes of the dataset, complete.
        is_cropped: Whether blocks at the edge are cropped.
    """
    shape, block = attributes["dimensions"], attributes["blockSize"]
    names = axis_names((attributes,), len(block))
    itemsize = np.dtype(attributes["dataType"]).itemsize
    compressor = to_codecs(attributes["compression"], itemsize, "N5")
    is_whole = not is_cropped or all(n % m == 0 for n, m in zip(shape, block, strict=True))
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": attributes["dataType"],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": block}},
        "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": whole_block_codecs(compressor, block)
        if is_whole
        else [samples_codec(compressor, len(block))],
        "dimension_names": [name or f"dim_{n}" for n, name in enumerate(names)],
        "attributes": {},
    }


def reads_transposed(document: Json) -> bool:
    """Return whether a `zarr.json` of N5 blocks skips their header, but lacks `transpose`.

    The first axis of N5 is the fastest, so zarr then reads every block transposed. Example 3 of the
    proposals of `offset` and `pad` is such a document.
    """
    found = document if isinstance(document, dict) else {}
    codecs, shape = found.get("codecs"), found.get("shape")
    names = {c.get("name") for c in codecs or () if isinstance(c, dict)}
    skips = "transpose" not in names and not names.isdisjoint(("offset", "pad"))
    return skips and isinstance(shape, list) and sum(n != 1 for n in shape) > 1


def whole_block_codecs(compressor: list[Json], block: list[int]) -> list[dict[str, Any]]:
    """Return the codecs of blocks that all have the same header."""
    header = write_header(tuple(block))
    padding = base64.b64encode(header).decode("ascii")
    return [
        {"name": "transpose", "configuration": {"order": list(range(len(block)))[::-1]}},
        {"name": "bytes", "configuration": {"endian": "big"}},
        *compressor,
        {
            "name": "pad",
            "configuration": {"location": "start", "nbytes": len(header), "padding": padding},
        },
    ]


def group_metadata(attributes: dict[str, Json]) -> dict[str, Json]:
    """Return the Zarr v3 metadata of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


def pyramid_attributes(
    folder: Folder, group: dict[str, Json], levels: dict[str, dict[str, Json]]
) -> dict[str, Json]:
    """Return the Zarr attributes of a pyramid that is written.

    Parameters:
        folder: The folder of the group.
        group: The attributes of the group.
        levels: The attributes of its datasets, by name.
    """
    found = pyramid_image(folder, group, list(levels.items()), Options(axes="xyz"), {})
    return {} if found is None else group_attributes(*found)
