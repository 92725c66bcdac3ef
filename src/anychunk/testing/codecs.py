"""A test class that checks what every codec must do.

Inherit it in a test module, with codecs and arrays to try:

    import numpy as np

    from anychunk.codecs import Offset
    from anychunk.testing.codecs import CodecContract


    class TestOffset(CodecContract):
        codecs = (Offset(offset=4),)
        arrays = (np.arange(10, dtype="uint16"),)

zarr must find the codecs by name: install their entry points, or call
`zarr.registry.register_codec` with `anychunk.zarr.codecs.zarr_codec` of their classes before the
tests.

A round trip proves nothing about the stored bytes: add tests with known bytes from the
specification of the codec.
"""

import asyncio
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import zarr
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, Codec

from anychunk.api import open as open_any
from anychunk.codecs.base import ChunkSpec, OwnCodec
from anychunk.errors import AnychunkError, InternalError
from anychunk.model.grid import Array, grid_shape
from anychunk.model.index import ArrayIndex, ByteRanges
from anychunk.zarr.codecs import adapted
from anychunk.zarr.core import (
    ArraySpec,
    BatchedCodecPipeline,
    FusedCodecPipeline,
)
from anychunk.zarr.foreign import array_spec, zarr_class
from anychunk.zarr.metadata import array_metadata
from anychunk.zarr.pipeline import PATH

type Chunks = dict[str, bytes]

PIPELINES = [
    f"{cls.__module__}.{cls.__qualname__}" for cls in (BatchedCodecPipeline, FusedCodecPipeline)
]
"""zarr's two pipelines, as values of zarr's configuration."""


def arguments(codec: Codec) -> dict[str, Any]:
    """Return the arguments with which `zarr.create_array` uses a codec, by its kind."""
    if isinstance(codec, ArrayArrayCodec):
        return {"filters": [codec], "compressors": None}
    if isinstance(codec, ArrayBytesCodec):
        return {"serializer": codec, "compressors": None}
    return {"compressors": [codec]}


def write(
    codec: OwnCodec, array: Array, *, chunks: tuple[int, ...], **options: Any
) -> dict[str, Any]:
    """Write an array with zarr; return the content of the store."""
    store: dict[str, Any] = {}
    made = zarr.create_array(
        store,
        shape=array.shape,
        dtype=array.dtype.newbyteorder("="),
        chunks=chunks,
        config={"write_empty_chunks": True},
        **arguments(adapted(codec)),
        **options,
    )
    made[...] = array
    return store


def half(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a chunk shape that divides no axis evenly, so that edge chunks occur."""
    return tuple(max(1, n // 2 + 1) if n > 2 else max(n, 1) for n in shape)


class CodecContract:
    """Tests of codecs: set `codecs` and `arrays`; every combination is tested."""

    codecs: ClassVar[Sequence[OwnCodec]]
    """Codecs to test."""
    arrays: ClassVar[Sequence[Array]]
    """Arrays that each of the codecs must be able to store."""
    tolerance: ClassVar[float] = 0
    """Largest absolute error of a lossy codec."""
    chunks: ClassVar[tuple[int, ...] | None] = None
    """Chunk shape of codecs that work for one shape only."""
    takes_any_shape: ClassVar[bool] = True
    """Whether the codec stores empty and 0-d chunks; if not, it may refuse them."""

    def cases(self) -> Iterator[tuple[OwnCodec, Array]]:
        """Yield every pair of a codec and an array."""
        for codec in self.codecs:
            for array in self.arrays:
                yield codec, array

    def chunks_of(self, array: Array) -> tuple[int, ...]:
        """Return the chunk shape for an array."""
        return self.chunks or half(array.shape)

    def assert_close(self, found: Any, expected: Array) -> None:
        """Compare shape, data type and values, up to `tolerance`."""
        found = np.asarray(found)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype.newbyteorder("=")
        if self.tolerance:
            np.testing.assert_allclose(found, expected, rtol=0, atol=self.tolerance)
        else:
            np.testing.assert_array_equal(found, expected)

    def test_is_registered(self) -> None:
        """The name in the JSON of a codec leads zarr to its class."""
        for codec in self.codecs:
            name = codec.to_dict()["name"]
            found = zarr_class(str(name))
            assert found is not None, (
                f"zarr finds no codec {name!r}: list its entry point under zarr.codecs and install "
                "the package again, or call zarr.registry.register_codec"
            )
            assert found.__qualname__ == type(codec).__qualname__, f"{name!r} is {found}"

    def test_round_trip(self) -> None:
        """An array written with zarr reads back."""
        for codec, array in self.cases():
            store = write(codec, array, chunks=self.chunks_of(array))
            self.assert_close(zarr.open_array(store, mode="r")[...], array)

    def test_other_byte_order_and_strides(self) -> None:
        """The encoded bytes do not depend on the memory layout of the input."""
        for codec, array in self.cases():
            chunks = self.chunks_of(array)
            expected = chunks_only(write(codec, array, chunks=chunks))
            swapped = array.astype(array.dtype.newbyteorder())
            strided = np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
            for other in (swapped, np.asfortranarray(array), strided):
                assert chunks_only(write(codec, other, chunks=chunks)) == expected

    def test_input_is_untouched(self) -> None:
        """Encoding works on a read-only array and leaves it unchanged."""
        for codec, array in self.cases():
            before = array.copy()
            before.flags.writeable = False
            write(codec, before, chunks=before.shape or ())
            np.testing.assert_array_equal(before, array)

    def test_empty_and_scalar(self) -> None:
        """Empty and 0-d chunks read back, unless the codec refuses them with an `AnychunkError`.

        Chunks are passed to the codec directly as well, because zarr stores no chunks of empty
        arrays.
        """
        for codec, array in self.cases():
            for shape in ((), (0,), (3, 0)):
                chunk = np.resize(array, shape).astype(array.dtype.newbyteorder("="))
                try:
                    found = round_trip(codec, chunk)
                except InternalError:
                    raise
                except AnychunkError:
                    assert not self.takes_any_shape, f"{codec} refuses a chunk of shape {shape}"
                else:
                    self.assert_close(found, chunk)
                if self.takes_any_shape:
                    store = write(codec, chunk, chunks=tuple(max(n, 1) for n in shape))
                    self.assert_close(zarr.open_array(store, mode="r")[...], chunk)

    def test_sync_equals_async(self) -> None:
        """Synchronous and asynchronous methods return the same."""
        for codec, array in self.cases():
            evolved, full, data = prepared(codec, array)
            direct: Any = evolved._encode_sync(data, full)  # noqa: SLF001
            awaited: Any = asyncio.run(evolved._encode_single(data, full))  # noqa: SLF001
            np.testing.assert_array_equal(direct.as_numpy_array(), awaited.as_numpy_array())
            back: Any = evolved._decode_sync(direct, full)  # noqa: SLF001
            again: Any = asyncio.run(evolved._decode_single(awaited, full))  # noqa: SLF001
            np.testing.assert_array_equal(back.as_numpy_array(), again.as_numpy_array())

    def test_json_round_trip(self) -> None:
        """A codec built from its JSON has the same JSON."""
        for codec in self.codecs:
            text = json.dumps(codec.to_dict())
            again = type(codec).from_dict(json.loads(text))
            assert json.dumps(again.to_dict()) == text
            assert json.loads(text)["name"] == codec.name

    def test_unknown_key_is_refused(self) -> None:
        """A configuration with an unknown key raises an `AnychunkError`."""
        for codec in self.codecs:
            data = codec.to_dict()
            broken = {**data, "configuration": {**data.get("configuration", {}), "nonsense": 1}}
            assert_raises(type(codec).from_dict, broken)

    def test_inside_shards(self) -> None:
        """The codec works as an inner codec of zarr's sharding."""
        for codec, array in self.cases():
            if not array.ndim or self.chunks:
                continue
            inner = tuple(max(1, n // 3) for n in array.shape)
            shards = tuple(2 * n for n in inner)
            store = write(codec, array, chunks=inner, shards=shards)
            self.assert_close(zarr.open_array(store, mode="r")[...], array)

    def test_each_pipeline_of_zarr(self) -> None:
        """Both of zarr's pipelines read the same values back."""
        for codec, array in self.cases():
            store = write(codec, array, chunks=self.chunks_of(array))
            for pipeline in PIPELINES:
                with zarr.config.set({PATH: pipeline}):
                    self.assert_close(zarr.open_array(store, mode="r")[...], array)

    def test_our_pipeline(self) -> None:
        """Whole arrays and slices read back from an index of the written chunks."""
        with tempfile.TemporaryDirectory() as folder:
            for codec, array in self.cases():
                store = write(codec, array, chunks=self.chunks_of(array))
                opened: Any = open_any(indexed(store, Path(folder) / "chunks"))
                self.assert_close(opened[...], array)
                if array.ndim:
                    self.assert_close(opened[..., -1:], array[..., -1:])

    def test_any_bytes(self) -> None:
        """A damaged chunk raises an `AnychunkError` or reads as an array of the right shape."""
        rng = np.random.default_rng(0)
        with tempfile.TemporaryDirectory() as folder:
            for codec, array in self.cases():
                store = write(codec, array, chunks=self.chunks_of(array))
                for length, key in zip((1, 7, 100), 3 * list(chunks_only(store))[:1], strict=False):
                    store[key] = type(store[key]).from_bytes(rng.bytes(length))
                    opened: Any = open_any(indexed(store, Path(folder) / f"damaged{length}"))
                    try:
                        assert np.asarray(opened[...]).shape == array.shape
                    except InternalError:
                        raise
                    except AnychunkError:
                        continue


def assert_raises(function: Any, *arguments: Any) -> AnychunkError:
    """Call a function and return the `AnychunkError` that it must raise."""
    try:
        function(*arguments)
    except InternalError:
        raise
    except AnychunkError as e:
        return e
    raise AssertionError("no AnychunkError was raised")


def prepared(codec: OwnCodec, array: Array) -> tuple[Any, ArraySpec, Any]:
    """Return the codec adapted to a chunk, zarr's spec of the chunk, and the chunk in a buffer."""
    spec = ChunkSpec(array.shape, array.dtype.newbyteorder("="), array.dtype.type(0))
    full = array_spec(spec)
    evolved = adapted(codec).evolve_from_array_spec(full)
    if isinstance(evolved, ArrayArrayCodec | ArrayBytesCodec):
        return evolved, full, full.prototype.nd_buffer.from_ndarray_like(array)
    return evolved, full, full.prototype.buffer.from_bytes(array.tobytes())


def round_trip(codec: OwnCodec, array: Array) -> Array:
    """Encode and decode one chunk by the codec's synchronous methods, without zarr's pipeline."""
    evolved, full, data = prepared(codec, array)
    encoded: Any = evolved._encode_sync(data, full)  # noqa: SLF001
    decoded: Any = evolved._decode_sync(encoded, full)  # noqa: SLF001
    found: Array = decoded.as_numpy_array()
    if isinstance(evolved, ArrayArrayCodec | ArrayBytesCodec):
        return found
    return np.frombuffer(found.tobytes(), array.dtype).reshape(array.shape)


def chunks_only(store: dict[str, Any]) -> Chunks:
    """Return the stored chunks by key, without metadata."""
    return {k: v.to_bytes() for k, v in store.items() if not k.endswith("zarr.json")}


def indexed(store: dict[str, Any], file: Path) -> ArrayIndex:
    """Write the chunks of a store into one file, and return an index of them."""
    metadata = array_metadata(json.loads(store["zarr.json"].to_bytes()))
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
