"""`anychunk thumb`: write a PNG thumbnail."""

import json
from pathlib import PurePosixPath
from typing import Annotated

import typer

from anychunk.cli import talk
from anychunk.cli.completion import band_names, level_names
from anychunk.cli.parts import (
    Allow,
    Bbox,
    BboxCrs,
    Image,
    Overwrite,
    Time,
    Window,
    allowed,
    selected,
)
from anychunk.errors import OptionError


def thumb(  # noqa: PLR0917 - typer calls it by name
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Path or URL of a file, folder or saved index.")
    ],
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="PNG",
            help="PNG to write; default: FILE.png in the current folder.",
        ),
    ] = "",
    image: Image = "0",
    size: Annotated[
        int, typer.Option(metavar="PIXELS", help="Longer side in pixels.", min=1, max=8192)
    ] = 512,
    bbox: Bbox = "",
    bbox_crs: BboxCrs = "",
    window: Window = "",
    bands: Annotated[
        str,
        typer.Option(
            metavar="BAND,BAND…",
            help="Only these bands, by number from 0 or by name; three are red, green and blue, "
            "one is grey.",
            autocompletion=band_names,
        ),
    ] = "",
    level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="Level to draw, by number or name; default: the closest in size.",
            autocompletion=level_names,
        ),
    ] = "",
    time: Time = "",
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AXIS=INDEX",
            help="Position along an axis, e.g. z=10; default: the middle. Repeatable.",
        ),
    ] = None,
    low: Annotated[
        float | None, typer.Option(metavar="PERCENT", help="Percentile shown as black.")
    ] = None,
    high: Annotated[
        float | None, typer.Option(metavar="PERCENT", help="Percentile shown as white.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    allow: Allow = None,
) -> None:
    """Write a PNG thumbnail of an image, in the colours that its file states.

    Values are drawn between the limits that the file states, 0 and 255 for samples of 8 bits, and
    otherwise between the percentiles 2 and 98; --low and --high choose other percentiles.

    Example: anychunk thumb scene.tif

    Example: anychunk thumb scene.tif --bbox 14.2,50.0,14.6,50.2 --bbox-crs lonlat --bands 3,2,1

    Example: anychunk thumb volume.n5 -o slice.png --image 1 --at z=40 --size 1024
    """
    from anychunk import api
    from anychunk.io import sink
    from anychunk.io.source import as_url
    from anychunk.selection.cuts import selection
    from anychunk.thumbnail import png, thumbnail

    given = selected(
        bbox=bbox, bbox_crs=bbox_crs, window=window, bands=bands, level=level, time=time
    )
    wanted = selection(**given)
    target = output or f"{PurePosixPath(as_url(file).rstrip('/')).name}.png"
    sink.check_free(target, overwrite=overwrite)
    pixels = thumbnail(
        api.index(file, **allowed(allow)),
        image=int(image) if image.isdigit() else image,
        size=size,
        at=dict(axis_index(text) for text in at or ()),
        percentiles=percentiles(low, high),
        wanted=wanted,
    )
    sink.put(target, png(pixels))
    height, width = pixels.shape[:2]
    if as_json:
        bands_of = 1 if pixels.ndim == 2 else pixels.shape[2]
        mode = {1: "L", 3: "RGB", 4: "RGBA"}[bands_of]
        found = {"target": target, "width": width, "height": height, "mode": mode}
        typer.echo(json.dumps({**found, "source": file, "image": image, **wanted.json()}))
    else:
        talk.summary(f"{target}: {width} x {height}")


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
        raise OptionError(f"--at {text!r}: expected AXIS=INDEX, such as z=10")
    return name, int(value)
