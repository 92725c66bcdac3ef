"""NRRD files: `field: value` headers, converted to JNRRD's fields.

Spec: NRRD format (Teem), versions NRRD00.01 and NRRD0001 to NRRD0005.
"""

import math
import re
from collections.abc import Iterable
from typing import Any

from anychunk import limits
from anychunk.errors import FormatError
from anychunk.formats.jnrrd.parse import untiled_index
from anychunk.io import Source
from anychunk.model.index import GroupIndex, Json

MAGIC = re.compile(rb"NRRD00(?:0[1-5]|\.01)\r?\n")
END = re.compile(rb"\r?\n\r?\n")
VECTOR = re.compile(r"\(([^()]*)\)|(\S+)")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')

SPELLINGS = {
    "centerings": "centers",
    "axismins": "axis_mins",
    "axismaxs": "axis_maxs",
    "sampleunits": "sample_units",
    "blocksize": "block_size",
    "datafile": "data_file",
    "lineskip": "line_skip",
    "byteskip": "byte_skip",
    "oldmin": "old_min",
    "oldmax": "old_max",
}


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is an NRRD file."""
    return MAGIC.match(head) is not None


def parse(source: Source, *, allow: Iterable[str] = ()) -> GroupIndex:
    """Index an NRRD file; `allow` lists further folders that may hold its data files."""
    text, end = read_text(source)
    fields = read_fields(text, source.url)
    return untiled_index(fields, end, source, key="nrrd", allow=allow)


def read_text(source: Source) -> tuple[str, int]:
    """Return the header and its end: its blank line or, if detached, the end of the file."""
    size, limit, length = source.size(), limits.get().header_bytes, 64 * limits.KIB
    while True:
        data = source.read(0, min(length, size, limit)).tobytes()
        match = END.search(data)
        if match:
            return data[: match.start()].decode("utf-8", "replace"), match.end()
        if len(data) == size:
            return data.decode("utf-8", "replace"), size
        limits.check_header(length, where=f"{source.url}: no blank line")
        length *= 2


def read_fields(text: str, url: str) -> dict[str, Json]:
    """Convert the lines of a header to JNRRD's fields; key/value pairs become `key_values`."""
    fields: dict[str, Json] = {}
    pairs: dict[str, str] = {}
    lines = text.splitlines()[1:]
    for number, line in enumerate(lines, 2):
        if line.startswith("#") or not line.strip():
            continue
        # a key may hold colons, as in `DICOM:0008:=value`
        found = re.search(r":=|: ", line) or re.search(":", line)
        if not found:
            raise FormatError(f"{url} line {number}: {line[:60]!r}, expected 'field: value'")
        key, value = line[: found.start()], line[found.end() :]
        if found[0] == ":=":
            pairs[unescape(key)] = unescape(value)
            continue
        name = re.sub(r"[ -]", "_", key.strip().lower())
        name = SPELLINGS.get(name, name)
        if name in fields:
            raise FormatError(f"{url} line {number}: the field {key!r} occurs twice")
        fields[name] = read_value(name, value.strip(), f"{url} line {number}")
        if name == "data_file" and value.split()[:1] == ["LIST"]:
            fields.pop(name)
            fields["data_files"] = [entry.strip() for entry in lines[number - 1 :] if entry.strip()]
            break
    # `slice%03d.raw 1 100 1`: the numbers tell a pattern from a name with a percent sign in it
    if re.search(r"%\S*\s+-?\d+\s+-?\d+", str(fields.get("data_file", ""))):
        fields["data_file_pattern"] = fields.pop("data_file")
    if pairs:
        fields["key_values"] = pairs
    return fields


def unescape(text: str) -> str:
    """Return a key or value with NRRD's escapes of backslash and newline resolved."""
    return re.sub(r"\\([\\n])", lambda m: "\n" if m[1] == "n" else "\\", text.strip())


def read_value(name: str, text: str, where: str) -> Json:
    """Return a value as JSON; the values of unknown fields stay text."""
    reader = READERS.get(name)
    if reader is None:
        return text
    try:
        return reader(text)
    except ValueError as e:
        raise FormatError(f"{where}: {name} is {text[:60]!r} ({e})") from e


def keyword(text: str) -> str:
    """Return a keyword; Teem compares them without regard to case."""
    return text.lower()


def integer(text: str) -> int:
    """Return an integer of at most 19 digits: parsing millions of digits takes Python very long."""
    if not re.fullmatch(r"[+-]?\d{1,19}", text):
        raise ValueError("expected an integer")
    return int(text)


def number(text: str) -> float | None:
    """Return a number; None for NaN, which means unknown in NRRD."""
    value = float(text)
    return None if math.isnan(value) else value


def integers(text: str) -> list[int]:
    return [integer(word) for word in text.split()]


def numbers(text: str) -> list[float | None]:
    return [number(word) for word in text.split()]


def vectors(text: str) -> list[list[float | None] | None]:
    """Return the vectors of a list such as `(1,0,0) none (0,0,2)`."""
    found: list[list[float | None] | None] = []
    for inside, word in VECTOR.findall(text):
        if word and word != "none":
            raise ValueError("expected (a,b,c) or none")
        found.append(None if word else [number(part) for part in inside.split(",")])
    return found


def vector(text: str) -> list[float | None]:
    found = vectors(text)
    if len(found) != 1 or found[0] is None:
        raise ValueError("expected (a,b,c)")
    return found[0]


def strings(text: str) -> list[str]:
    """Return quoted strings, or words if a writer left the quotes out."""
    quoted = [re.sub(r"\\(.)", r"\1", part) for part in QUOTED.findall(text)]
    return quoted or text.split()


def words(text: str) -> list[str | None]:
    return [None if word in ("none", "???") else word for word in text.split()]


READERS: dict[str, Any] = {
    "type": keyword,
    "encoding": keyword,
    "endian": keyword,
    "dimension": integer,
    "sizes": integers,
    "block_size": integer,
    "line_skip": integer,
    "byte_skip": integer,
    "space_dimension": integer,
    "spacings": numbers,
    "thicknesses": numbers,
    "axis_mins": numbers,
    "axis_maxs": numbers,
    "space_directions": vectors,
    "space_origin": vector,
    "measurement_frame": vectors,
    "labels": strings,
    "units": strings,
    "space_units": strings,
    "kinds": words,
    "centers": words,
}
