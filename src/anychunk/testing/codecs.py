"""What every codec keeps, as test classes to inherit.

class TestOffset(CodecContract):
codecs = (Offset(offset=4),)
arrays = (np.arange(10, dtype="uint16"),)
"""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import zarr
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, Codec

from anychunk.api import open as open_any
from anychunk.codecs.base import ChunkSpec
from anychunk.codecs.chain import array_spec, evolve
from anychunk.errors import AnychunkError
from anychunk.model.grid import grid_shape
from anychunk.model.index import ArrayIndex, ByteRanges
from anychunk.read.pipeline import NAME, PATH
from anychunk.read.zarr_core import ArrayV3Metadata, BatchedCodecPipeline, FusedCodecPipeline

type Array = npt.NDArray[Any]
type Chunks = dict[str, bytes]

PIPELINES = [
    f"{cls.__module__}.{cls.__qualname__}" for cls in (BatchedCodecPipeline, FusedCodecPipeline)
] + [NAME]


def arguments(codec: Codec) -> dict[str, Any]:
    """Say where `zarr.create_array` takes this codec."""
    if isinstance(codec, ArrayArrayCodec):
        return {"filters": [codec], "compressors": None}
    if isinstance(codec, ArrayBytesCodec):
        return {"serializer": codec, "compressors": None}
    return {"compressors": [codec]}


def write(codec: Codec, array: Array, *, chunks: tuple[int, ...], **options: Any) -> dict[str, Any]:
    """Write an array through zarr; give the store's content."""
    store: dict[str, Any] = {}
    made = zarr.create_array(
        store,
        shape=array.shape,
        dtype=array.dtype.newbyteorder("="),
        chunks=chunks,
        config={"write_empty_chunks": True},
        **arguments(codec),
        **options,
    )
    made[...] = array
    return store


def half(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Chunks that divide no axis evenly where they can, so that edges are covered."""
    return tuple(max(1, n // 2 + 1) if n > 2 else max(n, 1) for n in shape)


class CodecContract:
    """Set `codecs` and `arrays`; every codec must take every array."""

    codecs: ClassVar[Sequence[Codec]]
    arrays: ClassVar[Sequence[Array]]
    tolerance: ClassVar[float] = 0
    """How far a lossy codec may be off."""
    chunks: ClassVar[tuple[int, ...] | None] = None
    """Chunk shape for codecs that are bound to one."""
    takes_any_shape: ClassVar[bool] = True
    """Whether empty and 0-d arrays are in the codec's domain."""

    def cases(self) -> Iterator[tuple[Codec, Array]]:
        for codec in self.codecs:
            for array in self.arrays:
                yield codec, array

    def chunks_of(self, array: Array) -> tuple[int, ...]:
        return self.chunks or half(array.shape)

    def assert_close(self, found: Any, expected: Array) -> None:
        found = np.asarray(found)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype.newbyteorder("=")
        if self.tolerance:
            np.testing.assert_allclose(found, expected, rtol=0, atol=self.tolerance)
        else:
            np.testing.assert_array_equal(found, expected)

    def test_round_trip(self) -> None:
        for codec, array in self.cases():
            store = write(codec, array, chunks=self.chunks_of(array))
            self.assert_close(zarr.open_array(store, mode="r")[...], array)

    def test_other_byte_order_and_strides(self) -> None:
        for codec, array in self.cases():
            chunks = self.chunks_of(array)
            expected = chunks_only(write(codec, array, chunks=chunks))
            swapped = array.astype(array.dtype.newbyteorder())
            strided = np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
            for other in (swapped, np.asfortranarray(array), strided):
                assert chunks_only(write(codec, other, chunks=chunks)) == expected

    def test_input_is_untouched(self) -> None:
        for codec, array in self.cases():
            before = array.copy()
            before.flags.writeable = False
            write(codec, before, chunks=before.shape or ())
            np.testing.assert_array_equal(before, array)

    def test_empty_and_scalar(self) -> None:
        if not self.takes_any_shape:
            return
        for codec, array in self.cases():
            for shape in ((), (0,), (3, 0)):
                small = np.resize(array, shape).astype(array.dtype)
                store = write(codec, small, chunks=tuple(max(n, 1) for n in shape))
                self.assert_close(zarr.open_array(store, mode="r")[...], small)

    def test_sync_equals_async(self) -> None:
        for codec, array in self.cases():
            spec = ChunkSpec(array.shape, array.dtype.newbyteorder("="), array.dtype.type(0))
            ((evolved, full),) = evolve([codec], array_spec(array.shape, spec))
            data: Any
            if isinstance(codec, ArrayArrayCodec | ArrayBytesCodec):
                data = full.prototype.nd_buffer.from_ndarray_like(array)
            else:
                data = full.prototype.buffer.from_bytes(array.tobytes())
            direct: Any = evolved._encode_sync(data, full)  # type: ignore[union-attr]  # noqa: SLF001
            awaited: Any = asyncio.run(evolved._encode_single(data, full))  # noqa: SLF001
            np.testing.assert_array_equal(direct.as_numpy_array(), awaited.as_numpy_array())
            back: Any = evolved._decode_sync(direct, full)  # type: ignore[union-attr]  # noqa: SLF001
            again: Any = asyncio.run(evolved._decode_single(awaited, full))  # noqa: SLF001
            np.testing.assert_array_equal(back.as_numpy_array(), again.as_numpy_array())

    def test_json_round_trip(self) -> None:
        for codec in self.codecs:
            text = json.dumps(codec.to_dict())
            again = type(codec).from_dict(json.loads(text))
            assert json.dumps(again.to_dict()) == text
            assert json.loads(text)["name"] == codec.name  # type: ignore[union-attr]

    def test_unknown_key_is_refused(self) -> None:
        for codec in self.codecs:
            data = codec.to_dict()
            broken = {**data, "configuration": {**data.get("configuration", {}), "nonsense": 1}}  # type: ignore[dict-item]
            assert_raises(type(codec).from_dict, broken)

    def test_inside_shards(self) -> None:
        for codec, array in self.cases():
            if not array.ndim or self.chunks:
                continue
            inner = tuple(max(1, n // 3) for n in array.shape)
            shards = tuple(2 * n for n in inner)
            store = write(codec, array, chunks=inner, shards=shards)
            self.assert_close(zarr.open_array(store, mode="r")[...], array)

    def test_every_pipeline(self) -> None:
        for codec, array in self.cases():
            store = write(codec, array, chunks=self.chunks_of(array))
            for pipeline in PIPELINES:
                with zarr.config.set({PATH: pipeline}):
                    self.assert_close(zarr.open_array(store, mode="r")[...], array)

    def test_our_pipeline(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for codec, array in self.cases():
                store = write(codec, array, chunks=self.chunks_of(array))
                opened: Any = open_any(indexed(store, Path(folder) / "chunks"))
                self.assert_close(opened[...], array)
                if array.ndim:
                    self.assert_close(opened[..., -1:], array[..., -1:])

    def test_any_bytes(self) -> None:
        """Damaged chunks give an error of ours or an array, never anything else."""
        rng = np.random.default_rng(0)
        with tempfile.TemporaryDirectory() as folder:
            for codec, array in self.cases():
                store = write(codec, array, chunks=self.chunks_of(array))
                for length, key in zip((1, 7, 100), 3 * list(chunks_only(store))[:1], strict=False):
                    store[key] = type(store[key]).from_bytes(rng.bytes(length))
                    opened: Any = open_any(indexed(store, Path(folder) / f"damaged{length}"))
                    try:
                        assert np.asarray(opened[...]).shape == array.shape
                    except AnychunkError:
                        continue


def assert_raises(function: Any, *arguments: Any) -> AnychunkError:
    """Call, and demand an error of ours."""
    try:
        function(*arguments)
    except AnychunkError as e:
        return e
    raise AssertionError("no error was raised")


def chunks_only(store: dict[str, Any]) -> Chunks:
    return {k: v.to_bytes() for k, v in store.items() if not k.endswith("zarr.json")}


def indexed(store: dict[str, Any], file: Path) -> ArrayIndex:
    """Put the chunks of a written array into one file, and index them there."""
    metadata = ArrayV3Metadata.from_dict(json.loads(store["zarr.json"].to_bytes()))
    shape, chunk = metadata.shape, metadata.chunk_grid.chunk_shape  # type: ignore[union-attr]
    grid = grid_shape(shape, chunk)
    offsets, lengths = np.zeros(grid, np.uint64), np.zeros(grid, np.uint64)
    data = b""
    for coords in np.ndindex(grid):
        stored = store["/".join(["c", *map(str, coords)])].to_bytes()
        offsets[coords], lengths[coords] = len(data), len(stored)
        data += stored
    file.write_bytes(data or b"\0")
    described = json.loads(store["zarr.json"].to_bytes())
    return ArrayIndex(
        shape=shape,
        chunk_shape=chunk,
        data_type=described["data_type"],
        codecs=tuple(described["codecs"]),
        fill_value=described["fill_value"],
        chunks=ByteRanges(offsets=offsets, lengths=lengths, urls=(str(file),)),
        dimension_names=(None,) * len(shape),
    )
