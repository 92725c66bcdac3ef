"""Where a conversion to Zarr is written, and when it becomes visible."""

import json
import shutil
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import cast

from anychunk.conversion import zarr_v2
from anychunk.conversion.staging import UNFINISHED, Journal, locked
from anychunk.errors import FormatError, SourceError, TargetExistsError
from anychunk.io import sink
from anychunk.io.opening import read_object
from anychunk.io.source import Storage, is_remote, local_path
from anychunk.io.system import replace
from anychunk.metadata.hierarchy import consolidated
from anychunk.model.grid import chunk_coords, chunk_key
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, walk


class Target:
    """A Zarr hierarchy that appears only when it is complete.

    A local one is written to a folder beside it and renamed at the end. A remote one is written in
    place, metadata last: without the root's `zarr.json`, or `.zgroup`, nothing opens.
    """

    def __init__(self, url: str, storage: Storage | None, *, zarr_format: int = 3) -> None:
        self.url, self.storage, self.zarr_format = url, storage, zarr_format
        self.is_local = not is_remote(url)
        path = Path(local_path(url))
        self.part = str(path.with_name(f".{path.name}.part")) if self.is_local else url
        """Where it is written."""

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from writing to the same local target."""
        return locked(Path(self.part), self.url) if self.is_local else nullcontext()

    def exists(self) -> bool:
        """Whether anything is under the target's name."""
        if self.is_local:
            return Path(local_path(self.url)).exists(follow_symlinks=False)
        return self._has("zarr.json") or self._has(".zgroup")

    def _has(self, name: str) -> bool:
        return read_object(f"{self.url}/{name}", storage=self.storage) is not None

    def prepare(self, fingerprint: str, *, overwrite: bool) -> Journal:
        """Start a conversion, or resume an unfinished one; return its journal.

        Raises `TargetExistsError` if something else is in the way and may not be overwritten.
        """
        if self.is_local and Path(self.part).is_symlink():
            raise FormatError(f"{self.part}: is a symbolic link, expected a folder; remove it")
        if self.exists() and not overwrite:
            raise TargetExistsError(self.url)
        journal = Journal(self.part, fingerprint, storage=self.storage)
        if journal.is_there and not journal.is_ours:
            if not overwrite:
                raise TargetExistsError(self.part, UNFINISHED)
            if self.is_local:
                shutil.rmtree(self.part)
        if overwrite and not self.is_local and not journal.is_ours:
            # chunks of fill values are not written: an old one in their place would remain visible
            sink.remove_all(self.url, storage=self.storage)
        journal.start()
        return journal

    def finish(self, journal: Journal, root: GroupIndex, *, overwrite: bool) -> None:
        """Write all metadata and coordinates, the root's last, and make the target visible.

        Parameters:
            journal: Of what was written, which is deleted.
            root: The hierarchy.
            overwrite: Whether an existing target is replaced.
        """
        nodes = list(reversed(list(walk(root))))
        for path, node in nodes:
            if isinstance(node, ArrayIndex):
                self._put_inline(path, node)
        if self.zarr_format == 2:
            for key, content in zarr_v2.documents(root):
                self._put(key, content)
        else:
            for path, node in nodes:
                is_array = isinstance(node, ArrayIndex)
                document = node.metadata() if is_array else consolidated(cast("GroupIndex", node))
                self._put(f"{path}/zarr.json" if path else "zarr.json", document)
        journal.remove()
        if self.is_local:
            self._rename(overwrite=overwrite)

    def _put_inline(self, path: str, array: ArrayIndex) -> None:
        """Write the chunks of a coordinate, which are in the index itself."""
        chunks = array.chunks
        if not isinstance(chunks, ByteRanges):
            return
        for number, length in enumerate(chunks.lengths.reshape(-1).tolist()):
            if length:
                start = int(chunks.offsets.reshape(-1)[number])
                coords = chunk_coords(number, array.grid)
                key = (chunk_key if self.zarr_format == 3 else zarr_v2.chunk_key)(path, coords)
                data = chunks.inline[start : start + length]
                sink.put(f"{self.part}/{key}", data, storage=self.storage, root=self.part)

    def _put(self, key: str, metadata: Json) -> None:
        data = json.dumps(metadata, indent=2).encode()
        sink.put(f"{self.part}/{key}", data, storage=self.storage, root=self.part)

    def _rename(self, *, overwrite: bool) -> None:
        path, old = Path(local_path(self.url)), Path(f"{self.part}.old")
        try:
            if overwrite and path.exists(follow_symlinks=False):
                replace(str(path), str(old))
            replace(self.part, str(path))
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e
        if old.exists(follow_symlinks=False):
            is_link = old.is_symlink()
            shutil.rmtree(old) if old.is_dir() and not is_link else old.unlink()
