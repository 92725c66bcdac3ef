"""All names that `read`, and the layers above it, import from `zarr.core`, which is not public.

An incompatible release of zarr breaks here or in `anychunk.codecs.zarr_core`, and nowhere else. The
comments name the release from which each name is taken.
"""

from anychunk.codecs.zarr_core import incompatible

try:
    # zarr 3.1
    from zarr.core.array import AsyncArray
    from zarr.core.buffer import BufferPrototype, cpu
    from zarr.core.codec_pipeline import BatchedCodecPipeline
    from zarr.core.group import AsyncGroup, GroupMetadata
    from zarr.core.metadata import ArrayV3Metadata
    from zarr.core.sync import sync

    # zarr 3.2
    from zarr.registry import _pipeline_registry as pipeline_registry

    # zarr 3.3: the synchronous codec contract and the fused pipeline
    from zarr.core.chunk_utils import ChunkTransform, evolve_codecs  # isort: skip
    from zarr.core.codec_pipeline import FusedCodecPipeline  # isort: skip
except ImportError as e:
    raise incompatible(e) from e

DEFAULT_PIPELINE = f"{BatchedCodecPipeline.__module__}.{BatchedCodecPipeline.__qualname__}"
"""The pipeline in zarr's default configuration."""

__all__ = [
    "DEFAULT_PIPELINE",
    "ArrayV3Metadata",
    "AsyncArray",
    "AsyncGroup",
    "BatchedCodecPipeline",
    "BufferPrototype",
    "ChunkTransform",
    "FusedCodecPipeline",
    "GroupMetadata",
    "cpu",
    "evolve_codecs",
    "pipeline_registry",
    "sync",
]
