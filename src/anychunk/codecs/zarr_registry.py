"""Registers our codecs with zarr: those that no other package has; the others on request."""

from typing import Any

from zarr.abc.codec import Codec
from zarr.registry import register_codec

from anychunk.codecs import load_all, table
from anychunk.codecs.cast import type_registry
from anychunk.codecs.zarr_core import Registry, codec_registries


def register_unclaimed() -> None:
    """Offer zarr our data types, and the class of each name that no other package registers."""
    type_registry.offer()
    _register_codecs()


def _register_codecs() -> None:
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


_register_codecs()
