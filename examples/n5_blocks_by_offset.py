"""Example 3 of the pad and offset documents: N5 blocks read by standard codecs and `offset`.

As printed, the example reads every block transposed, because N5's first axis varies fastest. With a
`transpose` codec it is right, as long as all blocks are full.
"""

import json
import struct
import sys
import tempfile
from pathlib import Path

import imagecodecs
import numpy as np
import zarr

import anychunk


def write_n5(folder: Path, data: np.ndarray, block: int) -> None:
    """Write blocks as the N5 text says: big-endian, first axis fastest, header in front."""
    for i in range(data.shape[0] // block):
        for j in range(data.shape[1] // block):
            piece = data[i * block : (i + 1) * block, j * block : (j + 1) * block]
            payload = imagecodecs.zstd_encode(piece.astype(">u2").tobytes(order="F"))
            file = folder / str(i) / str(j)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(struct.pack(">HHII", 0, 2, block, block) + payload)


def read(folder: Path, shape: tuple[int, ...], *, transpose: bool) -> np.ndarray:
    order = [{"name": "transpose", "configuration": {"order": [1, 0]}}] if transpose else []
    metadata = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": "uint16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [64, 64]}},
        "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
        "codecs": [
            *order,
            {"name": "bytes", "configuration": {"endian": "big"}},
            {"name": "zstd", "configuration": {"level": 3, "checksum": False}},
            {"name": "offset", "configuration": {"offset": 12, "prefix": "AAAAAgAAAEAAAABA"}},
        ],
        "fill_value": 0,
    }
    (folder / "zarr.json").write_text(json.dumps(metadata))
    return np.asarray(zarr.open_array(folder, mode="r")[...])


def main(folder: Path) -> None:
    data = np.arange(128 * 128, dtype="uint16").reshape(128, 128)
    write_n5(folder, data, 64)
    for name, transpose in {"as printed": False, "with a transpose": True}.items():
        is_right = np.array_equal(read(folder, data.shape, transpose=transpose), data)
        print(f"{name}: {'right' if is_right else 'every block transposed'}")
        if is_right != transpose:
            sys.exit("not what the documents lead to")


if __name__ == "__main__":
    print(f"anychunk {anychunk.__version__}")
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
