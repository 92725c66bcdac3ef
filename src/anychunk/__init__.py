"""Any tiled array file is a Zarr v3 store, in place."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anychunk._after_import import after_import as _after_import
from anychunk._version import __version__
from anychunk.errors import AnychunkError

if TYPE_CHECKING:
    from anychunk.api import (
        VirtualParser,
        append,
        describe,
        disable,
        enable,
        from_virtualizarr,
        index,
        open,  # noqa: A004
        open_array,
        open_group,
        save,
    )
    from anychunk.conversion import convert
    from anychunk.conversion.writing import write
    from anychunk.io.measuring import ReadStats, read_stats
    from anychunk.model.index import ArrayIndex, GroupIndex
    from anychunk.read.zarr_array import Array, Group
    from anychunk.verification import verify

__all__ = [
    "AnychunkError",
    "Array",
    "ArrayIndex",
    "Group",
    "GroupIndex",
    "ReadStats",
    "VirtualParser",
    "__version__",
    "append",
    "convert",
    "describe",
    "disable",
    "enable",
    "from_virtualizarr",
    "index",
    "open",
    "open_array",
    "open_group",
    "read_stats",
    "save",
    "verify",
    "write",
]

# loaded on first use: zarr imports this package for its data types and codecs in processes that
# never asked for it
_MODULES = {
    "Array": "read.zarr_array",
    "ArrayIndex": "model.index",
    "Group": "read.zarr_array",
    "GroupIndex": "model.index",
    "ReadStats": "io.measuring",
    "convert": "conversion",
    "read_stats": "io.measuring",
    "verify": "verification",
    "write": "conversion.writing",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'api')}")
    found = globals()[name] = getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)


# Lets zarr read arrays whose codecs only we have; our pipeline waits for the first `open`. In two
# steps, because what is imported here may be what imports zarr.
_after_import("zarr", lambda: import_module("anychunk.codecs.zarr_core"))
_after_import("anychunk.codecs.zarr_core", lambda: import_module("anychunk.codecs.zarr_registry"))


def _register_saving() -> None:
    from anychunk.model.index import register_saving_loader

    register_saving_loader(lambda: import_module("anychunk.references"))


# an index that was unpickled in a process that never called `anychunk.open` saves itself, too
_after_import("anychunk.model.index", _register_saving)
