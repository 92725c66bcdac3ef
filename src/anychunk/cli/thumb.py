"""`anychunk thumb`: a PNG of an image."""

from pathlib import PurePosixPath
from typing import Annotated

import typer

from anychunk import api
from anychunk.cli.allowed import Allow, allowed
from anychunk.errors import UnsupportedError
from anychunk.io import sink
from anychunk.thumbnail import png, thumbnail


def thumb(  # noqa: PLR0917 - typer calls it by name
    file: Annotated[str, typer.Argument(help="A path or url.")],
    output: Annotated[
        str, typer.Option("-o", "--output", help="Where to write; FILE.png here by default.")
    ] = "",
    image: Annotated[str, typer.Option(help="Which image: its number or path.")] = "0",
    size: Annotated[int, typer.Option(help="The longest side.", min=1, max=8192)] = 512,
    band: Annotated[int | None, typer.Option(help="One band, in grey.")] = None,
    at: Annotated[
        list[str] | None, typer.Option(help="AXIS=NUMBER, as z=10; the middle by default.")
    ] = None,
    low: Annotated[float, typer.Option(help="Percentile that is black.")] = 2.0,
    high: Annotated[float, typer.Option(help="Percentile that is white.")] = 98.0,
    allow: Allow = None,
) -> None:
    """Write a PNG of an image at the level that fits, stretched between percentiles.

    Example: anychunk thumb scene.tif

    Example: anychunk thumb volume.n5 -o slice.png --image 1 --at z=40 --size 1024
    """
    target = output or f"{PurePosixPath(file.rstrip('/')).name}.png"
    pixels = thumbnail(
        api.index(file, **allowed(allow)),
        image=int(image) if image.isdigit() else image,
        size=size,
        band=band,
        at=dict(place(text) for text in at or ()),
        percentiles=(low, high),
    )
    sink.put(target, png(pixels))
    typer.echo(f"{target}: {pixels.shape[1]} x {pixels.shape[0]}")


def place(text: str) -> tuple[str, int]:
    """Read AXIS=NUMBER."""
    name, _, value = text.partition("=")
    if not value.isdigit():
        raise UnsupportedError(f"{text!r} is no place; write it as z=10")
    return name, int(value)
