"""Example 2 of the pad and offset documents: a custom header in front of compressed chunks.

The documents forget the array -> bytes codec and gzip's level; this is the JSON that works.
"""

import gzip
import sys

import numpy as np
import zarr

import anychunk

PREFIX = "TVlfQ1VTVE9NX0hFQURFUg=="
OFFSET = {"name": "offset", "configuration": {"offset": 16, "prefix": PREFIX}}
PAD = {
    "name": "pad",
    "configuration": {"location": "start", "nbytes": 16, "padding": PREFIX},
}


def main() -> None:
    for codec in (PAD, OFFSET):
        store: dict[str, zarr.core.buffer.Buffer] = {}
        array = zarr.create_array(
            store,
            shape=(1000,),
            chunks=(1000,),
            dtype="int32",
            serializer={"name": "bytes", "configuration": {"endian": "little"}},
            compressors=[{"name": "gzip", "configuration": {"level": 5}}, codec],
        )
        array[...] = np.arange(1000)
        stored = store["c/0"].to_bytes()
        if stored[:16] != b"MY_CUSTOM_HEADER" or len(gzip.decompress(stored[16:])) != 4000:
            sys.exit(f"{codec['name']}: the chunk is not what was asked for")
        print(f"{codec['name']}: {stored[:16].decode()} and {len(stored) - 16} bytes of gzip")


if __name__ == "__main__":
    print(f"anychunk {anychunk.__version__}")
    main()
