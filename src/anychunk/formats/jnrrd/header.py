"""The JNRRD header: one JSON object with one key a line, then a blank line, then data.

Spec: JNRRD 1.0.0 sections 2 and 3.3; docs/formats/jnrrd.md for what it leaves open.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from anychunk import limits
from anychunk.errors import FormatError, LimitError
from anychunk.io import Source
from anychunk.model.index import Json

MAGIC = re.compile(rb'\s{0,64}\{\s{0,64}"jnrrd"\s{0,64}:')
STEP = 64 * limits.KIB
PATH = re.compile(r"([^:.\[\]]+:[^.\[\]]+)((?:\.[^.\[\]]+|\[\d{1,9}\])+)")
PART = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Line:
    """One field, with the text that it was read from."""

    key: str
    value: Json
    text: str


@dataclass(frozen=True)
class Header:
    """All fields in order, and where the data begins."""

    lines: tuple[Line, ...]
    end: int
    url: str = "header"

    @cached_property
    def fields(self) -> dict[str, Json]:
        """The fields by key: extensions merged, flattened keys rebuilt."""
        return rebuild(self.lines, self.url)

    @cached_property
    def extensions(self) -> dict[str, str]:
        """The extensions that are declared, by prefix."""
        declared = self.fields.get("extensions", {})
        if not isinstance(declared, dict) or not all(isinstance(u, str) for u in declared.values()):
            raise FormatError(f"{self.url}: extensions is {declared!r}, expected prefixes and URIs")
        return declared

    def of_prefix(self, prefix: str) -> dict[str, Json]:
        """Give the fields of an extension, without the prefix."""
        start = f"{prefix}:"
        return {k.removeprefix(start): v for k, v in self.fields.items() if k.startswith(start)}


def read_header(source: Source) -> Header:
    """Read the lines up to the data."""
    lines, end = [], 0
    for number, (text, after) in enumerate(read_lines(source), 1):
        line = parse_line(text, f"{source.url} line {number}")
        if line is None:
            # a blank line belongs to the header, anything else to the data
            end = after if not text.strip(b" \t\r") else end
            break
        lines.append(line)
        end = after
    if not lines or lines[0].key != "jnrrd":
        raise FormatError(f'{source.url}: the first line is not {{"jnrrd": …}}')
    return Header(tuple(lines), end, source.url)


def read_lines(source: Source) -> Iterator[tuple[bytes, int]]:
    """Yield (line, where the next one begins), as long as lines look like JSON or are blank."""
    position, size, limit = 0, source.size(), limits.get().header_bytes
    buffer, start = b"", 0
    too_long = (
        f"{source.url}: a header of more than {limit} bytes; "
        "raise anychunk.limits header_bytes to allow it"
    )
    while position < size:
        length = STEP
        found = buffer.find(b"\n", position - start)
        while found < 0:
            length = min(length, limit - position)
            if length <= 0:
                raise LimitError(too_long)
            buffer, start = source.read(position, min(length, size - position)).tobytes(), position
            if not buffer.lstrip(b" \t").startswith((b"{", b"\n", b"\r\n")):
                yield buffer[:80], position
                return
            found = buffer.find(b"\n")
            if found < 0 and start + len(buffer) == size:
                found = len(buffer)
            elif found < 0 and position + length >= limit:
                raise LimitError(too_long)
            length *= 2
        stop = start + found
        yield buffer[position - start : found], min(stop + 1, size)
        position = stop + 1


def parse_line(text: bytes, where: str) -> Line | None:
    """Parse one line; None where it is none of the header."""
    stripped = text.strip(b" \t\r\n")
    if not stripped.startswith(b"{"):
        return None
    try:
        # decoded first: json would guess UTF-16 from the bytes
        decoded = stripped.decode("utf-8")
        value = json.loads(decoded, parse_constant=_constant)
    except (ValueError, RecursionError) as e:
        # text that begins like a field is one: taken for data, it would shift every sample
        if stripped.startswith(b'{"') and stripped.isascii() and stripped.decode().isprintable():
            raise FormatError(f"{where}: {shorten(stripped)!r} is no JSON object ({e})") from e
        return None
    if not isinstance(value, dict) or len(value) != 1:
        raise FormatError(f"{where}: an object with {len(value)} keys, expected one key a line")
    ((key, content),) = value.items()
    return Line(key, content, decoded)


def _constant(name: str) -> float | None:
    """Take NaN for unknown, as null is, and infinities as they are."""
    return {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}[name]


def shorten(text: bytes) -> str:
    shown = text[:60].decode("utf-8", "replace")
    return shown if len(text) <= 60 else f"{shown}…"


def rebuild(lines: Iterable[Line], url: str) -> dict[str, Json]:
    """Merge the lines to one object: the more specific path wins, whatever the order."""
    fields: dict[str, Json] = {}
    flattened: list[tuple[tuple[str | int, ...], str, Json]] = []
    for line in lines:
        match = PATH.fullmatch(line.key)
        if match:
            parts = tuple(name or int(number) for name, number in PART.findall(match[2]))
            flattened.append((parts, match[1], line.value))
        elif line.key == "extensions" and isinstance(fields.get("extensions"), dict):
            fields["extensions"] = _merge(fields["extensions"], line.value, url)
        elif line.key in fields and fields[line.key] != line.value:
            raise FormatError(f"{url}: {line.key} is given twice, with different values")
        else:
            fields[line.key] = line.value
    touched: set[str] = set()
    for parts, root, value in sorted(flattened, key=lambda entry: len(entry[0])):
        if root not in touched:
            # the parsed line itself must stay as it is
            fields[root] = _copy(fields.get(root), is_list=isinstance(parts[0], int))
            touched.add(root)
        _put(fields[root], parts, value, room=len(flattened), where=f"{url}: {root}")
    return fields


def _merge(old: dict[str, Json], new: Json, url: str) -> dict[str, Json]:
    if not isinstance(new, dict):
        raise FormatError(f"{url}: extensions is {new!r}, expected prefixes and URIs")
    for prefix in old.keys() & new.keys():
        if old[prefix] != new[prefix]:
            raise FormatError(
                f"{url}: the prefix {prefix!r} is declared as {old[prefix]} and as {new[prefix]}"
            )
    return {**old, **new}


def _copy(value: Json, *, is_list: bool) -> Json:
    if value is None:
        return [] if is_list else {}
    return json.loads(json.dumps(value))


def _put(node: Json, parts: tuple[str | int, ...], value: Json, *, room: int, where: str) -> None:
    """Set what the path leads to, making what is missing on the way."""
    for i, part in enumerate(parts):
        is_last = i == len(parts) - 1
        empty: Json = None if is_last else ([] if isinstance(parts[i + 1], int) else {})
        if isinstance(node, list) and isinstance(part, str) and part.isdecimal():
            part = int(part)  # noqa: PLW2901 - JNRRD 7.5.4 writes a[0] also as a.0
        if isinstance(node, list) and isinstance(part, int):
            if part >= len(node) + room:
                raise FormatError(f"{where}: index {part} leaves a gap after {len(node)} elements")
            node.extend([None] * (part + 1 - len(node)))
            if node[part] is None and not is_last:
                node[part] = empty
        elif isinstance(node, dict) and isinstance(part, str):
            if node.get(part) is None and not is_last:
                node[part] = empty
        else:
            raise FormatError(f"{where}: {part!r} does not lead into a {type(node).__name__}")
        if is_last:
            node[part] = value
        else:
            node = node[part]


def dump(value: Json) -> str:
    """Write JSON as the format wants it: NaN is null."""
    return json.dumps(without_nan(value), ensure_ascii=False, separators=(", ", ": "))


def without_nan(value: Json, *, infinities: bool = False) -> Json:
    """Replace what JSON cannot hold by null; infinities too, if asked."""
    if isinstance(value, float):
        return None if math.isnan(value) or (infinities and math.isinf(value)) else value
    if isinstance(value, Mapping):
        return {k: without_nan(v, infinities=infinities) for k, v in value.items()}
    if isinstance(value, list | tuple):
        if len(value) > 64 and all(type(v) is int for v in value):
            return value
        return [without_nan(v, infinities=infinities) for v in value]
    return value


def make_line(key: str, value: Json) -> Line:
    return Line(key, value, dump({key: value}))


def rewrite(
    lines: Iterable[Line], changes: Mapping[str, Json], *, drop: Iterable[str] = ()
) -> list[Line]:
    """Give the lines with some fields changed in place; all others survive as they were, in order.

    A changed field loses its flattened parts, for the new value holds them. New fields come last.
    `drop` lists keys to leave out; one that ends with a colon drops the whole extension.
    """
    dropped = tuple(drop)
    kept: list[Line] = []
    written: set[str] = set()
    for line in lines:
        match = PATH.fullmatch(line.key)
        root = match[1] if match else line.key
        if any(root == d or (d.endswith(":") and root.startswith(d)) for d in dropped):
            continue
        if root not in changes:
            kept.append(line)
        elif root not in written:
            kept.append(make_line(root, changes[root]))
            written.add(root)
    return kept + [make_line(k, v) for k, v in changes.items() if k not in written]
