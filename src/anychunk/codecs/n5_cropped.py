"""`anychunk.n5_cropped`, array to bytes: an N5 block that is larger than the chunk.

Spec:     as `n5_default`; `block_shape` is the block size of the dataset. If a dataset is smaller
          than one block, its chunk is as large as the dataset, so that a huge block size does not
          allocate a huge chunk.
JSON:     {"name": "anychunk.n5_cropped", "configuration": {"codecs": [{"name": "bytes"}],
          "block_shape": [1000000000]}}
Lossless: yes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.n5_default import N5Default, Shape
from anychunk.errors import CodecConfigError

if TYPE_CHECKING:
    from anychunk.codecs.zarr_core import ZDType


@dataclass(frozen=True, kw_only=True)
class N5Cropped(N5Default):
    """Stores the part of an N5 block that lies inside the array."""

    name: ClassVar[str] = "anychunk.n5_cropped"
    block_shape: tuple[int, ...]
    """Block size of the N5 dataset, in the axis order of the array."""

    def __post_init__(self) -> None:
        super().__post_init__()
        block = self.block_shape
        if not isinstance(block, list | tuple) or not all(type(n) is int and n > 0 for n in block):
            raise CodecConfigError(
                f"{self.name}: block_shape is {block!r}, expected integers of at least 1"
            )
        object.__setattr__(self, "block_shape", tuple(block))

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"block_shape": list(self.block_shape)}

    def validate(self, *, shape: Shape, dtype: "ZDType[Any, Any]", chunk_grid: Any) -> None:
        super().validate(shape=shape, dtype=dtype, chunk_grid=chunk_grid)
        if len(shape) != self.expected_ndim(len(shape)):
            raise CodecConfigError(
                f"{self.name}: block_shape {self.block_shape} does not match array shape {shape}"
            )

    def expected_ndim(self, ndim: int) -> int:
        """Return how many axes an array must have, given that it has `ndim`."""
        return len(self.block_shape)

    def largest(self, spec: ChunkSpec) -> Shape:
        return self.block_shape
