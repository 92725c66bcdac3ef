"""All names that anychunk imports from zarr's private modules, and some of its public ones.

An incompatible release of zarr breaks here, and nowhere else, with a message that says so. The
comments name the release from which each name is taken; the oldest that has all of them is the
bound in `pyproject.toml`.
"""

import zarr

from anychunk.errors import MissingDependencyError

OLDEST, NEWEST = "3.4.1", "3.4"
"""The oldest release and the newest minor release of zarr that were tested."""


def incompatible(error: ImportError) -> MissingDependencyError:
    """Return the error for a release of zarr that has moved or removed one of the names."""
    return MissingDependencyError(
        f"zarr {zarr.__version__}: {error}; anychunk uses parts of zarr that may change with any "
        f"release, and was tested with {OLDEST} to {NEWEST}; update anychunk, or install another "
        f"zarr with: pip install 'zarr>={OLDEST},<={NEWEST}.99'"
    )


try:
    # zarr 3.1
    from zarr.abc.buffer import Buffer, BufferPrototype, NDBuffer
    from zarr.buffer import cpu, default_buffer_prototype
    from zarr.core.array import create_codec_pipeline
    from zarr.core.array_spec import ArrayConfig, ArraySpec
    from zarr.core.codec_pipeline import BatchedCodecPipeline
    from zarr.core.dtype.common import HasEndianness, HasItemSize
    from zarr.core.group import GroupMetadata
    from zarr.core.metadata import ArrayV3Metadata
    from zarr.core.sync import sync
    from zarr.dtype import ZDType, data_type_registry
    from zarr.registry import Registry

    # zarr 3.2
    from zarr.registry import _codec_registries as codec_registries
    from zarr.registry import _pipeline_registry as pipeline_registry

    # zarr 3.3: the synchronous codec contract and the fused pipeline
    from zarr.core.chunk_utils import ChunkTransform, evolve_codecs  # isort: skip
    from zarr.core.codec_pipeline import FusedCodecPipeline  # isort: skip
except ImportError as e:
    raise incompatible(e) from e

__all__ = [
    "ArrayConfig",
    "ArraySpec",
    "ArrayV3Metadata",
    "BatchedCodecPipeline",
    "Buffer",
    "BufferPrototype",
    "ChunkTransform",
    "FusedCodecPipeline",
    "GroupMetadata",
    "HasEndianness",
    "HasItemSize",
    "NDBuffer",
    "Registry",
    "ZDType",
    "codec_registries",
    "cpu",
    "create_codec_pipeline",
    "data_type_registry",
    "default_buffer_prototype",
    "evolve_codecs",
    "pipeline_registry",
    "sync",
]
