"""What attributes say of samples and of their place on earth, held against other files.

Files that are put together have one set of attributes. What decides which values samples stand for
must be the same in all; what only tells where they are is left out where it is not.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anychunk.model.index import Json

type Attributes = Mapping[str, Json]

CF = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar")
PLACE = ("spatial:", "proj:")


def of_samples(attributes: Attributes) -> dict[str, Json]:
    """Give what decides which values samples stand for: by CF, by GDAL, by a palette."""
    found = {key: attributes.get(key) for key in CF}
    tiff = _mapping(attributes.get("tiff"))
    text = str(_mapping(tiff.get("tags")).get("GDAL_NODATA", "")).strip("\0 \n")
    found["nodata"] = _number(text) if text else None
    found["color_map"] = tiff.get("color_map")
    bands = _mapping(tiff.get("gdal_metadata"))
    for name in sorted(key for key in bands if key.startswith("band ")):
        band = _mapping(bands[name])
        found[f"scale and offset of {name}"] = [
            _number(band.get("SCALE", 1)),
            _number(band.get("OFFSET", 0)),
        ]
    return found


def differences(here: Attributes, there: Attributes) -> list[str]:
    """Name what two say differently of their samples."""
    if here == there:
        return []
    mine, theirs = of_samples(here), of_samples(there)
    plain = [1.0, 0.0]
    return [
        key
        for key in {**mine, **theirs}
        for default in (plain if key.startswith("scale and") else None,)
        if not is_same(mine.get(key, default), theirs.get(key, default))
    ]


def of_place(attributes: Attributes) -> dict[str, Json]:
    """Give what tells where an image is on earth, and in which system."""
    found = {k: v for k, v in attributes.items() if k.startswith(PLACE)}
    return {**found, "system": system(attributes)}


def system(attributes: Attributes) -> Json:
    """Give the reference system: its code, its description, or else the keys of GeoTIFF."""
    code, described = attributes.get("proj:code"), attributes.get("proj:projjson")
    if code is not None or described is not None:
        return [code, described]
    keys = _mapping(_mapping(attributes.get("tiff")).get("geo_keys"))
    # whether a tie point is a corner is in the transform already
    return {key: value for key, value in keys.items() if key != "GTRasterTypeGeoKey"}


def without_place(attributes: Attributes, prefixes: tuple[str, ...] = PLACE) -> dict[str, Json]:
    """Drop the attributes with these prefixes, and the conventions that they are of."""
    kept = {k: v for k, v in attributes.items() if not k.startswith(prefixes)}
    registered = kept.pop("zarr_conventions", None)
    if isinstance(registered, list):
        left = [c for c in registered if f"{_mapping(c).get('name')}:" not in prefixes]
        kept |= {"zarr_conventions": left} if left else {}
    return kept


def several(places: Sequence[Mapping[str, Json]]) -> tuple[str, ...]:
    """Give the prefixes of what is not the same of several places."""
    first = places[0]
    if not all(is_same(place["system"], first["system"]) for place in places):
        return PLACE
    return () if all(is_same(place, first) for place in places) else ("spatial:",)


def is_same(a: Json, b: Json) -> bool:
    """Whether two values are equal; lists of numbers as far as their rounding leaves it."""
    if a == b:
        return True
    if isinstance(a, Sequence) and isinstance(b, Sequence) and not isinstance(a, str):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float):
        return bool(np.isclose(a, b, rtol=1e-9, atol=0, equal_nan=True))
    return False


EDGES = {"last_height": "tile_height", "last_width": "tile_width"}
"""What codecs say of chunks at the edge of their own file, and what it is of a whole chunk."""


def _edges(codec: Json) -> dict[str, Json]:
    """Give what a codec says of chunks at the edge that are not whole."""
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


def common_codecs(chains: Sequence[Sequence[Json]]) -> tuple[Json, ...] | None:
    """Give codecs that serve all of several arrays; None where there are none.

    Where files end, some in the middle of a chunk, is the one thing that they may differ in.
    """
    first = chains[0]
    found = []
    for i, codec in enumerate(first):
        edges: dict[str, Json] = {}
        for chain in chains:
            if len(chain) != len(first) or _without_edges(chain[i]) != _without_edges(codec):
                return None
            for key, value in _edges(chain[i]).items():
                if edges.setdefault(key, value) != value:
                    return None
        if edges:
            codec = {**codec, "configuration": {**codec["configuration"], **edges}}  # noqa: PLW2901
        found.append(codec)
    return tuple(found)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | str:
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)
