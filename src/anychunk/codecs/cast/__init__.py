"""The arithmetic of `scale_offset` and `cast_value`.

- `number_types`: the 26 real number types, and what each can represent.
- `blockwise`: applies a function to an array in blocks that fit the cache.
- `rounding`, `from_float`, `from_int`: block functions that cast.
- `cast_plan`: chooses and combines them for a pair of types.
- `scaling`: block functions of `scale_offset`.
- `fused_cast`: both codecs in one pass.
- `json_scalar`, `scalar_map`, `fill_value`: scalars of the configuration and of the array.
- `small_types`: zarr data types for bfloat16, float8, int4 and the like.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def fuse(codecs: "Sequence[Any]") -> "list[Any]":
    """Return the codecs with each `scale_offset`, `cast_value` pair replaced by a fused codec."""
    if not any(getattr(codec, "name", None) == "cast_value" for codec in codecs):
        return list(codecs)
    from anychunk.codecs.cast.fused_cast import fused_pairs  # with all of the arithmetic

    return fused_pairs(codecs)
