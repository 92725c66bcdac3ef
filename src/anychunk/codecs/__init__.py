"""The registry of codecs, by their names in JSON.

The entry-point group `anychunk.codecs` lists every codec that anychunk prefers over zarr's choice:
its own, and those of other distributions (`anychunk.codecs.base` says how to write one). Nothing is
imported until a codec is requested by name.

Codecs do not import zarr: parsing a file needs their JSON, and zarr takes longer to import than
everything else together. `anychunk.zarr.codecs` makes zarr's class of each, which zarr finds by the
group `zarr.codecs`; the names `scale_offset`, `cast_value` and `n5_default`, which other packages
register there, are ours only while `anychunk.enable` is in effect.

Those classes are attributes here, too, to pass codecs to zarr:

    from anychunk.codecs import Offset

    zarr.create_array(..., compressors=[Offset(offset=16)])

A codec of another distribution cannot break anychunk. If it fails to import, it is left out of
`load_all` with a warning, and `MissingDependencyError` is raised only when it is requested by name.
It cannot replace one of anychunk's own names.
"""

import json
import sys
import warnings
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anychunk._outline import outline
from anychunk.codecs.base import OwnCodec
from anychunk.errors import CodecConfigError, MissingDependencyError
from anychunk.io.cache import Cache

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "anychunk.codecs"
URIS = {
    f"anychunk.{name}": f"https://awslabs.github.io/osml-imagery-io/codecs/{name}"
    for name in ("dted", "jbp-block", "jpeg", "jpeg2000", "tiff-tile")
}
"""Names that osml-imagery-io also registers, by our names; they appear only in saved indexes."""
_OWN_NAMES = {uri: own for own, uri in URIS.items()}


def __getattr__(name: str) -> Any:
    if not name[0].isupper():  # as Python asks for a module before it imports it
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("anychunk.zarr.codecs"), name)  # zarr's classes, on first use


@dataclass(frozen=True)
class CodecEntry:
    """One entry point of the group."""

    entry: "EntryPoint"

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

    def load(self) -> type[OwnCodec]:
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
        if not (isinstance(cls, type) and issubclass(cls, OwnCodec)):
            raise self._broken(f"is {cls!r}, expected a class derived from anychunk.codecs.base")
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
    from importlib.metadata import entry_points

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
def codec_class(name: str) -> type[OwnCodec] | None:
    """Import and return the class registered here for a codec name; None if there is none.

    Raises:
        MissingDependencyError: a codec of another distribution that fails to import.
    """
    entry = table().get(name)
    return None if entry is None else entry.load()


def class_named(name: str) -> type[OwnCodec]:
    """Return the codec of ours whose class has this name.

    Raises:
        AttributeError: There is none.
    """
    for entry in table().values():
        if entry.is_ours and entry.entry.attr == name:
            return entry.load()
    raise AttributeError(f"anychunk has no codec class {name!r}")


@cache  # so that a broken distribution is reported once per process
def load_all() -> dict[str, type[OwnCodec]]:
    """Import every codec and return the classes by name; warn about those that fail to import."""
    classes: dict[str, type[OwnCodec]] = {}
    for name in table():
        try:
            cls = codec_class(name)
        except MissingDependencyError as e:
            warnings.warn(f"skipped: {e}", RuntimeWarning, stacklevel=2)
            continue
        if cls is not None:
            classes[name] = cls
    return classes


def descriptions() -> dict[str, str | None]:
    """Return the docstring of every usable codec's module by name.

    Only codecs of other packages are imported, with a warning about those that fail to import.
    """
    ours = {name for name, entry in table().items() if entry.is_ours}
    loaded = load_all() if ours != set(table()) else {}
    return {
        name: outline(entry.entry.module).doc
        if name in ours
        else sys.modules[loaded[name].__module__].__doc__
        for name, entry in table().items()
        if name in ours or name in loaded
    }


def with_own_name(codec: Any) -> Any:
    """Return the JSON of a codec of a saved index under the name that it has in memory."""
    own = _OWN_NAMES.get(str(codec.get("name"))) if isinstance(codec, Mapping) else None
    return codec if own is None else {**codec, "name": own}


_BUILT: Cache[OwnCodec] = Cache(4 << 20)
"""Codecs by their JSON: frozen, so that arrays and levels can share them."""


def to_json(codec: OwnCodec) -> dict[str, Any]:
    """Return the JSON of a codec; `from_json` returns the same codec for it without building it."""
    data: dict[str, Any] = dict(codec.to_dict())
    text = json.dumps(data, sort_keys=True)
    _BUILT.put(text, codec, len(text))
    return data


def from_json(data: Any) -> OwnCodec:
    """Return the codec for its JSON: registered here, one of Zarr itself, or zarr's choice.

    Raises:
        CodecConfigError: The JSON is not that of a codec, or its configuration is wrong.
        UnsupportedError: No codec of this name is registered.
    """
    return with_key(data)[0]


def with_key(data: Any) -> tuple[OwnCodec, Hashable]:
    """Do the same, and return a key too, which is equal for equal codecs."""
    name = data.get("name") if isinstance(data, Mapping) else None
    if not isinstance(name, str):
        raise CodecConfigError(f"codec {data!r}: expected an object with a name")
    text = json.dumps(data, sort_keys=True)
    found = _BUILT.get(text)
    if found is not None:
        return found, text
    cls = codec_class(name)
    if cls is None:
        from anychunk.codecs.standard import CODECS

        cls = CODECS.get(name)
    if cls is None:
        # not shared: nothing says that codecs of others are immutable
        other = foreign_codec(data)
        return other, (type(other.codec), text)
    found = cls.from_dict(dict(data))
    _BUILT.put(text, found, len(text))
    return found, text


def foreign_codec(data: Any) -> Any:
    """Return zarr's choice for JSON as a codec of ours; zarr is imported by name, for these."""
    return import_module("anychunk.zarr.foreign").foreign_codec(data)
