"""Notice when a file that is open has changed."""

import itertools
import time

import xxhash

from anychunk.errors import SourceChangedError
from anychunk.io.file import PreadSource
from anychunk.io.opening import open_source
from anychunk.io.source import Source, Storage, is_remote, report_change
from anychunk.model.index import Node, saved_at, walk
from anychunk.model.pin import Pin
from anychunk.references import parquet
from anychunk.zarr.store import IndexStore
from anychunk_serve.listing import HEADER, Stamp, stamp_now

REMOTE_S = 5.0
"""Time after which remote sources are asked again whether they have changed."""
MOST_REMOTE = 16
"""Remote sources of a file that are asked; others are checked only when chunks of them are read."""
MOST_HEADERS = 200
"""Metadata files of a folder that are checked."""


class Watch:
    """The sources of an open file, and their versions when it was opened."""

    def __init__(self, url: str, store: IndexStore, storage: Storage | None) -> None:
        """Note the versions of all sources.

        Parameters:
            url: The file.
            store: Its index, as the parser returned it.
            storage: Options for remote sources.

        Raises:
            SourceChangedError: The file has changed since it was parsed.
        """
        pins = watched_pins(store.index)
        self._local: list[PreadSource] = []
        self._remote: dict[str, tuple[Source, Pin]] = {}
        for name, pin in pins.items():
            if is_remote(name):
                self._remote[name] = (open_source(name, storage=storage), pin)
            else:
                known = store.sources.open(name) if name in store.index.pins else None
                self._local.append(
                    known if isinstance(known, PreadSource) else PreadSource(name, pin)
                )
        self._headers: dict[str, Stamp] = {}
        if not pins and not is_remote(url):
            nodes = itertools.islice(walk(store.index), MOST_HEADERS)
            paths = [f"{url}/{path}/{HEADER}" if path else f"{url}/{HEADER}" for path, _ in nodes]
            self._headers = {path: stamp_now(path) for path in paths}
        self._asked = time.monotonic()
        for source in self._local:
            source.verify()
        parts = [repr((s.url, s.pin(), s.pin().identity)) for s in self._local]
        parts += [repr((name, pin)) for name, (_, pin) in self._remote.items()]
        parts += map(repr, self._headers.items())
        self.version = xxhash.xxh3_64_hexdigest("\n".join(sorted(parts)).encode())
        """Identifies the versions of all sources together."""

    def ask_again(self) -> None:
        """Ask remote sources at the next `verify`, however recently they were asked."""
        self._asked = -REMOTE_S

    def verify(self) -> None:
        """Raise `SourceChangedError` if a source has changed."""
        for source in self._local:
            source.verify()
        for path, known in self._headers.items():
            if stamp_now(path) != known:
                raise SourceChangedError(f"{path}: has changed since it was indexed")
        now = time.monotonic()
        if not self._remote or len(self._remote) > MOST_REMOTE or now - self._asked < REMOTE_S:
            return
        self._asked = now
        for name, (remote, pin) in self._remote.items():
            change = pin.differs(remote.refresh())
            if change:
                report_change(name, change, "error")


def watched_pins(index: Node) -> dict[str, Pin]:
    """Return the sources that an index was parsed from, with their versions.

    Of a saved index that is the index itself: the files that it refers to are checked when chunks
    of them are read, and opening the index again would not adopt their new versions.
    """
    saved = saved_at(index)
    if saved is None:
        return dict(index.pins)
    if saved.pin is None:
        return {}
    url = f"{saved.url}/{parquet.V2_METADATA}" if saved.format == "parquet" else saved.url
    return {url: saved.pin}
