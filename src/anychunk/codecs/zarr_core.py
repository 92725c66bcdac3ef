"""All names that codecs, and the layers above them, import from zarr's private modules.

An incompatible release of zarr breaks here or in `anychunk.read.zarr_core`, and nowhere else, with
a message that says so. The comments name the release from which each name is taken; the oldest that
has all of them is the bound in `pyproject.toml`.
"""

import zarr

from anychunk.errors import MissingDependencyError

OLDEST, NEWEST = "3.3", "3.4"
"""The minor releases of zarr that were tested."""


def incompatible(error: ImportError) -> MissingDependencyError:
    """Return the error for a release of zarr that has moved or removed one of the names."""
    return MissingDependencyError(
        f"zarr {zarr.__version__}: {error}; anychunk uses parts of zarr that may change with any "
        f"release, and was tested with {OLDEST} to {NEWEST}; update anychunk, or install another "
        f"zarr with: pip install 'zarr>={OLDEST},<={NEWEST}.99'"
    )


try:
    # zarr 3.1
    from zarr.core.array_spec import ArrayConfig, ArraySpec
    from zarr.core.buffer import Buffer, NDBuffer, default_buffer_prototype
    from zarr.core.codec_pipeline import codecs_from_list
    from zarr.core.dtype import ZDType, data_type_registry, get_data_type_from_json
    from zarr.core.dtype.common import HasEndianness, HasItemSize
    from zarr.core.dtype.npy.common import endianness_to_numpy_str, get_endianness_from_numpy_dtype
    from zarr.core.sync import sync
    from zarr.registry import Registry

    # zarr 3.2
    from zarr.core.dtype import parse_dtype  # isort: skip
    from zarr.registry import _codec_registries as codec_registries
except ImportError as e:
    raise incompatible(e) from e

__all__ = [
    "ArrayConfig",
    "ArraySpec",
    "Buffer",
    "HasEndianness",
    "HasItemSize",
    "NDBuffer",
    "Registry",
    "ZDType",
    "codec_registries",
    "codecs_from_list",
    "data_type_registry",
    "default_buffer_prototype",
    "endianness_to_numpy_str",
    "get_data_type_from_json",
    "get_endianness_from_numpy_dtype",
    "parse_dtype",
    "sync",
]
