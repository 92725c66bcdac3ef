"""The option --allow: what a saved index may refer to outside its own folder."""

from typing import Annotated, Any

import typer

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
