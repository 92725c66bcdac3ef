"""Expansion of url patterns such as `s3://bucket/scenes/*.tif`, local and remote."""

import fnmatch
import glob
import os
import re
from collections.abc import Iterable

from anychunk.errors import MissingFileError
from anychunk.io.opening import list_objects
from anychunk.io.source import Storage, as_url, below, is_pattern, is_remote, local_path, slashes


def expand(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], storage: Storage | None
) -> list[str]:
    """Return every url that `urls` names, patterns expanded, without duplicates.

    The order of `urls` is kept; matches of one pattern are sorted.

    Raises:
        MissingFileError: If a pattern matches nothing.
    """
    given = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    found: dict[str, None] = {}
    for url in map(as_url, given):
        found |= dict.fromkeys(_matches(url, storage) if is_pattern(url) else [url])
    return list(found)


def _matches(pattern: str, storage: Storage | None) -> list[str]:
    if not is_remote(pattern):
        found = sorted(map(slashes, glob.glob(local_path(pattern), recursive=True)))  # noqa: PTH207 - of a url
    else:
        # only what lies below the last folder without a wildcard is listed
        folder = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
        names = (name for name, _ in list_objects(folder, storage=storage))
        matching = re.compile(_regular_expression(pattern))
        found = sorted(
            below(folder, name) for name in names if matching.fullmatch(f"{folder}/{name}")
        )
    if not found:
        raise MissingFileError(f"{pattern}: no files match this pattern")
    return found


def _regular_expression(pattern: str) -> str:
    """Translate a pattern into a regular expression, in which `*` does not cross a slash.

    `fnmatch.translate` on the whole pattern would let `*` match slashes too, which `glob` does not.
    """
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern)
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(special.get(p) or _character_class(p) for p in pieces)


def _character_class(piece: str) -> str:
    """Translate `[a-c]` and `[!a-c]` as fnmatch does; escape any other text."""
    if not (piece.startswith("[") and piece.endswith("]")):
        return re.escape(piece)
    return "(?!/)" + fnmatch.translate(piece)[len("(?s:") : -len(r")\Z")]
