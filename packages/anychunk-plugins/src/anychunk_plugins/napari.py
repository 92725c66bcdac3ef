"""napari's reader: any file or url that anychunk opens, as layers. See `napari.yaml`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast

from anychunk import api
from anychunk.indexing import is_recognised
from anychunk.io.source import as_url, is_remote, local_path
from anychunk.zarr import array as zarr_array
from anychunk_plugins.layers import LayerData, layers

if TYPE_CHECKING:
    from anychunk.model.index import Node

type Paths = str | Sequence[str]
SAVED = (".json", ".parquet", ".icechunk")
"""Extensions of saved indexes, whose content only their loader knows."""


def get_reader(path: Paths) -> Callable[[Paths], list[LayerData]] | None:
    """Return what reads a path, or several that are to be stacked; None if no format knows it.

    Local files and folders are recognised by their content. Remote ones are not looked at yet.
    """
    paths = [path] if isinstance(path, str) else list(path)
    return read if paths and all(is_ours(one) for one in paths) else None


def is_ours(path: str) -> bool:
    """Return whether a file may be read."""
    url = as_url(path)
    if is_remote(url) or url.rstrip("/").lower().endswith(SAVED):
        return True
    return is_recognised(local_path(url))


def read(path: Paths) -> list[LayerData]:
    """Return the layers of a file, or of several as one stack."""
    paths = [path] if isinstance(path, str) else list(path)
    index = cast("Any", api.index)
    node: Node = index(paths[0]) if len(paths) == 1 else index(paths, combine="stack")
    store = zarr_array.open_store(node)
    open_path = partial(zarr_array.from_store, store)
    title = name_of(paths[0])
    if len(paths) > 1:
        title = f"{title} … {name_of(paths[-1])}"
    return layers(node, open_path=open_path, title=title)


def name_of(path: str) -> str:
    """Return the name of a file without its folder, query and extension."""
    name = PurePosixPath(as_url(path).split("?")[0].rstrip("/")).name
    stem = name.split(".")[0]
    return stem or name or path
