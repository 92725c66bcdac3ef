"""Checks that arrays of several files may become one array.

Only chunk tables are joined, no chunk is decoded. So the arrays must have the same data type and
chunk shape, codecs that one chain decodes (`choices.py` makes one for files that are compressed in
different ways), and their samples must mean the same: one set of attributes describes all.
"""

from collections.abc import Mapping, Sequence

from anychunk.errors import FormatError, UnsupportedError
from anychunk.metadata import comparison
from anychunk.metadata.meaning import Meaning
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json

type Files = Mapping[str, GroupIndex]
"""The indexes of files, by url."""

NAMES = {
    "data_type": "data type",
    "chunk_shape": "chunk shape",
    "dimension_names": "axes",
    "shape": "shape",
    "fill_value": "fill value",
}
"""What arrays must share: the field, and its name in messages. What decides most comes first."""
ADVICE = "; use combine='group', or convert one of the files first"


def raise_problems(problems: Sequence[str]) -> None:
    """Raise an error with the first problem, in one line; do nothing if there are none."""
    if problems:
        more = f" (and {len(problems) - 1} more differences)" if len(problems) > 1 else ""
        raise FormatError(f"combine: {problems[0]}{more}")


def check_sample_meaning(
    path: str, meanings: Mapping[str, Meaning], *, has_own_bands: bool = False
) -> None:
    """Refuse files whose samples have another meaning than those of the first.

    Parameters:
        path: The path of the images inside their files, for messages.
        meanings: One per file, by url.
        has_own_bands: Whether the bands of each file stay bands of their own.
    """
    first_url, first = next(iter(meanings.items()))
    raise_problems(
        [
            _problem(url, path, found, first_url)
            for url, meaning in meanings.items()
            for found in comparison.sample_differences(meaning, first, has_own_bands=has_own_bands)
        ]
    )


def _problem(url: str, path: str, found: comparison.Difference, first_url: str) -> str:
    return f"{url} {path}: {found.expected(f'as in {first_url}')}"


def check_compatible(
    path: str, arrays: Mapping[str, ArrayIndex], *, free_axes: Sequence[int] = ()
) -> tuple[Json, ...]:
    """Check that arrays can be joined; return the codecs that decode the chunks of all.

    Parameters:
        path: The path of the arrays inside their files, for messages.
        arrays: One array per file, by url.
        free_axes: The axes along which lengths may differ.

    Raises:
        FormatError: If arrays differ in what they must share; the first difference is named.
        UnsupportedError: If an array's chunks are not byte ranges.
    """
    first_url, first = next(iter(arrays.items()))
    codecs = comparison.common_codecs([array.codecs for array in arrays.values()])
    problems = []
    for url, array in arrays.items():
        found = _differences(array, first, free_axes)
        problems += [_problem(url, path, difference, first_url) for difference in found]
        if codecs is None and comparison.common_codecs([first.codecs, array.codecs]) is None:
            difference = comparison.codec_difference(array.codecs, first.codecs)
            problem = _problem(url, path, difference, first_url)
            problems.append(problem if found else problem + ADVICE)
        attributes = comparison.attribute_differences(array.attributes, first.attributes)
        problems += [_problem(url, path, difference, first_url) for difference in attributes]
        if not isinstance(array.chunks, ByteRanges):
            raise UnsupportedError(
                f"combine: {url} {path}: its chunks are {type(array.chunks).__name__.lower()}, "
                "expected byte ranges; use combine='group'"
            )
    raise_problems(problems)
    if codecs is None:  # each fits the first, but the partial chunks of two others differ in size
        raise FormatError(f"combine: {path}: the chunks at the edges of the files differ in size")
    return codecs


def _differences(
    array: ArrayIndex, first: ArrayIndex, free_axes: Sequence[int]
) -> list[comparison.Difference]:
    """Return the fields in which an array differs from the first one."""
    found = []
    for name, word in NAMES.items():
        here, there = getattr(array, name), getattr(first, name)
        if name == "shape":
            is_same = _fixed(array, free_axes) == _fixed(first, free_axes)
        else:
            is_same = here == there or (here != here and there != there)  # noqa: PLR0124 - NaN
        if not is_same:
            found.append(comparison.Difference(word, here, there))
    return found


def _fixed(array: ArrayIndex, free_axes: Sequence[int]) -> list[int]:
    """Return the lengths of an array along all but its `free_axes`."""
    ndim = len(array.shape)
    free = {axis % ndim for axis in free_axes} if ndim else set()
    return [n for axis, n in enumerate(array.shape) if axis not in free]
