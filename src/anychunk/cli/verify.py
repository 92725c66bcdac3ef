"""`anychunk verify`: check that files are complete and decode."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from anychunk.cli import talk
from anychunk.cli.completion import one_of
from anychunk.cli.parts import (
    Allow,
    Bands,
    Bbox,
    BboxCrs,
    Image,
    Level,
    Time,
    Window,
    allowed,
    selected,
)
from anychunk.cli.printing import size
from anychunk.cli.talk import progress_bar
from anychunk.errors import AnychunkError, MissingDependencyError

if TYPE_CHECKING:
    from anychunk.verification.checks import Report

READERS = ("numpy", "rasterio", "tensorstore", "tifffile")
"""Names of `anychunk.verification.peers.READERS`, which is slow to import."""
COLOURS = {"error": "red", "warning": "yellow", "info": "blue"}


def verify(  # noqa: PLR0917 - typer calls it by name
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILES...", help="Paths or URLs of files or saved indexes."),
    ],
    against: Annotated[
        str,
        typer.Option(
            metavar="READER",
            help=f"Compare with another reader: {', '.join(READERS)}.",
            autocompletion=one_of(READERS),
        ),
    ] = "",
    tolerance: Annotated[
        float, typer.Option(metavar="NUMBER", help="Largest difference from that reader to accept.")
    ] = 0.0,
    image: Image = "",
    bbox: Bbox = "",
    bbox_crs: BboxCrs = "",
    window: Window = "",
    bands: Bands = "",
    level: Level = "",
    time: Time = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    allow: Allow = None,
) -> None:
    """Check that files are complete and that every chunk decodes.

    Of a part, only the chunks that hold some of it are decoded.

    Exit code 1: there are errors or warnings, or one of several files does not open.

    Example: anychunk verify scene.tif --against rasterio

    Example: anychunk verify scene.tif --window 0:4096,0:4096 --bands 0

    Example: anychunk verify *.ntf --json
    """
    from anychunk.verification.checks import Report
    from anychunk.verification.checks import verify as run

    given = selected(
        bbox=bbox, bbox_crs=bbox_crs, window=window, bands=bands, level=level, time=time
    )
    reports = []
    for file in files:
        with progress_bar("verifying") as progress:
            try:
                report = run(
                    file,
                    against=against or None,
                    tolerance=tolerance,
                    progress=progress,
                    image=int(image) if image.isdigit() else image or None,
                    **given,
                    **allowed(allow),
                )
            except (AnychunkError, OSError) as e:
                # one of several files that does not open must not stop the others
                if len(files) == 1 or isinstance(e, MissingDependencyError):
                    raise
                report = Report(source=file)
                report.add("error", file, " ".join(str(e).split()))
        reports.append(report)
        if not as_json:
            show(report)
    if as_json:
        found = [{**asdict(report), "is_good": report.is_good} for report in reports]
        typer.echo(json.dumps(found if len(found) > 1 else found[0], indent=2))
    if not all(report.is_good for report in reports):
        raise typer.Exit(1)


def show(report: "Report") -> None:
    """Print the findings and a summary."""
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    for finding in report.findings:
        if talk.is_quiet() and finding.severity == "info":
            continue
        colour = COLOURS[finding.severity]
        console.print(
            f"[{colour}]{finding.severity}[/] {escape(finding.where)}: {escape(finding.what)}",
            soft_wrap=True,
            highlight=False,
        )
    if talk.is_quiet() and report.is_good:
        return
    verdict = "good" if report.is_good else "problems found"
    other = f", compared with {report.compared}" if report.compared else ""
    console.print(
        f"{report.source}: {verdict}; {talk.counted(report.arrays, 'array')}, "
        f"{talk.counted(report.chunks, 'chunk')} "
        f"({report.absent} absent), {size(report.decoded_bytes)} decoded{other}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
