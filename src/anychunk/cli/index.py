"""`anychunk index`: save an index of one file or of many."""

import itertools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import typer

from anychunk import api, references
from anychunk.cli.allowed import Allow, allowed
from anychunk.cli.info import size
from anychunk.cli.progress import progress_bar
from anychunk.combine import combine as combine_files
from anychunk.combine.parallel import Failures
from anychunk.combine.patterns import expand
from anychunk.model.index import Node

COMBINATIONS = ("stack", "concat", "mosaic", "group")


def index(  # noqa: PLR0917 - typer reads options from the signature
    files: list[str] = typer.Argument(  # noqa: B008 - how typer declares an argument
        help="Paths, URLs, or glob patterns."
    ),
    output: str = typer.Option(
        ..., "-o", "--output", help="Where to save the index: .json, .parquet or .icechunk."
    ),
    format: str | None = typer.Option(
        None,
        "--format",
        help="kerchunk, parquet or icechunk; inferred from the output by default.",
    ),
    combine: str | None = typer.Option(
        None,
        "--combine",
        help="How files are combined: stack, concat, mosaic or group (default).",
    ),
    along: str | None = typer.Option(None, "--along", help="Axis to stack or concatenate along."),
    overlap: str = typer.Option(
        "error",
        "--overlap",
        help="How overlaps in a mosaic are handled: error, first or last.",
    ),
    scheduler: str | None = typer.Option(
        None, "--scheduler", help="Address of a Dask scheduler to parse files on."
    ),
    keep_going: bool = typer.Option(False, "--keep-going", help="Skip files that fail."),
    copy: str = typer.Option(
        "never", "--copy", help="Copy chunks that cannot be referenced: never or needed."
    ),
    append: bool = typer.Option(False, "--append", help="Append to an Icechunk repository."),
    batch: int = typer.Option(100, "--batch", min=1, help="With --append: files per commit."),
    layout: str = typer.Option(
        "anychunk", "--layout", help="For kerchunk: layout, anychunk or osml."
    ),
    zarr_format: int = typer.Option(3, "--zarr-format", help="For kerchunk: Zarr version, 3 or 2."),
    as_json: bool = typer.Option(False, "--json", help="Print the summary as JSON."),
    allow: Allow = None,
) -> None:
    """Index files and save the index.

    Exit code 1: some files failed and were skipped because of --keep-going.

    Example: anychunk index scene.tif -o scene.json

    Example: anychunk index 's3://bucket/scenes/*.tif' -o scenes.icechunk --combine group

    Example: anychunk index day*.tif -o year.icechunk --combine stack --along t --append
    """
    kind = references.index_format(output, format)
    urls = expand(files, None)
    if combine is None and len(urls) > 1:
        combine = "group"
    if combine is not None and combine not in COMBINATIONS:
        expected = " ".join(COMBINATIONS)
        raise typer.BadParameter(f"{combine!r}; expected {expected}", param_hint="--combine")
    if append and kind != "icechunk":
        raise typer.BadParameter(
            f"{kind} cannot be appended to; use an .icechunk output", param_hint="--append"
        )
    if copy not in ("never", "needed"):
        raise typer.BadParameter(f"{copy!r}; expected never or needed", param_hint="--copy")
    failures: Failures = {}
    settings: dict[str, Any] = {
        "client": scheduler,
        "failures": failures if keep_going else None,
        **allowed(allow),
    }
    kerchunk = _kerchunk_options(kind, layout, zarr_format)
    with progress(len(urls)) as advance:
        settings["progress"] = advance
        if append:
            how: Any = combine or "group"
            given: Any = {"combine": how, "along": along, "batch": batch, "copy": copy}
            api.append(urls, output, **given, **settings)
            node = api.index(output, format="icechunk", allow=["*"])
        else:
            found = api.index_files(urls, **settings)
            node = _combined(found, combine, along, overlap)
            references.save(node, output, format=kind, copy=copy, **kerchunk)
    _summary(node, output, len(urls) - len(failures), failures, as_json=as_json)
    if failures:
        raise typer.Exit(1)


def _kerchunk_options(kind: str, layout: str, zarr_format: int) -> dict[str, Any]:
    """Return the options that only kerchunk JSON has, unless they are the defaults."""
    if (layout, zarr_format) == ("anychunk", 3):
        return {}
    if kind != "kerchunk" or layout not in ("anychunk", "osml") or zarr_format not in (2, 3):
        raise typer.BadParameter(
            "--layout (anychunk or osml) and --zarr-format (3 or 2) apply only to kerchunk JSON"
        )
    return {"layout": layout, "zarr_format": zarr_format}


def _combined(found: dict[str, Node], how: Any, along: str | None, overlap: Any) -> Node:
    if how is None:
        return next(iter(found.values()))
    return combine_files(found, how, along=along, overlap=overlap)


@contextmanager
def progress(total: int) -> Iterator[Callable[[], None] | None]:
    """Show a progress bar for several files; yield a function to call when one is done."""
    with progress_bar("indexing") if total > 1 else nullcontext() as bar:
        done = itertools.count(1)
        yield None if bar is None else lambda: bar(next(done), total)


def _summary(node: Node, output: str, files: int, failures: Failures, *, as_json: bool) -> None:
    arrays = api.describe(node)["arrays"]
    chunks = sum(math.prod(array["grid"]) for array in arrays)
    stored = sum(array["stored_bytes"] or 0 for array in arrays)
    if as_json:
        found = {"index": output, "files": files, "arrays": len(arrays), "chunks": chunks}
        typer.echo(json.dumps({**found, "stored_bytes": stored, "failures": failures}))
        return
    for message in failures.values():
        typer.echo(f"skipped: {' '.join(message.split())}", err=True)
    typer.echo(
        f"{files} files, {len(arrays)} arrays, {chunks} chunks, {size(stored)}, "
        f"{len(failures)} failures"
    )
