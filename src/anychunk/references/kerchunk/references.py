"""Reference JSON, read into columns: an index of a million chunks would be gigabytes of objects."""

import base64
import binascii
import json
import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from anychunk.errors import FormatError, UnsupportedError
from anychunk.model.index import WHOLE
from anychunk.references.rebuild import Document, Range, parse_document

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
ENTRY = re.compile(
    r'\s*,\s*"([^"\\]*)"\s*:\s*\[\s*"([^"\\]*)"\s*,\s*(\d{1,19})\s*,\s*(\d{1,19})\s*\]'
)
SPACE = re.compile(r"[ \t\r\n]*")
SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


@dataclass
class References:
    """What reference JSON holds, in columns."""

    documents: dict[str, Document] = field(default_factory=dict)
    templates: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    urls: dict[str, int] = field(default_factory=dict)
    url_ids: "array[int]" = field(default_factory=lambda: array("L"))
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    lengths: "array[int]" = field(default_factory=lambda: array("Q"))
    parts: dict[str, list[Range]] = field(default_factory=dict)
    inline: dict[str, bytes] = field(default_factory=dict)

    def add(self, key: str, url: str, offset: int, length: int) -> None:
        self.keys.append(key)
        self.url_ids.append(self.urls.setdefault(url, len(self.urls)))
        self.offsets.append(offset)
        self.lengths.append(length)


def read_json(text: str, where: str) -> References:
    found = References()
    try:
        _read_object(text, _open(text, 0), lambda k, at: _top(text, k, at, found, where), None)
    except (ValueError, RecursionError, StopIteration, IndexError, OverflowError) as e:
        if isinstance(e, FormatError):
            raise
        raise FormatError(f"{where}: no reference JSON ({e or type(e).__name__})") from e
    return found


def _skip(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at


def _open(text: str, at: int) -> int:
    at = _skip(text, at)
    if text[at] != "{":
        raise ValueError(f"expected an object at {at}")
    return at + 1


def _read_object(
    text: str,
    at: int,
    take: Callable[[str, int], int],
    quick: References | None,
) -> int:
    """Go through the members of an object one by one; `take(key, at)` gives the value's end.

    Members that are plain references go into `quick` without a JSON value being made: an index of
    a million chunks would be some gigabytes of them.
    """
    at = _skip(text, at)
    if text[at] == "}":
        return at + 1
    match_entry, is_first = ENTRY.match, True
    while True:
        if quick is not None and not is_first:
            match = match_entry(text, at)
            if match is not None:
                key, url, offset, length = match.groups()
                quick.add(key, url, int(offset), int(length))
                at = match.end()
                continue
        at = _skip(text, at)
        if text[at] == "}":
            return at + 1
        if not is_first:
            if text[at] != ",":
                raise ValueError(f"expected a comma at {at}")
            at = _skip(text, at + 1)
        if text[at] != '"':
            raise ValueError(f"expected a key at {at}")
        key, at = scanstring(text, at + 1, True)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError(f"expected a colon at {at}")
        at, is_first = take(key, _skip(text, at + 1)), False


def _top(text: str, key: str, at: int, found: References, where: str) -> int:
    if key == "refs":
        return _read_object(
            text, _open(text, at), lambda k, a: _reference(text, k, a, found, where), found
        )
    if key in ("version", "templates", "gen"):
        value, end = SCAN(text, at)
        if key == "gen" and value:
            raise UnsupportedError(f"{where}: generated references (gen) are not opened")
        if key == "templates":
            if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
                raise ValueError("templates are no object of texts")
            found.templates.update(value)
        if key == "version" and value not in (0, 1):
            raise UnsupportedError(f"{where}: reference JSON version {value!r}; opened: 0 1")
        return end
    return _reference(text, key, at, found, where)  # version 0: references stand at the top


def _reference(text: str, key: str, at: int, found: References, where: str) -> int:
    """Take one reference of any kind."""
    value, end = SCAN(text, at)
    if key.rpartition("/")[2] in METADATA:
        found.documents[key] = parse_document(_inline(value), f"{where} {key}")
    elif isinstance(value, str):
        found.inline[key] = _inline(value)
    elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        found.add(key, value[0], 0, int(WHOLE))
    elif isinstance(value, list) and len(value) == 3 and isinstance(value[0], str):
        found.add(key, value[0], *_range(value[1:], key))
    elif isinstance(value, list) and len(value) == 2 and isinstance(value[0], str):
        first, *rest = [_range(part, key) for part in value[1]]
        found.add(key, value[0], *first)
        if rest:
            found.parts[key] = rest
    else:
        raise FormatError(f"{where}: {key!r} refers to {str(value)[:80]}, which is no reference")
    return end


def _inline(value: Any) -> Any:
    if isinstance(value, str) and value.startswith("base64:"):
        try:
            return base64.b64decode(value[7:], validate=True)
        except binascii.Error as e:
            raise ValueError(f"inline bytes are no base64 ({e})") from e
    return value.encode() if isinstance(value, str) else value


def _range(pair: Any, key: str) -> Range:
    if not isinstance(pair, list) or len(pair) != 2 or not all(type(n) is int for n in pair):
        raise ValueError(f"{key!r} has no byte range but {str(pair)[:80]}")
    offset, length = pair
    if offset < 0 or length < 1 or offset + length > 1 << 63:
        raise ValueError(f"{key!r} has the byte range {offset}, {length}")
    return offset, length
