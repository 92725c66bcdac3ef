"""How chunks of an array become pixels, for the compiled loop: plain data, made from the codecs."""

import math
from dataclasses import dataclass

type Axes = tuple[int | None, ...]


@dataclass(frozen=True)
class ChunkLayout:
    """Chunks that are a stream, compressed or not, then rows of samples; see `native/chunks.c`."""

    kind: int
    """The compression, by its number in `codecs.libraries`."""
    functions: bytes
    """The addresses of the functions that decompress."""
    shape: tuple[int, ...]
    """The axes of a chunk in the order in which samples are stored: …, rows, columns, bands."""
    axes: Axes
    """Which axis of the array each of them is; None for one that the array does not have."""
    size: int
    """Bytes of a sample."""
    predictor: int = 1
    """As in TIFF: 1 for none."""
    is_swapped: bool = False
    """Whether samples are stored in the other byte order than that of this machine."""
    options: bytes = b""
    """What else the kind needs: the type of samples of LERC, colour spaces and tables of JPEG."""
    decoder: tuple[str, str] | None = None
    """The decoder whose library decompresses, if others may be chosen."""
    head: int = 0
    """Of how many axes the header of an N5 block has sizes; 0: there is none."""
    last: tuple[int, ...] = ()
    """The shape of chunks at the end of each axis, where they are shorter; empty: they are not."""

    @property
    def nbytes(self) -> int:
        """Bytes of a decoded chunk."""
        return math.prod(self.shape) * self.size


@dataclass(frozen=True)
class ShardLayout:
    """Chunks that are shards of Zarr."""

    inner: ChunkLayout
    """Of the chunks in a shard."""
    shape: tuple[int, ...]
    """Their shape."""
    grid: tuple[int, ...]
    """How many there are along each axis."""
    is_at_end: bool
    """Whether the index is at the end of the shard."""
    has_checksum: bool
    """Whether a CRC-32C follows the index."""


def stored_axes(axes: list[int]) -> Axes | None:
    """Return stored axes with those of rows, columns and bands, from the order of array axes.

    None if the last axis of the array is neither the last one that is stored, nor before bands.
    """
    last = len(axes) - 1
    if not axes:
        return None
    if axes[-1] == last:
        return (*([None] if last == 0 else []), *axes, None)
    if axes[-2] == last:
        return (*([None] if last == 1 else []), *axes)
    return None
