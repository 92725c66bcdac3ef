"""`anychunk info`: what a file holds."""

import json

import typer
from rich.console import Console
from rich.table import Table

from anychunk.api import describe


def info(
    file: str = typer.Argument(help="A path or url."),
    as_json: bool = typer.Option(False, "--json", help="Print plain JSON."),
) -> None:
    """Show the images, levels and chunks of a file.

    Example: anychunk info scene.npy
    """
    found = describe(file)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console = Console()
    console.print(
        f"{found['source']}: {found['format']}, {size(found.get('size'))}", soft_wrap=True
    )
    table = Table("array", "shape", "axes", "type", "chunk", "codecs", "stored")
    for array in found["arrays"]:
        table.add_row(
            array["path"],
            times(array["shape"]),
            " ".join(name or "-" for name in array["axes"]),
            name_of(array["data_type"]),
            times(array["chunk_shape"]),
            " ".join(name_of(codec).rsplit("/", 1)[-1] for codec in array["codecs"]),
            size(array["stored_bytes"]),
        )
    console.print(table)


def times(shape: list[int]) -> str:
    return " x ".join(str(n) for n in shape) or "scalar"


def name_of(data: str | dict[str, str]) -> str:
    return data if isinstance(data, str) else data["name"]


def size(nbytes: int | None) -> str:
    """Write a number of bytes for people."""
    if nbytes is None:
        return "-"
    amount, units = float(nbytes), ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while amount >= 1024 and len(units) > 1:
        amount, units = amount / 1024, units[1:]
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"
