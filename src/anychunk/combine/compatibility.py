"""Checks that arrays of several files may become one array.

Only chunk tables are joined, no chunk is decoded. So the arrays must have the same data type,
codecs and chunk shape, and their samples must mean the same: one set of attributes describes all.
"""

from collections.abc import Mapping, Sequence

from anychunk.errors import FormatError, UnsupportedError
from anychunk.metadata import comparison
from anychunk.metadata.meaning import Meaning
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json

type Files = Mapping[str, GroupIndex]
"""The indexes of files, by url."""

SHOWN = 20
"""How many problems an error message lists."""


def raise_problems(problems: Sequence[str]) -> None:
    """Raise one error that lists the problems of all files; do nothing if there are none."""
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise FormatError(f"combine: {'; '.join(problems[:SHOWN])}{more}")


def check_sample_meaning(
    path: str, meanings: Mapping[str, Meaning], *, has_own_bands: bool = False
) -> None:
    """Refuse files whose samples have another meaning than those of the first; list them all.

    Parameters:
        path: The path of the images inside their files, for messages.
        meanings: One per file, by url.
        has_own_bands: Whether the bands of each file stay bands of their own.
    """
    first_url, first = next(iter(meanings.items()))
    raise_problems(
        [
            _problem(url, path, name, first_url)
            for url, meaning in meanings.items()
            for name in comparison.sample_differences(meaning, first, has_own_bands=has_own_bands)
        ]
    )


def _problem(url: str, path: str, name: str, first_url: str) -> str:
    return f"{url} {path}: {name} differs from that of {first_url}; combined files must share it"


def check_compatible(
    path: str, arrays: Mapping[str, ArrayIndex], *, free_axes: Sequence[int] = ()
) -> tuple[Json, ...]:
    """Check that arrays can be joined; return the codecs that decode the chunks of all.

    Parameters:
        path: The path of the arrays inside their files, for messages.
        arrays: One array per file, by url.
        free_axes: The axes along which lengths may differ.

    Raises:
        FormatError: If arrays differ in what they must share; every difference is listed.
        UnsupportedError: If an array's chunks are not byte ranges.
    """
    first_url, first = next(iter(arrays.items()))
    codecs = comparison.common_codecs([array.codecs for array in arrays.values()])
    names = ["data_type", "fill_value", "chunk_shape", "dimension_names"]
    problems = []
    for url, array in arrays.items():
        for name in names if codecs is not None else [*names, "codecs"]:
            here, there = getattr(array, name), getattr(first, name)
            if here != there and not (here != here and there != there):  # noqa: PLR0124 - NaN
                problems.append(f"{url} {path}: {name} {here}, expected {there} as in {first_url}")
        if _fixed(array, free_axes) != _fixed(first, free_axes):
            problems.append(
                f"{url} {path}: shape {array.shape}, expected {first.shape} as in {first_url}"
            )
        problems += [
            _problem(url, path, name, first_url)
            for name in comparison.attribute_differences(array.attributes, first.attributes)
        ]
        if not isinstance(array.chunks, ByteRanges):
            raise UnsupportedError(
                f"combine: {url} {path}: its chunks are {type(array.chunks).__name__.lower()}, "
                "expected byte ranges; use combine='group'"
            )
    raise_problems(problems)
    return codecs or first.codecs


def _fixed(array: ArrayIndex, free_axes: Sequence[int]) -> list[int]:
    """Return the lengths of an array along all but its `free_axes`."""
    ndim = len(array.shape)
    free = {axis % ndim for axis in free_axes} if ndim else set()
    return [n for axis, n in enumerate(array.shape) if axis not in free]
