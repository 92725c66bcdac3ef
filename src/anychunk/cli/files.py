"""What the command `info` prints about files."""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anychunk.cli.printing import echo, name_of, size, times
from anychunk.errors import AnychunkError
from anychunk.indexing import described, index_url
from anychunk.io.source import is_pattern
from anychunk.model.images import Image, images
from anychunk.model.index import PIECE, ArrayIndex, Node, find, walk

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDE = 200
"""Columns of output that does not go to a terminal."""


def print_infos(files: Sequence[str], *, deep: bool, as_json: bool, **options: Any) -> int:
    """Print what files contain; return the exit code.

    Parameters:
        files: Paths, urls or patterns. The only one is printed in full, several as one table.
        deep: Whether to print all attributes, and so each file in full.
        as_json: Whether to print JSON: an object for one file, a list of them for several.
        options: Those of `anychunk.index`.
    """
    names = expanded(files)
    if len(names) == 1:
        print_info(index_url(names[0], **options), names[0], deep=deep, as_json=as_json)
        return 0
    rows: list[Sequence[str]] = []
    documents: list[Any] = []
    failures: list[str] = []
    for name in names:
        try:
            node = index_url(name, **options)
        except (AnychunkError, OSError) as e:
            # one of several files that does not open must not stop the others
            failures.append(" ".join(str(e).split()))
            documents.append({"source": name, "error": failures[-1]})
            rows.append((name, "does not open", *[""] * (len(FILE_COLUMNS) - 2)))
            continue
        if as_json:
            documents.append(described(node))
        elif deep:
            print_info(node, name, deep=True, as_json=False)
        else:
            rows.append(file_row(name, node))
    if as_json:
        echo(json.dumps(documents, indent=2))
    elif not deep:
        wide_console().print(file_table(rows))
    for failure in failures:
        print(f"anychunk: {failure}", file=sys.stderr)  # noqa: T201
    return 1 if failures else 0


def expanded(files: Sequence[str]) -> list[str]:
    """Return files with patterns replaced by what they match."""
    found: list[str] = []
    for file in files:
        if is_pattern(file):
            from anychunk.combine.images import expand  # slow, and rarely needed

            found += expand(file, None)
        else:
            found.append(file)
    return found


FILE_COLUMNS = (
    *("file", "format", "size", "images", "shape", "axes", "type", "levels", "chunk", "place"),
)


def file_table(rows: Iterable[Sequence[str]]) -> "Table":
    """Return the table of several files."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in FILE_COLUMNS:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def plain(text: str) -> str:
    """Return text in which brackets are not taken for rich's markup."""
    return text.replace("[", "\\[")


def file_row(name: str, node: Node) -> Sequence[str]:
    """Return one line about a file: its first image, and how many there are."""
    about = node.attributes.get("anychunk", {})
    known = (str(about.get("format", "index")), size(about.get("size")))
    found = list(images(node))
    array = find(node, found[0].levels[0]) if found else None
    if not isinstance(array, ArrayIndex):
        return (name, *known, str(len(found)), *[""] * (len(FILE_COLUMNS) - 4))
    return (
        name,
        *known,
        str(len(found)),
        times(list(array.shape)),
        " ".join(axis or "-" for axis in array.dimension_names),
        name_of(array.data_type),
        str(len(found[0].levels)),
        times(list(array.chunk_shape)),
        short_place(found[0]),
    )


def short_place(image: Image) -> str:
    """Return the CRS and the size of a pixel, or the size of an element, in a few words."""
    attributes = image.attributes
    code = attributes.get("proj:code") or ("WKT" if "proj:wkt2" in attributes else None)
    transform = attributes.get("spatial:transform")
    if isinstance(transform, list | tuple) and len(transform) == 6:
        a, b, _, d, e, _ = transform
        step = f"{math.hypot(a, d):.6g} x {math.hypot(b, e):.6g}"
        return f"{code}, {step}" if code else step
    if code:
        return str(code)
    units = {str(axis.get("unit", "")) for axis in image.axes if axis["name"] in "zyx"}
    steps = [
        f"{scale:.6g}"
        for axis, scale in zip(image.axes, image.scale, strict=True)
        if axis["name"] in "zyx"
    ]
    if units <= {""} and set(steps) <= {"1"}:
        return ""
    return f"{' x '.join(steps)} {' '.join(sorted(units))}".strip()


def wide_console() -> "Console":
    """Return a console for tables: in a file or a pipe, they should not be folded at 80 columns."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=WIDE)


def print_info(node: Node, file: str, *, deep: bool, as_json: bool) -> None:
    """Print the images, levels and chunks of a file."""
    found = described(node)
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    console = wide_console()
    about = [str(found.get("format", "index"))]
    if found.get("size") is not None:
        about.append(size(found["size"]))
    say(console, f"{found.get('source', file)}: {', '.join(about)}")
    console.print(array_table(node, found["arrays"], is_whole=deep))
    for path in unchecked(node):
        say(
            console,
            f"{path or '/'}: parts are read before the end of their stream, where its checksum is; "
            "anychunk verify checks it",
        )
    for image in images(node):
        for line in geometry(image):
            say(console, f"{image.path or '/'}: {line}")
    if deep:
        for path, member in walk(node):
            if member.attributes:
                say(console, f"\n{path or '/'} attributes")
                say(console, json.dumps(member.attributes, indent=2, ensure_ascii=False))


def unchecked(node: Node) -> Iterator[str]:
    """Yield the paths of arrays of which parts are read before a checksum is known."""
    for path, array in walk(node):
        if isinstance(array, ArrayIndex) and array.has_codec(PIECE):
            from anychunk.decode.pieces import is_checked_late  # slow, and rarely needed

            if is_checked_late(array):
                yield path


def array_table(node: Node, arrays: list[dict[str, Any]], *, is_whole: bool) -> "Table":
    """Return the table of arrays.

    Parameters:
        node: The index.
        arrays: Its arrays, as `describe` returns them.
        is_whole: Whether to list coordinates too, which say nothing that other lines do not.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    shown = {
        p for p, a in walk(node) if isinstance(a, ArrayIndex) and (is_whole or not a.is_inline)
    }
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("array", "shape", "axes", "type", "chunk", "codecs", "stored", "ratio"):
        table.add_column(column, overflow="fold")
    for array in arrays:
        if array["path"] in shown:
            table.add_row(
                array["path"] or "/",
                times(array["shape"]),
                " ".join(name or "-" for name in array["axes"]),
                name_of(array["data_type"]),
                times(array["chunk_shape"]),
                " ".join(codec_names(array["codecs"])),
                size(array["stored_bytes"]),
                ratio(array),
            )
    return table


def say(console: "Console", text: str) -> None:
    """Print text as it is: not wrapped, not highlighted."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)


def codec_names(codecs: list[Any]) -> list[str]:
    """Return the last part of each codec's name, inner codecs in brackets."""
    found = []
    for codec in codecs:
        inner = codec.get("configuration", {}).get("codecs") if isinstance(codec, dict) else None
        name = name_of(codec).rsplit("/", 1)[-1]
        found.append(f"{name}({' '.join(codec_names(inner))})" if inner else name)
    return found


def ratio(array: dict[str, Any]) -> str:
    """Return the compression ratio as text."""
    stored, name = array["stored_bytes"], array["data_type"]
    if not stored or not isinstance(name, str):
        return "-"
    try:
        itemsize = np.dtype(name).itemsize
    except TypeError:
        return "-"
    return f"{math.prod(array['shape']) * itemsize / stored:.1f}"


def geometry(image: Image) -> Iterator[str]:
    """Yield lines about the georeference of an image, or the size of its elements."""
    attributes = image.attributes
    code = attributes.get("proj:code") or ("as WKT" if "proj:wkt2" in attributes else None)
    if code or "spatial:transform" in attributes:
        box = attributes.get("spatial:bbox")
        extent = f", {' '.join(f'{n:.10g}' for n in box)}" if box else ""
        yield f"georeference {code or 'without a code'}{extent}"
    elif any(n != 1 for n in image.scale):
        sizes = [
            f"{axis['name']} {scale:.6g} {axis.get('unit', '')}".strip()
            for axis, scale in zip(image.axes, image.scale, strict=True)
            if scale != 1 or axis.get("unit")
        ]
        yield f"element size {', '.join(sizes)}"
