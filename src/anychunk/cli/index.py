"""`anychunk index`: save an index of one file or of many."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from anychunk.cli import talk
from anychunk.cli.parts import Allow, Executor, Overwrite, allowed
from anychunk.cli.printing import size
from anychunk.cli.talk import progress_bar

if TYPE_CHECKING:
    from anychunk.archive import Summary
    from anychunk.combine.parallel import Failures

COMBINATIONS = ("stack", "concat", "mosaic", "group")


def index(  # noqa: PLR0917 - typer reads options from the signature
    files: list[str] = typer.Argument(  # noqa: B008 - how typer declares an argument
        metavar="FILES...",
        help="Paths, URLs, or glob patterns; JSON or GeoParquet files of STAC items.",
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
    dates: str | None = typer.Option(
        None,
        "--dates",
        help="Dates of a stack: a pattern of file names (%Y%m%d), tags or none; "
        "what the files state by default.",
    ),
    order: str = typer.Option("date", "--order", help="Order of a stack: date or given."),
    duplicates: str = typer.Option(
        "error", "--duplicates", help="Files of the same date: error or keep."
    ),
    georeference: str = typer.Option(
        "error", "--georeference", help="Files of a stack at different places: error or drop."
    ),
    overlap: str = typer.Option(
        "error",
        "--overlap",
        help="How overlaps in a mosaic are handled: error, first or last.",
    ),
    assets: list[str] | None = typer.Option(  # noqa: B008 - how typer declares an option
        None, "--assets", help="Assets of STAC items, by key or band; several become bands."
    ),
    check_proj: bool = typer.Option(
        True,
        "--check-proj/--no-check-proj",
        help="Refuse files that are not on the grid that their STAC items state.",
    ),
    executor: Executor = "",
    keep_going: bool = typer.Option(False, "--keep-going", help="Skip files that fail."),
    copy: str = typer.Option(
        "never", "--copy", help="Copy chunks that cannot be referenced: never or needed."
    ),
    append: bool = typer.Option(False, "--append", help="Append to an Icechunk repository."),
    batch: int | None = typer.Option(
        None, "--batch", min=1, help="Files per commit to Icechunk; 500 or more by default."
    ),
    layout: str = typer.Option(
        "anychunk", "--layout", help="For kerchunk and parquet: layout, anychunk or osml."
    ),
    zarr_format: int = typer.Option(3, "--zarr-format", help="For kerchunk: Zarr version, 3 or 2."),
    overwrite: Overwrite = False,
    as_json: bool = typer.Option(False, "--json", help="Print the summary as JSON."),
    allow: Allow = None,
) -> None:
    """Index files and save the index.

    Exit code 1: some files failed and were skipped because of --keep-going.

    Example: anychunk index scene.tif -o scene.json

    Example: anychunk index 's3://bucket/scenes/*.tif' -o scenes.icechunk --combine group

    Example: anychunk index items.json -o year.json --combine stack --assets red --assets nir

    Example: anychunk index day*.tif -o year.icechunk --combine stack --dates %Y%m%d --append
    """
    from anychunk import archive, references
    from anychunk.combine.images import expand
    from anychunk.io import sink
    from anychunk.metadata.dates import Rules

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
    _check_dates(dates)
    for name, value, known in (
        ("--order", order, ("date", "given")),
        ("--duplicates", duplicates, ("error", "keep")),
        ("--georeference", georeference, ("error", "drop")),
        ("--copy", copy, ("never", "needed")),
    ):
        if value not in known:
            raise typer.BadParameter(f"{value!r}; expected {' or '.join(known)}", param_hint=name)
    if not append:
        sink.check_free(output, overwrite=overwrite)
    failures: Failures = {}
    rules: Any = {"order": order, "duplicates": duplicates, "georeference": georeference}
    how: Any = combine or ("group" if append else None)
    form = _form(kind, layout, zarr_format)
    found = archive.files_to_index(
        urls,
        combine=how,
        along=along,
        dates=False if dates == "none" else dates,
        rules=Rules(**rules),
        assets=assets,
        check_proj=check_proj,
        executor=executor or None,
        failures=failures if keep_going else None,
        **allowed(allow),
    )
    if how is None and len(found.urls) > 1:  # the items of one file
        found = replace(found, recipe=replace(found.recipe, how="group"))
    with progress(len(found.urls)) as advance:
        found = replace(found, progress=advance)
        given: Any = {"batch": batch, "copy": copy}
        if append:
            archive.check_appendable(how)
            done = archive.append_files(found, output, **given)
        else:
            shown: Any = overlap
            done = archive.save_files(
                found,
                output,
                format=kind,
                overlap=shown,
                overwrite=overwrite,
                **given,
                **form,
            )
    _summary(done, output, failures, as_json=as_json)
    if failures:
        raise typer.Exit(1)


def _check_dates(dates: str | None) -> None:
    """Refuse a pattern that cannot give dates."""
    from anychunk.metadata.dates import check_pattern

    if dates in (None, "none", "tags"):
        return
    try:
        check_pattern(str(dates))
    except ValueError as e:
        raise typer.BadParameter(str(e), param_hint="--dates") from e


def _form(kind: str, layout: str, zarr_format: int) -> dict[str, Any]:
    """Return the options that only some index formats have, unless they are the defaults."""
    if layout not in ("anychunk", "osml") or (layout == "osml" and kind == "icechunk"):
        raise typer.BadParameter(
            f"{layout!r}; expected anychunk, or osml for kerchunk JSON or parquet",
            param_hint="--layout",
        )
    if zarr_format not in (2, 3) or (zarr_format == 2 and kind != "kerchunk"):
        raise typer.BadParameter(
            f"{zarr_format}; expected 3, or 2 for kerchunk JSON", param_hint="--zarr-format"
        )
    given = {"layout": layout, "zarr_format": zarr_format}
    defaults = {"layout": "anychunk", "zarr_format": 3}
    return {key: value for key, value in given.items() if value != defaults[key]}


@contextmanager
def progress(total: int) -> Iterator[Callable[[], None] | None]:
    """Show a progress bar for several files; yield a function to call when one is done."""
    with progress_bar("indexing") if total > 1 else nullcontext() as bar:
        done = itertools.count(1)
        yield None if bar is None else lambda: bar(next(done), total)


def _summary(done: "Summary", output: str, failures: "Failures", *, as_json: bool) -> None:
    if as_json:
        from anychunk.io.source import without_secrets

        shown = {without_secrets(url): message for url, message in failures.items()}
        typer.echo(json.dumps({"index": output, **vars(done), "failures": shown}))
        return
    for message in failures.values():
        typer.echo(f"skipped: {' '.join(message.split())}", err=True)
    talk.summary(
        f"{talk.counted(done.files, 'file')}, {talk.counted(done.arrays, 'array')}, "
        f"{talk.counted(done.chunks, 'chunk')}, "
        f"{size(done.stored_bytes)}, {talk.counted(len(failures), 'failure')}"
    )
