"""Read reference JSON into columns.

An object per reference would take gigabytes for an index of ten million chunks. So the text is
scanned member by member, and plain references, `"key": ["url", offset, length]`, are matched
thousands at a time by one regular expression, without a JSON value being created.
"""

import base64
import binascii
import json
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import numpy as np

from anychunk.errors import FormatError, UnsupportedError
from anychunk.formats._zarr_metadata import Document, parse_document
from anychunk.model.index import WHOLE
from anychunk.references.documents import Range

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
PLAIN_REFERENCES = re.compile(
    r'(?:\s*+,\s*+"[^"\\]*+"\s*+:\s*+'
    r'\[\s*+"[^"\\]*+"\s*+,\s*+\d{1,19}+\s*+,\s*+\d{1,19}+\s*+\])++'
)
BLOCK = 1 << 20
"""How many characters of plain references are read at once."""
FEW = 1000
"""Fewer keys than this are not worth a block of their own."""
PUNCTUATION = str.maketrans(",[]", "   ")
SPACE = re.compile(r"[ \t\r\n]*")
SCAN: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]


class Keys:
    """Very many keys: those of plain references as text, which takes a third of the memory."""

    def __init__(self) -> None:
        self._blocks: list[list[str] | str] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, key: str) -> None:
        """Add a key."""
        if not self._blocks or isinstance(self._blocks[-1], str):
            self._blocks.append([])
        self._blocks[-1].append(key)  # type: ignore[union-attr]
        self._count += 1

    def extend_plain(self, keys: list[str]) -> None:
        """Add keys without quotes."""
        if len(keys) < FEW:
            for key in keys:
                self.append(key)
        else:
            self._blocks.append('"'.join(keys))
            self._count += len(keys)

    def taken_blocks(self) -> Iterator[list[str]]:
        """Yield all keys, many at a time, in order; keep none of them."""
        self._count = 0
        self._blocks.reverse()
        while self._blocks:
            block = self._blocks.pop()
            yield block.split('"') if isinstance(block, str) else block


@dataclass
class ReferenceColumns:
    """The content of reference JSON, references in columns."""

    documents: dict[str, Document] = field(default_factory=dict)
    """Metadata documents, by key."""
    templates: dict[str, str] = field(default_factory=dict)
    keys: Keys = field(default_factory=Keys)
    urls: dict[str, int] = field(default_factory=dict)
    """Every url once, with its id."""
    url_ids: "array[int]" = field(default_factory=lambda: array("Q"))
    offsets: "array[int]" = field(default_factory=lambda: array("Q"))
    lengths: "array[int]" = field(default_factory=lambda: array("Q"))
    parts: dict[str, list[Range]] = field(default_factory=dict)
    """Further byte ranges of chunks, by key."""
    inline: dict[str, bytes] = field(default_factory=dict)
    """Bytes of chunks that the JSON itself holds, by key."""

    def add(self, key: str, url: str, offset: int, length: int) -> None:
        """Append one reference."""
        self.keys.append(key)
        self.url_ids.append(self._url_id(url))
        self.offsets.append(offset)
        self.lengths.append(length)

    def add_plain(self, text: str) -> None:
        """Append references that `PLAIN_REFERENCES` has matched."""
        # no string contains a quote: , " key " :[ " url " ,1,2], " key " …
        pieces = text.split('"')
        urls = pieces[3::4]
        numbers = "".join(pieces[4::4]).translate(PUNCTUATION)
        ranges = np.fromstring(numbers, np.uint64, sep=" ")
        self.keys.extend_plain(pieces[1::4])
        self.offsets.frombytes(ranges[0::2].tobytes())
        self.lengths.frombytes(ranges[1::2].tobytes())
        if urls.count(urls[0]) == len(urls):
            self.url_ids.extend(array("Q", [self._url_id(urls[0])]) * len(urls))
        else:
            self.url_ids.extend(map(self._url_id, urls))

    def _url_id(self, url: str) -> int:
        return self.urls.setdefault(url, len(self.urls))


def read_json(text: str, where: str) -> ReferenceColumns:
    """Read reference JSON, version 0 or 1.

    Raises:
        FormatError: If it is not reference JSON.
        UnsupportedError: If it is of another version, or has generated references.
    """
    found = ReferenceColumns()
    try:
        _read_object(
            text, _enter_object(text, 0), lambda k, at: _read_top(text, k, at, found, where), None
        )
    except (ValueError, RecursionError, StopIteration, IndexError, OverflowError) as e:
        if isinstance(e, FormatError):
            raise
        raise FormatError(f"{where}: expected reference JSON ({e or type(e).__name__})") from e
    return found


def _skip_space(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    return match.end() if match else at


def _enter_object(text: str, at: int) -> int:
    """Return the position after the opening brace of an object."""
    at = _skip_space(text, at)
    if text[at] != "{":
        raise ValueError(f"expected an object at character {at}, found {text[at]!r}")
    return at + 1


def _read_object(
    text: str,
    at: int,
    read_value: Callable[[str, int], int],
    plain: ReferenceColumns | None,
) -> int:
    """Read the members of an object one by one; return the position after it.

    Parameters:
        text: The whole JSON.
        at: The position after the object's opening brace.
        read_value: Called with a key and the position of its value; returns the value's end.
        plain: Where plain references are added; None: the object holds none.
    """
    at = _skip_space(text, at)
    if text[at] == "}":
        return at + 1
    is_first = True
    while True:
        # the expression starts with a comma, which the first member does not have in front
        if plain is not None and not is_first:
            match = PLAIN_REFERENCES.match(text, at, at + BLOCK)
            if match is not None:
                plain.add_plain(match.group())
                at = match.end()
                continue
        at = _skip_space(text, at)
        if text[at] == "}":
            return at + 1
        if not is_first:
            if text[at] != ",":
                raise ValueError(f"expected a comma at character {at}, found {text[at]!r}")
            at = _skip_space(text, at + 1)
        if text[at] != '"':
            raise ValueError(f"expected a key at character {at}, found {text[at]!r}")
        key, at = scanstring(text, at + 1, True)
        at = _skip_space(text, at)
        if text[at] != ":":
            raise ValueError(f"expected a colon at character {at}, found {text[at]!r}")
        at, is_first = read_value(key, _skip_space(text, at + 1)), False


def _read_top(text: str, key: str, at: int, found: ReferenceColumns, where: str) -> int:
    """Read one member of the outermost object; return its end."""
    if key == "refs":
        return _read_object(
            text,
            _enter_object(text, at),
            lambda k, a: _read_reference(text, k, a, found, where),
            found,
        )
    if key in ("version", "templates", "gen"):
        value, end = SCAN(text, at)
        if key == "gen" and value:
            raise UnsupportedError(f"{where}: generated references (gen) are not supported")
        if key == "templates":
            if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
                raise ValueError("templates must be an object of strings")
            found.templates.update(value)
        if key == "version" and value not in (0, 1):
            raise UnsupportedError(
                f"{where}: reference JSON version {value!r} is not supported; supported: 0 1"
            )
        return end
    return _read_reference(text, key, at, found, where)  # version 0 has no "refs" around them


def _read_reference(text: str, key: str, at: int, found: ReferenceColumns, where: str) -> int:
    """Read one member of "refs": a metadata document, inline bytes or a reference; return its end.

    References are `[url]`, `[url, offset, length]` or `[url, [[offset, length], …]]`.
    """
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
        if not isinstance(value[1], list) or not value[1]:
            raise ValueError(f"{key!r} has the byte ranges {str(value[1])[:80]}, expected a list")
        first, *rest = [_range(part, key) for part in value[1]]
        found.add(key, value[0], *first)
        if rest:
            found.parts[key] = rest
    else:
        raise FormatError(
            f"{where}: {key!r} is {str(value)[:80]}, expected text or a list with a url"
        )
    return end


def _inline(value: Any) -> Any:
    """Return the bytes that a string encodes; return other values unchanged."""
    if isinstance(value, str) and value.startswith("base64:"):
        try:
            return base64.b64decode(value[7:], validate=True)
        except binascii.Error as e:
            raise ValueError(f"inline bytes must be base64 ({e})") from e
    return value.encode() if isinstance(value, str) else value


def _range(pair: Any, key: str) -> Range:
    if not isinstance(pair, list) or len(pair) != 2 or not all(type(n) is int for n in pair):
        raise ValueError(f"{key!r} has the byte range {str(pair)[:80]}, expected [offset, length]")
    offset, length = pair
    if offset < 0 or length < 1 or offset + length > 1 << 63:
        raise ValueError(
            f"{key!r} has the byte range [{offset}, {length}], "
            "expected an offset of at least 0 and a length of at least 1"
        )
    return offset, length
