"""What the commands `formats` and `codecs` print, and words that every command prints.

Imports what is slow where it is needed: see `anychunk.cli.run_listing`.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

CONVERTED = ("tiff", "zarr")
"""Formats that `anychunk.conversion` writes, rather than their own modules."""


def print_formats(as_json: bool) -> None:
    """Print the list of formats."""
    from anychunk import formats as registry

    rows = [
        {
            "name": name,
            "kind": "folder" if {"sniff_folder", "parse_folder"} <= outline.names else "file",
            "written": "yes" if {"claims", "write"} <= outline.names or name in CONVERTED else "no",
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


def print_codecs(as_json: bool, *, verbose: bool = False) -> None:
    """Print the list of codecs; if verbose, with the decoders that may be chosen."""
    from anychunk import codecs as registry
    from anychunk import decoders

    rows: list[dict[str, Any]] = [
        {"name": name, "about": summary(text)} for name, text in registry.descriptions().items()
    ]
    for row in rows if verbose else ():
        kind = row["name"].removeprefix("anychunk.")
        if kind in decoders.DEFAULT:
            row["decoders"] = [
                {"name": name, "from": found.distribution, "used": name in decoders.used(kind)}
                for (of, name), found in sorted(decoders.table().items())
                if of == kind
            ]
    if as_json:
        echo(json.dumps(rows, indent=2))
        return
    # only the last part of a name that is a url, so that it fits; --json prints all of it
    print_table(
        ("codec", "about"), [(row["name"].rsplit("/", 1)[-1], row["about"]) for row in rows]
    )
    if verbose:
        print_table(
            ("decoder of", "name", "from", "used"),
            [
                (row["name"], found["name"], found["from"], "yes" if found["used"] else "no")
                for row in rows
                for found in row.get("decoders", ())
            ],
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
