"""What the commands `info`, `formats` and `codecs` print.

Imports what is slow where it is needed: see `anychunk.cli.run_listing`.
"""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from anychunk.model.images import Image
    from anychunk.model.index import Node

WIDE = 200
"""Columns of output that does not go to a terminal."""


def print_info(file: str, *, deep: bool, as_json: bool, **options: Any) -> None:
    """Print the images, levels and chunks of a file; options are those of `anychunk.index`."""
    from anychunk.indexing import described, index_url

    node = index_url(file, **options)
    found = described(node)
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    from rich.console import Console

    from anychunk.model.images import images
    from anychunk.model.index import walk

    # in a file or a pipe, a table should not be folded at 80 columns
    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    about = [str(found.get("format", "index"))]
    if found.get("size") is not None:
        about.append(size(found["size"]))
    say(console, f"{found.get('source', file)}: {', '.join(about)}")
    console.print(array_table(node, found["arrays"], is_whole=deep))
    for image in images(node):
        for line in geometry(image):
            say(console, f"{image.path or '/'}: {line}")
    if deep:
        for path, member in walk(node):
            if member.attributes:
                say(console, f"\n{path or '/'} attributes")
                say(console, json.dumps(member.attributes, indent=2, ensure_ascii=False))


def print_formats(as_json: bool) -> None:
    """Print the list of formats."""
    from anychunk import formats as registry

    rows = [
        {
            "name": name,
            "kind": "folder" if {"sniff_folder", "parse_folder"} <= outline.names else "file",
            "written": "yes" if {"claims", "write"} <= outline.names else "no",
            "about": summary(outline.doc),
        }
        for name, outline in registry.outlines().items()
    ]
    if as_json:
        echo(json.dumps(rows, indent=2))
        return
    print_table(
        ("format", "kind", "written", "about"),
        [(row["name"], row["kind"], row["written"], row["about"]) for row in rows],
    )


def print_codecs(as_json: bool) -> None:
    """Print the list of codecs."""
    from anychunk import codecs as registry

    rows = [
        {"name": name, "about": summary(text)} for name, text in registry.descriptions().items()
    ]
    if as_json:
        echo(json.dumps(rows, indent=2))
        return
    # only the last part of a name that is a url, so that it fits; --json prints all of it
    print_table(
        ("codec", "about"), [(row["name"].rsplit("/", 1)[-1], row["about"]) for row in rows]
    )


def echo(text: str) -> None:
    """Print text at once, so that an error of the terminal or pipe is reported here."""
    print(text, flush=True)  # noqa: T201


def summary(text: str | None) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join((text or "").split("\n\n", 1)[0].split())


def print_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table as wide as the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*headers)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def array_table(node: "Node", arrays: list[dict[str, Any]], *, is_whole: bool) -> "Table":
    """Return the table of arrays.

    Parameters:
        node: The index.
        arrays: Its arrays, as `describe` returns them.
        is_whole: Whether to list coordinates too, which say nothing that other lines do not.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from anychunk.model.index import ArrayIndex, walk

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
    import numpy as np

    try:
        itemsize = np.dtype(name).itemsize
    except TypeError:
        return "-"
    return f"{math.prod(array['shape']) * itemsize / stored:.1f}"


def geometry(image: "Image") -> Iterator[str]:
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


def times(shape: list[int]) -> str:
    """Format a shape, such as 3 x 4."""
    return " x ".join(str(n) for n in shape) or "scalar"


def name_of(data: str | dict[str, str]) -> str:
    """Return the name of a data type or codec, which Zarr writes as text or as an object."""
    return data if isinstance(data, str) else data["name"]


def size(nbytes: int | None) -> str:
    """Format a number of bytes with a binary unit."""
    if nbytes is None:
        return "-"
    amount, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"
