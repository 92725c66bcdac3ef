"""Any tiled array file is a Zarr v3 store, in place."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anychunk._version import __version__
from anychunk.errors import AnychunkError

if TYPE_CHECKING:
    from anychunk.api import (
        VirtualParser,
        describe,
        disable,
        enable,
        index,
        open,  # noqa: A004
        open_array,
        open_group,
        read,
    )
    from anychunk.archive import append, index_to
    from anychunk.conversion import convert
    from anychunk.conversion.writing import write
    from anychunk.io.measuring import ReadStats, read_stats
    from anychunk.model.index import ArrayIndex, GroupIndex
    from anychunk.references import save
    from anychunk.references.virtualizarr import from_virtualizarr
    from anychunk.verification.checks import verify
    from anychunk.zarr.array import Array, Group, Image

__all__ = [
    "AnychunkError",
    "Array",
    "ArrayIndex",
    "Group",
    "GroupIndex",
    "Image",
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
    "index_to",
    "open",
    "open_array",
    "open_group",
    "read",
    "read_stats",
    "save",
    "verify",
    "write",
]

# loaded on first use: zarr imports this package for its codecs in processes that never asked for it
_MODULES = {
    "Array": "zarr.array",
    "ArrayIndex": "model.index",
    "Group": "zarr.array",
    "GroupIndex": "model.index",
    "Image": "zarr.array",
    "ReadStats": "io.measuring",
    "append": "archive",
    "index_to": "archive",
    "convert": "conversion",
    "from_virtualizarr": "references.virtualizarr",
    "read_stats": "io.measuring",
    "save": "references",
    "verify": "verification.checks",
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
