"""What a saved index may refer to, beside its own folder."""

from typing import Annotated, Any

import typer

Allow = Annotated[
    list[str] | None,
    typer.Option(help="Prefix that a saved index may refer to, as s3://bucket/; * for all."),
]


def allowed(prefixes: list[str] | None) -> dict[str, Any]:
    """Give the option of `anychunk.index`; files that are no index do not know it."""
    return {"allow": prefixes} if prefixes else {}
