"""The codecs, by their names in JSON.

The entry-point group `anychunk.codecs` lists every codec of ours. Those whose name nobody else
registers stand in `zarr.codecs` too, where any process finds them. For the others, whose name a
second package may register as well, `register_unclaimed` steps in only where nobody has, because
zarr warns every user of a name that is registered twice.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from zarr.abc.codec import Codec
from zarr.registry import register_codec

from anychunk.codecs.zarr_core import codec_registries

GROUP = "anychunk.codecs"


@cache
def table() -> dict[str, EntryPoint]:
    """Map each codec name to its entry point; nothing is imported."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


@cache
def codec_class(name: str) -> type[Codec] | None:
    """Import our class for a codec name, or None where the name is not ours."""
    entry = table().get(name)
    found: type[Codec] | None = None if entry is None else entry.load()
    return found


def from_json(data: dict[str, Any]) -> Codec:
    """Build a codec from JSON: ours where the name is ours, else zarr's choice."""
    from zarr.registry import get_codec_class

    cls = codec_class(data["name"]) or get_codec_class(data["name"])
    return cls.from_dict(data)


def register_unclaimed() -> None:
    """Offer zarr our class for each of our names that no other package registers."""
    for name, entry in table().items():
        registry = codec_registries[name]
        if not registry and not registry.lazy_load_list:
            registry.lazy_load_list.append(entry)


def register(name: str) -> str:
    """Register our class for `name` with zarr; give the string that zarr's config takes for it."""
    cls = codec_class(name)
    if cls is None:
        raise KeyError(name)
    qualname = f"{cls.__module__}.{cls.__qualname__}"
    register_codec(name, cls, qualname=qualname)
    return qualname


def unregister(name: str) -> None:
    """Take our class for `name` out of zarr's registry, where another one is left for it."""
    cls, registry = codec_class(name), codec_registries[name]
    if cls is not None and len(registry) > 1:
        # with two classes under one name zarr warns, and takes the last
        registry.pop(f"{cls.__module__}.{cls.__qualname__}", None)
