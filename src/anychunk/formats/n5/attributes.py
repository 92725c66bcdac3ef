"""`attributes.json` of an N5 group or dataset, in every version, as plain data."""

import json
import re
from dataclasses import dataclass
from typing import Any

from anychunk import limits
from anychunk.codecs.n5_default import DATA_TYPES
from anychunk.errors import FormatError, LimitError, UnsupportedError
from anychunk.model.grid import Shape
from anychunk.model.index import Json

NAME = "attributes.json"
TYPES = (*DATA_TYPES, "string", "object")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The attributes that describe a dataset, in N5 order: dimension 0 is the fastest."""

    dimensions: Shape
    block_size: Shape
    data_type: str
    compression: dict[str, Json]
    """N5's JSON; has at least a `type`."""


def read_attributes(data: bytes, where: str) -> dict[str, Json]:
    """Parse `attributes.json`; comments are allowed, because Gson, the parser of Java, allows them.

    Parameters:
        data: The content of the file.
        where: Names the file in messages.

    Raises:
        FormatError: It is not a JSON object in UTF-8.
        LimitError: It is longer than the limit `attributes_bytes`.
    """
    most = limits.get().attributes_bytes
    if len(data) > most:
        raise LimitError(
            f"{where}: {len(data)} bytes are over the limit of {most}; "
            f"{limits.how_to_raise('attributes_bytes')}"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise FormatError(f"{where}: not UTF-8 ({e})") from e
    try:
        found = _loads(text)
    except ValueError:
        try:
            found = _loads(without_comments(text))
        except ValueError as e:
            raise FormatError(f"{where}: not JSON ({e})") from e
    if found is None:  # Java writes nothing, or null, for a group without attributes
        return {}
    if not isinstance(found, dict):
        raise FormatError(f"{where}: holds a JSON {type(found).__name__}, expected an object")
    return found


def _loads(text: str) -> Json:
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except RecursionError as e:
        raise ValueError("nested too deeply") from e


# strings are matched as well, so that "https://…" is not taken for a comment
COMMENTS = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|//[^\n]*', re.DOTALL)


def without_comments(text: str) -> str:
    """Return JSON text with its comments replaced by spaces."""
    return COMMENTS.sub(lambda match: match[0] if match[0].startswith('"') else " ", text)


def is_dataset(attributes: dict[str, Json]) -> bool:
    """Return whether attributes are those of a dataset, by Java's rule.

    Both `dimensions` and `dataType` are needed; a group may have one of them.
    """
    return "dimensions" in attributes and "dataType" in attributes


def read_dataset(attributes: dict[str, Json], where: str) -> Dataset:
    """Check the attributes of a dataset, and return them as data."""
    dimensions = _sizes(attributes["dimensions"], "dimensions", where, least=0)
    block = attributes.get("blockSize")
    # without blockSize Java takes the whole dataset as one block
    sizes = tuple(max(n, 1) for n in dimensions)
    block_size = sizes if block is None else _sizes(block, "blockSize", where, least=1)
    if not dimensions or len(dimensions) != len(block_size):
        raise FormatError(
            f"{where}: dimensions {list(dimensions)} and blockSize {list(block_size)}, "
            "expected lists of the same length, not empty"
        )
    data_type = attributes["dataType"]
    if data_type not in TYPES:
        raise UnsupportedError(
            f"{where}: dataType {data_type!r} is not supported; supported: {' '.join(TYPES)}"
        )
    return Dataset(
        dimensions=dimensions,
        block_size=block_size,
        data_type=data_type,
        compression=_compression(attributes, where),
    )


def _sizes(value: Any, key: str, where: str, *, least: int) -> Shape:
    if not isinstance(value, list) or not all(_is_size(n, least) for n in value):
        raise FormatError(f"{where}: {key} is {value!r:.100}, expected integers >= {least}")
    if len(value) > 32:
        raise FormatError(f"{where}: {key} has {len(value)} entries, expected at most 32")
    return tuple(int(n) for n in value)


def _is_size(value: Any, least: int) -> bool:
    """Return whether a value is an integer; some writers write 64.0."""
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    return is_whole and least <= value < 1 << 63


def _compression(attributes: dict[str, Json], where: str) -> dict[str, Json]:
    found = attributes.get("compression")
    # N5 version 1 and earlier
    if found is None and "compressionType" in attributes:
        found = {"type": attributes["compressionType"]}
    if isinstance(found, str):
        found = {"type": found}
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        raise FormatError(f"{where}: compression is {found!r:.100}, expected an object with a type")
    return found
