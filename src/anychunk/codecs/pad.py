"""`pad`, bytes to bytes: padding of fixed length before or after the payload.

Spec:     the `pad` codec, proposal 0.1.0.
JSON:     {"name": "pad", "configuration": {"location": "end", "nbytes": 4, "padding": "AAAAAA=="}}
Lossless: yes; decoding is a slice and copies nothing.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import ClassVar, Literal

from anychunk.codecs import _affix
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec, runtime_field
from anychunk.errors import CodecConfigError
from anychunk.model.index import Json


@dataclass(frozen=True, kw_only=True)
class Pad(BytesToBytes):
    """Adds `nbytes` bytes at one end when encoding, and removes them when decoding."""

    name: ClassVar[str] = "pad"
    is_fixed_size = True

    location: Literal["start", "end"]
    """Which end of the payload is padded."""
    nbytes: int
    """Length of the padding in bytes."""
    padding: str | bytes | None = None
    """The padding to write, as base64 or as bytes; zeros by default."""
    padding_func: _affix.HeaderFunction | None = runtime_field()
    """Returns the padding for an encoded chunk; never written to JSON."""
    verify: bool = runtime_field(default=False)
    """Whether decoding compares the stored padding with the one that encoding would write."""

    def __post_init__(self) -> None:
        _affix.check_count(self.nbytes, codec=self.name, key="nbytes")
        object.__setattr__(self, "padding", _affix.as_text(self.padding))
        if self.location not in ("start", "end"):
            raise CodecConfigError(f"pad: location is {self.location!r}, expected 'start' or 'end'")
        if self.padding is not None and self.padding_func is not None:
            raise CodecConfigError(
                "pad: both padding and padding_func are set; set only one of them"
            )
        self._literal()
        self.check_schema()

    def _literal(self) -> bytes | None:
        if self.padding is None:
            return None
        return _affix.decode_literal(
            self.padding, self.nbytes, codec=self.name, key="padding", length_key="nbytes"
        )

    def configuration(self) -> dict[str, Json]:
        if self.padding_func is None:
            return super().configuration()
        padding = _affix.function_text(self.padding_func, self.nbytes)
        return {"location": self.location, "nbytes": self.nbytes, "padding": padding}

    def _affix(self, payload: Bytes1D, spec: ChunkSpec | None) -> bytes:
        literal, function = self._literal(), self.padding_func
        return _affix.make(payload, self.nbytes, literal, function, spec, codec=self.name)

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        padding = self._affix(data, spec)
        return (
            _affix.join(padding, data) if self.location == "start" else _affix.join(data, padding)
        )

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        at_start = self.location == "start"
        stored, payload = _affix.split(data, self.nbytes, at_start=at_start, codec=self.name)
        if self.verify:
            _affix.check_stored(stored, self._affix(payload, spec), self.name)
        return payload

    def compute_encoded_size(self, input_byte_length: int, spec: ChunkSpec) -> int:
        return input_byte_length + self.nbytes
