"""Any tiled array file is a Zarr v3 store, in place."""

from anychunk import codecs as _codecs
from anychunk._version import __version__
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
    write,
)
from anychunk.conversion import convert
from anychunk.errors import AnychunkError
from anychunk.index import ArrayIndex, GroupIndex
from anychunk.verification import verify

__all__ = [
    "AnychunkError",
    "ArrayIndex",
    "GroupIndex",
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
    "verify",
    "write",
]

# so that zarr reads arrays whose codecs only we have; the pipeline is put in place by the first
# `open`, because zarr imports this package for its data types in processes that never asked for it
_codecs.register_unclaimed()
