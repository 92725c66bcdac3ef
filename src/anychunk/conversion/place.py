"""Where a conversion goes."""

import json
import shutil
from pathlib import Path

from anychunk.conversion.journal import Journal
from anychunk.conversion.plan import Plan
from anychunk.errors import FormatError, SourceError
from anychunk.io import Storage, is_remote, local_path, read_object, sink
from anychunk.model.index import Json


class Place:
    """Where a conversion goes: aside first where it is local, under its name at the end."""

    def __init__(self, url: str, storage: Storage | None) -> None:
        self.url, self.storage = url, storage
        self.is_local = not is_remote(url)
        path = Path(local_path(url))
        self.aside = str(path.with_name(f".{path.name}.part")) if self.is_local else url

    def is_finished(self, fingerprint: str) -> bool:
        """Whether this very conversion was brought to its end before."""
        data = read_object(f"{self.url}/zarr.json", storage=self.storage)
        if data is None:
            return False
        try:
            found = json.loads(data.tobytes())["attributes"]["anychunk"]["conversion"]
        except (ValueError, KeyError, TypeError):
            return False
        return bool(found == fingerprint)

    def is_taken(self) -> bool:
        if self.is_local:
            return Path(local_path(self.url)).exists()
        return read_object(f"{self.url}/zarr.json", storage=self.storage) is not None

    def prepare(self, fingerprint: str, *, overwrite: bool) -> Journal:
        """Make the place ready, or take up what was begun."""
        if self.is_local and Path(self.aside).is_symlink():
            raise FormatError(f"{self.aside}: a link; remove it")
        if self.is_taken() and not overwrite:
            raise FormatError(f"{self.url}: is there already; remove it, or allow to overwrite it")
        journal = Journal(self.aside, fingerprint, storage=self.storage)
        if journal.is_there and not journal.is_ours:
            if not overwrite:
                raise FormatError(
                    f"{self.aside}: an unfinished conversion of another source or with other "
                    "options; remove it, or allow to overwrite it"
                )
            if self.is_local:
                shutil.rmtree(self.aside)
        if overwrite and not self.is_local and not journal.is_ours:
            # a chunk of fill alone is not written: an old one would show in its place
            sink.remove_all(self.url, storage=self.storage)
        journal.start()
        return journal

    def finish(self, plan: Plan, journal: Journal, *, overwrite: bool) -> None:
        """Write all metadata, the root last, and let the target appear."""
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
        sink.put(f"{self.aside}/{key}", data, storage=self.storage, root=self.aside)

    def _rename(self, *, overwrite: bool) -> None:
        path, old = Path(local_path(self.url)), Path(f"{self.aside}.old")
        try:
            if overwrite and path.exists():
                path.rename(old)
            Path(self.aside).rename(path)
        except OSError as e:
            raise SourceError(f"{path}: {e.strerror or e}") from e
        if old.exists():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
