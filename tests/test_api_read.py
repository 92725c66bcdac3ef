"""`anychunk.read`: boxes as numpy arrays, compared with numpy and with zarr's reading of the same bytes."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import tifffile
import zarr
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

import anychunk
from anychunk.codecs import data_types
from anychunk.engine.opening import open_engine
from anychunk.errors import (
    ChunkDecodeError,
    FormatError,
    NoSuchImageError,
    OptionError,
    SourceChangedError,
)
from anychunk.model.index import GroupIndex
from anychunk.zarr.data_types import data_type
from tests.support.http_server import serve

VALUES = np.random.default_rng(0).integers(0, 60_000, (3, 70, 90), dtype="u2")


@pytest.fixture
def tif(tmp_path):
    tifffile.imwrite(
        tmp_path / "a.tif", VALUES, tile=(32, 32), compression="zlib", photometric="minisblack"
    )
    return tmp_path / "a.tif"


BOXES = [
    None,
    (slice(None), slice(None), slice(None)),
    [1, slice(10, 50), slice(-20, None)],
    (-1, -70, np.int64(89)),
    (slice(0, 3, 2), slice(5, 1000, 7), slice(None, None, 31)),
    (0, slice(50, 10), slice(None)),
    (slice(2, 3), 4, slice(-1000, -3, 5)),
]


@pytest.mark.parametrize("box", BOXES, ids=map(str, BOXES))
def test_a_box_is_what_numpy_takes(tif, box):
    found = anychunk.read(tif, box=box)
    expected = VALUES if box is None else VALUES[tuple(box)]
    assert type(found) is np.ndarray
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.processes
@pytest.mark.parametrize("box", BOXES, ids=map(str, BOXES))
def test_a_remote_box(tif, tmp_path, box):
    with serve(tmp_path) as served:
        found = anychunk.read(f"{served.url}/a.tif", box=box)
    np.testing.assert_array_equal(found, VALUES if box is None else VALUES[tuple(box)])


async def test_a_remote_file_beside_a_running_event_loop(tif, tmp_path):
    with serve(tmp_path) as served:
        np.testing.assert_array_equal(anychunk.read(f"{served.url}/a.tif"), VALUES)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ((0, 0), "for each of 3 axes"),
        (5, "for each of 3 axes"),
        ("abc", "for each of 3 axes"),
        ((0, 0, 90), "beyond the 90 elements"),
        ((0, -71, 0), "beyond the 70 elements"),
        ((0, 0, slice(None, None, -1)), "negative steps"),
        ((0, 0, slice(None, None, 0)), "zero"),
        ((0, 0, slice(0.5, None)), "slice"),
        ((0, 0, True), "expected a slice or an integer"),
        ((0, 0, None), "expected a slice or an integer"),
        ((0, 0, [1, 2]), "expected a slice or an integer"),
    ],
)
def test_other_boxes_are_refused(tif, box, message):
    with pytest.raises(OptionError, match=message):
        anychunk.read(tif, box=box)


def test_images_levels_and_one_axis(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(50))
    np.testing.assert_array_equal(
        anychunk.read(tmp_path / "a.npy", box=slice(3, 9)), np.arange(3, 9)
    )
    assert anychunk.read(tmp_path / "a.npy", box=-1) == 49
    with pytest.raises(NoSuchImageError):
        anychunk.read(tmp_path / "a.npy", level=1)
    with pytest.raises(OptionError, match="on_change"):
        anychunk.read(tmp_path / "a.npy", on_change="ignore")


@pytest.mark.parametrize("wrong", [{"data_type": "uint16/../x"}, {"fill_value": "many"}])
def test_metadata_that_zarr_does_not_know_are_an_error(tif, wrong):
    index = anychunk.index(tif)
    array = replace(index["0/0/image"], **wrong)
    with pytest.raises(FormatError, match=r"a\.tif a: data type or fill value"):
        open_engine(
            GroupIndex(members={"a": array}, pins=index.pins, attributes=index.attributes), "a"
        )


def test_damage_and_changes_are_errors(tif):
    index = anychunk.index(tif)
    data = bytearray(tif.read_bytes())
    offset = int(anychunk.model.index.find(index, "0/0/image").chunks.offsets.flat[0])
    data[offset : offset + 40] = bytes(40)
    tif.write_bytes(data)
    with pytest.raises(ChunkDecodeError, match=r"chunk \(0, 0, 0\)"):
        anychunk.read(tif)
    tif.write_bytes(bytes(data) + b"x")
    with pytest.raises(SourceChangedError):
        anychunk.read(index)


CHAINS = {
    "bytes": {"compressors": None},
    "gzip": {"compressors": [GzipCodec(level=1)]},
    "zstd": {"compressors": [ZstdCodec()]},
    "zstd checksum": {"compressors": [ZstdCodec(checksum=True)]},
    "blosc": {"compressors": [BloscCodec(cname="lz4")]},
    "crc32c": {"compressors": [GzipCodec(), Crc32cCodec()]},
    "transpose": {"filters": [TransposeCodec(order=(2, 0, 1))], "compressors": [ZstdCodec()]},
    "big": {"serializer": BytesCodec(endian="big"), "compressors": None},
}
TYPES = ["u1", "u2", "i4", "f4", "f8", "c8", "?"]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", CHAINS)
def test_an_array_of_zarr(tmp_path, name, dtype):
    values = (VALUES % 255).astype(dtype)
    given = CHAINS[name]
    if dtype in ("u1", "?") and name == "big":
        pytest.skip("elements of one byte have no byte order")
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=values.shape,
        chunks=(2, 32, 32),
        dtype=dtype,
        fill_value=1,
        **given,
    )
    array[:, :50] = values[:, :50]
    np.testing.assert_array_equal(anychunk.read(tmp_path / "a.zarr"), array[...])
    np.testing.assert_array_equal(
        anychunk.read(tmp_path / "a.zarr", box=(2, slice(30, 70), 5)), array[2, 30:70, 5]
    )


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize(
    "inner", [[BytesCodec()], [TransposeCodec(order=(0, 2, 1)), BytesCodec(), GzipCodec()]]
)
def test_shards(tmp_path, location, inner):
    codec = ShardingCodec(chunk_shape=(1, 16, 16), codecs=inner, index_location=location)
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=VALUES.shape, chunks=(2, 32, 32), dtype="u2",
        serializer=codec, filters=None, compressors=None, fill_value=9,
    )  # fmt: skip
    array[:, 10:40, :50] = VALUES[:, 10:40, :50]
    expected = array[...]
    np.testing.assert_array_equal(anychunk.read(tmp_path / "a.zarr"), expected)
    # the codec itself, which the layout of shards leaves over
    stored = np.frombuffer((tmp_path / "a.zarr/c/0/0/0").read_bytes(), "u1")
    plain = anychunk.codecs.from_json(array.metadata.codecs[0].to_dict())
    spec = anychunk.codecs.base.ChunkSpec((2, 32, 32), np.dtype("u2"), 9)
    np.testing.assert_array_equal(plain.decode_chunk(stored, spec), expected[:2, :32, :32])
    for damaged in (stored[:20], stored[:-1] if location == "end" else np.roll(stored, 3)):
        with pytest.raises(ChunkDecodeError):
            plain.decode_chunk(damaged, spec)


def test_strings_are_read_by_zarrs_codecs(tmp_path):
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(7,), chunks=(3,), dtype="str", fill_value="?"
    )
    array[:5] = np.array(["a", "bc", "", "ä", "xyz"])
    assert anychunk.read(tmp_path / "a.zarr").tolist() == ["a", "bc", "", "ä", "xyz", "?", "?"]


NUMBERS = sorted(data_types.NUMBERS)
FILLS = [
    0,
    1,
    -1,
    255,
    1 << 40,
    1.5,
    True,
    "NaN",
    "Infinity",
    "-Infinity",
    "0x7fc00001",
    [1.0, "NaN"],
    [0, 0],
    1e300,
    "x",
    None,
]


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", FILLS, ids=map(str, FILLS))
def test_fill_values_are_those_of_zarr(name, value):
    kind = data_type(name)
    assert data_types.native(name) == kind.to_native_dtype()
    assert data_types.name_of(kind.to_native_dtype()) == name
    try:
        expected = kind.from_json_scalar(value, zarr_format=3)
    except Exception:
        with pytest.raises((ValueError, TypeError, OverflowError, RuntimeWarning)):
            data_types.scalar(name, value)
        return
    found = data_types.scalar(name, value)
    assert type(found) is type(expected)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.processes
@pytest.mark.parametrize(
    "code",
    [
        "anychunk.read(sys.argv[1], box=(0, slice(5), slice(5)))",
        "anychunk.describe(sys.argv[1])",
        "anychunk.index(sys.argv[1])",
        "from anychunk.cli import main; sys.argv[1:] = ['info', sys.argv[1]]; main()",
        "from anychunk.cli import main; sys.argv[1:] = ['thumb', sys.argv[1], '-o', sys.argv[2]]; main()",
    ],
)
def test_zarr_is_not_imported(tif, tmp_path, code):
    """`verify`, `serve`, `convert` and saving an index are not here: they still open arrays by zarr."""
    text = f"""
import sys, anychunk
try:
    {code}
except SystemExit as e:
    assert not e.code, e.code
print(sorted({{"zarr", "numcodecs"}} & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text, tif, tmp_path / "a.png"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
