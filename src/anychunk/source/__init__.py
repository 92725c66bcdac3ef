"""Read bytes by range: local files by memory map, everything else by obstore.

A source gives exactly the bytes that were asked for or raises. `Sources` keeps them open by url and
holds each against its pin, so that bytes of a changed file never reach a decoder.
"""

from anychunk.source.access import object_size, open_source, pin_of, read_object
from anychunk.source.blocks import Blocks, buffered
from anychunk.source.change import OnChange, report_change
from anychunk.source.errors import first_line
from anychunk.source.file import FileSource, ObjectBuffer
from anychunk.source.folder import Folder, list_objects
from anychunk.source.http import SAME_ORIGIN, is_restricted
from anychunk.source.inside import (
    HAS_HANDLES,
    Walk,
    check_tree,
    open_inside,
    real_path,
    stat_inside,
)
from anychunk.source.memory import MemorySource
from anychunk.source.object import ObjectSource
from anychunk.source.protocol import Bytes1D, Source, Storage
from anychunk.source.reference import resolve
from anychunk.source.sources import Sources
from anychunk.source.stores import memory_store, object_store
from anychunk.source.url import below, is_remote, local_path

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
