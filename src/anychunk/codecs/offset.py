"""`offset`, bytes to bytes: a header of fixed length in front of the payload.

Spec:     the `offset` codec, proposal 0.1.0.
JSON:     {"name": "offset", "configuration": {"offset": 16, "prefix": "TVlfQ1VTVE9NX0hFQURFUg=="}}
Lossless: yes; decoding is a slice and copies nothing.
"""

from collections.abc import Buffer as BytesLike
from dataclasses import dataclass
from typing import ClassVar

from anychunk.codecs import _affix
from anychunk.codecs.base import Bytes1D, BytesToBytes, ChunkSpec, runtime_field
from anychunk.errors import CodecConfigError
from anychunk.model.index import Json


@dataclass(frozen=True, kw_only=True)
class Offset(BytesToBytes):
    """Writes a header of `offset` bytes when encoding, and skips it when decoding."""

    name: ClassVar[str] = "offset"
    is_fixed_size = True

    offset: int
    """Length of the header in bytes."""
    prefix: str | bytes | None = None
    """The header to write, as base64 or as bytes; zeros by default."""
    prefix_func: _affix.HeaderFunction | None = runtime_field()
    """Returns the header for an encoded chunk; never written to JSON."""
    verify: bool = runtime_field(default=False)
    """Whether decoding compares the stored header with the one that encoding would write."""

    def __post_init__(self) -> None:
        _affix.check_count(self.offset, codec=self.name, key="offset")
        object.__setattr__(self, "prefix", _affix.as_text(self.prefix))
        if self.prefix is not None and self.prefix_func is not None:
            raise CodecConfigError(
                "offset: both prefix and prefix_func are set; set only one of them"
            )
        self._literal()
        self.check_schema()

    def _literal(self) -> bytes | None:
        if self.prefix is None:
            return None
        return _affix.decode_literal(
            self.prefix, self.offset, codec=self.name, key="prefix", length_key="offset"
        )

    def configuration(self) -> dict[str, Json]:
        if self.prefix_func is None:
            return super().configuration()
        prefix = _affix.function_text(self.prefix_func, self.offset)
        return {"offset": self.offset, "prefix": prefix}

    def _header(self, payload: Bytes1D, spec: ChunkSpec | None) -> bytes:
        literal, function = self._literal(), self.prefix_func
        return _affix.make(payload, self.offset, literal, function, spec, codec=self.name)

    def encode_bytes(self, data: Bytes1D, spec: ChunkSpec | None) -> BytesLike:
        return _affix.join(self._header(data, spec), data)

    def decode_bytes(
        self, data: Bytes1D, spec: ChunkSpec | None, out: Bytes1D | None = None
    ) -> BytesLike:
        stored, payload = _affix.split(data, self.offset, at_start=True, codec=self.name)
        if self.verify:
            _affix.check_stored(stored, self._header(payload, spec), self.name)
        return payload

    def compute_encoded_size(self, input_byte_length: int, spec: ChunkSpec) -> int:
        return input_byte_length + self.offset
