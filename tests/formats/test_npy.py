import gzip
import io
import math
import tokenize
from itertools import pairwise

import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError, FormatError, TruncatedError, UnsupportedError
from anychunk.formats import npy
from anychunk.formats._two_steps import in_one_step
from anychunk.model.index import known_arrays
from anychunk.testing.formats import FormatContract

RNG = np.random.default_rng(0)


def array(dtype, shape):
    values = RNG.integers(0, 120, shape)
    return (values > 60 if dtype == "?" else values).astype(dtype)


class TestNpy(FormatContract):
    def samples(self, folder):
        made = [
            (array("<u2", (6, 7, 5)), "C", (1, 0)),
            (array(">f4", (31, 7)), "F", (2, 0)),
            (array("<c16", (3,)), "C", (3, 0)),
        ]
        for number, (values, order, version) in enumerate(made):
            file = folder / f"{number}.npy"
            with file.open("wb") as handle:
                np.lib.format.write_array(handle, np.asarray(values, order=order), version)
            yield file, {"0/0/image": values}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "dtype",
    ["?", "i1", "u1", "<i2", ">u2", "<i4", ">u4", "<i8", ">u8", "<f2", ">f4", "<f8", "<c8", ">c16"],
)
@pytest.mark.parametrize("shape", [(), (5,), (4, 6), (2, 3, 4), (0, 3), (3, 0)])
def test_equals_numpy(tmp_path, dtype, shape, order):
    values = np.asarray(array(dtype, shape), order=order)
    np.save(tmp_path / "a.npy", values)
    found = anychunk.open_array(tmp_path / "a.npy")
    assert found.dtype == values.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found[...], values)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("rows", [1024, 1031])  # many divisors, none
def test_many_chunks(tmp_path, order, rows, monkeypatch):
    monkeypatch.setattr(npy, "LOCAL_CHUNK", 1 << 20)
    shape = (rows, 64, 128) if order == "C" else (128, 64, rows)
    values = np.asarray(array("<u2", shape), order=order)
    np.save(tmp_path / "a.npy", values)
    found = anychunk.open_array(tmp_path / "a.npy")
    assert found.nchunks > 1
    np.testing.assert_array_equal(found[...], values)
    np.testing.assert_array_equal(found[3:70:7, 5, ::9], values[3:70:7, 5, ::9])
    np.testing.assert_array_equal(found[-1], values[-1])
    np.testing.assert_array_equal(
        found.oindex[[0, 100], :, [1]], values[np.ix_([0, 100], range(64), [1])]
    )


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions(tmp_path, version):
    with (tmp_path / "a.npy").open("wb") as handle:
        np.lib.format.write_array(handle, np.arange(5), version)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.npy")[...], np.arange(5))


def header(text: str, data: bytes = bytes(100), version: int = 1) -> bytes:
    encoded = text.encode("latin1")
    return b"\x93NUMPY" + bytes([version, 0]) + len(encoded).to_bytes(2, "little") + encoded + data


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x93NUMPY", FormatError),
        (header("{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }")[:40], FormatError),
        (header("{'descr': '|O', 'fortran_order': False, 'shape': (3,)}"), UnsupportedError),
        (header("{'descr': '<U5', 'fortran_order': False, 'shape': (3,)}"), UnsupportedError),
        (
            header("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (3,)}"),
            UnsupportedError,
        ),
        (
            header("{'descr': '<f16', 'fortran_order': False, 'shape': (3,)}"),
            (UnsupportedError, FormatError),
        ),
        (header("{'descr': 'nonsense', 'fortran_order': False, 'shape': (3,)}"), FormatError),
        (header("{'descr': '<u2', 'fortran_order': 1, 'shape': (3,)}"), FormatError),
        (header("{'descr': '<u2', 'fortran_order': False, 'shape': (-3,)}"), FormatError),
        (header("{'descr': '<u2', 'fortran_order': False, 'shape': (True,)}"), FormatError),
        (header("{'descr': '<u2', 'fortran_order': False, 'shape': 3}"), FormatError),
        (header("{'descr': '<u2', 'fortran_order': False, 'shape': (10**6)}"), FormatError),
        (
            header("{'descr': '<u2', 'fortran_order': False, 'shape': (4611686018427387904, 9)}"),
            TruncatedError,
        ),
        (header("{'descr': '<u2', 'shape': (3,)}"), FormatError),
        (header("__import__('os').system('true')"), FormatError),
        (header("(" * 5000), FormatError),
        (
            header("{'descr': '<u2', 'fortran_order': False, 'shape': (3,)}", version=9),
            UnsupportedError,
        ),
    ],
)
def test_refused(tmp_path, data, error):
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(error, match="a.npy"):
        anychunk.index(tmp_path / "a.npy")


def test_sizes_as_python_2_wrote_them(tmp_path):
    header = b"{'descr': '<i2', 'fortran_order': False, 'shape': (2L, 3L), }".ljust(117) + b"\n"
    values = array("<i2", (2, 3))
    file = tmp_path / "a.npy"
    length = len(header).to_bytes(2, "little")
    file.write_bytes(b"\x93NUMPY\1\0" + length + header + values.tobytes())
    with pytest.warns(UserWarning, match="Python 2"):
        np.testing.assert_array_equal(np.load(file), values)
    np.testing.assert_array_equal(anychunk.open(file)["0/0/image"][...], values)


def test_last_byte_missing(tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.arange(10, dtype="<u2"))
    (tmp_path / "a.npy").write_bytes(buffer.getvalue()[:-1])
    with pytest.raises(TruncatedError, match="needs 148 bytes, the file has 147"):
        anychunk.index(tmp_path / "a.npy")


def test_a_header_that_reaches_into_the_samples(tmp_path):
    """Numpy refuses it; Python counts bytes 28 to 31 as blanks, but they are samples here."""
    file = tmp_path / "a.npy"
    np.save(file, np.full(4, 0x1E1E, "uint16"))
    data = bytearray(file.read_bytes()) + b"\0\0"
    data[8] += 2
    file.write_bytes(data)
    with pytest.raises((ValueError, SyntaxError, tokenize.TokenError)):
        np.load(file)
    with pytest.raises(FormatError, match="not a Python dictionary"):
        anychunk.open(file)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(61 * 200 * 250, dtype=">i2").reshape(61, 200, 250),
        np.asfortranarray(np.arange(61 * 200 * 250, dtype="<i2").reshape(61, 200, 250)),
        np.arange(12.0).reshape(3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.zeros((0, 3)),
        np.array(5.0),
    ],
    ids=lambda array: f"{array.shape} {array.flags.f_contiguous}",
)
def test_compressed_by_gzip(array, tmp_path):
    file = io.BytesIO()
    np.save(file, array)
    path = tmp_path / "a.npy.gz"
    path.write_bytes(gzip.compress(file.getvalue()))
    np.testing.assert_array_equal(anychunk.open_array(str(path))[...], array)
    anychunk.index(str(path)).save(str(tmp_path / "a.json"))
    np.testing.assert_array_equal(anychunk.open_array(str(tmp_path / "a.json"))[...], array)
    path.write_bytes(gzip.compress(file.getvalue()[:9]))
    with pytest.raises(AnychunkError):
        anychunk.index(str(path))


@pytest.mark.parametrize("shape", [(20, 30), (61, 200, 250)])
@pytest.mark.parametrize("ends", [[3], [0, 0, 9, 11, 11], [50, 5000], range(0, 7_000_000, 65280)])
def test_several_gzip_members(shape, ends, tmp_path):
    """As `cat a.gz b.gz`, pigz and bgzip, whose last member is empty, write them."""
    array = RNG.integers(0, 99, shape).astype("<i2")
    file = io.BytesIO()
    np.save(file, array)
    plain = file.getvalue()
    ends = [0, *(end for end in ends if end < len(plain)), len(plain), len(plain)]
    path = tmp_path / "a.npy.gz"
    path.write_bytes(b"".join(gzip.compress(plain[i:j]) for i, j in pairwise(ends)))
    with gzip.open(path) as decoded:
        np.testing.assert_array_equal(np.load(decoded), array)
    np.testing.assert_array_equal(anychunk.open_array(path)[-5:, 7:9], array[-5:, 7:9])
    np.testing.assert_array_equal(anychunk.open_array(path)[...], array)
    anychunk.index(path).save(tmp_path / "a.json")
    saved = anychunk.open_array(tmp_path / "a.json")
    np.testing.assert_array_equal(saved[-5:, 7:9], array[-5:, 7:9])
    np.testing.assert_array_equal(saved[...], array)


def test_a_gzip_member_that_is_cut_or_damaged(tmp_path):
    file = io.BytesIO()
    np.save(file, np.arange(12))
    first, second = gzip.compress(file.getvalue()[:8]), gzip.compress(file.getvalue()[8:])
    (tmp_path / "a.npy.gz").write_bytes(first + second[:20])
    with pytest.raises(TruncatedError, match="a.npy.gz: the gzip stream decodes to"):
        anychunk.index(tmp_path / "a.npy.gz")
    (tmp_path / "a.npy.gz").write_bytes(first + second[:10] + b"\xff" * 50)
    with pytest.raises(FormatError, match="a.npy.gz: the gzip stream is damaged"):
        anychunk.index(tmp_path / "a.npy.gz")


@pytest.mark.parametrize("dtype", ["bool", "u1", "<i4", ">f4", "<c16"])
@pytest.mark.parametrize("shape", [(5,), (4, 6), (2, 3, 4), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_that_is_one_chunk_is_described_later(tmp_path, dtype, shape, order):
    """The same as at once."""
    values = np.asarray(np.arange(math.prod(shape)).reshape(shape).astype(dtype), order=order)
    np.save(tmp_path / "a.npy", values)
    with in_one_step():
        expected = anychunk.index(tmp_path / "a.npy")
    found = anychunk.index(tmp_path / "a.npy")
    assert known_arrays(found) is not None
    assert known_arrays(expected) is None
    array = anychunk.open_array(tmp_path / "a.npy")
    assert np.array_equal(array[...], values)
    assert found == expected
    assert array.metadata == anychunk.open_array(expected).metadata


def test_arrays_without_elements_or_axes_are_described_at_once(tmp_path):
    for values in (np.zeros((3, 0), "u1"), np.float32(5)):
        np.save(tmp_path / "a.npy", values)
        assert known_arrays(anychunk.index(tmp_path / "a.npy")) is None
        assert np.array_equal(anychunk.open_array(tmp_path / "a.npy")[...], values)
