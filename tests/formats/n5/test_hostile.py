"""Containers that are damaged or mean harm: errors of ours, within bounds, naming the block."""

import json

import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError, LimitError
from tests.support import processes
from tests.support.n5_blocks import field, gzipped, write_dataset

ARRAY = field((8, 6))
COMPRESSIONS = ["raw", "gzip", "bzip2", "xz", "zstd", "lz4", "blosc"]


def read(array):
    """Give the samples, or the message of an error of ours, which must name the block."""
    try:
        return array[...]
    except AnychunkError as e:
        message = str(e)
    assert "1/0: " in message
    assert "\n" not in message
    return message


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("axes", ["zyx", "xyz"])
def test_every_cut_block_is_an_error_that_names_it(tmp_path, compression, axes):
    anychunk.write(ARRAY, tmp_path / "a.n5", chunk=(4, 3), axes="xyz", compression=compression)
    whole = (tmp_path / "a.n5/1/0").read_bytes()
    array = anychunk.open(tmp_path / "a.n5", axes=axes)
    expected = ARRAY if axes == "xyz" else ARRAY.T
    refused = 0
    for length in range(1, len(whole)):
        (tmp_path / "a.n5/1/0").write_bytes(whole[:length])
        found = read(array)
        if isinstance(found, str):
            refused += 1
        else:  # only the end mark is missing
            np.testing.assert_array_equal(found, expected)
    assert refused >= len(whole) - (22 if compression == "lz4" else 1)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("axes", ["zyx", "xyz"])
def test_damaged_blocks(tmp_path, compression, axes):
    anychunk.write(ARRAY, tmp_path / "a.n5", chunk=(4, 3), axes="xyz", compression=compression)
    whole = np.frombuffer((tmp_path / "a.n5/1/0").read_bytes(), np.uint8)
    array = anychunk.open(tmp_path / "a.n5", axes=axes)
    expected = ARRAY if axes == "xyz" else ARRAY.T
    rng = np.random.default_rng(5)
    for _ in range(60):
        data = whole.copy()
        data[rng.integers(0, len(data), 2)] = rng.integers(0, 256, 2)
        (tmp_path / "a.n5/1/0").write_bytes(data.tobytes())
        found = read(array)
        assert isinstance(found, str) or found.shape == expected.shape
    (tmp_path / "a.n5/1/0").write_bytes(whole.tobytes())
    np.testing.assert_array_equal(array[...], expected)  # nothing else was lost


def test_any_attributes(tmp_path):
    folder = gzipped(tmp_path / "a.n5", ARRAY, (4, 3), downsamplingFactors=[2, 2])
    whole = np.frombuffer((folder / "attributes.json").read_bytes(), np.uint8)
    rng = np.random.default_rng(6)
    for _ in range(300):
        data = whole.copy()
        data[rng.integers(0, len(data), 2)] = rng.integers(32, 127, 2)
        (folder / "attributes.json").write_bytes(data.tobytes())
        try:
            opened = anychunk.open(folder)
            if getattr(opened, "size", 1 << 30) < 1 << 20:
                opened[...]
        except AnychunkError:
            continue


def test_a_block_file_that_is_far_too_long(tmp_path):
    folder = write_dataset(tmp_path / "a.n5", ARRAY, (4, 3))
    with (folder / "0/0").open("r+b") as file:
        file.truncate(1 << 40)  # sparse: takes no space
    with pytest.raises(LimitError, match="0/0"):
        anychunk.open(folder)[...]


def test_a_stream_that_grows_without_end(tmp_path):
    import gzip

    folder = gzipped(tmp_path / "a.n5", ARRAY, (4, 3))
    head = (folder / "0/0").read_bytes()[:12]
    (folder / "0/0").write_bytes(head + gzip.compress(bytes(200 << 20)))
    with pytest.raises(AnychunkError, match="0/0: gzip: decodes to more"):
        anychunk.open(folder)[...]


LARGE = [
    ({"blockSize": [1 << 30, 1 << 30], "dimensions": [1 << 31, 1 << 31]}, "index"),
    ({"blockSize": [1 << 14, 1 << 14], "dimensions": [1 << 20, 1 << 20]}, "read"),
    ({"blockSize": [1 << 40, 1], "dimensions": [1 << 60, 1]}, "index"),
    ({"dimensions": [1 << 60, 1 << 60]}, "index"),
    ({"blockSize": [1 << 60, 1 << 60]}, "nothing"),
]
LIMITED = """
import resource, sys
import numpy as np, anychunk
from anychunk.errors import AnychunkError
anychunk.open(sys.argv[2])[...]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)
try:
    array = anychunk.open(sys.argv[1])
    stage = "read"
    array[:4, :3]
except AnychunkError as e:
    print("stage", locals().get("stage", "index"), "|", e)
else:
    print("stage nothing |")
"""


@pytest.mark.processes
@pytest.mark.parametrize(("change", "stage"), LARGE)
def test_huge_sizes_take_no_memory(tmp_path, change, stage):
    folder = write_dataset(tmp_path / "a.n5", ARRAY, (4, 3))
    small = write_dataset(tmp_path / "b.n5", ARRAY, (4, 3))
    attributes = json.loads((folder / "attributes.json").read_text()) | change
    (folder / "attributes.json").write_text(json.dumps(attributes))
    done = processes.run(LIMITED, [folder, small], cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-1500:]
    assert done.stdout.startswith(f"stage {stage} |"), done.stdout
