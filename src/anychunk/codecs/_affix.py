"""Bytes of fixed length before or after a payload: what `offset` and `pad` share.

A header that depends on the chunk is made by a function, which JSON cannot hold. Its place is kept
by `placeholder` bytes in the JSON instead: of the right length, so that every reader opens the
array, and recognisable, so that a writer who lacks the function is refused before it writes a false
header.
"""

import base64
import binascii
from collections.abc import Callable

import numpy as np

from anychunk.codecs.base import Bytes1D, as_bytes
from anychunk.errors import ChunkDecodeError, ChunkEncodeError, CodecConfigError

type HeaderFunction = Callable[[bytes], bytes]


def check_count(value: object, *, codec: str, key: str) -> int:
    """Refuse what JSON schema lets pass as an integer: 16.0, and what Python does: True."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CodecConfigError(f"{codec}: {key} is {value!r}, expected an integer of at least 0")
    return value


def decode_literal(text: object, length: int, *, codec: str, key: str, length_key: str) -> bytes:
    """Decode strict base64 of exactly `length` bytes."""
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
            f"{codec}: {key} holds {len(literal)} bytes, expected {length} as {length_key} says"
        )
    return literal


def placeholder(length: int) -> bytes:
    """Fill the JSON's place of a header that is made by a function."""
    word = b"<made by a function> "
    return (word * (length // len(word) + 1))[:length]


def placeholder_text(length: int) -> str:
    return base64.b64encode(placeholder(length)).decode()


def make(
    data: Bytes1D, length: int, literal: bytes | None, function: HeaderFunction | None, codec: str
) -> bytes:
    """Give the bytes to put beside `data`."""
    if function is not None:
        made = function(data.tobytes())
        if not isinstance(made, bytes | bytearray | memoryview) or len(made) != length:
            found = f"{len(made)} bytes" if hasattr(made, "__len__") else repr(made)
            raise ChunkEncodeError(f"{codec}: the function returned {found}, expected {length}")
        return bytes(made)
    if literal is None:
        return bytes(length)
    if length and literal == placeholder(length):
        raise ChunkEncodeError(
            f"{codec}: the {length} bytes beside each chunk of this array are made by a function, "
            "which JSON cannot hold; open the array with the codec and its function to write"
        )
    return literal


def join(first: bytes | Bytes1D, second: bytes | Bytes1D) -> Bytes1D:
    """Concatenate with one copy of each."""
    out = np.empty(len(first) + len(second), np.uint8)
    out[: len(first)] = as_bytes(first)
    out[len(first) :] = as_bytes(second)
    return out


def split(data: Bytes1D, length: int, *, at_start: bool, codec: str) -> tuple[Bytes1D, Bytes1D]:
    """Give (affix, payload) as views."""
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
            f"{codec}: stored byte {place} beside the chunk is {stored[place]}, "
            f"expected {expected[place]}; verify=False reads it all the same"
        )
