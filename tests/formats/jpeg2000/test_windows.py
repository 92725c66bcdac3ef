"""Windows of large JPEG 2000 tiles: equal to the crop of the whole image, at the cost of a window."""

import json
import os
from pathlib import Path

import imagecodecs
import numpy as np
import pytest

import anychunk
from anychunk import limits
from anychunk.codecs.jpeg2000 import openjpeg_library
from anychunk.codestream import blocks
from anychunk.codestream.jpeg2000 import read_main_header
from anychunk.decode import windows
from anychunk.decode.boxes import ArrayReader
from anychunk.decode.chunks import ChunkReader
from anychunk.engine import chunks, tiles
from anychunk.errors import AnychunkError
from anychunk.formats import _jpeg2000_windows
from anychunk.formats._jpeg2000_windows import divided, is_divided, whole
from anychunk.io.open_sources import Sources
from anychunk.references import tile_tables
from tests.support import processes
from tests.support.http_server import serve
from tests.support.j2k_streams import compress, needs_openjpeg, with_packed_headers
from tests.support.s3 import needs_s3, serve_s3

ENCODINGS = {
    "5/3": ("-n", "6"),
    "5/3, tiny code-blocks": ("-n", "6", "-b", "4,4"),
    "9/7": ("-n", "6", "-I", "-r", "2"),
    "9/7, tiny code-blocks": ("-n", "6", "-I", "-r", "2", "-b", "4,8"),
    "layers": ("-r", "20,8,2", "-n", "5"),
    "9/7, layers, lazy": ("-r", "20,8,2", "-I", "-M", "1"),
    "terminated": ("-M", "4"),
    "all modes": ("-M", "63"),
    "precincts, RPCL": ("-c", "[64,64],[32,32]", "-p", "RPCL"),
    "precincts, PCRL": ("-c", "[128,128]", "-p", "PCRL"),
    "precincts, CPRL": ("-c", "[64,32]", "-p", "CPRL"),
    "SOP, EPH, RLCP": ("-p", "RLCP", "-SOP", "-EPH"),
    "image offset": ("-d", "37,51"),
    "tiles and offsets": ("-t", "192,256", "-T", "11,13", "-d", "11,13"),
    "tiles": ("-t", "128,192"),
    "region of interest": ("-ROI", "c=0,U=4"),
    "tile-parts": ("-TP", "R"),
    "tile-parts, layers": ("-p", "LRCP", "-r", "20,1", "-TP", "L"),
    "progression changes": ("-POC", "T0=0,0,1,3,3,LRCP/T0=3,0,1,6,3,RLCP", "-n", "6"),
    "one resolution": ("-n", "1"),
}
COUNT = int(os.environ.get("ANYCHUNK_WINDOWS", "2"))
"""Random windows per level of each stream; with 12, they are more than 2,000 together."""


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Divide tiles of more than 64 x 64, so that small images have many chunks."""
    monkeypatch.setattr(_jpeg2000_windows, "SIDE", 64)
    monkeypatch.setattr(_jpeg2000_windows, "SMALLEST", 32)
    monkeypatch.setattr(windows, "PIECE", 96)
    monkeypatch.setattr(tiles, "PIECE", 96)
    for cache in (windows.TABLES, chunks.TOUCHED, chunks.RECENT):
        cache.clear()


def noise(shape, bands=1, depth=8):
    rng = np.random.default_rng(7)
    return rng.integers(0, 1 << depth, (bands, *shape)).astype("u1" if depth <= 8 else "u2")


def lossless(shape=(200, 260), **options) -> bytes:
    return imagecodecs.jpeg2k_encode(
        noise(shape)[0], level=0, codecformat="J2K", reversible=True, **options
    )


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def levels(path, monkeypatch=None):
    """Return each level twice: with divided chunks, and decoded from chunks that are whole tiles."""
    index = anychunk.index(path)
    names = [name for name, array in index.arrays()]
    plain = _jpeg2000_windows.whole_tree(index)
    fine, coarse = anychunk.open(index), anychunk.open(plain)
    return [(fine[name], coarse[name][...]) for name in names]


def check_windows(path, count=COUNT, seed=0):
    """Compare random windows of every level, and all of it."""
    rng = np.random.default_rng(seed)
    for array, expected in levels(path):
        *_, height, width = array.shape
        for _ in range(count):
            y0, x0 = int(rng.integers(height)), int(rng.integers(width))
            y1 = int(rng.integers(y0 + 1, min(height, y0 + 80) + 1))
            x1 = int(rng.integers(x0 + 1, min(width, x0 + 80) + 1))
            found = array[..., y0:y1, x0:x1]
            np.testing.assert_array_equal(found, expected[..., y0:y1, x0:x1])
        np.testing.assert_array_equal(array[...], expected)


@needs_openjpeg
@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("options", ENCODINGS.values(), ids=ENCODINGS)
def test_windows_are_exact(options, bands, tmp_path):
    data = compress(list(noise((200, 260), bands)), *options)
    check_windows(written(tmp_path / "a.j2k", data))


@needs_openjpeg
@pytest.mark.parametrize("options", [("-n", "5"), ("-n", "5", "-I", "-r", "3")])
def test_subsampled_components(options, tmp_path):
    planes = [noise((200, 260))[0], *noise((100, 130), 2)]
    data = compress(planes, *options, sampling="@1x1:2x2:2x2", size=(200, 260))
    check_windows(written(tmp_path / "a.j2k", data))


@needs_openjpeg
def test_packed_headers(tmp_path):
    data = with_packed_headers(compress(list(noise((200, 260))), "-SOP", "-EPH"))
    check_windows(written(tmp_path / "a.j2k", data))


@pytest.mark.parametrize("is_reversible", [True, False])
def test_htj2k(is_reversible, tmp_path):
    data = imagecodecs.htj2k_encode(noise((200, 260))[0], reversible=is_reversible)
    check_windows(written(tmp_path / "a.j2c", data))


@pytest.mark.parametrize("encode", [imagecodecs.htj2k_encode, imagecodecs.jpeg2k_encode])
def test_empty_parts_are_within_the_limits(encode, tmp_path):
    """A window that decodes from very few bytes is as legitimate as its tile."""
    image = noise((200, 260))[0]
    image[:, 130:] = 9
    path = written(tmp_path / "a.jp2", encode(image, level=0, reversible=True))
    with limits.override(free_bytes=9000, expansion=8):
        array = anychunk.open(path).image(0)
        np.testing.assert_array_equal(array[50:90, 180:250], image[50:90, 180:250])
        index = anychunk.index(path)
        reader = ArrayReader(ChunkReader(index["0/0/image"], Sources(index.pins), where="a"))
        np.testing.assert_array_equal(reader.read((50, 180), (90, 250)), image[50:90, 180:250])


def test_without_the_compiled_module(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "loops", None)
    check_windows(written(tmp_path / "a.j2k", lossless()))


def test_without_area_decoding(tmp_path, monkeypatch):
    def fail():
        raise openjpeg_library.UnknownLibraryError("another version")

    monkeypatch.setattr(openjpeg_library, "load", fail)
    check_windows(written(tmp_path / "a.j2k", lossless()))


def test_other_selections(tmp_path):
    """Integers, steps, lists and masks, which zarr plans."""
    path = written(tmp_path / "a.j2k", lossless())
    array, expected = levels(path)[0]
    rng = np.random.default_rng(3)
    rows, columns = np.sort(rng.integers(0, 200, 9)), np.sort(rng.integers(0, 260, 9))
    np.testing.assert_array_equal(array[77], expected[77])
    np.testing.assert_array_equal(array[:, 77], expected[:, 77])
    np.testing.assert_array_equal(array[5:190:7, 3:250:11], expected[5:190:7, 3:250:11])
    np.testing.assert_array_equal(array.oindex[rows, columns], expected[np.ix_(rows, columns)])
    np.testing.assert_array_equal(array.vindex[rows, columns], expected[rows, columns])
    assert array[150, 250] == expected[150, 250]


def test_zarr_decodes_the_chunks_of_the_store(tmp_path):
    """Every chunk of the store is bytes that the codec decodes, without the reading of windows."""
    index = anychunk.index(written(tmp_path / "a.j2k", lossless()))
    _, expected = levels(tmp_path / "a.j2k")[0]
    name = next(iter(dict(index.arrays())))
    reader = ArrayReader(ChunkReader(index[name], Sources(index.pins), where="a"))
    found = reader.read((10, 20), (190, 250))
    np.testing.assert_array_equal(found, expected[10:190, 20:250])
    assert len(reader.reader.read(0)) < (tmp_path / "a.j2k").stat().st_size


def test_second_reads_decode_whole_chunks(tmp_path, monkeypatch):
    array, expected = levels(written(tmp_path / "a.j2k", lossless()))[0]
    decoded = []
    real = tiles.decode_window

    def decode(header, level, payload, window, out, **options):
        decoded.append((window.height, window.width))
        real(header, level, payload, window, out, **options)

    monkeypatch.setattr(tiles, "decode_window", decode)
    monkeypatch.setattr(tiles, "MARGIN", 16)
    for row in range(9):
        np.testing.assert_array_equal(array[row, :60], expected[row, :60])
    # three rows cost as much as the chunk
    assert decoded == [(1, 60)] * 3 + [(64, 64)]


def test_grid(tmp_path):
    """Chunks begin at the corner of the image; `whole` is the inverse of `divided`."""
    index = anychunk.index(written(tmp_path / "a.j2k", lossless()))
    arrays = [array for _, array in index.arrays()]
    assert arrays[0].chunk_shape == (64, 64)
    assert all(is_divided(array) for array in arrays)
    assert arrays[-1].chunk_shape == arrays[-1].shape
    for array in arrays:
        assert divided(whole(array)) == array
    assert whole(arrays[0]).chunk_shape == (200, 260)


@needs_openjpeg
@pytest.mark.parametrize("tile", [130, 96, 67])
def test_tiles_are_divided_without_a_remainder(tile, tmp_path):
    data = compress(list(noise((300, 300))), "-t", f"{tile},{tile}")
    path = written(tmp_path / "a.j2k", data)
    array = next(array for _, array in anychunk.index(path).arrays())
    assert array.chunk_shape == {130: (130, 130), 96: (48, 48), 67: (67, 67)}[tile] or (
        tile % array.chunk_shape[0] == 0
    )
    check_windows(path)


def test_damage_is_found_in_every_window(tmp_path):
    """Bytes that are lost anywhere in a tile make every window of it an error."""
    stream = lossless()
    header = read_main_header(stream)
    for cut in (200, len(stream) // 2):
        part = bytearray(stream[header.length : -2 - cut])
        part[6:10] = len(part).to_bytes(4, "big")
        path = tmp_path / f"{cut}.j2k"
        path.write_bytes(stream[: header.length] + part + b"\xff\xd9")
        array = anychunk.open(path).image(0)
        for y, x in ((0, 0), (100, 100), (190, 250)):
            with pytest.raises(AnychunkError):
                array[y : y + 5, x : x + 5]


@needs_openjpeg
@pytest.mark.parametrize(
    ("marker", "at", "bit"),
    [
        ("ff52", 4, 4),
        ("ff52", 10, 5),
        ("ff5c", 4, 0),
        ("ff5e", 4, 1),
        ("ff64", 1, 0),
    ],
    ids=["Scod", "code-blocks", "Sqcd", "Crgn", "unknown marker"],
)
def test_damaged_headers_are_not_ignored(marker, at, bit, tmp_path):
    """What the stream of a window would leave out makes the decoder refuse the tile."""
    data = bytearray(compress(list(noise((200, 260))), "-ROI", "c=0,U=4"))
    data[data.index(bytes.fromhex(marker)) + at] ^= 1 << bit
    with pytest.raises(AnychunkError):
        anychunk.open(written(tmp_path / "a.j2k", bytes(data))).image(0)[3:5, 3:5]


def test_remote_windows_fetch_few_bytes(tmp_path, monkeypatch):
    """The walk needs packet headers, a window its code-blocks."""
    shape = (800, 800)
    data = imagecodecs.jpeg2k_encode(noise(shape)[0], level=0, codecformat="J2K", reversible=True)
    written(tmp_path / "a.j2k", data)
    expected = imagecodecs.jpeg2k_decode(data)
    with serve(tmp_path) as served:
        array = anychunk.open(f"{served.url}/a.j2k").image(0)
        np.testing.assert_array_equal(array[300:350, 400:450], expected[300:350, 400:450])
        fetched = sum(_length(wanted) for _, wanted in served.requests if wanted)
        assert fetched < len(data) / 5
        del served.requests[:]
        np.testing.assert_array_equal(array[100:150, 700:750], expected[100:150, 700:750])
        assert sum(_length(wanted) for _, wanted in served.requests if wanted) < len(data) / 6
        np.testing.assert_array_equal(array[...], expected)


@needs_openjpeg
@pytest.mark.parametrize("options", [("-PLT",), ("-PLT", "-TP", "R")])
def test_stated_packet_lengths_save_bytes(options, tmp_path, monkeypatch):
    """With PLT, the headers of many packets are fetched without what lies between them."""
    monkeypatch.setattr(windows, "MANY_PACKETS", 8)
    monkeypatch.setattr(windows, "GAP", 256)
    shape = (600, 600)
    image = noise(shape)
    data = compress(list(image), *options, "-p", "RPCL", "-c", "[256,256]")
    damaged = bytearray(data)
    damaged[data.index(b"\xff\x58") + 5] ^= 1
    real = windows.packet_lengths
    for name, stream in (("a.j2k", data), ("b.j2k", bytes(damaged)), ("c.j2k", data)):
        if name == "c.j2k":
            # stated lengths are not trusted, even if their sum is right
            monkeypatch.setattr(windows, "packet_lengths", lambda head: real(head)[::-1])
        written(tmp_path / name, stream)
        with serve(tmp_path) as served:
            array = anychunk.open(f"{served.url}/{name}").image(0)
            # opening reads ahead: never more than the file
            assert sum(_length(wanted) for _, wanted in served.requests if wanted) <= len(stream)
            served.requests.clear()
            np.testing.assert_array_equal(array[200:230, 300:330], image[0, 200:230, 300:330])
            fetched = sum(_length(wanted) for _, wanted in served.requests if wanted)
            assert name != "a.j2k" or fetched < len(data) / 4


def _length(header: str) -> int:
    first, last = header.removeprefix("bytes=").split("-")
    return int(last) + 1 - int(first)


def test_combined_files(tmp_path):
    """Files whose size is not a multiple of the chunk size are concatenated, and stacked."""
    names = [
        written(tmp_path / f"{i}.j2k", lossless(seed)) for i, seed in enumerate([(200, 260)] * 2)
    ]
    expected = imagecodecs.jpeg2k_decode(names[0].read_bytes())
    stacked = anychunk.open([str(n) for n in names], combine="stack").image(0)
    np.testing.assert_array_equal(stacked[1, 50:99, 60:200], expected[50:99, 60:200])
    joined = anychunk.open([str(n) for n in names], combine="concat", along="y").image(0)
    np.testing.assert_array_equal(joined[150:250], np.vstack([expected] * 2)[150:250])


def test_colours_stacked_along_z(tmp_path):
    """The new axis lies between bands and rows."""
    images = [np.roll(noise((200, 260), 3), shift, axis=1) for shift in (0, 9)]
    names = []
    for number, image in enumerate(images):
        pixels = np.ascontiguousarray(np.moveaxis(image, 0, -1))
        data = imagecodecs.jpeg2k_encode(pixels, level=0, codecformat="J2K", reversible=True)
        names.append(str(written(tmp_path / f"{number}.j2k", data)))
    stacked = anychunk.open(names, combine="stack", along="z").image(0)
    expected = np.stack(images, axis=1)
    assert stacked.shape == expected.shape
    for box in (np.s_[:, 1, 50:99, 60:200], np.s_[1, :, 3:5, 250:], np.s_[...]):
        np.testing.assert_array_equal(stacked[box], expected[box])


@pytest.fixture
def large_tables(monkeypatch):
    """Save tables of small tiles, too."""
    monkeypatch.setattr(tile_tables, "LARGE", 0)


def _no_walk(*args, **options):
    raise AssertionError("a saved table makes the walk superfluous")


@pytest.mark.parametrize("name", ["a.json", "a.parquet", "a.icechunk"])
def test_saved_tables(name, tmp_path, monkeypatch, large_tables):
    """A saved index brings its tables along, and is read by others as whole tiles."""
    pytest.importorskip({"a.parquet": "pyarrow", "a.icechunk": "icechunk"}.get(name, "json"))
    path = written(tmp_path / "a.j2k", lossless())
    index = anychunk.index(path)
    _, expected = levels(path)[0]
    index.save(tmp_path / name)
    windows.TABLES.clear()
    again = anychunk.index(tmp_path / name)
    monkeypatch.setattr(windows, "walk_tile", _no_walk)
    arrays, saved = dict(index.arrays()), dict(again.arrays())
    assert [a.chunk_shape for a in saved.values()] == [a.chunk_shape for a in arrays.values()]
    first = next(iter(saved))
    found = anychunk.open(again)[first]
    np.testing.assert_array_equal(found[30:90, 100:220], expected[30:90, 100:220])
    assert "tables" not in again.attributes.get("anychunk", {})


READ = """
import json, sys
import numpy as np
import anychunk
from anychunk.decode import windows

def walk(*args, **options):
    raise AssertionError("a saved table makes the walk superfluous")

windows.walk_tile = walk
saved, allow, storage, out = json.loads(sys.argv[1])
array = anychunk.open(saved, allow=allow, storage=storage).image(0)
assert array.chunks == (1024, 1024)
np.save(out, array[1000:1100, 1990:2060])
"""


@pytest.fixture(scope="module")
def ramp():
    """An image that is large enough for a saved table, and its codestream."""
    y, x = np.mgrid[:2060, :2060]
    image = ((3 * x + y * y // 64) >> 3).astype("u1")
    return image, imagecodecs.jpeg2k_encode(image, level=0, codecformat="J2K", reversible=True)


def read_elsewhere(tmp_path, saved, allow, storage=None):
    """Read a window of a saved index in a process that has never seen the file."""
    out = str(tmp_path / "out.npy")
    arguments = json.dumps([saved, allow, storage, out])
    done = processes.run(READ, [arguments], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return np.load(out)


def test_saved_tables_in_another_process(ramp, tmp_path, monkeypatch):
    monkeypatch.undo()  # chunks of the usual size
    image, data = ramp
    path = written(tmp_path / "a.j2k", data)
    saved = str(tmp_path / "a.json")
    anychunk.index(path).save(saved)
    found = read_elsewhere(tmp_path, saved, [str(tmp_path)])
    np.testing.assert_array_equal(found, image[1000:1100, 1990:2060])


@needs_s3
def test_saved_tables_on_s3(ramp, tmp_path, monkeypatch):
    monkeypatch.undo()
    image, data = ramp
    (tmp_path / "data" / "bucket").mkdir(parents=True)
    written(tmp_path / "data" / "bucket" / "a.j2k", data)
    with serve_s3(tmp_path / "data") as storage:
        url, saved = "s3://bucket/a.j2k", "s3://bucket/a.json"
        anychunk.index(url, storage=storage).save(saved, storage=storage, target_storage=storage)
        found = read_elsewhere(tmp_path, saved, ["s3://bucket"], storage)
    np.testing.assert_array_equal(found, image[1000:1100, 1990:2060])


def test_saved_chunks_are_whole_tiles(tmp_path, large_tables):
    path = written(tmp_path / "a.j2k", lossless())
    anychunk.index(path).save(tmp_path / "a.json")
    references = json.loads((tmp_path / "a.json").read_text())["refs"]
    documents = [json.loads(v) for k, v in references.items() if k.endswith("zarr.json")]
    shapes = [
        d["chunk_grid"]["configuration"]["chunk_shape"] for d in documents if "chunk_grid" in d
    ]
    assert [200, 260] in shapes


def test_damaged_saved_tables(tmp_path, large_tables):
    path = written(tmp_path / "a.j2k", lossless())
    anychunk.index(path).save(tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    root = json.loads(document["refs"]["zarr.json"])
    [(url, [(offset, table)])] = [
        (url, list(entries.items()))
        for url, entries in root["attributes"]["anychunk"]["tables"].items()
    ]
    for bad in ({url: 3}, {url: {"x": table}}, {url: {offset: "%"}}, {url: {offset: "QTJL"}}, []):
        root["attributes"]["anychunk"]["tables"] = bad
        document["refs"]["zarr.json"] = json.dumps(root)
        (tmp_path / "a.json").write_text(json.dumps(document))
        with pytest.raises(AnychunkError):
            index = anychunk.index(tmp_path / "a.json")
            anychunk.open(index)[next(iter(dict(index.arrays())))][3:5, 3:5]


def test_saved_index_of_a_remote_file(tmp_path, large_tables):
    data = lossless((600, 600))
    written(tmp_path / "a.j2k", data)
    expected = imagecodecs.jpeg2k_decode(data)
    with serve(tmp_path) as served:
        anychunk.index(f"{served.url}/a.j2k").save(tmp_path / "a.json")
        windows.TABLES.clear()
        index = anychunk.index(tmp_path / "a.json", allow=[served.url])
        array = anychunk.open(index)[next(iter(dict(index.arrays())))]
        del served.requests[:]
        np.testing.assert_array_equal(array[200:210, 300:310], expected[200:210, 300:310])
        assert sum(_length(wanted) for _, wanted in served.requests if wanted) < len(data) / 2


@pytest.mark.parametrize("is_compiled", [True, False])
def test_missing_end_of_header_markers_are_errors(tmp_path, monkeypatch, is_compiled):
    """COD announces EPH, which then shall be used: OpenJPEG refuses the whole, we windows as well.

    SOP may be used, so its absence is no error.
    """
    if not is_compiled:
        monkeypatch.setattr(blocks, "loops", None)
    data = bytearray(lossless())
    style = data.index(b"\xff\x52") + 4
    plain = anychunk.open_array(written(tmp_path / "a.j2k", bytes(data)))[...]
    data[style] |= 2
    path = written(tmp_path / "b.j2k", bytes(data))
    np.testing.assert_array_equal(anychunk.open_array(path)[10:40, 20:60], plain[10:40, 20:60])
    data[style] |= 4
    path = written(tmp_path / "c.j2k", bytes(data))
    assert is_divided(anychunk.index(path)["0/0/image"])
    for box in (np.s_[10:40, 20:60], np.s_[...]):
        with pytest.raises(AnychunkError):
            anychunk.open_array(path)[box]
    with pytest.raises(imagecodecs.Jpeg2kError):
        imagecodecs.jpeg2k_decode(bytes(data))
