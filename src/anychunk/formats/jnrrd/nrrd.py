"""NRRD files: `field: value` headers, converted to JNRRD's fields.

Spec: NRRD format (Teem), versions NRRD00.01 and NRRD0001 to NRRD0005.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from anychunk import limits
from anychunk.errors import FormatError
from anychunk.formats.jnrrd.header import Header, make_line, rebuild
from anychunk.formats.jnrrd.parse import open_tiled, tiled_index, untiled_index
from anychunk.formats.jnrrd.tiling_fields import tiling_prefix
from anychunk.io.source import Source
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
    header = Header(tuple(make_line(k, v) for k, v in fields.items()), end, source.url)
    if "extensions" in fields and tiling_prefix(header) is not None:
        tiled = open_tiled(header, source, allow=allow)
        return tiled_index(header, tiled, source, allow=allow, key="nrrd")
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
    comments: list[str] = []
    # other characters that Python takes for the end of a line may be part of a value
    lines = text.replace("\r\n", "\n").split("\n")[1:]
    for number, line in enumerate(lines, 2):
        if line.startswith("#"):
            comments += [comment] if (comment := line.lstrip("# ")) else []
            continue
        if not line.strip():
            continue
        key, separator, value = split_line(line, f"{url} line {number}")
        if separator == ":=":
            pairs[unescape(key)] = unescape(value)
            continue
        if not key.isascii():
            # such a name is a damaged one: it would hide the field that it was
            raise FormatError(f"{url} line {number}: field {key!r:.100}, expected a name in ASCII")
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
    extended, plain = split_extensions(pairs)
    rest: dict[str, Json] = rebuild([make_line(k, v) for k, v in extended.items()], url)
    rest |= {"key_values": plain} if plain else {}
    rest |= {"comments": comments} if comments else {}
    return {**rest, **fields} if rest.keys() & fields.keys() else {**fields, **rest}


def split_line(line: str, where: str) -> tuple[str, str, str]:
    """Return key, separator and value; a key may hold colons, as in `DICOM:0008:=value`."""
    found = re.search(r":=|: ", line) or re.search(":", line)
    if not found:
        raise FormatError(f"{where}: {line[:60]!r}, expected 'field: value'")
    return line[: found.start()], found[0], line[found.end() :]


def split_extensions(pairs: Mapping[str, str]) -> tuple[dict[str, Json], dict[str, str]]:
    """Return the key/value pairs that are fields of declared extensions, and all others.

    NRRD Extension Mechanism sections 2 and 6: `extensions` maps prefixes to URIs, and the values of
    extension fields are JSON. A value that is not JSON stays a pair.
    """
    parsed = {key.strip(): json_of(value) for key, value in pairs.items() if is_extended(key)}
    declared = parsed.get("extensions")
    prefixes = set(declared) if isinstance(declared, dict) else set()
    prefixes |= {key.partition(".")[2] for key in parsed if key.startswith("extensions.")}
    extended, plain = {}, {}
    for key, value in pairs.items():
        name = key.strip()
        is_known = name.partition(":")[0] in prefixes or name.partition(".")[0] == "extensions"
        if prefixes and is_known and parsed.get(name) is not None:
            extended[name] = parsed[name]
        else:
            plain[key] = value
    return extended, plain


def is_extended(key: str) -> bool:
    """Return whether a key may be one of an extension, or declare one."""
    return ":" in key or key.strip().partition(".")[0] == "extensions"


def json_of(text: str) -> Json:
    """Return the value of JSON text; None if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def unescape(text: str) -> str:
    """Return a key or value with NRRD's escapes of backslash and newline resolved."""
    return re.sub(r"\\([\\n])", lambda m: "\n" if m[1] == "n" else "\\", text)


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


def number_or_text(text: str) -> float | str | None:
    """Return a number, or the text itself: nothing depends on these fields."""
    try:
        return number(text)
    except ValueError:
        return text


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


def words(text: str) -> list[str]:
    return text.split()


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
    "min": number_or_text,
    "max": number_or_text,
    "old_min": number,
    "old_max": number,
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
