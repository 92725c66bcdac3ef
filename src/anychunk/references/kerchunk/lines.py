"""Reference JSON as text: many references at a time, none of them an object."""

import base64
import json
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np

from anychunk.model.index import WHOLE
from anychunk.references.places import BASE
from anychunk.references.rebuild import Document
from anychunk.references.tables import Table, Tables

BATCH = 1 << 16
"""References that are one piece of text."""


def write_json(
    file: BinaryIO | BytesIO,
    documents: Mapping[str, Document],
    found: Tables,
    *,
    write: Mapping[str, str],
    folder: str,
    zarr_format: int,
    separator: str,
) -> None:
    uses_base = any(reference.startswith(BASE) for reference in write.values())
    templates = {"base": folder.rstrip("/")} if uses_base else {}
    file.write(b'{"version":1,')
    if templates:
        file.write(f'"templates":{json.dumps(templates)},'.encode())
    file.write(b'"refs":{\n')
    text = [f"{json.dumps(key)}:{json.dumps(json.dumps(d))}" for key, d in documents.items()]
    file.write(",\n".join(text).encode())
    for path, (_, table) in found.items():
        prefix = (f"{path}/" if path else "") + ("" if zarr_format == 2 else "c" + separator)
        for batch in lines(prefix, separator, table, write):
            file.write(b",\n")
            file.write(batch.encode())
    file.write(b"\n}}\n")


def lines(prefix: str, separator: str, table: Table, write: Mapping[str, str]) -> Iterator[str]:
    """Yield the references of one array as text, many to a batch."""
    start = json.dumps(prefix)[1:-1].replace("%", "%%")
    if not table.grid:
        # an array without axes has one chunk, `c` or in v2 `0`
        start = start.removesuffix(separator) if prefix.endswith(f"c{separator}") else f"{start}0"
    key = f'"{start}' + separator.join(["%d"] * len(table.grid)) + '":'
    heads = [json.dumps(write[url]) if url else "" for url in table.urls]
    several = table.several()
    plain = np.setdiff1d(table.present, several, assume_unique=True)
    is_whole = table.lengths[plain] == WHOLE
    for numbers in _batches(plain[~is_whole]):
        columns = _columns(numbers, table, heads)
        yield ",\n".join(map((f"{key}[%s,%d,%d]").__mod__, zip(*columns, strict=True)))
    for numbers in _batches(plain[is_whole]):
        columns = _columns(numbers, table, heads)[:-2]
        yield ",\n".join(map(f"{key}[%s]".__mod__, zip(*columns, strict=True)))
    for numbers in _batches(several):
        yield ",\n".join(_several(int(n), key, table, heads) for n in numbers)
    for number, data in table.copied.items():
        text = f'"base64:{base64.b64encode(data).decode()}"'
        yield key % _coords(number, table) + text


def _batches(numbers: Any) -> Iterator[Any]:
    for start in range(0, len(numbers), BATCH):
        yield numbers[start : start + BATCH]


def _columns(numbers: Any, table: Table, heads: list[str]) -> list[Any]:
    coords = [c.tolist() for c in np.unravel_index(numbers, table.grid)] if table.grid else []
    ids = [0] * len(numbers) if table.url_ids is None else table.url_ids[numbers].tolist()
    offsets, lengths = table.offsets[numbers].tolist(), table.lengths[numbers].tolist()
    return [*coords, [heads[i] for i in ids], offsets, lengths]


def _coords(number: int, table: Table) -> tuple[int, ...]:
    return tuple(int(c) for c in np.unravel_index(number, table.grid)) if table.grid else ()


def _several(number: int, key: str, table: Table, heads: list[str]) -> str:
    parts = table.parts
    ranges = [(int(table.offsets[number]), int(table.lengths[number]))]
    if parts is not None:
        begin, end = int(parts.starts[number]), int(parts.starts[number + 1])
        pairs = zip(parts.offsets[begin:end], parts.lengths[begin:end], strict=True)
        ranges += [(int(o), int(n)) for o, n in pairs]
    text = ",".join(f"[{o},{n}]" for o, n in ranges)
    return f"{key % _coords(number, table)}[{heads[table.url_id(number)]},[{text}]]"
