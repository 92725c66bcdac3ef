"""`anychunk.choice`, array to bytes: each chunk is encoded by one of several chains of codecs.

Spec:     ours. The first stored byte is the number of a chain in `choices`; the chunk follows,
          encoded by that chain.
JSON:     {"name": "anychunk.choice", "configuration": {"choices": [[{"name": "bytes"}], [{"name":
          "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]]}}
Lossless: yes; encoding uses the first chain, so it is lossless where that is.

For arrays of several files that differ only in how they are compressed: the index puts the number
in front of each chunk, so the files themselves stay unchanged.
"""

from collections.abc import Buffer as BytesLike
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from anychunk.codecs import from_json
from anychunk.codecs.base import ArrayToBytes, Bytes1D, ChunkSpec, OwnCodec
from anychunk.errors import ChunkDecodeError, CodecConfigError
from anychunk.model.grid import Array

if TYPE_CHECKING:
    from anychunk.codecs.chain import Decoder

MOST = 256
"""How many chains a byte can number."""
KEPT = 64
"""Maximum number of decoders that are cached."""


def number_of(data: Bytes1D, count: int) -> int:
    """Return the number of the chain that encoded a chunk, checked."""
    if not len(data):
        raise ChunkDecodeError("anychunk.choice: 0 bytes, expected the number of a chain")
    number = int(data[0])
    if number >= count:
        raise ChunkDecodeError(f"anychunk.choice: chain {number}, expected one of {count}")
    return number


@dataclass(frozen=True, kw_only=True)
class Choice(ArrayToBytes):
    """Stores a chunk after a byte that says which codecs encoded it."""

    name: ClassVar[str] = "anychunk.choice"
    choices: tuple[tuple[Any, ...], ...]
    """JSON of the codecs of each chain."""

    def __post_init__(self) -> None:
        given = self.choices
        if not isinstance(given, list | tuple) or not 1 <= len(given) <= MOST:
            raise CodecConfigError(f"{self.name}: choices must be a list of 1 to {MOST} chains")
        for chain in given:
            if not isinstance(chain, list | tuple) or not chain:
                raise CodecConfigError(
                    f"{self.name}: a choice is {chain!r:.100}, expected a non-empty list of codecs"
                )
            if any(_name(codec) == self.name for codec in chain):
                raise CodecConfigError(f"{self.name}: a choice may not be a choice itself")
        named = tuple(tuple({"name": c} if isinstance(c, str) else c for c in x) for x in given)
        object.__setattr__(self, "choices", named)
        from anychunk.codecs.chain import check_order

        for chain in self.chains:
            check_order(chain, self.name)

    def __getstate__(self) -> dict[str, Any]:
        # without the cached decoders, which hold functions that cannot be pickled
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def chains(self) -> tuple[tuple[OwnCodec, ...], ...]:
        """The codecs of each chain."""
        return tuple(tuple(from_json(data) for data in chain) for chain in self.choices)

    @cached_property
    def _decoders(self) -> dict[Any, "Decoder"]:
        return {}

    def configuration(self) -> dict[str, Any]:
        return {"choices": [list(chain) for chain in self.choices]}

    @cached_property
    def depends_on_place(self) -> bool:
        """Whether chunks at the edges of the array are decoded differently by some codec."""
        return any(_is_placed(chain) for chain in self.chains)

    @cached_property
    def _is_range(self) -> bool:
        return False

    def of_ranges(self) -> Self:
        """Return the codec for chunks that are ranges of larger files: see `chain.Decoder`."""
        found = replace(self)
        found.__dict__.update(chains=self.chains, _is_range=True)
        return found

    def at_edges(self, *, is_lowest: bool, is_rightmost: bool) -> Self:
        """Return the codec for the chunks of one place, as `tiff-tile` has it."""
        found = self.of_ranges() if self._is_range else replace(self)
        found.__dict__["chains"] = tuple(
            tuple(_at_edges(codec, is_lowest, is_rightmost) for codec in chain)
            if _is_placed(chain)
            else chain
            for chain in self.chains
        )
        return found

    def encode_chunk(self, array: Array, spec: ChunkSpec) -> BytesLike:
        from anychunk.codecs.chain import Encoder

        encoded = Encoder(self.chains[0], replace(spec, shape=array.shape))(array)
        return np.concatenate([np.zeros(1, np.uint8), encoded])

    def decode_chunk(self, data: Bytes1D, spec: ChunkSpec, scratch: Bytes1D | None = None) -> Array:
        number = number_of(data, len(self.chains))
        key = (number, spec.shape, spec.dtype)
        decoder = self._decoders.get(key)
        if decoder is None:
            from anychunk.codecs.chain import Decoder

            decoder = Decoder(self.chains[number], spec, is_range=self._is_range)
            if len(self._decoders) < KEPT:
                self._decoders[key] = decoder
        if scratch is not None and len(scratch) > decoder.nbytes:
            scratch = scratch[: decoder.nbytes]
        return decoder(data[1:], scratch)


def _name(codec: Any) -> Any:
    return codec.get("name") if isinstance(codec, Mapping) else codec


def _is_placed(chain: Sequence[Any]) -> bool:
    # after a transpose, the last two axes are not those of the array
    is_transposed = any(codec.name == "transpose" for codec in chain)
    return not is_transposed and any(getattr(c, "depends_on_place", False) for c in chain)


def _at_edges(codec: Any, is_lowest: bool, is_rightmost: bool) -> Any:
    if not getattr(codec, "depends_on_place", False):
        return codec
    return codec.at_edges(is_lowest=is_lowest, is_rightmost=is_rightmost)
