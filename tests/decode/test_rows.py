"""Windows of remote arrays of raw samples fetch the bytes of their rows."""

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.decode.rows import RawLayout, run_axis, runs
from tests.support.http_server import serve

pytestmark = pytest.mark.processes


RNG = np.random.default_rng(5)
PLANE = RNG.integers(0, 60000, (3001, 500), dtype=np.uint32)
VOLUME = RNG.integers(0, 60000, (31, 200, 300), dtype=np.uint16)


def header(sizes, dtype):
    lines = ["NRRD0004", f"type: {dtype}", f"dimension: {len(sizes)}", "encoding: raw"]
    return "\n".join([*lines, f"sizes: {' '.join(map(str, sizes))}", "endian: little", "", ""])


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("raw")
    np.save(folder / "plane.npy", PLANE)
    np.save(folder / "big.npy", PLANE.astype(">u4"))
    np.save(folder / "fortran.npy", np.asfortranarray(PLANE))
    np.save(folder / "volume.npy", VOLUME)
    head = header(VOLUME.shape[::-1], "uint16").encode()
    (folder / "volume.nrrd").write_bytes(head + VOLUME.tobytes())
    tifffile.imwrite(folder / "plane.tif", PLANE, rowsperstrip=3001)
    rgb = np.stack([PLANE.astype(np.uint16)] * 3, -1)
    tifffile.imwrite(folder / "rgb.tif", rgb, photometric="rgb", rowsperstrip=10)
    with serve(folder) as server:
        yield server


def fetched(server):
    """Return the number of bytes that were requested, and forget the requests."""
    total = 0
    for _, asked in server.requests:
        first, last = asked.split("=")[1].split("-")
        total += int(last) - int(first) + 1
    server.requests.clear()
    return total


CASES = {
    "plane.npy": (PLANE, np.s_[1000:1100, 100:300]),
    "big.npy": (PLANE, np.s_[2950:, 300:]),
    "fortran.npy": (PLANE, np.s_[100:400, 20:40]),
    "volume.npy": (VOLUME, np.s_[3:25, 100:120, 10:290]),
    "volume.nrrd": (VOLUME, np.s_[17, 100:120]),
    "plane.tif": (PLANE, np.s_[1000:1100, 100:300]),
    "rgb.tif": (np.stack([PLANE.astype(np.uint16)] * 3), np.s_[:, 500:600, 100:300]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_window_fetches_its_rows(served, name):
    expected, window = CASES[name]
    array = anychunk.open_array(f"{served.url}/{name}")
    served.requests.clear()
    found = array[window if array.ndim == expected.ndim else (0, *window)]
    np.testing.assert_array_equal(found, expected[window])
    assert fetched(served) <= 2 * expected[window].nbytes


@pytest.mark.parametrize("name", CASES)
def test_every_other_selection(served, name):
    expected, _ = CASES[name]
    array = anychunk.open_array(f"{served.url}/{name}")
    plane = expected if array.ndim == expected.ndim else expected[None]
    rows = [3, 77, 150]
    np.testing.assert_array_equal(array[..., 5:150:7, 3], plane[..., 5:150:7, 3])
    picked = (*[slice(None)] * (array.ndim - 2), rows, slice(4, 9))
    np.testing.assert_array_equal(array.oindex[picked], plane[..., rows, :][..., 4:9])
    np.testing.assert_array_equal(array[..., -1, -1], plane[..., -1, -1])
    np.testing.assert_array_equal(array[...], plane)


def test_a_row_of_numbers(served):
    array = anychunk.open_array(f"{served.url}/plane.npy")
    np.testing.assert_array_equal(array[1500, 10:400], PLANE[1500, 10:400])
    np.testing.assert_array_equal(array[100:2000, 7], PLANE[100:2000, 7])


def test_runs():
    assert runs((10, 1000), (slice(2, 4), slice(100, 900)), 1) == (1, [2100, 3100], 800)
    assert runs((10, 1000), (slice(2, 4), slice(100, 110)), 1) == (0, [2000], 2000)
    assert run_axis((4, 10, 1000), (slice(1, 3), slice(0, 5), slice(0, 1000)), 1) == 1


def test_what_is_read_whole():
    layout = RawLayout((100, 1000), (0, 1), np.dtype("u1"), has_window=False)
    assert layout.rows(b"", 100_000, np.s_[3:5, :]) is not None
    for selection in (
        np.s_[3:90, :],
        np.s_[3:9:2, :],
        np.s_[3:3, :],
        np.s_[3:5],
        [3],
        np.s_[..., 3:5],
    ):
        assert layout.rows(b"", 100_000, selection) is None
    assert layout.rows(b"", 99_999, np.s_[3:5, :]) is None
    assert layout.rows(b"front", 100_000, np.s_[3:5, :]) is None
