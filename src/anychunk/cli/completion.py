"""What the shell offers to complete: words, and names in the file on the command line."""

from collections.abc import Callable, Sequence
from importlib import import_module

import typer

type Offers = list[tuple[str, str]]
"""Words, each with an explanation."""


def one_of(words: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that completes one of some words."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


def names_of(kind: str) -> Callable[[typer.Context, str], Offers]:
    """Return a function that completes names by the function `kind` of `anychunk.cli.offers`.

    That reads the structure of files, and is imported when the shell asks for words.
    """

    def complete(ctx: typer.Context, incomplete: str) -> Offers:
        found: Offers = getattr(import_module("anychunk.cli.offers"), kind)(ctx, incomplete)
        return found

    return complete


image_names, level_names, band_names = map(names_of, ("images_of", "levels_of", "bands_of"))
