"""Arrays that differ only in their codecs, with one codec that has all of theirs.

The codec `anychunk.choice` decodes each chunk by the chain whose number is in front of it. An index
in memory holds such numbers for chunks of any file; what is saved holds them only where chunks are
copied (`copy="needed"`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from anychunk.codecs.choice import MOST, Choice
from anychunk.metadata import comparison
from anychunk.model.index import ArrayIndex, ByteRanges, Json

type Chain = tuple[Json, ...]


def with_one_codec(arrays: Mapping[str, ArrayIndex]) -> dict[str, ArrayIndex]:
    """Return arrays that share their codecs; as they are if no codec can decode them all.

    Parameters:
        arrays: One array per file, by url.
    """
    found = dict(arrays)
    if comparison.common_codecs([array.codecs for array in arrays.values()]) is not None:
        return found
    if not all(_may_choose(array) for array in arrays.values()):
        return found
    choices: list[Chain] = []
    numbers = {url: [_number(choices, c) for c in chains(a)] for url, a in arrays.items()}
    # chains that differ only in the sizes of partial chunks are one choice, or cannot be joined
    if any(_is_alike(a, b) for n, a in enumerate(choices) for b in choices[:n]):
        return found
    if len(choices) > MOST:
        return found
    codec = {"name": Choice.name, "configuration": {"choices": [list(c) for c in choices]}}
    return {url: _numbered(array, codec, numbers[url]) for url, array in arrays.items()}


def chains(array: ArrayIndex) -> list[Chain]:
    """Return the chains of codecs that the chunks of an array have."""
    if not is_choice(array.codecs):
        return [array.codecs]
    return [tuple(chain) for chain in array.codecs[0]["configuration"]["choices"]]


def is_choice(codecs: Sequence[Json]) -> bool:
    """Return whether the only codec of an array is a choice."""
    first = codecs[0] if len(codecs) == 1 else None
    return isinstance(first, Mapping) and first.get("name") == Choice.name


def _may_choose(array: ArrayIndex) -> bool:
    """Return whether numbers can be put in front of chunks: nothing else is there."""
    chunks = array.chunks
    return isinstance(chunks, ByteRanges) and (is_choice(array.codecs) or not any(chunks.fronts))


def _number(choices: list[Chain], chain: Chain) -> int:
    """Return the number of a chain, which is added or merged with one that it fits."""
    for number, other in enumerate(choices):
        common = comparison.common_codecs([other, chain])
        if common is not None:
            choices[number] = common
            return number
    choices.append(chain)
    return len(choices) - 1


def _is_alike(a: Chain, b: Chain) -> bool:
    return len(a) == len(b) and all(
        comparison.is_same_but_for_edges(mine, theirs) for mine, theirs in zip(a, b, strict=True)
    )


def _numbered(array: ArrayIndex, codec: Json, numbers: Sequence[int]) -> ArrayIndex:
    """Return an array whose chunks have the numbers of their chains in front."""
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges):
        raise TypeError(f"chunks are {type(chunks).__name__}, expected byte ranges")
    fronts = tuple(bytes([number]) for number in numbers)
    ids = chunks.front_ids
    if is_choice(array.codecs):
        # the fronts are numbers of the array's own chains, in any order
        fronts = tuple(bytes([numbers[front[0]]]) if front else b"" for front in chunks.fronts)
    elif ids is None:
        ids = np.zeros(array.grid, np.uint8)
    return replace(array, codecs=(codec,), chunks=replace(chunks, fronts=fronts, front_ids=ids))
