"""Run a whole codec chain as one call, from stored bytes to an array and back.

zarr wraps the data in buffer objects between codecs, and awaits each codec. Here a chain is planned
once per array as a list of plain functions: our codecs are called through their numpy hooks, zarr's
common ones are replaced by equivalent functions, and any other codec runs through zarr's methods.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from anychunk import decoders, limits
from anychunk.codecs import leading_streams, libraries
from anychunk.codecs.base import (
    ArrayToArray,
    ArrayToBytes,
    Bytes1D,
    BytesToBytes,
    ChunkSpec,
    OwnCodec,
    as_bytes,
)
from anychunk.codecs.cast import fuse
from anychunk.codecs.cast.number_types import has_unused_bits, number_type, used_bits
from anychunk.codecs.chunk_layout import ChunkLayout, ShardLayout, stored_axes
from anychunk.codecs.standard import Bytes, Compressor, Crc32c, Sharding, Transpose, most_decoded
from anychunk.codecs.wrapping import WrappingCodec
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.io import measuring
from anychunk.model.grid import Array, grid_shape, is_at_edges

if TYPE_CHECKING:
    from anychunk.codecs.jpeg2000.tiny_tiles import Joint

type BytesStep = Callable[[Bytes1D, Bytes1D | None], Bytes1D]
type ToArray = Callable[[Bytes1D, Bytes1D | None], Array]
type ArrayStep = Callable[[Array], Array]
type EncodeStep = Callable[[Any], Any]

LEAST_PART = 4 << 20
"""Smaller chunks are always decoded whole."""
MOST_INTERLEAVED = 64
"""With more bands, numpy transposes faster than the compiled loop, which takes each by itself."""


def check_order(codecs: Sequence[OwnCodec], where: str) -> None:
    """Refuse codecs that make no chain: filters, one serializer, then compressors."""
    kinds = (ArrayToArray, ArrayToBytes, BytesToBytes)
    order = [next(i for i, kind in enumerate(kinds) if isinstance(codec, kind)) for codec in codecs]
    if order.count(1) != 1 or order != sorted(order):
        names = " ".join(str(codec.to_dict().get("name")) for codec in codecs)
        raise CodecConfigError(
            f"{where}: codecs {names}, expected array -> array codecs, one array -> bytes codec, "
            "then bytes -> bytes codecs"
        )


def evolve(codecs: Sequence[OwnCodec], spec: ChunkSpec) -> list[tuple[OwnCodec, ChunkSpec]]:
    """Return each codec, adapted to the chunk, with the spec of what it encodes."""
    pairs = []
    for codec in codecs:
        evolved = codec.evolved(spec)
        pairs.append((evolved, spec))
        spec = evolved.encoded_spec(spec)
    return pairs


class Decoder:
    """Decodes chunks of one shape and data type."""

    def __init__(
        self, codecs: Sequence[OwnCodec], spec: ChunkSpec, *, is_range: bool = False
    ) -> None:
        """Prepare for decoding.

        Parameters:
            codecs: the codecs of the array.
            spec: what a chunk is.
            is_range: whether chunks are ranges of larger files, whose writers may have rounded
                their lengths up: bytes behind the end of a stream are ignored. An object that is a
                chunk has no such bytes, unless it is damaged.
        """
        self.dtype: np.dtype[Any] = spec.dtype
        """The data type of decoded chunks."""
        self.nbytes = 0
        """Bytes that the array -> bytes codec decodes, which is the size of a scratch buffer."""
        self._bytes_steps: list[BytesStep] = []
        self._array_steps: list[ArrayStep] = []
        self._to_array: ToArray | None = None
        self._is_plain = all(isinstance(codec, Bytes | Transpose) for codec in codecs)
        self._codecs, self._spec = list(codecs), spec
        if is_range:  # codecs that decode by inner codecs
            self._codecs = [
                codec.of_ranges() if hasattr(codec, "of_ranges") else codec
                for codec in self._codecs
            ]
        self._is_range = is_range
        pairs = evolve(fuse(self._codecs), spec)
        filters = [p for p in pairs if isinstance(p[0], BytesToBytes)]
        for codec, codec_spec in pairs:
            if isinstance(codec, ArrayToArray):
                self._array_steps.insert(0, array_step(codec, codec_spec))
            elif isinstance(codec, ArrayToBytes):
                self._to_array = to_array_step(codec, codec_spec)
                self.nbytes = codec_spec.nbytes
            else:
                is_innermost = codec is filters[0][0]
                step = bytes_step(codec, codec_spec, is_innermost, is_range=is_range)
                self._bytes_steps.insert(0, step)
        self.is_sized = not self.is_view and not any(isinstance(c, Sharding) for c in codecs)
        """Whether the ratio of decoded to stored bytes is limited. That of a shard is not: it may
        be empty but for its index, and its inner chunks are what is compressed."""
        self._part = None if self._array_steps else shortcut(pairs, "decode_part")
        self._many = None if self._array_steps else shortcut(pairs, "decode_many")
        self._layout = layout_of(pairs, is_range=is_range)
        self.shards = shards_of(pairs)
        """The layout of chunks that are shards."""
        self.depends_on_place = (
            any(getattr(codec, "depends_on_place", False) for codec in self._codecs)
            # otherwise the last two axes of the array are those of the codec
            and not any(isinstance(codec, Transpose) for codec in self._codecs)
            and len(spec.shape) >= 2
        )
        """Whether chunks at an edge of the array are decoded differently: see `at`."""
        self._by_place: dict[tuple[bool, bool], Decoder] = {}

    @property
    def is_view(self) -> bool:
        """Whether decoding computes nothing: the array is a view of the stored bytes."""
        return self._is_plain and not self._bytes_steps

    @property
    def has_parts(self) -> bool:
        """Whether `part` may decode less than a whole chunk."""
        return self._part is not None and self.nbytes >= LEAST_PART

    def __call__(self, data: Bytes1D, scratch: Bytes1D | None = None) -> Array:
        """Return one decoded chunk.

        Parameters:
            data: the stored bytes.
            scratch: a buffer of `nbytes` to decode into, to save an allocation.

        The array may be a view of `data` or `scratch`: copy it before reusing either.
        """
        if not measuring.collectors:
            return self._decode(data, scratch)
        return measuring.decoding(lambda _: counted(data, self.nbytes), self._decode, data, scratch)

    def _decode(self, data: Bytes1D, scratch: Bytes1D | None) -> Array:
        if self.is_sized:
            limits.check_chunk(self.nbytes, where="chunk", stored=len(data))
        for step in self._bytes_steps:
            data = step(data, scratch)
        assert self._to_array is not None
        array = self._to_array(data, scratch)
        for transform in self._array_steps:
            array = transform(array)
        return array

    def at(self, number: int, grid: tuple[int, ...]) -> "Decoder":
        """Return the decoder of one chunk: some codecs accept partial chunks only at an edge.

        Parameters:
            number: the number of the chunk.
            grid: the number of chunks along each axis.
        """
        if not self.depends_on_place:
            return self
        place = is_at_edges(number, grid)
        found = self._by_place.get(place)
        if found is None:
            codecs = [codec_at(codec, place) for codec in self._codecs]
            found = Decoder(codecs, self._spec, is_range=self._is_range)
            self._by_place[place] = found
        return found

    def part(self, data: Bytes1D, selection: Any) -> Array | None:
        """Decode only the part of a large chunk that a selection takes, if that is cheaper.

        Parameters:
            data: the stored bytes.
            selection: what is taken of the chunk, by axis.

        Returns:
            the selected part; None if the chunk must be decoded whole.
        """
        if self._part is None or not self.has_parts or not isinstance(selection, tuple):
            return None
        decode, spec = self._part
        if len(selection) != len(spec.shape) or not all(type(s) is slice for s in selection[-2:]):
            return None
        rows, columns = (range(n)[s] for s, n in zip(selection[-2:], spec.shape[-2:], strict=True))
        if not rows or not columns or rows.step != 1 or columns.step != 1:
            return None
        part: Array | None
        if measuring.collectors:
            part = measuring.decoding(
                lambda found: {} if found is None else counted(data, found.nbytes),
                decode,
                *(data, spec, rows, columns),
            )
        else:
            part = decode(data, spec, rows, columns)
        return None if part is None else part[selection[:-2]]

    @property
    def layout(self) -> ChunkLayout | None:
        """What the compiled loop has to know to decode many chunks at once; None if it cannot."""
        found = self._layout
        is_used = found is None or found.decoder is None or decoders.is_used(found.decoder)
        return found if is_used else None

    @property
    def takes_many(self) -> bool:
        """Whether several chunks are decoded faster together: see `many`."""
        return self._many is not None

    def many(self, chunks: Sequence[Bytes1D]) -> "Iterable[Joint]":
        """Decode several chunks at once; those that are not returned are decoded one by one."""
        if self._many is None:
            return []
        decode, spec = self._many
        if not measuring.collectors:
            return decode(chunks, spec)  # type: ignore[no-any-return]
        return measuring.decoding(
            lambda found: counted_many(chunks, found), lambda: list(decode(chunks, spec))
        )


def counted(data: Bytes1D, nbytes: int) -> dict[str, float]:
    """Return what `read_stats` shows of a decoded chunk."""
    return {"chunks": 1, "stored_bytes": len(data), "decoded_bytes": nbytes}


def counted_many(chunks: Sequence[Bytes1D], found: "Sequence[Joint]") -> dict[str, float]:
    """Return the same of several that were decoded together."""
    done = [number for joint in found for number in joint.numbers]
    return {
        "chunks": len(done),
        "stored_bytes": sum(len(chunks[number]) for number in done),
        "decoded_bytes": sum(joint.array.nbytes for joint in found),
    }


def codec_at(codec: OwnCodec, place: tuple[bool, bool]) -> OwnCodec:
    """Return the codec for chunks at a place: in the last row or not, in the last column or not."""
    if not getattr(codec, "depends_on_place", False):
        return codec
    is_lowest, is_rightmost = place
    return cast("Any", codec).at_edges(is_lowest=is_lowest, is_rightmost=is_rightmost)  # type: ignore[no-any-return]


def shortcut(
    pairs: Sequence[tuple[OwnCodec, ChunkSpec]], method: str
) -> tuple[Any, ChunkSpec] | None:
    """Return an optional method of the codec that follows `bytes`, and the spec to call it with.

    None unless the chain ends with little-endian `bytes` and one bytes -> bytes codec that has the
    method: then its decoded bytes are exactly the elements of the chunk.
    """
    last = [codec for codec, _ in pairs if not isinstance(codec, ArrayToArray)]
    if len(last) != 2 or not isinstance(last[0], Bytes):
        return None
    decode, spec = getattr(last[1], method, None), pairs[-1][1]
    if decode is None or (spec.dtype.itemsize > 1 and last[0].endian != "little"):
        return None
    own = getattr(last[1], "dtype", spec.dtype)
    if own.newbyteorder("=") != spec.dtype.newbyteorder("="):
        return None  # `bytes` interprets the decoded bytes as elements of the array's own type
    return decode, spec


def layout_of(pairs: Sequence[tuple[OwnCodec, ChunkSpec]], *, is_range: bool) -> ChunkLayout | None:
    """Return the layout of chunks that are a stream of rows; None if the codecs have none.

    Parameters:
        pairs: the codecs, with what each encodes.
        is_range: whether bytes behind the end of the stream are ignored.
    """
    found = shortcut(pairs, "chunk_layout")
    if found is not None:
        named: ChunkLayout | None = found[0](found[1])
        return None if named is None or named.nbytes != found[1].nbytes else named
    first = pairs[0][0]
    if isinstance(first, WrappingCodec):
        layout_inside = getattr(first, "chunk_layout", None)
        return None if layout_inside is None or len(pairs) > 1 else layout_inside(pairs[0][1])
    order = list(range(len(pairs[0][1].shape)))
    if isinstance(first, Transpose):
        order, pairs = [int(axis) for axis in first.order], pairs[1:]
    serializer, spec = pairs[0][0], pairs[0][1]
    dtype, axes = spec.dtype, stored_axes(order)
    if (
        axes is None
        or not isinstance(serializer, Bytes)
        or len(pairs) > 2
        or dtype.kind not in "biufc"
        or np.dtype(dtype.str) != dtype
        or dtype.itemsize not in (1, 2, 4, 8)
        or (axes[-1] is not None and spec.shape[-1] > MOST_INTERLEAVED)
    ):
        return None
    kind = getattr(pairs[1][0], "kind", None) if len(pairs) > 1 else libraries.NONE
    functions = None if kind is None else libraries.functions(kind)
    is_swapped = dtype.itemsize > 1 and serializer.endian == "big"
    if kind is None or functions is None or (is_swapped and dtype.kind == "c"):
        return None
    is_deflate = kind in (libraries.GZIP, libraries.DEFLATE)
    return ChunkLayout(
        kind,
        functions,
        (*([1] if axes[0] is None else []), *spec.shape, *([1] if axes[-1] is None else [])),
        axes,
        dtype.itemsize,
        is_swapped=is_swapped,
        options=libraries.strict_options(is_strict=not is_range) if is_deflate else b"",
    )


def shards_of(pairs: Sequence[tuple[OwnCodec, ChunkSpec]]) -> ShardLayout | None:
    """Return the layout of chunks that are shards of Zarr; None if they are not, or have none."""
    codec, spec = pairs[0]
    if len(pairs) > 1 or not isinstance(codec, Sharding):
        return None
    index, shape = codec.index, codec.chunk_shape
    has_checksum = len(index) > 1 and isinstance(index[1], Crc32c)
    is_plain = isinstance(index[0], Bytes) and index[0].endian == "little"
    inner = Decoder(codec.inner, replace(spec, shape=shape)).layout
    if inner is None or not is_plain or len(index) != 1 + has_checksum:
        return None
    grid = grid_shape(spec.shape, shape)
    return ShardLayout(inner, shape, grid, codec.index_location == "end", has_checksum)


def bytes_step(
    codec: OwnCodec, spec: ChunkSpec, is_innermost: bool, *, is_range: bool
) -> BytesStep:
    """Return the decoding function of a bytes -> bytes codec.

    Parameters:
        codec: the codec.
        spec: what it encodes.
        is_innermost: whether it is next to the array -> bytes codec, so that it decodes to the size
            of the chunk: it may use the scratch buffer, and our decoders, which need that size.
        is_range: whether bytes behind the end of the stream are ignored.
    """
    strict = strict_step(codec, spec, is_innermost, is_range=is_range)
    name = codec.leading if isinstance(codec, Compressor) else None
    if name is None or not (is_range and is_innermost) or spec.dtype.kind in "OT":
        return strict

    def leading(data: Bytes1D, out: Bytes1D | None) -> Bytes1D:
        try:
            return strict(data, out)
        except ChunkDecodeError:
            return leading_streams.decode(name, data, spec.nbytes)

    return leading


def strict_step(
    codec: OwnCodec, spec: ChunkSpec, is_innermost: bool, *, is_range: bool
) -> BytesStep:
    """Return the decoding function of a codec whose stream must fill the chunk, if it can tell."""
    assert isinstance(codec, BytesToBytes)
    has_size = is_innermost and spec.dtype.kind not in "OT"  # strings have any length
    if isinstance(codec, Compressor) and not (has_size and codec.is_sized):
        most = most_decoded(spec)
        return lambda data, _: codec.decode_bounded(data, most, is_leading=is_range)
    if is_innermost:
        return lambda data, out: as_bytes(codec.decode_bytes(data, spec, out))
    return lambda data, _: as_bytes(codec.decode_bytes(data, spec))


def to_array_step(codec: OwnCodec, spec: ChunkSpec) -> ToArray:
    """Return the decoding function of an array -> bytes codec."""
    assert isinstance(codec, ArrayToBytes)
    if isinstance(codec, WrappingCodec):
        return lambda data, scratch: codec.decode_chunk(data, spec, scratch)
    kind = number_type(spec.dtype)
    if not isinstance(codec, Bytes) or kind is None or not has_unused_bits(kind):
        return lambda data, _: codec.decode_chunk(data, spec)
    # zarr-extensions, data-types/: the upper bits are ignored, but ml_dtypes reads those of floats.
    # Clearing them makes a copy, because stored bytes are never changed
    mask = used_bits(kind)
    return lambda data, _: codec.decode_chunk(data & mask, spec)


def array_step(codec: OwnCodec, spec: ChunkSpec) -> ArrayStep:
    """Return the decoding function of an array -> array codec."""
    assert isinstance(codec, ArrayToArray)
    return lambda array: codec.decode_array(array, spec)


class Encoder:
    """Encodes chunks of one shape and data type."""

    def __init__(self, codecs: Sequence[OwnCodec], spec: ChunkSpec) -> None:
        pairs = evolve(fuse(codecs), spec)
        self._steps = [encode_step(codec, codec_spec) for codec, codec_spec in pairs]

    def __call__(self, array: Array) -> Bytes1D:
        """Return the stored bytes of one chunk."""
        data: Any = array
        for step in self._steps:
            data = step(data)
        return as_bytes(data)


def encode_step(codec: OwnCodec, spec: ChunkSpec) -> EncodeStep:
    """Return the encoding function of a codec of any kind."""
    match codec:
        case ArrayToArray():
            return lambda array: codec.encode_array(array, spec)
        case ArrayToBytes():
            return lambda array: as_bytes(codec.encode_chunk(array, spec))
    return lambda data: as_bytes(codec.encode_bytes(data, spec))
