"""The registry of codecs, by their names in JSON.

The entry-point group `anychunk.codecs` lists every codec that anychunk prefers over zarr's choice:
its own, and those of other distributions (`anychunk.codecs.base` says how to write one). Nothing is
imported until a codec is requested by name.

anychunk's own codecs are listed in zarr's group `zarr.codecs` too, unless another package registers
the same name: zarr warns every user about a name that is registered twice. `register_unclaimed`
offers zarr the remaining ones, as far as no other package has registered them.

A codec of another distribution cannot break anychunk. If it fails to import, it is left out of
`load_all` with a warning, and `MissingDependencyError` is raised only when it is requested by name.
It cannot replace one of anychunk's own names.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from zarr.abc.codec import Codec
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class, register_codec

from anychunk.codecs.cast import type_registry
from anychunk.codecs.zarr_core import Registry, codec_registries
from anychunk.errors import (
    AnychunkError,
    CodecConfigError,
    MissingDependencyError,
    UnsupportedError,
)
from anychunk.io.cache import Cache

GROUP = "anychunk.codecs"


@dataclass(frozen=True)
class CodecEntry:
    """One entry point of the group, with the two members that zarr's lazy registry uses."""

    entry: EntryPoint

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def is_ours(self) -> bool:
        # by package and not by distribution, whose name would have to be read from its metadata
        return self.entry.module.partition(".")[0] == "anychunk"

    @property
    def distribution(self) -> str:
        """Name of the distribution that registers the codec."""
        dist = self.entry.dist
        return self.entry.module if dist is None else dist.name

    def load(self) -> type[Codec]:
        """Import the class of the codec.

        Raises:
            MissingDependencyError: a codec of another distribution that fails to import.
        """
        try:
            cls = self.entry.load()
        except (
            Exception,
            SystemExit,
        ) as e:  # importing runs foreign code, which may raise anything
            if self.is_ours:
                raise
            raise self._broken(f"fails to import ({type(e).__name__}: {e})") from e
        if not (isinstance(cls, type) and issubclass(cls, Codec)):
            raise self._broken(f"is {cls!r}, expected a codec class")
        return cls

    def _broken(self, why: str) -> MissingDependencyError:
        return MissingDependencyError(
            f"codec {self.name!r}: the entry point {self.entry.value!r} of {self.distribution} "
            f"{why}; repair or uninstall {self.distribution}"
        )


@cache
def table() -> dict[str, CodecEntry]:
    """Return the entry of every codec by name, without importing any of them.

    Where a name is registered twice, anychunk's own entry is kept, otherwise the first one found;
    a warning names the distribution whose entry is ignored.
    """
    found = [CodecEntry(entry) for entry in entry_points(group=GROUP)]
    chosen: dict[str, CodecEntry] = {}
    for item in sorted(found, key=lambda item: not item.is_ours):  # a stable sort: ours first
        kept = chosen.setdefault(item.name, item)
        if kept.entry.value != item.entry.value:
            warnings.warn(
                f"codec {item.name!r}: the entry point {item.entry.value!r} of "
                f"{item.distribution} is ignored; {kept.distribution} registers the same name",
                RuntimeWarning,
                stacklevel=2,
            )
    return {item.name: chosen[item.name] for item in found}


@cache
def codec_class(name: str) -> type[Codec] | None:
    """Import and return the class registered here for a codec name; None if there is none.

    Raises:
        MissingDependencyError: a codec of another distribution that fails to import.
    """
    entry = table().get(name)
    return None if entry is None else entry.load()


@cache  # so that a broken distribution is reported once per process
def load_all() -> dict[str, type[Codec]]:
    """Import every codec and return the classes by name; warn about those that fail to import."""
    classes: dict[str, type[Codec]] = {}
    for name in table():
        try:
            cls = codec_class(name)
        except MissingDependencyError as e:
            warnings.warn(f"skipped: {e}", RuntimeWarning, stacklevel=2)
            continue
        if cls is not None:
            classes[name] = cls
    return classes


_BUILT: Cache[Codec] = Cache(4 << 20)
"""Codecs by their JSON: frozen, so that arrays and levels can share them."""


def to_json(codec: Codec) -> dict[str, Any]:
    """Return the JSON of a codec; `from_json` returns the same codec for it without building it."""
    data: dict[str, Any] = dict(codec.to_dict())
    text = json.dumps(data, sort_keys=True)
    _BUILT.put(text, codec, len(text))
    return data


def from_json(data: Any) -> Codec:
    """Return the codec for its JSON, of the class registered here or else of zarr's choice.

    Raises:
        CodecConfigError: The JSON is not that of a codec, or its configuration is wrong.
        UnsupportedError: No codec of this name is registered.
    """
    name = data.get("name") if isinstance(data, Mapping) else None
    if not isinstance(name, str):
        raise CodecConfigError(f"codec {data!r}: expected an object with a name")
    cls = codec_class(name)
    if cls is None:
        # not shared: nothing says that codecs of others are immutable
        return _from_zarr(name, data)
    text = json.dumps(data, sort_keys=True)
    found = _BUILT.get(text)
    if found is None:
        found = cls.from_dict(dict(data))
        _BUILT.put(text, found, len(text))
    return found


def zarr_class(name: str) -> type[Codec] | None:
    """Return the class that zarr chooses for a codec name; None if it finds none."""
    try:
        return get_codec_class(name)
    except (UnknownCodecError, KeyError):  # KeyError until zarr 3.4
        return None


def _from_zarr(name: str, data: Any) -> Codec:
    try:
        cls = zarr_class(name)
        found = None if cls is None else cls.from_dict(data)
    except AnychunkError:
        raise
    except Exception as e:
        raise CodecConfigError(f"codec {name!r}: {type(e).__name__}: {e}") from e
    if found is None:
        raise UnsupportedError(
            f"codec {name!r} is not registered; install the package that provides it"
        )
    return found


def register_unclaimed() -> None:
    """Offer zarr our data types, and the class of each name that no other package registers."""
    type_registry.offer()
    for name, entry in table().items():
        registry = codec_registries[name]
        lazy: list[Any] = registry.lazy_load_list  # zarr reads the `name` and calls `load`
        if not registry and not lazy:
            lazy.append(entry)


class _WithOurs(Registry[Codec]):
    """The classes of other packages for a name, and ours, found only by its own name.

    zarr counts the classes of a name for which none is configured, as after `zarr.config.reset()`:
    of two it picks the last, with a warning. So ours is not among the items.
    """

    def __init__(self, others: Registry[Codec], qualname: str, cls: type[Codec]) -> None:
        super().__init__()
        self.update(others)
        self.pop(qualname, None)
        self.lazy_load_list = [e for e in others.lazy_load_list if _class_name(e) != qualname]
        self.qualname, self.ours = qualname, cls

    def get(self, name: str, default: Any = None) -> Any:
        return self.ours if name == self.qualname else super().get(name, default)

    def __missing__(self, name: str) -> type[Codec]:  # until zarr 3.4, which calls `get`
        if name == self.qualname:
            return self.ours
        raise KeyError(name)

    def without_ours(self) -> Registry[Codec]:
        others: Registry[Codec] = Registry()
        others.update(self)
        others.lazy_load_list = self.lazy_load_list
        return others


def qualname(cls: type[Codec]) -> str:
    """Return the name of a class in zarr's configuration."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _class_name(entry: Any) -> str:
    """Return the class of an entry point as zarr's configuration names it."""
    value: str = getattr(entry, "entry", entry).value
    return value.replace(":", ".")


def register_all() -> dict[str, str]:
    """Register every codec with zarr; return the class to name in zarr's config for each."""
    qualnames = {}
    for name, cls in load_all().items():
        qualnames[name] = qualname(cls)
        registry = _WithOurs(codec_registries[name], qualnames[name], cls)
        if registry or registry.lazy_load_list:
            codec_registries[name] = registry
        else:
            register_codec(name, cls, qualname=qualnames[name])
    return qualnames


def unregister_all() -> None:
    """Remove from zarr's registry every codec that another package registers too."""
    for name in load_all():
        registry = codec_registries[name]
        if isinstance(registry, _WithOurs):
            codec_registries[name] = registry.without_ours()
