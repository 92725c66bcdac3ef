"""A pytest plug-in: cast-value's own tests run on our class.

Loaded with `-p` in the process that runs cast-value's test files, before they are imported.
"""

import cast_value.impl._numpy as functions
import numpy as np
import zarr.core.buffer as buffers
import zarr.core.chunk_grids as grids
from cast_value.zarr_compat import v1
from zarr.core.buffer.cpu import NDBuffer
from zarr.core.metadata.v3 import RegularChunkGridMetadata

import anychunk
from anychunk.codecs import CastValue
from anychunk.codecs.base import ChunkSpec


def cast_array(arr, *, target_dtype, rounding_mode, out_of_range_mode, scalar_map_entries=None):
    """Cast by our codec, with the arguments of cast-value's function."""
    if scalar_map_entries is not None:
        pairs = [[scalar(value) for value in pair] for pair in scalar_map_entries]
        scalar_map_entries = {"encode": pairs}
    codec = CastValue(
        data_type=np.dtype(target_dtype).name,
        rounding=rounding_mode,
        out_of_range=out_of_range_mode,
        scalar_map=scalar_map_entries,
    )
    return codec.encode_array(arr, ChunkSpec(arr.shape, arr.dtype, 0))


def scalar(value):
    """Return a number in the fill value encoding."""
    text = str(value)
    return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(text, value.item())


v1.CastValueNumpyV1 = CastValue
functions.cast_array = cast_array
# its tests are of an older zarr: a class by its old name, and a buffer of the abstract class
grids.RegularChunkGrid = RegularChunkGridMetadata
buffers.NDBuffer.from_ndarray_like = NDBuffer
anychunk.enable()
