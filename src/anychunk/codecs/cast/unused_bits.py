"""Unused high bits of stored bytes, which the `bytes` codec of these data types must ignore.

Spec: zarr-extensions, data-types/ (float4_*, float6_*, int2 ... uint4): upper bits are ignored.

`ml_dtypes` takes the sign of a float4 or float6 from the highest bit of its byte, so a byte with
unused bits set would be another number. zarr's own `bytes` codec views bytes as values and has no
hook for a data type; `install` gives it one, when the first such data type is used.
"""

import threading
from functools import wraps
from typing import Any

from zarr.codecs import BytesCodec

from anychunk.codecs.cast.number_types import NumberType, has_unused_bits, used_bits
from anychunk.codecs.zarr_core import ArraySpec, Buffer, NDBuffer

_lock = threading.Lock()


def install() -> None:
    """Make zarr's `bytes` codec clear the bits that a data type says are unused.

    A data type says so by its attribute `kind`. Others are decoded as before.
    """
    with _lock:
        decode: Any = BytesCodec._decode_sync  # noqa: SLF001 - zarr has no other hook
        if hasattr(decode, "__wrapped__"):
            return

        @wraps(decode)
        def masked(self: BytesCodec, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> NDBuffer:
            kind: NumberType | None = getattr(chunk_spec.dtype, "kind", None)
            if kind is not None and has_unused_bits(kind):
                plain: Any = chunk_bytes.as_array_like()
                chunk_bytes = chunk_spec.prototype.buffer.from_array_like(plain & used_bits(kind))
            return decode(self, chunk_bytes, chunk_spec)  # type: ignore[no-any-return]

        BytesCodec._decode_sync = masked  # type: ignore[method-assign]  # noqa: SLF001
