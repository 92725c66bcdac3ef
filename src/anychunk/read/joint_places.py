"""Where chunks that were decoded together go in the result: to one box, instead of one by one."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from anychunk.codecs.jpeg2000.tiny_tiles import Joint

type Selector = Any
type Places = Callable[[Any], Iterable[tuple[Selector, Selector]]]
"""Returns for positions of a batch the part of each chunk that is taken, and where it goes."""
type Box = tuple[slice, ...]


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
