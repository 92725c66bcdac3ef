"""All names that codecs, and the layers above them, import from zarr's private modules.

An incompatible release of zarr breaks here or in `anychunk.read.zarr_core`, and nowhere else. The
names are those of zarr 3.4.
"""

from zarr.core.array_spec import ArrayConfig, ArraySpec
from zarr.core.buffer import Buffer, NDBuffer, default_buffer_prototype
from zarr.core.codec_pipeline import codecs_from_list
from zarr.core.dtype import ZDType, get_data_type_from_json, parse_dtype
from zarr.core.dtype.common import HasEndianness, HasItemSize
from zarr.core.dtype.npy.common import endianness_to_numpy_str, get_endianness_from_numpy_dtype
from zarr.registry import _codec_registries as codec_registries

__all__ = [
    "ArrayConfig",
    "ArraySpec",
    "Buffer",
    "HasEndianness",
    "HasItemSize",
    "NDBuffer",
    "ZDType",
    "codec_registries",
    "codecs_from_list",
    "default_buffer_prototype",
    "endianness_to_numpy_str",
    "get_data_type_from_json",
    "get_endianness_from_numpy_dtype",
    "parse_dtype",
]
