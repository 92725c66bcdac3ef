"""The examples of the documents on `offset` and `pad` that pass a codec with a function to zarr.

The code is read from the documents. It is a sketch with gaps, which are filled in here: the body of the function, what
`...` stands for in the call, the names of the codecs, and `location`, which the call of `pad` leaves out.
"""

import base64
import io
import re
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
import zarr
from zarr.codecs import BytesCodec

from anychunk.codecs import Offset, Pad

FOLDER = Path(__file__).parents[3] / "shared" / "specs"
DOCUMENTS = {"1-offset-codec.md": "prefix", "2-pad-codec.md": "padding"}
COMPRESSION, BYTE_COUNT = 10 + 3 * 12 + 8, 10 + 7 * 12 + 8
"""Where the values of tags 259 and 279 are: entries 3 and 7 of the directory at byte 8."""
LAST_COMMENT = "    # 4. Return the complete, dynamically generated header.\n"


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the documents in ../shared/specs")
def test_a_function_makes_the_header_of_each_chunk(name):
    text = (FOLDER / name).read_text()
    (code,) = [
        c for c in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "create_array" in c
    ]
    template = base64.b64decode(re.search(rf'"{DOCUMENTS[name]}": "(SUkq[^"]*)"', text)[1])

    def header(compressed):
        made = bytearray(template)
        made[COMPRESSION : COMPRESSION + 2] = (8).to_bytes(2, "little")  # zlib
        made[BYTE_COUNT : BYTE_COUNT + 4] = len(compressed).to_bytes(4, "little")
        return bytes(made)

    store, made = {}, []

    def create_array(gap, *, codecs):
        before, codec = codecs
        assert gap is before is ...
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on the name of the codec, which has no specification
            zlib = zarr.codecs.numcodecs.Zlib(level=1)
        options = {"shape": (512, 256), "chunks": (256, 256), "dtype": "uint16"}
        chain = {"serializer": BytesCodec(endian="little"), "compressors": [zlib, codec]}
        made.append(zarr.create_array(store, **options, **chain))

    names = {
        "zarr": SimpleNamespace(create_array=create_array),
        "offset_codec": Offset,
        "pad_codec": partial(Pad, location="start"),
        "header": header,
    }
    assert code.count(LAST_COMMENT) == 1
    exec(code.replace(LAST_COMMENT, LAST_COMMENT + "    return header(compressed_chunk)\n"), names)
    values = np.arange(512 * 256, dtype="uint16").reshape(512, 256) % 999
    made[0][...] = values
    for row in range(2):
        chunk = store[f"c/{row}/0"].to_bytes()
        expected = values[256 * row : 256 * (row + 1)]
        np.testing.assert_array_equal(tifffile.imread(io.BytesIO(chunk)), expected)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], values)
