"""Bytes of fixed length before or after a payload, shared by `offset` and `pad`.

A header that depends on the chunk is made by a function, which JSON cannot hold. The JSON has
`placeholder` bytes instead. They have the right length, so every reader can open the array, and
they are recognised when encoding, so a writer without the function is refused instead of writing
the placeholder as a header.
"""

import base64
import binascii
from collections.abc import Callable

import numpy as np

from anychunk import limits
from anychunk.codecs.base import Bytes1D, ChunkSpec, as_bytes
from anychunk.codecs.header_template import Header
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError

type HeaderFunction = Callable[[bytes], bytes]


def check_count(value: object, *, codec: str, key: str) -> int:
    """Return a non-negative integer; refuse 16.0 and True, which JSON schema or Python accept."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CodecConfigError(f"{codec}: {key} is {value!r}, expected an integer of at least 0")
    return value


def as_text(literal: object) -> object:
    """Return bytes as base64, which the configuration holds; anything else as it is."""
    if isinstance(literal, bytes | bytearray | memoryview):
        return base64.b64encode(literal).decode()
    return literal


def decode_literal(text: object, length: int, *, codec: str, key: str, length_key: str) -> bytes:
    """Return the bytes of strict, canonical base64, which must be exactly `length` bytes."""
    if not isinstance(text, str):
        raise CodecConfigError(f"{codec}: {key} is {text!r}, expected a base64 string")
    try:
        literal = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as e:
        raise CodecConfigError(f"{codec}: {key} is not base64 ({e})") from e
    if base64.b64encode(literal).decode() != text:
        raise CodecConfigError(f"{codec}: {key} is not canonical base64; check its last characters")
    if len(literal) != length:
        raise CodecConfigError(
            f"{codec}: {key} has {len(literal)} bytes, but {length_key} is {length}"
        )
    return literal


def placeholder(length: int) -> bytes:
    """Return the bytes that represent, in the JSON, a header made by a function."""
    word = b"<made by a function> "
    return (word * (length // len(word) + 1))[:length]


def function_text(function: HeaderFunction, length: int) -> str:
    """Return what represents a function in the JSON: its header if that is constant, as base64."""
    constant = function.constant if isinstance(function, Header) else None
    return base64.b64encode(placeholder(length) if constant is None else constant).decode()


def make(
    data: Bytes1D,
    length: int,
    literal: bytes | None,
    function: HeaderFunction | None,
    spec: ChunkSpec | None,
    *,
    codec: str,
) -> bytes:
    """Return the bytes to write before or after `data`.

    Parameters:
        data: the payload.
        length: the length that the result must have.
        literal: the bytes of the configuration; None for zeros.
        function: computes the bytes from the payload; it takes precedence over `literal`.
        spec: the chunk, if it is known.
        codec: the name for error messages.
    """
    if function is not None:
        if isinstance(function, Header):
            made = function.fill(len(data), shape=None if spec is None else spec.shape)
        else:
            made = function(data.tobytes())
        if not isinstance(made, bytes | bytearray | memoryview) or len(made) != length:
            found = f"{len(made)} bytes" if hasattr(made, "__len__") else repr(made)
            raise ChunkEncodeError(f"{codec}: the function returned {found}, expected {length}")
        return bytes(made)
    if literal is None:
        limits.check_chunk(length + len(data), where=codec)
        return bytes(length)
    if length and literal == placeholder(length):
        raise ChunkEncodeError(
            f"{codec}: the {length} bytes written with each chunk of this array are computed by a "
            "function, which the metadata cannot hold; to write, open the array with a codec that "
            "has the function, or with anychunk.zarr.headers.writable if its attributes declare "
            "the header"
        )
    return literal


def join(first: bytes | Bytes1D, second: bytes | Bytes1D) -> Bytes1D:
    """Concatenate, copying each part once."""
    out = np.empty(len(first) + len(second), np.uint8)
    out[: len(first)] = as_bytes(first)
    out[len(first) :] = as_bytes(second)
    return out


def split(data: Bytes1D, length: int, *, at_start: bool, codec: str) -> tuple[Bytes1D, Bytes1D]:
    """Return (affix, payload) as views of `data`."""
    if len(data) < length:
        raise ChunkDecodeError(
            f"{codec}: the stored chunk has {len(data)} bytes, expected at least {length}"
        )
    if at_start:
        return data[:length], data[length:]
    return data[len(data) - length :], data[: len(data) - length]


def check_stored(stored: Bytes1D, expected: bytes, codec: str) -> None:
    """Compare the stored affix with what encoding this payload would write."""
    if stored.tobytes() != expected:
        place = next(i for i, (a, b) in enumerate(zip(stored, expected, strict=True)) if a != b)
        raise ChunkDecodeError(
            f"{codec}: byte {place} of the stored bytes is {stored[place]}, "
            f"expected {expected[place]}; verify=False ignores the difference"
        )
