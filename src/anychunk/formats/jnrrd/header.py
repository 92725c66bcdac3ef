"""The JNRRD header: one JSON object with one key per line, then a blank line, then data.

Spec: JNRRD 1.0.0 sections 2 and 3.3; docs/formats/jnrrd.md where it is ambiguous.

Lines keep their text, so that rewriting a header preserves unknown fields and their order.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from anychunk import limits
from anychunk.errors import FormatError, LimitError
from anychunk.io.block_cache import buffered
from anychunk.io.opening import open_source
from anychunk.io.source import Source, Storage, as_url
from anychunk.model.index import Json

MAGIC = re.compile(rb'\s{0,64}\{\s{0,64}"jnrrd"\s{0,64}:')
STEP = 64 * limits.KIB
"""How many bytes are read at a time while searching for the end of a line."""
# a flattened key (sections 4.4 and 4.7), as `tile:files[3].file` or `extensions.tile`
PATH = re.compile(r"(extensions|[^:.\[\]]+:[^.\[\]]+)((?:\.[^.\[\]]+|\[\d{1,9}\])+)")
PART = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class Line:
    """One field, with the text from which it was parsed."""

    key: str
    value: Json
    text: str


@dataclass(frozen=True)
class Header:
    """All fields in the order of the file."""

    lines: tuple[Line, ...]
    end: int
    """Where the data begins, if it follows the header."""
    url: str = "header"

    @cached_property
    def fields(self) -> dict[str, Json]:
        """The fields by key, with extensions merged and flattened keys nested again."""
        return rebuild(self.lines, self.url)

    @cached_property
    def extensions(self) -> dict[str, str]:
        """The URIs of the declared extensions, by prefix."""
        declared = self.fields.get("extensions", {})
        if not isinstance(declared, dict) or not all(isinstance(u, str) for u in declared.values()):
            raise FormatError(
                f"{self.url}: extensions is {declared!r:.100}, expected an object of URIs"
            )
        return declared

    def of_prefix(self, prefix: str) -> dict[str, Json]:
        """Return the fields of an extension, without its prefix."""
        start = f"{prefix}:"
        return {k.removeprefix(start): v for k, v in self.fields.items() if k.startswith(start)}


def read_header(file: str | Path | Source, *, storage: Storage | None = None) -> Header:
    """Read the header of a JNRRD file: its lines, up to the data.

    Parameters:
        file: A path or url, or an opened source.
        storage: How remote objects are accessed, as in `anychunk.open`.

    Raises:
        FormatError: The first line is not the magic, or a line is not a field.
        LimitError: The header is longer than `limits.header_bytes`.
    """
    source = (
        buffered(open_source(as_url(file), storage=storage))
        if isinstance(file, str | Path)
        else file
    )
    lines, end = [], 0
    for number, (text, after) in enumerate(read_lines(source), 1):
        line = parse_line(text, f"{source.url} line {number}")
        if line is None:
            # a blank line ends the header and belongs to it; any other line is already data
            end = after if not text.strip(b" \t\r") else end
            break
        lines.append(line)
        end = after
    if not lines or lines[0].key != "jnrrd":
        raise FormatError(f'{source.url}: expected {{"jnrrd": …}} on the first line')
    return Header(tuple(lines), end, source.url)


def read_lines(source: Source) -> Iterator[tuple[bytes, int]]:
    """Yield each line and where the next begins, while lines look like JSON or are blank.

    Binary data without a single newline may follow, so the end of a line is searched for only if it
    begins like a line, and never beyond the limit.
    """
    position, size, limit = 0, source.size(), limits.get().header_bytes
    buffer, start = b"", 0
    too_long = (
        f"{source.url}: the header is longer than {limit} bytes; "
        f"{limits.how_to_raise('header_bytes')}"
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
    """Parse one line; return None if it does not belong to the header."""
    stripped = text.strip(b" \t\r\n")
    if not stripped.startswith(b"{"):
        return None
    try:
        # decoded first: json would guess UTF-16 from the bytes
        decoded = stripped.decode("utf-8")
        value = json.loads(decoded, parse_constant=_constant)
    except (ValueError, RecursionError) as e:
        # text that begins like a field is a damaged field: taken for data, it would shift samples
        if stripped.startswith(b'{"') and stripped.isascii() and stripped.decode().isprintable():
            hint = why_not_json(stripped.decode(), e)
            raise FormatError(
                f"{where}: {shorten(stripped)!r} is not a JSON object ({hint})"
            ) from e
        return None
    if not isinstance(value, dict) or len(value) != 1:
        raise FormatError(f"{where}: found an object with {len(value)} keys, expected one key")
    ((key, content),) = value.items()
    return Line(key, content, decoded)


def why_not_json(text: str, error: Exception) -> str:
    """Return what is wrong with a line; the documents' own examples have the first three."""
    start = text[: error.pos] if isinstance(error, json.JSONDecodeError) else ""
    rest = text[len(start) :].lstrip()
    if start and rest.startswith("//"):
        return "JSON has no comments"
    if start and rest.startswith("..."):
        return "list every entry: ... is not JSON"
    if start and not rest:
        return "an object must be complete on one line"
    return str(error)


def _constant(name: str) -> float | None:
    """Return the value of a non-standard JSON constant; NaN means unknown, as null does."""
    return {"NaN": None, "Infinity": math.inf, "-Infinity": -math.inf}[name]


def shorten(text: bytes) -> str:
    """Return the beginning of a line, for messages."""
    shown = text[:60].decode("utf-8", "replace")
    return shown if len(text) <= 60 else f"{shown}…"


def rebuild(lines: Iterable[Line], url: str) -> dict[str, Json]:
    """Merge the lines into one object; a longer path overrides a shorter one, in any order.

    Parameters:
        lines: The fields, some of them with flattened keys such as `tile:sizes[1]`.
        url: Names the file in messages.
    """
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
            raise FormatError(f"{url}: {line.key} occurs twice, with different values")
        else:
            fields[line.key] = line.value
    touched: set[str] = set()
    for parts, root, value in sorted(flattened, key=lambda entry: len(entry[0])):
        if root not in touched:
            # a copy: the value also belongs to the parsed line, which must not change
            fields[root] = _copy(fields.get(root), is_list=isinstance(parts[0], int))
            touched.add(root)
        _put(fields[root], parts, value, room=len(flattened), where=f"{url}: {root}")
    return fields


def _merge(old: dict[str, Json], new: Json, url: str) -> dict[str, Json]:
    """Merge two `extensions` lines, which must not contradict each other."""
    if not isinstance(new, dict):
        raise FormatError(f"{url}: extensions is {new!r:.100}, expected an object of URIs")
    for prefix in old.keys() & new.keys():
        if old[prefix] != new[prefix]:
            raise FormatError(
                f"{url}: the prefix {prefix!r} is declared as {old[prefix]} and {new[prefix]}"
            )
    return {**old, **new}


def _copy(value: Json, *, is_list: bool) -> Json:
    if value is None:
        return [] if is_list else {}
    return json.loads(json.dumps(value))


def _put(node: Json, parts: tuple[str | int, ...], value: Json, *, room: int, where: str) -> None:
    """Set the value at a path below `node`, creating missing lists and objects.

    Parameters:
        node: A list or an object.
        parts: The keys and indices of the path.
        value: What to set.
        room: The number of flattened keys of the header. An index further beyond the end of a list
            than that leaves a gap that no key can fill, and could allocate unbounded memory.
        where: Names the field in messages.
    """
    for i, part in enumerate(parts):
        is_last = i == len(parts) - 1
        empty: Json = None if is_last else ([] if isinstance(parts[i + 1], int) else {})
        if isinstance(node, list) and isinstance(part, str) and part.isdecimal():
            part = int(part)  # noqa: PLW2901 - JNRRD 7.5.4 writes a[0] also as a.0
        if isinstance(node, list) and isinstance(part, int):
            if part >= len(node) + room:
                raise FormatError(f"{where}: index {part} leaves a gap after {len(node)} entries")
            node.extend([None] * (part + 1 - len(node)))
            if node[part] is None and not is_last:
                node[part] = empty
        elif isinstance(node, dict) and isinstance(part, str):
            if node.get(part) is None and not is_last:
                node[part] = empty
        else:
            kind = type(node).__name__
            raise FormatError(f"{where}: the key {part!r} does not apply to a value of type {kind}")
        if is_last:
            node[part] = value
        else:
            node = node[part]


def dump(value: Json) -> str:
    """Return a value as JSON text; NaN becomes null, as the format requires."""
    return json.dumps(without_nan(value), ensure_ascii=False, separators=(", ", ": "))


def without_nan(value: Json, *, infinities: bool = False) -> Json:
    """Replace NaN by null, and with `infinities` also infinite numbers."""
    if isinstance(value, float):
        return None if math.isnan(value) or (infinities and math.isinf(value)) else value
    if isinstance(value, Mapping):
        return {k: without_nan(v, infinities=infinities) for k, v in value.items()}
    if isinstance(value, list | tuple):
        if len(value) > 64 and all(type(v) is int for v in value):
            return value  # tables have millions of entries
        return [without_nan(v, infinities=infinities) for v in value]
    return value


def make_line(key: str, value: Json) -> Line:
    """Return a new line of a header."""
    return Line(key, value, dump({key: value}))


def rewrite(
    lines: Iterable[Line], changes: Mapping[str, Json], *, drop: Iterable[str] = ()
) -> list[Line]:
    """Return the lines with some fields changed in place; other lines keep their text and order.

    Parameters:
        lines: The header to change.
        changes: New values by key. The flattened parts of a changed field are dropped, since the
            new value holds them; new fields come last.
        drop: Keys to leave out; one that ends with a colon drops all fields of an extension.
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
