"""Sources that are kept open, each checked against its pin."""

from collections.abc import Mapping, Sequence
from typing import Any

from anychunk.io.file import FileSource, PreadSource, stat_pin
from anychunk.io.held import HeldPin
from anychunk.io.objects import ObjectSource, get_object
from anychunk.io.opening import read_object
from anychunk.io.source import (
    Bytes1D,
    OnChange,
    Source,
    Storage,
    is_remote,
    local_path,
    report_change,
    signed_of,
    with_signed,
)
from anychunk.model.pin import Pin

MOST_OPEN = 1024
"""Local files that are kept open; systems limit the number of memory maps."""


class Sources:
    """Open sources by url, each checked against its pin before the first byte is read."""

    def __init__(
        self,
        pins: Mapping[str, Pin],
        *,
        storage: Storage | None = None,
        on_change: OnChange = "error",
        mapped: bool = True,
        roots: Sequence[str] = (),
    ) -> None:
        """Create an empty set of sources.

        Parameters:
            pins: The version of each url that was indexed.
            storage: Options for remote sources.
            on_change: What to do when a source is no longer the version that was indexed.
            mapped: Whether local files are mapped into memory. Unmapped ones are slower to read,
                but safe if they are truncated in the meantime; a change is then always an error.
            roots: Folders that must contain local files, with all links resolved. Empty: anywhere.
        """
        self.pins = pins
        self.storage = storage
        self.on_change: OnChange = on_change
        self._mapped = mapped
        self._roots = tuple(roots)
        self._open: dict[str, Source] = {}
        self._seen: dict[str, Pin] = {}
        """Local files whose pins have no identity, as this process first saw them."""

    def open(self, url: str) -> Source:
        source = self._open.get(url)
        if source is None:
            pin = self.pins.get(url)
            if isinstance(pin, HeldPin):
                source = pin.source
            elif is_remote(url):
                # no request is needed to check the pin: every response is checked against it
                storage = self._storage_of(pin)
                source = ObjectSource(url, storage=storage, pin=pin, on_change=self.on_change)
            elif self._mapped:
                source = FileSource(local_path(url), roots=self._roots)
                self.check(url, pin, source.pin())
            else:
                source = PreadSource(url, pin, roots=self._roots)
            # two threads may come here at once; either source serves
            self._open[url] = source
            # a PreadSource holds nothing open, but may hold the only pin of its file
            if len(self._open) > MOST_OPEN and not isinstance(source, PreadSource):
                # views of it stay valid; who wants more of it opens it again
                self._open.pop(next(iter(list(self._open))), None)
        return source

    def whole(self, url: str) -> Bytes1D | None:
        """Read a whole object without keeping it open; None if it does not exist."""
        pin = self.pins.get(url)
        if pin is None:
            return read_object(url, storage=self.storage, roots=self._roots)
        if isinstance(pin, HeldPin):
            return pin.source.read(0, pin.size)
        data: Bytes1D | None
        now: Pin | None
        if is_remote(url):
            data, now = get_object(url, self._storage_of(pin)) or (None, None)
        else:
            data, now = read_object(url, roots=self._roots), stat_pin(local_path(url))
        if now is not None:
            self.check(url, pin, now)
        return data

    def verify(self, url: str) -> Source:
        """Open a source and check that a local file has not changed since it was opened.

        Costs a single `stat`: a source that is opened now has just been checked. Remote objects are
        checked with every response.
        """
        source = self._open.get(url)
        if source is None:
            return self.open(url)
        if not isinstance(source, FileSource) or source.is_unchanged():
            return source
        self.check(url, source.pin(), source.refresh())
        return self.open(url)  # the new version, if a change is only a warning

    def check(self, url: str, pin: Pin | None, now: Pin) -> None:
        """Report if a source is not the version of `pin`, or not the file that was seen first."""
        change = pin.differs(now) if pin else None
        if not change and now.identity and not (pin and pin.identity):
            change = self._seen.setdefault(url, now).differs(now)
        if change:
            # its memory map shows the file as it was
            self._open.pop(url, None)
            report_change(url, change, self.on_change)

    def release(self) -> None:
        """Release the pages of every open local file."""
        for source in list(self._open.values()):
            if isinstance(source, FileSource):
                source.release()

    def _storage_of(self, pin: Pin | None) -> Storage | None:
        return self.storage if pin is None else with_signed(self.storage, pin.signed)

    def signed(self, signed: Mapping[str, str] | None) -> "Sources":
        """Return the same sources, read with the secrets of a folder."""
        storage = with_signed(self.storage, signed)
        if storage is self.storage:
            return self
        return Sources(
            self.pins,
            storage=storage,
            on_change=self.on_change,
            mapped=self._mapped,
            roots=self._roots,
        )

    def __getstate__(self) -> dict[str, Any]:
        # the pins of a pickled index have no signatures; those of an open array go with it
        found = dict(signed_of(self.storage))
        for pin in self.pins.values():
            found |= pin.signed or {}
        return self.__dict__ | {"_open": {}, "_seen": {}, "_secrets": found}

    def __setstate__(self, state: dict[str, Any]) -> None:
        found = state.pop("_secrets")
        self.__dict__.update(state)
        self.storage = with_signed(self.storage, found)
