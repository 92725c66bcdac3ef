"""Where a conversion to Zarr is written, and when it becomes visible."""

import json
import shutil
from pathlib import Path

from anychunk.conversion.journal import Journal
from anychunk.conversion.plan import Plan
from anychunk.errors import FormatError, SourceError
from anychunk.io import Storage, is_remote, local_path, read_object, sink
from anychunk.model.index import Json


class Target:
    """A Zarr hierarchy that appears only when it is complete.

    A local one is written to a folder beside it and renamed at the end. A remote one is written in
    place, metadata last: without the root's `zarr.json` nothing opens.
    """

    def __init__(self, url: str, storage: Storage | None) -> None:
        self.url, self.storage = url, storage
        self.is_local = not is_remote(url)
        path = Path(local_path(url))
        self.part = str(path.with_name(f".{path.name}.part")) if self.is_local else url
        """Where it is written."""

    def is_finished(self, fingerprint: str) -> bool:
        """Whether the target already holds the result of the plan with this fingerprint."""
        data = read_object(f"{self.url}/zarr.json", storage=self.storage)
        if data is None:
            return False
        try:
            found = json.loads(data.tobytes())["attributes"]["anychunk"]["conversion"]
        except (ValueError, KeyError, TypeError):
            return False
        return bool(found == fingerprint)

    def exists(self) -> bool:
        """Whether anything is under the target's name."""
        if self.is_local:
            return Path(local_path(self.url)).exists()
        return read_object(f"{self.url}/zarr.json", storage=self.storage) is not None

    def prepare(self, fingerprint: str, *, overwrite: bool) -> Journal:
        """Start a conversion, or resume an unfinished one; return its journal.

        Raises `FormatError` if something else is in the way and may not be overwritten.
        """
        if self.is_local and Path(self.part).is_symlink():
            raise FormatError(f"{self.part}: is a symbolic link, expected a folder; remove it")
        if self.exists() and not overwrite:
            raise FormatError(f"{self.url}: already exists; remove it, or pass overwrite")
        journal = Journal(self.part, fingerprint, storage=self.storage)
        if journal.is_there and not journal.is_ours:
            if not overwrite:
                raise FormatError(
                    f"{self.part}: an unfinished conversion of another source or with other "
                    "options; remove it, or pass overwrite"
                )
            if self.is_local:
                shutil.rmtree(self.part)
        if overwrite and not self.is_local and not journal.is_ours:
            # chunks of fill values are not written: an old one in their place would remain visible
            sink.remove_all(self.url, storage=self.storage)
        journal.start()
        return journal

    def finish(self, plan: Plan, journal: Journal, *, overwrite: bool) -> None:
        """Write all metadata, the root's last, and make the target visible."""
        for level in plan.arrays:
            self._put(level.path, level.metadata)
        for path, attributes in sorted(plan.groups.items(), reverse=True):
            if path == "":
                about = {**attributes["anychunk"], "conversion": plan.fingerprint}
                attributes = {**attributes, "anychunk": about}  # noqa: PLW2901
            self._put(path, {"zarr_format": 3, "node_type": "group", "attributes": attributes})
        journal.remove()
        if self.is_local:
            self._rename(overwrite=overwrite)

    def _put(self, path: str, metadata: Json) -> None:
        key = f"{path}/zarr.json" if path else "zarr.json"
        data = json.dumps(metadata, indent=2).encode()
        sink.put(f"{self.part}/{key}", data, storage=self.storage, root=self.part)

    def _rename(self, *, overwrite: bool) -> None:
        path, old = Path(local_path(self.url)), Path(f"{self.part}.old")
        try:
            if overwrite and path.exists():
                path.rename(old)
            Path(self.part).rename(path)
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e
        if old.exists():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
