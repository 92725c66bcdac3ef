import json

import numcodecs
import numpy as np
import pytest
import zarr

import anychunk

DELTA = {"id": "delta", "dtype": "<i4", "astype": "<i2"}


SCALED = {"id": "fixedscaleoffset", "scale": 10, "offset": 2, "dtype": "<f8", "astype": "<i2"}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        ("<i4", DELTA),
        (">i4", {"id": "delta", "dtype": ">i4", "astype": ">i4"}),
        (">i4", {"id": "delta", "dtype": ">i4", "astype": "<i2"}),
        ("<f8", SCALED),
        (">f8", {**SCALED, "dtype": ">f8"}),
        ("<f8", {"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"}),
        (">f8", {"id": "astype", "encode_dtype": "<f4", "decode_dtype": ">f8"}),
        ("|b1", {"id": "packbits"}),
        ("<i4", {"id": "zlib", "level": 1}),
        (">i4", None),
    ],
)
def test_filters_of_zarr_v2(tmp_path, dtype, step, order):
    """Every order of axes and bytes, written by zarr, by references to its own files."""
    values = (np.arange(35).reshape(5, 7) * 7 % 50).astype(dtype)
    if dtype == "|b1":
        values = np.arange(35).reshape(5, 7) % 3 == 0
    made = zarr.create_array(
        tmp_path / "z", shape=(5, 7), chunks=(3, 4), dtype=dtype, order=order, zarr_format=2,
        filters=[numcodecs.get_codec(dict(step))] if step else None, compressors=None,
    )  # fmt: skip
    made[...] = values
    refs = {".zgroup": '{"zarr_format":2}'}
    for path in (tmp_path / "z").iterdir():
        refs[f"a/{path.name}"] = (
            path.read_text() if path.name.startswith(".z") else [f"z/{path.name}"]
        )
    (tmp_path / "i.json").write_text(json.dumps(refs))
    truth = zarr.open_array(tmp_path / "z", mode="r")[...]
    np.testing.assert_array_equal(truth, values)
    np.testing.assert_array_equal(anychunk.open(tmp_path / "i.json")["a"][...], truth)
