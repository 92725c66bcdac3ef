"""The options that select a part of an image, which several commands have."""

from typing import Annotated, Any

import typer

from anychunk.cli.completion import band_names, image_names, level_names

Image = Annotated[
    str,
    typer.Option(
        metavar="IMAGE", help="Number or path of the only image.", autocompletion=image_names
    ),
]
Bbox = Annotated[
    str,
    typer.Option(
        metavar="XMIN,YMIN,XMAX,YMAX",
        help="Only the pixels that this box touches, in the CRS of the image or the unit of its "
        "pixel sizes.",
    ),
]
BboxCrs = Annotated[
    str,
    typer.Option(
        metavar="CRS", help="The CRS of --bbox, x before y: EPSG:CODE, WKT, or lonlat for degrees."
    ),
]
Window = Annotated[
    str,
    typer.Option(
        metavar="Y0:Y1,X0:X1",
        help="Only these rows and columns of the full resolution, e.g. 0:512,1024:2048.",
    ),
]
Bands = Annotated[
    str,
    typer.Option(
        metavar="BAND,BAND…",
        help="Only these bands, by number from 0 or by name, in this order, e.g. red,nir or 2,0.",
        autocompletion=band_names,
    ),
]
Level = Annotated[
    str,
    typer.Option(
        metavar="LEVEL",
        help="Only this level, by number or name, and those coarser than it.",
        autocompletion=level_names,
    ),
]
Time = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="Only these elements along t: a number, a range (2:5), a date (2026-03), or an "
        "interval (2026-01/2026-03).",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")]
Executor = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="Address of a Dask scheduler to run on, not on threads."),
]


def selected(
    *, bbox: str, bbox_crs: str, window: str, bands: str, level: str, time: str
) -> dict[str, Any]:
    """Return the keyword arguments that select a part, for `convert` and `verify`."""
    return {
        "bbox": numbers(bbox) if bbox else None,
        "bbox_crs": bbox_crs or None,
        "window": ranges(window) if window else None,
        "bands": band_list(bands) if bands else None,
        "level": int(level) if level.removeprefix("-").isdecimal() else level or None,
        "time": time or None,
    }


def numbers(text: str) -> list[float]:
    """Parse XMIN,YMIN,XMAX,YMAX."""
    parts = text.replace(",", " ").split()
    try:
        found = [float(part) for part in parts]
    except ValueError:
        found = []
    if len(found) != 4:
        raise typer.BadParameter(f"{text!r}; expected XMIN,YMIN,XMAX,YMAX", param_hint="--bbox")
    return found


def ranges(text: str) -> list[tuple[int | None, int | None]]:
    """Parse Y0:Y1,X0:X1; an end that is left out is the edge of the image."""
    sides = [side.strip().split(":") for side in text.split(",")]
    ends = [end.strip() for side in sides for end in side]
    if [len(side) for side in sides] != [2, 2] or not all(e.isdecimal() or not e for e in ends):
        raise typer.BadParameter(f"{text!r}; expected Y0:Y1,X0:X1", param_hint="--window")
    y0, y1, x0, x1 = (int(end) if end else None for end in ends)
    return [(y0, y1), (x0, x1)]


def band_list(text: str) -> list[int | str]:
    """Parse names and numbers of bands; 0:3 stands for the numbers 0, 1 and 2."""
    found: list[int | str] = []
    for part in (part.strip() for part in text.split(",")):
        first, colon, last = part.partition(":")
        if colon and first.isdecimal() and last.isdecimal():
            found += range(int(first), min(int(last), int(first) + MOST_BANDS))
        elif part:
            found.append(part)  # a number or a name, which only the image can tell
    return found


MOST_BANDS = 1 << 16
"""No range of bands is longer."""


# The option --allow: what a saved index may refer to outside its own folder.

Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PREFIX",
        help="URL prefix that a saved index may refer to, e.g. s3://bucket/; * for any. "
        "Repeatable.",
    ),
]


def allowed(prefixes: list[str] | None) -> dict[str, Any]:
    """Return the keyword arguments for `anychunk.index`: none without prefixes.

    Only saved indexes accept `allow`.
    """
    return {"allow": prefixes} if prefixes else {}
