"""Replace `numcodecs.fixedscaleoffset` by `scale_offset` and `cast_value`, without changing values.

Spec: zarr-extensions, codecs/scale_offset, "Conversion to `scale_offset`".

The published conversion, `[scale_offset, cast_value]`, computes in the data type of the array, but
numcodecs decodes in float64 and converts the result. For float32 the two differ in the last digits.
So there is a second form: `[cast_value, scale_offset, cast_value]`, with a cast to float64 first,
decodes as numcodecs does. `modernize` takes the first form that decodes all stored chunks to the
same bits, and changes only metadata: of the array, and the copies in consolidated metadata of its
groups. An array of Zarr v2 becomes one of Zarr v3 whose chunks keep their names.
"""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import zarr
from zarr.metadata.migrate_v3 import migrate_to_v3
from zarr.storage import LocalStore, MemoryStore, StorePath

from anychunk.errors import AnychunkError, CodecConfigError, UnsupportedError
from anychunk.model.index import Json
from anychunk.zarr.codecs import from_json
from anychunk.zarr.core import ArrayV3Metadata, default_buffer_prototype, sync
from anychunk.zarr.metadata import array_metadata

OLD = "numcodecs.fixedscaleoffset"


def candidates(codec: Json, data_type: str) -> list[list[Json]]:
    """Return the chains of codecs that may replace a `numcodecs.fixedscaleoffset`, best first.

    Parameters:
        codec: its JSON.
        data_type: the data type that it decodes to.

    Raises:
        CodecConfigError: the codec is another one, or its configuration is incomplete.
    """
    configuration = codec.get("configuration") if isinstance(codec, Mapping) else None
    if not isinstance(configuration, Mapping) or codec.get("name") != OLD:
        raise CodecConfigError(f"{codec!r:.80} is not {OLD} with a configuration")
    scalars = {key: configuration.get(key) for key in ("offset", "scale")}
    if any(isinstance(n, bool) or not isinstance(n, int | float) for n in scalars.values()):
        raise CodecConfigError(f"{OLD}: {scalars}, expected numbers")
    try:
        decoded = np.dtype(configuration.get("dtype") or data_type)
        stored = np.dtype(configuration.get("astype") or decoded)
    except (TypeError, ValueError) as e:
        raise CodecConfigError(f"{OLD}: {e}") from e
    if decoded.name != data_type:
        raise CodecConfigError(f"{OLD}: dtype {decoded.name}, expected {data_type}")
    scale = {"name": "scale_offset", "configuration": scalars}
    to_stored: dict[str, Json] = {"data_type": stored.name}
    if stored.kind in "iu":
        to_stored["out_of_range"] = "wrap"  # as numpy casts
    to_double: dict[str, Json] = {"data_type": "float64"}
    if decoded.kind in "iu":
        to_double["rounding"] = "towards-zero"  # as numpy casts the decoded float64
    cast, wide = ({"name": "cast_value", "configuration": c} for c in (to_stored, to_double))
    published = [scale, cast]
    return [published] if decoded == np.float64 else [published, [wide, scale, cast]]


def modernized(codecs: Sequence[Json], data_type: str) -> Iterator[list[Json]]:
    """Yield the chains that may replace one with a `numcodecs.fixedscaleoffset` in front."""
    first, *rest = codecs
    for chain in candidates(first, data_type):
        yield [*chain, *rest]
        if np.dtype(data_type).kind == "f":
            # NaN as fill value of an array whose integers have no code for it. No stored value
            # decodes differently: encoding alone maps NaN, as numpy casts it
            yield [*_with_nan(chain), *rest]


def _with_nan(chain: list[Json]) -> list[Json]:
    *others, cast = chain
    configuration = cast["configuration"]
    stored = np.dtype(configuration["data_type"])
    with np.errstate(invalid="ignore"):
        code = np.array([np.nan]).astype(stored).item()
    return [
        *others,
        {**cast, "configuration": {**configuration, "scalar_map": {"encode": [["NaN", code]]}}},
    ]


def modernize(array: "zarr.Array[Any]") -> list[Json]:
    """Change the codecs of an array in place; return the new ones.

    Every stored chunk is decoded with the old and the new codecs, and must give the same bits. Only
    then is `zarr.json` written, and copied to the consolidated metadata of the groups above; chunks
    are never changed. An array of Zarr v2 gets a `zarr.json` instead of its `.zarray`.

    Parameters:
        array: An array that zarr has opened for writing.

    Raises:
        UnsupportedError: The array has another first codec, no chain decodes to the same values, or
            it is in a group of Zarr v2, which does not list arrays of Zarr v3.
    """
    metadata: Any = array.metadata
    if metadata.zarr_format == 2:
        metadata = _as_v3(array)
    old = [codec.to_dict() for codec in metadata.codecs]
    if not old or old[0]["name"] != OLD:
        raise UnsupportedError(f"{array.store_path}: the first codec is not {OLD}")
    reasons = []
    for chain in modernized(old, metadata.dtype.to_native_dtype().name):
        try:
            changed = replace(metadata, codecs=tuple(from_json(codec) for codec in chain))
            _compare(array, zarr.Array(zarr.AsyncArray(changed, array.store_path, array.config)))
        except (AnychunkError, ValueError, TypeError) as e:
            reasons.append(f"{' '.join(codec['name'] for codec in chain)}: {e}")
            continue
        document = changed.to_buffer_dict(default_buffer_prototype())["zarr.json"]
        sync((array.store_path / "zarr.json").set(document))
        for name in (".zarray", ".zattrs") if array.metadata.zarr_format == 2 else ():
            sync((array.store_path / name).delete())
        _update_groups(array, json.loads(document.to_bytes()))
        return chain
    raise UnsupportedError(
        f"{array.store_path}: {OLD} stays, because no other codecs decode to the same values: "
        + "; ".join(reasons)
    )


def _as_v3(array: "zarr.Array[Any]") -> ArrayV3Metadata:
    """Return the metadata of an array of Zarr v2 as that of Zarr v3, with the same chunks."""
    for place, _ in _groups(array):
        if sync((place / ".zgroup").exists()):
            raise UnsupportedError(
                f"{array.store_path}: its group {place} is Zarr v2, which does not list arrays of "
                "Zarr v3; convert the group to Zarr v3 first"
            )
    target = StorePath(MemoryStore(), "")
    migrate_to_v3(array, target)
    stored = sync((target / "zarr.json").get())
    assert stored is not None
    return array_metadata(json.loads(stored.to_bytes()))


def _groups(array: "zarr.Array[Any]") -> Iterator[tuple[StorePath, str]]:
    """Yield the places of the groups above an array, and its path below each."""
    store, names = array.store_path.store, array.store_path.path.split("/")
    for depth in range(len(names) - 1, -1, -1):
        yield StorePath(store, "/".join(names[:depth])), "/".join(names[depth:])
    path = "/".join(filter(None, names))
    folder = store.root if isinstance(store, LocalStore) else None
    while folder is not None and any(
        (folder.parent / n).is_file() for n in ("zarr.json", ".zgroup")
    ):
        path, folder = "/".join(filter(None, (folder.name, path))), folder.parent
        yield StorePath(LocalStore(folder), ""), path


def _update_groups(array: "zarr.Array[Any]", document: Json) -> None:
    """Replace the copies of an array's metadata in the consolidated metadata of its groups."""
    for place, path in _groups(array):
        stored = sync((place / "zarr.json").get())
        group = json.loads(stored.to_bytes()) if stored is not None else {}
        copies = (group.get("consolidated_metadata") or {}).get("metadata", {})
        if path in copies:
            copies[path] = document
            text = json.dumps(group, indent=2).encode()
            sync((place / "zarr.json").set(default_buffer_prototype().buffer.from_bytes(text)))


def _compare(old: "zarr.Array[Any]", new: "zarr.Array[Any]") -> None:
    """Raise `UnsupportedError` if a stored chunk decodes to other bits."""
    for place in itertools.product(*map(range, old.cdata_shape)):
        key = old.store_path / old.metadata.encode_chunk_key(place)
        if not sync(key.exists()):
            continue
        box = tuple(slice(i * n, (i + 1) * n) for i, n in zip(place, old.chunks, strict=True))
        before, after = np.asarray(old[box]), np.asarray(new[box])
        is_same = _bits(before) == _bits(after)
        if not is_same.all():
            at = np.unravel_index(int(np.argmin(is_same)), before.shape)
            raise UnsupportedError(f"chunk {place} has {after[at]} instead of {before[at]}")


def _bits(array: Any) -> Any:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
