"""Write reference JSON as text, many references at a time.

An object per reference would take gigabytes for an index of a million chunks: lines are formatted
straight from the columns.
"""

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from anychunk.formats._zarr_metadata import Document
from anychunk.model.grid import Numbers, chunk_coords
from anychunk.model.index import WHOLE
from anychunk.references.chunk_references import ChunkReferences, References

BATCH = 1 << 16
"""How many references are formatted at once."""


class JsonWriter:
    """Writes reference JSON, version 1, piece by piece."""

    def __init__(
        self, file: BinaryIO, *, base: str | None, zarr_format: int, separator: str
    ) -> None:
        """Write the start.

        Parameters:
            file: The file to write to.
            base: The value of the template `base`, if urls are written with it.
            zarr_format: 3 or 2, which decides the form of chunk keys.
            separator: The separator in chunk keys.
        """
        self._file, self._zarr_format, self._separator = file, zarr_format, separator
        file.write(b'{"version":1,')
        if base is not None:
            file.write(f'"templates":{json.dumps({"base": base.rstrip("/")})},'.encode())
        file.write(b'"refs":{\n')
        self._is_first = True

    def add_documents(self, documents: Mapping[str, Document]) -> None:
        """Write metadata documents, by key."""
        lines = [f"{json.dumps(key)}:{json.dumps(json.dumps(d))}" for key, d in documents.items()]
        if lines:
            self._write(",\n".join(lines))

    def add_references(self, found: References, written: Mapping[str, str]) -> None:
        """Write the references of arrays.

        Parameters:
            found: The references of every array.
            written: How each url is written.
        """
        separator = self._separator
        for path, (_, references) in found.items():
            start = "" if self._zarr_format == 2 else f"c{separator}"
            prefix = (f"{path}/" if path else "") + start
            for batch in _lines(prefix, separator, references, written):
                self._write(batch)

    def _write(self, lines: str) -> None:
        if not self._is_first:
            self._file.write(b",\n")
        self._is_first = False
        self._file.write(lines.encode())

    def size(self) -> int:
        """Return how many bytes were written."""
        return self._file.tell()

    def end(self) -> None:
        """Write the end."""
        self._file.write(b"\n}}\n")


def _lines(
    prefix: str, separator: str, references: ChunkReferences, written: Mapping[str, str]
) -> Iterator[str]:
    """Yield the references of one array as text, in batches."""
    key = _key_format(prefix, separator, references)
    urls = [json.dumps(written[url]) if url else "" for url in references.urls]
    with_parts = references.with_parts()
    single = np.setdiff1d(references.present, with_parts, assume_unique=True)
    is_whole = references.lengths[single] == WHOLE
    for numbers in _batches(single[~is_whole]):
        columns = _columns(numbers, references, urls)
        yield ",\n".join(map((f"{key}[%s,%d,%d]").__mod__, zip(*columns, strict=True)))
    for numbers in _batches(single[is_whole]):
        columns = _columns(numbers, references, urls)[:-2]
        yield ",\n".join(map(f"{key}[%s]".__mod__, zip(*columns, strict=True)))
    for numbers in _batches(with_parts):
        yield ",\n".join(_line_with_parts(int(n), key, references, urls) for n in numbers)
    for number, data in references.copied.items():
        text = f'"base64:{base64.b64encode(data).decode()}"'
        yield key % chunk_coords(number, references.grid) + text


def _key_format(prefix: str, separator: str, references: ChunkReferences) -> str:
    """Return the %-format of an array's keys, with a number per axis: `"a/c/%d/%d":`."""
    start = json.dumps(prefix)[1:-1].replace("%", "%%")
    if not references.grid:
        # an array without axes has one chunk, `c` or in v2 `0`
        start = start.removesuffix(separator) if prefix.endswith(f"c{separator}") else f"{start}0"
    return f'"{start}' + separator.join(["%d"] * len(references.grid)) + '":'


def _batches(numbers: Numbers) -> Iterator[Numbers]:
    for start in range(0, len(numbers), BATCH):
        yield numbers[start : start + BATCH]


def _columns(numbers: Numbers, references: ChunkReferences, urls: list[str]) -> list[Any]:
    """Return the values of the lines of some chunks: coordinates, url, offset and length."""
    grid = references.grid
    coords = [c.tolist() for c in np.unravel_index(numbers, grid)] if grid else []
    ids = references.url_ids_of(numbers).tolist()
    offsets, lengths = references.offsets[numbers].tolist(), references.lengths[numbers].tolist()
    return [*coords, [urls[i] for i in ids], offsets, lengths]


def _line_with_parts(number: int, key: str, references: ChunkReferences, urls: list[str]) -> str:
    text = ",".join(f"[{o},{n}]" for o, n in references.ranges(number))
    url = urls[0 if references.url_ids is None else int(references.url_ids[number])]
    return f"{key % chunk_coords(number, references.grid)}[{url},[{text}]]"
