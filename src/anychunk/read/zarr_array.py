"""zarr arrays and groups of an index, which read local files in the thread that asks.

zarr makes several objects a chunk and takes every selection to its event loop and back, which costs
more than the decoding of small chunks. What is not plain and local here goes that way as well.
"""

from collections.abc import Generator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import zarr

from anychunk.codecs import from_json
from anychunk.codecs.zarr_core import ArraySpec, default_buffer_prototype, get_data_type_from_json
from anychunk.decode.chunks import ChunkReader
from anychunk.model.grid import plan_box, spans
from anychunk.model.index import ArrayIndex
from anychunk.read.pipeline import IndexPipeline
from anychunk.read.zarr_core import ArrayV3Metadata, cpu


class Array(zarr.Array[ArrayV3Metadata]):
    """An array of an index."""

    def __getitem__(self, selection: Any) -> Any:
        found = self._read(selection)
        return super().__getitem__(selection) if found is None else found

    @cached_property
    def _reading(self) -> "_Reading | None":
        """What reading without zarr needs, found out once; None where it cannot be done."""
        pipeline, prototype = self._async_array.codec_pipeline, default_buffer_prototype()
        if not isinstance(pipeline, IndexPipeline) or prototype.nd_buffer is not cpu.NDBuffer:
            return None
        metadata = self.metadata
        dtype = metadata.dtype.to_native_dtype()
        reader = pipeline.local_reader(self.path)
        if reader is None or dtype.kind not in "biufc":
            return None
        # not `self.chunks`, which of a sharded array are the pieces of a shard
        chunk = reader.index.chunk_shape
        spec = ArraySpec(chunk, metadata.dtype, metadata.fill_value, self.config, prototype)
        return _Reading(pipeline, reader, spec, dtype, self.shape)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_reading"}

    def _read(self, selection: Any) -> Any:
        reading = self._reading
        wanted = None if reading is None else spans(selection, reading.shape)
        if wanted is None or reading is None:
            return None
        pieces, dropped = wanted
        if len(dropped) == len(pieces):  # one element: zarr knows whether it is a scalar
            return None
        spec = reading.spec
        plan = plan_box(pieces, spec.shape)
        if not len(plan):
            return None
        out = np.empty([stop - start for start, stop in pieces], reading.dtype, spec.config.order)
        reading.pipeline.read_now(reading.reader, plan, spec, out)
        if not dropped:
            return out
        return out[tuple(0 if axis in dropped else slice(None) for axis in range(out.ndim))]


def array_metadata(index: ArrayIndex) -> ArrayV3Metadata:
    """Give zarr's metadata of an array, with our own classes for the codecs that are ours."""
    document = index.metadata()
    data_type = get_data_type_from_json(index.data_type, zarr_format=3)
    return ArrayV3Metadata(
        shape=index.shape,
        data_type=data_type,
        chunk_grid=document["chunk_grid"],
        chunk_key_encoding=document["chunk_key_encoding"],
        fill_value=data_type.from_json_scalar(index.fill_value, zarr_format=3),
        codecs=[from_json(codec) for codec in index.codecs],
        attributes=index.attributes,
        dimension_names=index.dimension_names,
    )


class _Reading(NamedTuple):
    pipeline: IndexPipeline
    reader: ChunkReader
    spec: ArraySpec
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Group(zarr.Group):
    """A group of an index; its members are arrays and groups as above."""

    def __getitem__(self, path: str) -> Any:
        return _ours(super().__getitem__(path))

    def members(self, *args: Any, **kwargs: Any) -> tuple[tuple[str, Any], ...]:
        return tuple((name, _ours(node)) for name, node in super().members(*args, **kwargs))

    def arrays(self) -> Generator[tuple[str, Any], None]:
        for name, node in super().arrays():
            yield name, _ours(node)

    def groups(self) -> Generator[tuple[str, Any], None]:
        for name, node in super().groups():
            yield name, _ours(node)


def _ours(node: Any) -> Any:
    """Give zarr's array or group as ours."""
    if isinstance(node, zarr.Group):
        return Group(node._async_group)  # noqa: SLF001 - the only way to the same group
    return Array(node.async_array)
