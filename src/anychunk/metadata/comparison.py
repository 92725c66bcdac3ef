"""Compare the metadata of several files: the meaning of samples, georeference, codecs.

Files that are combined, or appended to an index, share one set of attributes and codecs. What
decides the meaning of samples must agree in all of them; a georeference that differs is dropped.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from anychunk.metadata import geo
from anychunk.metadata._tiff import Attributes
from anychunk.metadata.samples import UNSCALED, sample_meaning
from anychunk.model.index import Json

EDGES = {"last_height": "tile_height", "last_width": "tile_width"}
"""Codec settings for chunks at the edge of a file, with the setting of whole chunks for each."""


def sample_differences(a: Attributes, b: Attributes) -> list[str]:
    """Return the names of the metadata that make the samples of two files mean different things."""
    if a == b:
        return []
    mine, theirs = sample_meaning(a), sample_meaning(b)
    return [
        key
        for key in {**mine, **theirs}
        # a band that states no scale and offset means the same as one that states 1 and 0
        for default in (UNSCALED if key.startswith("scale and") else None,)
        if not is_same(mine.get(key, default), theirs.get(key, default))
    ]


def differing_georeference(files: Sequence[Attributes]) -> tuple[str, ...]:
    """Return the prefixes of the georeference attributes that differ between files.

    Where the CRS differs, coordinates are not comparable, so all prefixes are returned.
    """
    places = [geo.georeference(attributes) for attributes in files]
    first = places[0]
    if not all(is_same(place["crs"], first["crs"]) for place in places):
        return geo.PREFIXES
    return () if all(is_same(place, first) for place in places) else ("spatial:",)


def is_same(a: Json, b: Json) -> bool:
    """Return whether two JSON values are equal, floats within a relative tolerance of 1e-9."""
    if a == b:
        return True
    if isinstance(a, Sequence) and isinstance(b, Sequence) and not isinstance(a, str):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=1e-9, atol=0, equal_nan=True))
    return False


def common_codecs(chains: Sequence[Sequence[Json]]) -> tuple[Json, ...] | None:
    """Return the codecs that decode the chunks of several arrays; None if no single set does.

    Codecs may differ only in the size of the partial chunks at the edge of each file, and files
    that have partial chunks must agree on that size.
    """
    first = chains[0]
    found = []
    for i, codec in enumerate(first):
        edges: dict[str, Json] = {}
        for chain in chains:
            if len(chain) != len(first) or _without_edges(chain[i]) != _without_edges(codec):
                return None
            for key, value in _partial_edges(chain[i]).items():
                if edges.setdefault(key, value) != value:
                    return None
        found.append(_with_edges(codec, edges))
    return tuple(found)


def _partial_edges(codec: Json) -> dict[str, Json]:
    """Return the edge settings of a codec that describe partial chunks."""
    configuration = codec.get("configuration") or {} if isinstance(codec, dict) else {}
    return {
        key: configuration[key]
        for key, whole in EDGES.items()
        if configuration.get(key) not in (None, configuration.get(whole))
    }


def _without_edges(codec: Json) -> Json:
    if not isinstance(codec, dict) or not EDGES.keys() & (codec.get("configuration") or {}).keys():
        return codec
    kept = {k: v for k, v in codec["configuration"].items() if k not in EDGES}
    return {**codec, "configuration": kept}


def _with_edges(codec: Json, edges: Mapping[str, Json]) -> Json:
    return {**codec, "configuration": {**codec["configuration"], **edges}} if edges else codec
