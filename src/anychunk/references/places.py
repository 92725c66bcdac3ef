"""Urls in saved indexes: written absolute or below `{{base}}`, held against what is allowed.

An index moves with its data: it remembers the folder that it was saved in, and a reference that lay
below that folder is looked for below the folder where the index lies now. A reference may lead only
to that folder, unless the caller allows more.
"""

import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from anychunk.errors import FormatError
from anychunk.io import absolute, is_remote, local_path
from anychunk.model.index import Json
from anychunk.model.pin import Pin

EVERYWHERE = "*"
BASE = "{{base}}"


def folder_of(url: str) -> str:
    """Give the folder that an index at `url` lies in."""
    return posixpath.dirname(absolute(url).rstrip("/")) or "/"


def is_below(url: str, folder: str) -> bool:
    """Whether `url` lies below `folder`, by names."""
    start = folder if folder.endswith("/") else f"{folder}/"
    return url.startswith(start)


def file_url(path: str) -> str:
    """Write an absolute path as a url."""
    return path if is_remote(path) else f"file://{quote(path)}"


def plain_path(url: str) -> str:
    """Write `file:///a%20b` as `/a b`; leave other urls as they are."""
    return local_path(url) if url.startswith("file:") else url


@dataclass(frozen=True, kw_only=True)
class Places:
    """Turns references of an index at `url` into urls that may be read."""

    url: str
    base: str | None = None
    """The folder that the index was saved in, where it is to move with its data."""
    templates: Mapping[str, str] | None = None
    """What `{{name}}` stands for; None: nothing, braces are part of a name."""
    allow: Iterable[str] = ()
    _resolved: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    _real: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Folders with their links followed: very many files lie in few."""

    @property
    def has_moved(self) -> bool:
        """Whether the index lies elsewhere than where it was saved."""
        return self.base is not None and self.base.rstrip("/") != folder_of(self.url).rstrip("/")

    def resolve(self, reference: str) -> str:
        """Give the url of a reference, or refuse it."""
        found = self._resolved.get(reference)
        if found is None:
            found = self._resolved[reference] = self._resolve(reference)
        return found

    def _resolve(self, reference: str) -> str:
        folder = folder_of(self.url)
        url = plain_path(self._expand(reference))
        if self.base is not None and is_below(url, self.base):
            url = f"{folder.rstrip('/')}/{url[len(self.base.rstrip('/')) + 1 :]}"
        elif not is_remote(url) and not url.startswith("/"):
            url = f"{folder.rstrip('/')}/{url}"
        self._check(url, folder)
        return url

    def _expand(self, reference: str) -> str:
        if self.templates is None or "{{" not in reference:
            return reference
        for name, value in self.templates.items():
            reference = reference.replace("{{" + name + "}}", value)
        if "{{" in reference:
            raise FormatError(f"{self.url}: the reference {reference!r} names an unknown template")
        return reference

    def _check(self, url: str, folder: str) -> None:
        path = unquote(urlsplit(url).path) if is_remote(url) else url
        if "\0" in path or ".." in path.split("/") or not self._is_allowed(url, folder):
            raise FormatError(
                f"{self.url}: the reference {url!r} leads outside {folder}; "
                "allow it with allow=[…] or --allow to follow it"
            )

    def _is_allowed(self, url: str, folder: str) -> bool:
        allowed = [folder, *(plain_path(prefix) for prefix in self.allow)]
        if EVERYWHERE in allowed:
            return True
        if is_remote(url):
            return any(url == prefix or is_below(url, prefix) for prefix in allowed)
        parent, name = os.path.split(url)
        is_link = os.path.islink(url)  # noqa: PTH114 - once a reference
        real = (
            os.path.realpath(url) if is_link else f"{self._real_folder(parent).rstrip('/')}/{name}"
        )
        places = [self._real_folder(p) for p in allowed if not is_remote(p)]
        return any(real == place or is_below(real, place) for place in places)

    def _real_folder(self, path: str) -> str:
        if path not in self._real:
            self._real[path] = os.path.realpath(path)
        return self._real[path]


def pins_json(pins: Mapping[str, Pin], write: Mapping[str, str]) -> dict[str, Json]:
    """Write pins by the references that stand for their urls."""
    return {
        write.get(url, url): {
            key: value
            for key, value in (
                ("size", pin.size),
                ("etag", pin.etag),
                ("mtime_ns", pin.mtime_ns),
            )
            if value is not None
        }
        for url, pin in pins.items()
    }


def read_pins(found: Any, places: Places) -> dict[str, Pin]:
    """Read what `pins_json` wrote; a pin of a url that may not be read is refused with it."""
    if not isinstance(found, dict):
        raise FormatError(f"{places.url}: pins are {type(found).__name__}, expected an object")
    return {places.resolve(str(url)): _read_pin(pin, places.url) for url, pin in found.items()}


def _read_pin(pin: Any, where: str) -> Pin:
    kinds = {"size": int, "etag": str, "mtime_ns": int}
    if (
        not isinstance(pin, dict)
        or "size" not in pin
        or any(type(value) is not kinds.get(key) for key, value in pin.items())
    ):
        raise FormatError(f"{where}: {pin!r} is no pin; expected size, etag, mtime_ns")
    return Pin(**pin)
