"""What `anychunk.enable` changes in zarr's registries and in its configuration of codecs."""

from typing import Any

import zarr
from zarr.abc.codec import Codec
from zarr.registry import register_codec

from anychunk.codecs import load_all
from anychunk.zarr.codecs import zarr_codec
from anychunk.zarr.core import Registry, codec_registries, data_type_registry
from anychunk.zarr.small_types import TYPES

_replaced: dict[str, str | None] = {}
"""What the configuration named for each codec before ours; None for nothing."""
_alone: set[str] = set()
"""Names of codecs that no other package has, and that zarr does not find by an entry point."""


class _WithOurs(Registry[Codec]):
    """The classes of other packages for a name, and ours, found only by its own name.

    zarr counts the classes of a name for which none is configured, as after `zarr.config.reset()`:
    of two it picks the last, with a warning. So ours is not among the items.
    """

    def __init__(self, others: Registry[Codec], qualname: str, cls: type[Codec]) -> None:
        super().__init__()
        self.others, self.qualname, self.ours = others, qualname, cls
        self.update({name: other for name, other in others.items() if name != qualname})
        self.lazy_load_list = [e for e in others.lazy_load_list if _class_name(e) != qualname]

    def get(self, name: str, default: Any = None) -> Any:
        return self.ours if name == self.qualname else super().get(name, default)

    def without_ours(self) -> Registry[Codec]:
        """Return the registry that this one stands for, with what was registered since."""
        self.others.update(self)
        return self.others


def _qualname(cls: type[Codec]) -> str:
    """Return the name of a class in zarr's configuration."""
    return f"{cls.__module__}.{cls.__qualname__}"


def _class_name(entry: Any) -> str:
    """Return the class of an entry point as zarr's configuration names it."""
    value: str = entry.value
    return value.replace(":", ".")


def enable() -> None:
    """Make our class zarr's choice for every codec name, and register our data types."""
    chosen: dict[str, str] = zarr.config.get("codecs")
    names = {}
    for name, plain in load_all().items():
        cls = zarr_codec(plain)
        names[name] = ours = _qualname(cls)
        if chosen.get(name) != ours:
            _replaced[name] = chosen.get(name)
        known = codec_registries.get(name)
        if known is None or not (known or known.lazy_load_list):
            register_codec(name, cls, qualname=ours)
            _alone.add(name)
        elif not isinstance(known, _WithOurs):
            with_ours = _WithOurs(known, ours, cls)
            if with_ours or with_ours.lazy_load_list:
                codec_registries[name] = with_ours
    # a nested update merges; setting by dotted key would split names that hold dots
    zarr.config.update({"codecs": names})
    for name, dtype in TYPES.items():
        if name not in data_type_registry.contents:
            data_type_registry.register(name, dtype)


def disable() -> None:
    """Undo `enable`; what others have set or registered since stays."""
    if not _replaced:
        return
    chosen: dict[str, str] = dict(zarr.config.get("codecs"))
    for name, plain in load_all().items():
        ours = _qualname(zarr_codec(plain))
        if name in _replaced and chosen.get(name) == ours:
            del chosen[name]
            before = _replaced[name]
            if before is not None:
                chosen[name] = before
        known = codec_registries.get(name)
        if isinstance(known, _WithOurs):
            codec_registries[name] = known.without_ours()
        elif known is not None and name in _alone:
            known.pop(ours, None)
            if not known and not known.lazy_load_list:
                del codec_registries[name]
    zarr.config.set({"codecs": chosen})
    _replaced.clear()
    _alone.clear()
    for name, dtype in TYPES.items():
        if data_type_registry.contents.get(name) is dtype:
            data_type_registry.unregister(name)
