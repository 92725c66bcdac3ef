"""`anychunk formats`: list the formats."""

import json

import typer
from rich.console import Console
from rich.table import Table

from anychunk import formats as registry


def formats(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """List the formats that anychunk opens, and which of them it writes.

    Example: anychunk formats
    """
    rows = [
        {
            "name": name,
            "kind": "folder" if isinstance(module, registry.FolderFormat) else "file",
            "written": "yes" if isinstance(module, registry.WritableFormat) else "no",
            "about": summary(module.__doc__),
        }
        for name, module in registry.table().items()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("format", "kind", "written", "about")
    for row in rows:
        table.add_row(row["name"], row["kind"], row["written"], row["about"])
    Console().print(table)


def summary(text: str | None) -> str:
    """Return the first paragraph of a docstring as one line."""
    return " ".join((text or "").split("\n\n", 1)[0].split())
