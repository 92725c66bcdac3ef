"""Compare the metadata of several files: the meaning of samples, places, codecs.

Files that are combined, or appended to an index, share one meaning and one chain of codecs. What
decides which values samples represent must agree in all of them; a place that differs is dropped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from anychunk.metadata.meaning import Meaning, Place
from anychunk.model.index import Json

CF = ("scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned", "units", "calendar")
"""CF attributes that change which values samples represent."""
EDGES = {"last_height": "tile_height", "last_width": "tile_width"}
"""Codec settings for chunks at the edge of a file, with the setting of whole chunks for each."""


LONGEST_SHOWN = 80
"""How many characters of a value a message shows."""
TIFF_COMPRESSIONS = {
    1: "none", 2: "CCITT RLE", 3: "CCITT T.4", 4: "CCITT T.6", 5: "LZW", 6: "old-style JPEG",
    7: "JPEG", 8: "deflate", 32773: "PackBits", 32946: "deflate", 33003: "JPEG 2000",
    33005: "JPEG 2000", 34712: "JPEG 2000", 34887: "LERC", 34925: "LZMA", 50000: "zstd",
    50001: "WebP", 50002: "JPEG XL", 52546: "JPEG XL",
}  # fmt: skip
"""Names of TIFF's compressions, for messages."""


class Difference(NamedTuple):
    """What two files differ in, for a message of one line."""

    name: str
    here: Json
    there: Json

    def expected(self, whose: str) -> str:
        """Return the difference as the end of a message; `whose` names the file with `there`."""
        return f"{self.name} {shown(self.here)}, expected {shown(self.there)} {whose}"


def shown(value: Json) -> str:
    """Return a value for a message, cut if it is long."""
    if value is None:
        return "none"
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def sample_differences(a: Meaning, b: Meaning, *, has_own_bands: bool = False) -> list[Difference]:
    """Return what makes the samples of two images mean different things.

    Parameters:
        a: the meaning of one image.
        b: the meaning of the other.
        has_own_bands: whether the bands of each stay bands of their own.
    """
    found = []
    if not is_same(a.nodata, b.nodata):
        found.append(Difference("nodata", a.nodata, b.nodata))
    if not is_same(_palette(a), _palette(b)):
        found.append(_palette_difference(_palette(a), _palette(b)))
    if _is_inverted(a) != _is_inverted(b):
        words = [("black" if _is_inverted(meaning) else "white") for meaning in (a, b)]
        found.append(Difference("colour of the largest value", *words))
    names, others = ([band.name or "" for band in meaning.bands] for meaning in (a, b))
    if not has_own_bands and names != others and all(names) and set(names) == set(others):
        found.append(Difference("order of bands", " ".join(names), " ".join(others)))
    for number in range(0 if has_own_bands else max(len(a.bands), len(b.bands))):
        mine, theirs = a.band(number), b.band(number)
        if not is_same([mine.scale, mine.offset], [theirs.scale, theirs.offset]):
            name = f"scale and offset of band {number}"
            found.append(Difference(name, [mine.scale, mine.offset], [theirs.scale, theirs.offset]))
        if mine.unit != theirs.unit:
            found.append(Difference(f"unit of band {number}", mine.unit, theirs.unit))
    return found


def _palette_difference(a: Json, b: Json) -> Difference:
    """Return the first entry in which two palettes differ."""
    if a is None or b is None:
        here, there = (f"{len(p['colors'])} colours" if p else None for p in (a, b))
        return Difference("palette", here, there)
    mine, theirs = a["colors"], b["colors"]
    if len(mine) != len(theirs) or a.get("first") != b.get("first"):
        return Difference("palette", f"{len(mine)} colours", f"{len(theirs)} colours")
    pairs = enumerate(zip(mine, theirs, strict=True))
    number = next((n for n, (here, there) in pairs if here != there), 0)
    return Difference(f"palette entry {number}", mine[number], theirs[number])


def _is_inverted(meaning: Meaning) -> bool:
    return meaning.display is not None and bool(meaning.display.get("inverted"))


def _palette(meaning: Meaning) -> Json:
    return None if meaning.display is None else meaning.display.get("palette")


def attribute_differences(a: Mapping[str, Json], b: Mapping[str, Json]) -> list[Difference]:
    """Return the CF attributes that make the samples of two arrays mean different things."""
    return [
        Difference(key, a.get(key), b.get(key)) for key in CF if not is_same(a.get(key), b.get(key))
    ]


def common_place(places: Sequence[Place]) -> Place:
    """Return the place that all files share: without what differs, empty if the CRS does."""
    first = places[0]
    if not all(is_same_crs(place, first) for place in places):
        return Place()
    same = all(is_same(_position(place), _position(first)) for place in places)
    return first if same else Place(crs=first.crs)


def is_same_place(a: Place, b: Place) -> bool:
    """Return whether two images have the same CRS and lie at the same place in it."""
    return is_same_crs(a, b) and is_same(_position(a), _position(b))


def place_text(place: Place) -> str:
    """Return the CRS and the position of an image for a message."""
    crs = "no CRS" if place.crs is None else shown(place.crs.code or place.crs.wkt)
    stated = [
        f"{name} {shown(list(value))}"
        for name in ("transform", "bbox", "gcps", "rpc")
        if (value := getattr(place, name))
    ]
    return f"{crs}, {stated[0] if stated else 'no transform'}"


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


def is_same_but_for_edges(a: Json, b: Json) -> bool:
    """Return whether two codecs differ at most in the size of partial chunks."""
    return bool(_without_edges(a) == _without_edges(b))


def _with_edges(codec: Json, edges: Mapping[str, Json]) -> Json:
    return {**codec, "configuration": {**codec["configuration"], **edges}} if edges else codec


def codec_difference(here: Sequence[Json], there: Sequence[Json]) -> Difference:
    """Return the first setting in which two different chains of codecs differ."""
    for number in range(max(len(here), len(there))):
        mine, theirs = (chain[number] if number < len(chain) else None for chain in (here, there))
        if mine == theirs:
            continue
        if mine is None or theirs is None or _name(mine) != _name(theirs):
            is_compression = number > 0 and _name(here[0]) == "bytes"
            name = "compression" if is_compression else f"codec {number}"
            return Difference(name, _codec_text(mine), _codec_text(theirs))
        return next(_setting_differences(mine, theirs))
    return Difference("codecs", list(here), list(there))


def _setting_differences(mine: Json, theirs: Json) -> Iterator[Difference]:
    settings = [
        codec.get("configuration") or {} if isinstance(codec, Mapping) else {}
        for codec in (mine, theirs)
    ]
    for key in dict.fromkeys([*settings[0], *settings[1]]):
        values = [found.get(key) for found in settings]
        if values[0] == values[1]:
            continue
        if key == "compression":
            values = [TIFF_COMPRESSIONS.get(v, v) if isinstance(v, int) else v for v in values]
        name = key if key == "compression" else f"{key} of codec {_name(mine)}"
        yield Difference(name, *values)
    yield Difference(f"codec {_name(mine)}", mine, theirs)


def _name(codec: Json) -> str:
    """Return the name of a codec, without the address of its specification."""
    name = codec if isinstance(codec, str) else str(codec.get("name"))
    return name.rpartition("/")[2]


def _codec_text(codec: Json) -> str | None:
    if codec is None:
        return None
    settings = codec.get("configuration") or {} if isinstance(codec, Mapping) else {}
    kind = settings.get("compression") or settings.get("codec")
    kind = TIFF_COMPRESSIONS.get(kind, kind) if isinstance(kind, int) else kind
    return f"{_name(codec)} ({kind})" if isinstance(kind, str | int) else _name(codec)
