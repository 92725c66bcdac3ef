"""`anychunk convert`: to Zarr v3, N5 or JNRRD."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from anychunk.cli.allowed import Allow
from anychunk.cli.info import size
from anychunk.cli.progress import shown
from anychunk.conversion import convert as run
from anychunk.conversion.presets import PRESETS
from anychunk.errors import UnsupportedError


def convert(  # noqa: PLR0917 - typer calls it by name
    paths: Annotated[
        list[str], typer.Argument(metavar="SRC… DST", help="One or more sources, then the target.")
    ],
    like: Annotated[str, typer.Option(help=f"Preset for Zarr: {', '.join(PRESETS)}.")] = "ome-zarr",
    chunk: Annotated[str, typer.Option(help="Chunk of the last axes, as 512x512.")] = "",
    shard: Annotated[str, typer.Option(help="Shard, as 4096x4096; none for no shards.")] = "",
    compression: Annotated[
        str, typer.Option(help="zstd:LEVEL, blosc, gzip, none, joined by +; or JSON.")
    ] = "",
    levels: Annotated[int | None, typer.Option(help="How many levels in all.", min=1)] = None,
    method: Annotated[str, typer.Option(help="How levels are made: average, mode, max, min.")] = "",
    axes: Annotated[str, typer.Option(help="Names of the axes, as zyx.")] = "",
    image: Annotated[str, typer.Option(help="Only this image: its number or path.")] = "",
    format: Annotated[str, typer.Option(help="Format, if the target's name does not tell.")] = "",
    option: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the writer of N5 or JNRRD.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read all back and compare.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the target.")] = False,
    workers: Annotated[int | None, typer.Option(help="Threads; one a core by default.")] = None,
    scheduler: Annotated[str, typer.Option(help="Address of a Dask scheduler.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print plain JSON.")] = False,
    allow: Allow = None,
) -> None:
    """Convert to what the target's name tells: .zarr, .n5 or .jnrrd.

    Interrupted, the same command goes on where it stopped. The target appears when it is complete.

    Example: anychunk convert scene.tif scene.zarr --like cloud --verify

    Example: anychunk convert volume.npy volume.zarr --axes zyx --levels 4

    Example: anychunk convert cells.n5 cells.jnrrd --image 0 --option compression=zstd
    """
    if len(paths) < 2:
        raise typer.BadParameter("give a source and a target")
    try:
        with shown("converting", in_bytes=True) as progress:
            done = run(
                paths[:-1],
                paths[-1],
                format=format or None,
                like=like,
                chunk=sizes(chunk),
                shard=False if shard == "none" else sizes(shard),
                compression=compression or None,
                levels=levels,
                method=method or None,
                axes=(axes.split(",") if "," in axes else list(axes)) or None,
                image=int(image) if image.isdigit() else image or None,
                verify=verify,
                overwrite=overwrite,
                workers=workers,
                scheduler=scheduler or None,
                progress=progress,
                allow=allow or (),
                options=dict(pair(text) for text in option or ()),
            )
    except KeyboardInterrupt:
        typer.echo("anychunk: interrupted; the same command goes on from here", err=True)
        raise typer.Exit(130) from None  # as shells expect of Ctrl-C
    if as_json:
        typer.echo(json.dumps(asdict(done)))
        return
    for note in done.notes:
        typer.echo(f"note: {note}", err=True)
    there = f", {size(done.skipped_bytes)} of it there before" if done.skipped_bytes else ""
    checked = ", verified" if done.is_verified else ""
    typer.echo(f"{done.target}: {done.arrays} arrays, {size(done.nbytes)}{there}{checked}")


def sizes(text: str) -> tuple[int, ...] | None:
    """Read 512x512 or 512,512."""
    parts = text.replace("x", ",").split(",") if text else []
    if not all(part.strip().isdigit() for part in parts):
        raise typer.BadParameter(f"{text!r} are no sizes; write them as 512x512")
    return tuple(int(part) for part in parts) or None


def pair(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE; the value as JSON where it is some, else as text."""
    name, found, value = text.partition("=")
    if not found:
        raise UnsupportedError(f"{text!r} is no option; write it as NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
