"""Any tiled array file is a Zarr v3 store, in place."""

from anychunk import codecs as _codecs
from anychunk import pipeline as _pipeline
from anychunk._version import __version__
from anychunk.api import describe, disable, enable, index, open, open_array, write  # noqa: A004
from anychunk.conversion import convert
from anychunk.errors import AnychunkError
from anychunk.index import ArrayIndex, GroupIndex
from anychunk.verification import verify

__all__ = [
    "AnychunkError",
    "ArrayIndex",
    "GroupIndex",
    "__version__",
    "convert",
    "describe",
    "disable",
    "enable",
    "index",
    "open",
    "open_array",
    "verify",
    "write",
]

# an array of ours may come here pickled, on a worker that never calls `open`
_pipeline.install()
_codecs.register_unclaimed()
