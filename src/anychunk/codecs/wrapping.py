"""The base of codecs that store an array with other codecs, in another shape than the chunk's."""

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from anychunk.codecs import from_json
from anychunk.codecs.base import ArrayToBytes, Bytes1D, ChunkSpec, OwnCodec
from anychunk.errors import CodecConfigError
from anychunk.model.grid import Array

if TYPE_CHECKING:
    from anychunk.codecs.chain import Decoder, Encoder

KEPT = 64
"""Maximum number of decoders that a wrapping codec caches: edge chunks have few shapes."""


@dataclass(frozen=True, kw_only=True)
class WrappingCodec(ArrayToBytes):
    """Base of codecs whose inner codecs store an array of a different shape than the chunk.

    The shape may differ from chunk to chunk, so decoders are kept per shape.
    """

    codecs: tuple[Any, ...]
    """JSON of the inner codecs."""

    def __post_init__(self) -> None:
        if not isinstance(self.codecs, list | tuple) or not self.codecs:
            raise CodecConfigError(
                f"{self.name}: codecs is {self.codecs!r}, expected a non-empty list"
            )
        named = tuple({"name": c} if isinstance(c, str) else c for c in self.codecs)
        object.__setattr__(self, "codecs", named)
        from anychunk.codecs.chain import check_order

        check_order(self.inner, self.name)

    def __getstate__(self) -> dict[str, Any]:
        # without the cached decoders, which hold functions that cannot be pickled
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def inner(self) -> tuple[OwnCodec, ...]:
        """The inner codecs."""
        return tuple(from_json(data) for data in self.codecs)

    @cached_property
    def _decoders(self) -> dict[Any, "Decoder"]:
        return {}

    @cached_property
    def _encoders(self) -> dict[Any, "Encoder"]:
        return {}

    def configuration(self) -> dict[str, Any]:
        return {**super().configuration(), "codecs": list(self.codecs)}

    def decode_chunk(self, data: Bytes1D, spec: ChunkSpec, scratch: Bytes1D | None = None) -> Array:
        """Return the decoded chunk, which may be a view of `data` or `scratch`."""
        raise NotImplementedError

    def decode_inner(
        self,
        data: Bytes1D,
        shape: tuple[int, ...],
        spec: ChunkSpec,
        scratch: Bytes1D | None = None,
    ) -> Array:
        """Return the stored array of `shape`, decoded by the inner codecs."""
        key = (shape, spec.dtype)
        decoder = self._decoders.get(key)
        if decoder is None:
            from anychunk.codecs.chain import Decoder

            decoder = Decoder(self.inner, replace(spec, shape=shape))
            if len(self._decoders) < KEPT:
                self._decoders[key] = decoder
        if scratch is not None and len(scratch) > decoder.nbytes:
            scratch = scratch[: decoder.nbytes]
        return decoder(data, scratch)

    def encode_inner(self, array: Array, spec: ChunkSpec) -> Bytes1D:
        """Return an array of any shape, encoded by the inner codecs."""
        key = (array.shape, spec.dtype)
        encoder = self._encoders.get(key)
        if encoder is None:
            from anychunk.codecs.chain import Encoder

            encoder = Encoder(self.inner, replace(spec, shape=array.shape))
            if len(self._encoders) < KEPT:
                self._encoders[key] = encoder
        return encoder(array)
