"""`anychunk convert`: write Zarr, TIFF, N5, JNRRD or NRRD."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anychunk.cli import talk
from anychunk.cli.completion import one_of
from anychunk.cli.parts import (
    Allow,
    Bands,
    Bbox,
    BboxCrs,
    Executor,
    Image,
    Level,
    Overwrite,
    Time,
    Window,
    selected,
)
from anychunk.cli.printing import name_of, size, times
from anychunk.cli.talk import progress_bar
from anychunk.errors import OptionError

if TYPE_CHECKING:
    from anychunk.conversion import Report

PRESETS = ("ome-zarr", "cloud", "archive", "ome-zarr-0.4")
"""Names of `anychunk.conversion.presets.PRESETS`, which is slow to import."""


def convert(  # noqa: PLR0917 - typer calls it by name
    paths: Annotated[
        list[str], typer.Argument(metavar="SRC… DST", help="One or more sources, then the target.")
    ],
    like: Annotated[
        str,
        typer.Option(
            metavar="PRESET",
            help=f"Preset, for Zarr {', '.join(PRESETS)}; for TIFF cog, ome-tiff.",
            autocompletion=one_of((*PRESETS, "cog", "ome-tiff")),
        ),
    ] = "",
    chunk: Annotated[
        str, typer.Option(metavar="SHAPE", help="Chunk shape of the last axes, e.g. 512x512.")
    ] = "",
    shard: Annotated[
        str,
        typer.Option(
            metavar="SHAPE", help="Shard shape of the last axes, e.g. 4096x4096; or none."
        ),
    ] = "",
    compression: Annotated[
        str,
        typer.Option(
            metavar="CODEC",
            help="For Zarr zstd, blosc, gzip or none, with +crc32c, or codecs as JSON; "
            "for TIFF deflate, zstd, lzw, jpeg, webp, lerc …",
        ),
    ] = "",
    compression_level: Annotated[
        float | None, typer.Option(metavar="LEVEL", help="Level of the compression, or quality.")
    ] = None,
    pack: Annotated[
        str,
        typer.Option(
            metavar="TYPE", help="For Zarr: store floats as int16 …, with :ERROR within this error."
        ),
    ] = "",
    levels: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of levels, including full resolution.", min=1),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="METHOD",
            help="How levels are computed: average, mode, max or min.",
            autocompletion=one_of(("average", "mode", "max", "min")),
        ),
    ] = "",
    axes: Annotated[str, typer.Option(metavar="NAMES", help="Axis names, e.g. zyx.")] = "",
    image: Image = "",
    bbox: Bbox = "",
    bbox_crs: BboxCrs = "",
    window: Window = "",
    bands: Bands = "",
    level: Level = "",
    time: Time = "",
    format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            autocompletion=one_of(("zarr", "tiff", "n5", "jnrrd")),
            help="zarr, tiff, n5 or jnrrd; default: from the target's extension.",
        ),
    ] = "",
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Any other option of the target, e.g. predictor=float. Repeatable.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify/--no-verify", help="Read everything back and compare it with the source."
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 2 if anything of the source was lost.")
    ] = False,
    overwrite: Overwrite = False,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Number of threads; default: one per core.")
    ] = None,
    executor: Executor = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    allow: Allow = None,
) -> None:
    """Convert files to Zarr (.zarr), TIFF (.tif, .ome.tif), N5 (.n5), JNRRD or NRRD.

    The target appears when it is complete. To resume an interrupted conversion, run the same
    command again.

    Example: anychunk convert scene.tif scene.zarr --like cloud --verify

    Example: anychunk convert scene.ntf scene.tif --compression zstd --compression-level 9

    Example: anychunk convert scene.tif part.tif --bbox 14.2,50.0,14.6,50.2 --bbox-crs lonlat

    Example: anychunk convert scene.tif part.zarr --window 0:2048,0:2048 --bands red,nir

    Example: anychunk convert volume.npy volume.zarr --axes zyx --levels 4

    Example: anychunk convert cells.n5 cells.jnrrd --image 0 --compression zstd
    """
    from anychunk.conversion import convert as run

    if len(paths) < 2:
        raise typer.BadParameter("expected a source and a target")
    chosen: dict[str, Any] = {
        "like": like or None,
        "chunk": sizes(chunk),
        "shard": False if shard == "none" else sizes(shard),
        "compression": compression or None,
        "compression_level": as_number(compression_level),
        "pack": pack or None,
        "levels": levels,
        "method": method or None,
        "axes": (axes.split(",") if "," in axes else list(axes)) or None,
        "overwrite": overwrite,
        "workers": workers,
        **dict(pair(text) for text in option or ()),
    }
    part = selected(
        bbox=bbox, bbox_crs=bbox_crs, window=window, bands=bands, level=level, time=time
    )
    try:
        with progress_bar("converting", in_bytes=True) as progress:
            done = run(
                paths[:-1],
                paths[-1],
                format=format or None,
                image=int(image) if image.isdigit() else image or None,
                verify=verify,
                executor=executor or None,
                progress=progress,
                allow=allow or (),
                **part,
                **chosen,
            )
    except KeyboardInterrupt:
        typer.echo("anychunk: interrupted; run the same command again to resume", err=True)
        raise typer.Exit(130) from None  # 128 + SIGINT
    report(done, as_json=as_json)
    if strict and done.losses:
        raise typer.Exit(2)


def report(done: "Report", *, as_json: bool) -> None:
    """Print what a conversion did; what was lost goes to stderr, also beside JSON and with -q."""
    for loss in done.losses:
        typer.echo(f"lost: {loss}", err=True)
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    for note in done.notes:
        talk.note(f"note: {note}")
    if talk.is_verbose():
        say_arrays(done.target)
    resumed = f", {size(done.skipped_bytes)} of it written before" if done.skipped_bytes else ""
    checked = ", verified" if done.is_verified else ""
    arrays = talk.counted(done.arrays, "array")
    talk.summary(f"{done.target}: {arrays}, {size(done.nbytes)}{resumed}{checked}")


def say_arrays(target: str) -> None:
    """Print the arrays that were written, one line each, without coordinates."""
    from anychunk.indexing import index_url
    from anychunk.model.index import ArrayIndex, walk

    for path, array in walk(index_url(target)):
        if isinstance(array, ArrayIndex) and not array.is_inline:
            shape, chunk = times(list(array.shape)), times(list(array.chunk_shape))
            talk.detail(f"{path}: {shape} {name_of(array.data_type)} in chunks of {chunk}")


def sizes(text: str) -> tuple[int, ...] | None:
    """Parse 512x512 or 512,512."""
    parts = text.replace("x", ",").split(",") if text else []
    if not all(part.strip().isdigit() for part in parts):
        raise typer.BadParameter(f"{text!r} is not a shape; expected for example 512x512")
    return tuple(int(part) for part in parts) or None


def as_number(level: float | None) -> float | None:
    """Return a level as an integer if it is one: largest errors are fractions."""
    return int(level) if level is not None and level.is_integer() else level


def pair(text: str) -> tuple[str, Any]:
    """Parse NAME=VALUE; the value is JSON if it parses as such, else text."""
    name, found, value = text.partition("=")
    if not found:
        raise OptionError(f"--option {text!r}: expected NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
