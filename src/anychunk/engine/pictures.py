"""Small tiles of JPEG 2000, decoded together, and copied to one box of the result if that fits."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from anychunk.decode.chunks import Stored
from anychunk.engine.request import Request, Selector

if TYPE_CHECKING:
    from anychunk.codecs.jpeg2000.tiny_tiles import Joint
    from anychunk.io.source import Bytes1D

type Places = Callable[[Any], Iterable[tuple[Selector, Selector]]]
"""Returns for positions of a request the part of each chunk that is taken, and where it goes."""
type Box = tuple[slice, ...]


def decode_together(
    request: Request, positions: Sequence[int], chunks: Iterable[Stored]
) -> tuple[list[int], list[Stored]]:
    """Place chunks that are decoded faster together; return positions and bytes of the others."""
    # each is valid only until the next: files are read into the same memory
    listed = [None if stored is None else stored.copy() for stored in chunks]
    present = [i for i, stored in enumerate(listed) if stored is not None]
    done = set[int]()
    is_box = request.is_plain and (request.plan is None or request.plan.is_box)
    for joint in request.decode.many([cast("Bytes1D", listed[i]) for i in present]):
        own = [positions[present[number]] for number in joint.numbers]
        box = joint_box(joint, own, request.places) if is_box else None
        if box is not None:
            parts = [(joint.array, *box)]
        else:
            parts = [
                (array, numbered(source), target)
                for position, (_, array) in zip(own, joint.pieces(), strict=True)
                for source, target in request.places(range(position, position + 1))
            ]
        if not all(is_inside(source, array.shape) for array, source, _ in parts):
            continue  # decoded one by one, which words the error
        for array, source, target in parts:
            request.place(target, array[source])
        done.update(present[number] for number in joint.numbers)
    left = [i for i in range(len(listed)) if i not in done]
    return [positions[i] for i in left], [listed[i] for i in left]


def joint_box(joint: "Joint", positions: Sequence[int], places: Places) -> tuple[Box, Box] | None:
    """Return what is taken of chunks that were decoded together, and where that goes.

    None if the chunks are not a rectangle of the selection: which tile a chunk has is said by its
    bytes, and an index may have them in another order.

    Parameters:
        joint: The chunks.
        positions: The position of each in the batch, in the order of `joint`.
        places: Of a selection of slices without steps.
    """
    rows = np.array(positions).reshape(-1, joint.across)
    steps = np.diff(rows[:, 0])
    # each row is a run of positions, and all rows are equally far apart
    if (np.diff(rows, axis=1) != 1).any() or (steps != steps[:1]).any():
        return None
    (source, first), (_, end), (_, last) = (
        next(iter(places(range(position, position + 1))))
        for position in (positions[0], int(rows[0, -1]), positions[-1])
    )
    if len(rows) > 1:
        # the second row begins below the first: then all do
        below = int(rows[1, 0])
        [(_, second)] = places(range(below, below + 1))
        if second[-1] != first[-1] or second[-2].start != first[-2].stop:
            return None
    is_row = end[-2] == first[-2] and first[:-2] == last[:-2] and end[-1] == last[-1]
    if not is_row or first[-1].start > end[-1].start:
        return None
    target = (*first[:-2], *(slice(first[i].start, last[i].stop) for i in (-2, -1)))
    taken = tuple(
        slice(begin.start, begin.start + there.stop - there.start)
        for begin, there in zip(source, target, strict=True)
    )
    return taken, target


def numbered(taken: Sequence[Selector]) -> tuple[Selector, ...]:
    """Return a selection with row or column numbers instead of masks.

    A mask has the length of a whole chunk, so it does not fit a chunk that ends with the image.
    """
    return tuple(
        np.flatnonzero(s) if isinstance(s, np.ndarray) and s.dtype == bool else s for s in taken
    )


def is_inside(taken: Sequence[Selector], shape: Sequence[int]) -> bool:
    """Return whether an array has all that is taken of it.

    Chunks that were decoded together end where their image does, which an index may contradict.
    """
    ends = (s.stop if isinstance(s, slice) else np.max(s, initial=-1) + 1 for s in taken)
    return all(end <= n for end, n in zip(ends, shape, strict=True))
