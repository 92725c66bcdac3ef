"""Read bytes by range: local files by memory map, everything else by obstore.

A source returns exactly the requested bytes or raises. `Sources` keeps sources open by url and
checks each against its pin, so that bytes of a changed file never reach a decoder.
"""

from anychunk.io.block_cache import Blocks, buffered
from anychunk.io.errors import first_line
from anychunk.io.file import FileSource, ObjectBuffer
from anychunk.io.folder import Folder, list_objects
from anychunk.io.http import SAME_ORIGIN, is_restricted
from anychunk.io.inside import (
    HAS_HANDLES,
    Walk,
    check_tree,
    open_inside,
    real_path,
    resolve,
    stat_inside,
)
from anychunk.io.memory import MemorySource
from anychunk.io.object_stores import memory_store, object_store
from anychunk.io.objects import ObjectSource
from anychunk.io.open_sources import Sources
from anychunk.io.opening import object_size, open_source, pin_of, read_object
from anychunk.io.source import Bytes1D, OnChange, Source, Storage, report_change
from anychunk.io.url import absolute, below, is_remote, local_path

__all__ = [
    "HAS_HANDLES",
    "SAME_ORIGIN",
    "Blocks",
    "Bytes1D",
    "FileSource",
    "Folder",
    "MemorySource",
    "ObjectBuffer",
    "ObjectSource",
    "OnChange",
    "Source",
    "Sources",
    "Storage",
    "Walk",
    "absolute",
    "below",
    "buffered",
    "check_tree",
    "first_line",
    "is_remote",
    "is_restricted",
    "list_objects",
    "local_path",
    "memory_store",
    "object_size",
    "object_store",
    "open_inside",
    "open_source",
    "pin_of",
    "read_object",
    "real_path",
    "report_change",
    "resolve",
    "stat_inside",
]
