"""The error messages of offset and pad: one line that names the codec, and nothing written."""

import sys
from collections.abc import Callable

import numpy as np
import zarr

import anychunk
from anychunk.codecs import Offset, Pad


def wrong_length() -> None:
    store: dict[str, zarr.core.buffer.Buffer] = {}
    codec = Offset(offset=8, prefix_func=lambda chunk: b"short")
    array = zarr.create_array(store, shape=(4,), chunks=(4,), dtype="uint8", compressors=[codec])
    try:
        array[...] = 1
    finally:
        if set(store) != {"zarr.json"}:
            sys.exit("a chunk was written despite the error")


def unknown_key() -> None:
    Pad.from_dict({"name": "pad", "configuration": {"location": "end", "nbytes": 1, "fill": 0}})


CASES: dict[str, Callable[[], object]] = {
    "a chunk that is too short": lambda: Offset(offset=4).decode_bytes(np.zeros(3, "u1"), None),
    "a prefix of the wrong length": lambda: Offset(offset=3, prefix="AA=="),
    "bad base64": lambda: Pad(location="start", nbytes=3, padding="A*=="),
    "a function that returns the wrong length": wrong_length,
    "an unknown key": unknown_key,
}


def main() -> None:
    for name, case in CASES.items():
        try:
            case()
        except anychunk.AnychunkError as error:
            print(f"{name}: {error}")
        else:
            sys.exit(f"{name}: no error")


if __name__ == "__main__":
    main()
