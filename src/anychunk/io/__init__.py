"""Read bytes by range: local files by memory map, everything else by obstore.

A source returns exactly the requested bytes or raises. `Sources` keeps sources open by url and
checks each against its pin, so that bytes of a changed file never reach a decoder.
"""

from anychunk.io.block_cache import Blocks, buffered
from anychunk.io.errors import first_line
from anychunk.io.file import FileSource, ObjectBuffer, PreadSource, stat_pin
from anychunk.io.folder import Folder, list_objects
from anychunk.io.held import HeldPin, held_source, is_held, with_source
from anychunk.io.http import SAME_ORIGIN, is_restricted
from anychunk.io.inside import (
    Walk,
    check_names,
    check_tree,
    climbs,
    is_below,
    open_inside,
    real_path,
    resolve,
    resolved,
    stat_inside,
)
from anychunk.io.kept import KeptSource
from anychunk.io.memory import MemorySource
from anychunk.io.object_stores import memory_store, object_store, store_of_bytes
from anychunk.io.objects import ObjectSource
from anychunk.io.open_sources import Sources
from anychunk.io.opening import (
    object_size,
    open_beside,
    open_source,
    pin_of,
    read_object,
    without_maps,
)
from anychunk.io.secrets import Signed, signed_of, unsigned, with_signed, without_secrets
from anychunk.io.source import Bytes1D, OnChange, Source, Storage, report_change
from anychunk.io.storage import in_store, options_of
from anychunk.io.system import is_link, is_special, read_at, replace, write_at
from anychunk.io.url import (
    absolute,
    as_url,
    below,
    drive_first,
    file_url,
    folder_of,
    is_absolute,
    is_pattern,
    is_remote,
    local_path,
    slashes,
)

__all__ = [
    "SAME_ORIGIN",
    "Blocks",
    "Bytes1D",
    "FileSource",
    "Folder",
    "HeldPin",
    "KeptSource",
    "MemorySource",
    "ObjectBuffer",
    "ObjectSource",
    "OnChange",
    "PreadSource",
    "Signed",
    "Source",
    "Sources",
    "Storage",
    "Walk",
    "absolute",
    "as_url",
    "below",
    "buffered",
    "check_names",
    "check_tree",
    "climbs",
    "drive_first",
    "file_url",
    "first_line",
    "folder_of",
    "held_source",
    "in_store",
    "is_absolute",
    "is_below",
    "is_held",
    "is_link",
    "is_pattern",
    "is_remote",
    "is_restricted",
    "is_special",
    "list_objects",
    "local_path",
    "memory_store",
    "object_size",
    "object_store",
    "open_beside",
    "open_inside",
    "open_source",
    "options_of",
    "pin_of",
    "read_at",
    "read_object",
    "real_path",
    "replace",
    "report_change",
    "resolve",
    "resolved",
    "signed_of",
    "slashes",
    "stat_inside",
    "stat_pin",
    "store_of_bytes",
    "unsigned",
    "with_signed",
    "with_source",
    "without_maps",
    "without_secrets",
    "write_at",
]
