"""`anychunk thumb`: write a PNG thumbnail."""

from pathlib import PurePosixPath
from typing import Annotated

import typer

from anychunk.cli.allowed import Allow, allowed
from anychunk.errors import UnsupportedError


def thumb(  # noqa: PLR0917 - typer calls it by name
    file: Annotated[str, typer.Argument(help="Path or URL of a file, folder or saved index.")],
    output: Annotated[
        str,
        typer.Option(
            "-o", "--output", help="PNG to write; default: FILE.png in the current folder."
        ),
    ] = "",
    image: Annotated[str, typer.Option(help="Number or path of the image.")] = "0",
    size: Annotated[int, typer.Option(help="Longer side in pixels.", min=1, max=8192)] = 512,
    band: Annotated[int | None, typer.Option(help="Show only this band, in grey.")] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(help="Position along an axis, e.g. z=10; default: the middle. Repeatable."),
    ] = None,
    low: Annotated[float | None, typer.Option(help="Percentile shown as black.")] = None,
    high: Annotated[float | None, typer.Option(help="Percentile shown as white.")] = None,
    allow: Allow = None,
) -> None:
    """Write a PNG thumbnail of an image, in the colours that its file states.

    Values are drawn between the limits that the file states, 0 and 255 for samples of 8 bits, and
    otherwise between the percentiles 2 and 98; --low and --high choose other percentiles.

    Example: anychunk thumb scene.tif

    Example: anychunk thumb volume.n5 -o slice.png --image 1 --at z=40 --size 1024
    """
    from anychunk import api
    from anychunk.io import as_url, sink
    from anychunk.thumbnail import png, thumbnail

    target = output or f"{PurePosixPath(as_url(file).rstrip('/')).name}.png"
    pixels = thumbnail(
        api.index(file, **allowed(allow)),
        image=int(image) if image.isdigit() else image,
        size=size,
        band=band,
        at=dict(axis_index(text) for text in at or ()),
        percentiles=percentiles(low, high),
    )
    sink.put(target, png(pixels))
    typer.echo(f"{target}: {pixels.shape[1]} x {pixels.shape[0]}")


def percentiles(low: float | None, high: float | None) -> tuple[float, float] | None:
    """Return the percentiles asked for; None if neither was."""
    if low is None and high is None:
        return None
    from anychunk.thumbnail import STRETCH

    return STRETCH[0] if low is None else low, STRETCH[1] if high is None else high


def axis_index(text: str) -> tuple[str, int]:
    """Parse AXIS=INDEX."""
    name, _, value = text.partition("=")
    if not value.isdigit():
        raise UnsupportedError(f"--at {text!r}: expected AXIS=INDEX, such as z=10")
    return name, int(value)
