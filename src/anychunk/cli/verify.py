"""`anychunk verify`: is all of it there and readable, and right."""

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from anychunk.cli.allowed import Allow, allowed
from anychunk.cli.info import size
from anychunk.cli.progress import shown
from anychunk.errors import AnychunkError, MissingDependencyError
from anychunk.verification.checks import Report
from anychunk.verification.checks import verify as run
from anychunk.verification.peers import READERS

COLOURS = {"error": "red", "warning": "yellow", "info": "blue"}


def verify(
    files: Annotated[list[str], typer.Argument(help="Paths or urls of files or indexes.")],
    against: Annotated[
        str, typer.Option(help=f"Compare with another reader: {', '.join(READERS)}.")
    ] = "",
    tolerance: Annotated[float, typer.Option(help="How far values may differ from it.")] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print plain JSON.")] = False,
    allow: Allow = None,
) -> None:
    """Check structure, decode every chunk, and compare with an independent reader if asked.

    Exit code 1: something was found, or one of several files does not open.

    Example: anychunk verify scene.tif --against rasterio

    Example: anychunk verify *.ntf --json
    """
    reports = []
    for file in files:
        with shown("verifying") as progress:
            try:
                report = run(
                    file,
                    against=against or None,
                    tolerance=tolerance,
                    progress=progress,
                    **allowed(allow),
                )
            except (AnychunkError, OSError) as e:
                # one of many that does not open stops none of the others
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


def show(report: Report) -> None:
    console = Console()
    for finding in report.findings:
        colour = COLOURS[finding.severity]
        console.print(
            f"[{colour}]{finding.severity}[/] {escape(finding.where)}: {escape(finding.what)}",
            soft_wrap=True,
            highlight=False,
        )
    verdict = "good" if report.is_good else "not good"
    other = f", compared with {report.compared}" if report.compared else ""
    console.print(
        f"{report.source}: {verdict}; {report.arrays} arrays, {report.chunks} chunks "
        f"({report.absent} absent), {size(report.decoded_bytes)} decoded{other}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
