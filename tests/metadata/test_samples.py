import numpy as np
import pytest

from anychunk.metadata.geo_keys import fill_value_json, float_json


@pytest.mark.parametrize(
    ("value", "dtype", "json"),
    [
        (np.float32(np.nan), "float32", "NaN"),
        (np.float64(-np.inf), "float64", "-Infinity"),
        (np.inf, "float16", "Infinity"),
        (np.float32(0.5), "float32", 0.5),
        (np.uint8(7), "uint8", 7),
        (0, "bool", False),
        (np.complex64(complex(1, np.nan)), "complex64", [1.0, "NaN"]),
        (0, "complex64", [0.0, 0.0]),
    ],
)
def test_fill_values(value, dtype, json):
    found = fill_value_json(value, np.dtype(dtype))
    assert (found, type(found)) == (json, type(json))


def test_floats_are_python_floats():
    assert type(float_json(np.float32(1))) is float
