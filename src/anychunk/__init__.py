"""Any tiled array file is a Zarr v3 store, in place."""

from anychunk import codecs as _codecs
from anychunk._version import __version__
from anychunk.api import describe, disable, enable, index, open, open_array, write  # noqa: A004
from anychunk.errors import AnychunkError
from anychunk.index import ArrayIndex, GroupIndex

__all__ = [
    "AnychunkError",
    "ArrayIndex",
    "GroupIndex",
    "__version__",
    "describe",
    "disable",
    "enable",
    "index",
    "open",
    "open_array",
    "write",
]

# so that zarr reads arrays whose codecs only we have; the pipeline is put in place by the first
# `open`, because zarr imports this package for its data types in processes that never asked for it
_codecs.register_unclaimed()
