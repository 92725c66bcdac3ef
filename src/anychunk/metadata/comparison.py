"""Compare the metadata of several files: the meaning of samples, places, codecs.

Files that are combined, or appended to an index, share one meaning and one chain of codecs. What
decides which values samples represent must agree in all of them; a place that differs is dropped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from anychunk.metadata.meaning import Meaning, Place
from anychunk.model.index import Json

CF = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar")
"""CF attributes that change which values samples represent."""
EDGES = {"last_height": "tile_height", "last_width": "tile_width"}
"""Codec settings for chunks at the edge of a file, with the setting of whole chunks for each."""


def sample_differences(a: Meaning, b: Meaning, *, has_own_bands: bool = False) -> list[str]:
    """Return the names of what makes the samples of two images mean different things.

    Parameters:
        a: the meaning of one image.
        b: the meaning of the other.
        has_own_bands: whether the bands of each stay bands of their own.
    """
    found = [] if is_same(a.nodata, b.nodata) else ["nodata"]
    if not is_same(_palette(a), _palette(b)):
        found.append("palette")
    for number in range(0 if has_own_bands else max(len(a.bands), len(b.bands))):
        mine, theirs = a.band(number), b.band(number)
        if not is_same([mine.scale, mine.offset], [theirs.scale, theirs.offset]):
            found.append(f"scale and offset of band {number}")
        if mine.unit != theirs.unit:
            found.append(f"unit of band {number}")
    return found


def _palette(meaning: Meaning) -> Json:
    return None if meaning.display is None else meaning.display.get("palette")


def attribute_differences(a: Mapping[str, Json], b: Mapping[str, Json]) -> list[str]:
    """Return the CF attributes that make the samples of two arrays mean different things."""
    return [key for key in CF if not is_same(a.get(key), b.get(key))]


def common_place(places: Sequence[Place]) -> Place:
    """Return the place that all files share: without what differs, empty if the CRS does."""
    first = places[0]
    if not all(is_same_crs(place, first) for place in places):
        return Place()
    same = all(is_same(_position(place), _position(first)) for place in places)
    return first if same else Place(crs=first.crs)


def is_same_crs(a: Place, b: Place) -> bool:
    """Return whether two images have the same CRS, or none."""
    mine, theirs = a.crs, b.crs
    if mine is None or theirs is None:
        return mine is theirs
    if mine.code is not None and theirs.code is not None:
        return mine.code == theirs.code
    return (mine.code, mine.wkt) == (theirs.code, theirs.wkt)


def _position(place: Place) -> Json:
    return [place.transform, place.bbox, place.gcps, place.rpc and dict(place.rpc)]


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


def common_json(values: Sequence[Json]) -> Json:
    """Return what several JSON objects share, member by member; None where they differ."""
    first = values[0]
    if all(isinstance(value, Mapping) for value in values):
        shared = {
            key: common_json([value[key] for value in values])
            for key in first
            if all(key in value for value in values)
        }
        return {key: value for key, value in shared.items() if value is not None}
    return first if all(is_same(value, first) for value in values) else None


def is_same_field(meanings: Sequence[Meaning], name: str) -> bool:
    """Return whether several meanings agree in a field."""
    values = [getattr(meaning, name) for meaning in meanings]
    plain = [asdict(value) if hasattr(value, "__dataclass_fields__") else value for value in values]
    return all(is_same(value, plain[0]) for value in plain)


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
