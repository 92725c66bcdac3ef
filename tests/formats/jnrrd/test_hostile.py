"""Headers that ask for what they must not get: a clear error, in bounded time and memory."""

import contextlib
import gzip
import resource
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anychunk
from anychunk.errors import AnychunkError, ChunkDecodeError, LimitError
from anychunk.formats import jnrrd
from anychunk.formats.jnrrd import tiling_fields
from anychunk.io.buffers import MemorySource
from tests.support.jnrrd_tiles import GRID, cut, external, read
from tests.support.naive_jnrrd import URI, core, tiled, write

TILES = cut(GRID, (3, 4))


@pytest.fixture
def bounded():
    """No case may take more than a few MiB."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 << 20


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    ("sizes", "tile", "more"),
    [
        ([2**60, 2**60], [1, 1], {}),
        ([2**31, 2**30], [1, 1], {}),
        ([2**60], [2**60], {}),
        ([9, 7], [2**60, 2**60], {}),
        ([9, 7], [2**60, 2**60], {"edge_handling": "variable", "overlap": [2**60, 0]}),
        ([9, 7], [2**62, 2**62], {"edge_handling": "variable", "overlap": [2**62, 2**62]}),
        ([9, 7], [2**70, 2**70], {"edge_handling": "variable", "overlap": [2**70, 0]}),
        ([2**40, 2**20], [2**20, 1], {"edge_handling": "variable"}),
        ([9, 7], [4, 3], {"overlap": [2**60, 2**60]}),
        ([9, 7], [4, 3], {"levels": 2**60, "level_scales": [1, 2]}),
        ([9, 7], [4, 3], {"levels": 2, "level_scales": [1, 2**60]}),
        ([9, 7], [4, 3], {"offset_table": [2**63] * 9}),
        ([9, 7], [4, 3], {"size_table": [2**63] * 9}),
        ([9, 7], [4, 3], {"size_table": [2**63] * 9, "compression": "gzip"}),
        ([9, 7], [4, 3], {"offset_table": [2**64 - 1] * 9, "compression": "gzip"}),
    ],
)
def test_absurd_sizes(tmp_path, sizes, tile, more):
    with pytest.raises(AnychunkError, match="tile|sizes|limit"):
        read(tiled(tmp_path / "a.jnrrd", sizes, tile, TILES, **more))


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("edges", ["pad", "variable"])
@pytest.mark.parametrize("pattern", ["{x}_{y}", "{i}", "{x}{y}"])
def test_absurdly_many_external_tiles(tmp_path, edges, pattern):
    path = external(
        tmp_path / "a.jnrrd", [2**25, 2**25], [3, 5], pattern=pattern, edge_handling=edges
    )
    with pytest.raises(AnychunkError, match="limit|at most|too many|varying"):
        anychunk.index(path)


@pytest.mark.usefixtures("bounded")
def test_gzip_bomb_in_a_tile(tmp_path):
    bomb = gzip.compress(bytes(64 << 20))
    tiles = [gzip.compress(t) for t in TILES]
    tiles[4] = bomb
    # modules that the first read imports must not count
    read(
        tiled(
            tmp_path / "b.jnrrd",
            [9, 7],
            [4, 3],
            [gzip.compress(t) for t in TILES],
            compression="gzip",
        )
    )
    for more in ({"size_table": [len(t) for t in tiles]}, {}):
        path = tiled(tmp_path / "a.jnrrd", [9, 7], [4, 3], tiles, compression="gzip", **more)
        tracemalloc.reset_peak()
        with pytest.raises(ChunkDecodeError, match=r"chunk \(1, 1\).*(more|expected)"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
        np.testing.assert_array_equal(anychunk.open_array(path)[:3], GRID[:3])
        finding, *others = jnrrd.validate(path)
        assert "chunk (1, 1)" in finding.message
        # the tiles' sizes are not stated: a warning of its own
        assert [(f.severity, f.field) for f in others] == (
            [] if more else [("warning", "tile:size_table")]
        )


@pytest.mark.usefixtures("bounded")
def test_a_long_stream_is_not_cut_before_its_length_is_checked(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(bytes(1000)))
    header = "NRRD0004\ntype: uchar\ndimension: 2\nsizes: 1048576 1048576\nencoding: gzip\n"
    (tmp_path / "a.nhdr").write_text(f"{header}data file: a.gz\n\n", "ascii")
    with pytest.raises(LimitError, match="expansion"):
        anychunk.index(tmp_path / "a.nhdr")


@pytest.mark.usefixtures("bounded")
def test_bomb_of_a_whole_stream(tmp_path):
    path = write(
        tmp_path / "a.jnrrd", core([4, 4], encoding="gzip"), gzip.compress(bytes(64 << 20))
    )
    with pytest.raises(ChunkDecodeError):
        read(path)
    path = write(tmp_path / "b.jnrrd", core([2**16, 2**15], encoding="gzip"), gzip.compress(b""))
    with pytest.raises(LimitError, match="expansion"):
        anychunk.index(path)


@pytest.mark.usefixtures("bounded")
def test_huge_external_tile(tmp_path):
    (tmp_path / "0").write_bytes(b"")
    with (tmp_path / "0").open("wb") as file:
        file.truncate(1 << 40)
    path = external(tmp_path / "a.jnrrd", [4], [4], pattern="{x}")
    with pytest.raises(LimitError):
        read(path)


def test_wrong_checksum_names_the_tile(tmp_path):
    entries = [{"checksum": f"{zlib.crc32(t):08x}", "checksum_algorithm": "crc32"} for t in TILES]
    path = tiled(tmp_path / "a.jnrrd", [9, 7], [4, 3], TILES, metadata=entries)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        ChunkDecodeError, match=r"a.jnrrd 0/0/image chunk \(2, 2\), bytes 4192..4204: .*checksum"
    ):
        read(path)


def test_truncated_data(tmp_path):
    path = tiled(tmp_path / "a.jnrrd", [9, 7], [4, 3], TILES)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(AnychunkError, match=r"tile \[2, 2\] of level 0 is 12 bytes at 4192"):
        anychunk.index(path)


def test_many_open_files_are_not_needed(tmp_path):
    """Each external tile is opened and closed: more tiles than a process may have files open."""
    values = np.arange(400, dtype=np.uint8)
    for number, value in enumerate(values):
        (tmp_path / f"{number}").write_bytes(bytes([value]))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    already = len(list(Path("/proc/self/fd").iterdir()))  # other tests may hold some
    resource.setrlimit(resource.RLIMIT_NOFILE, (already + 50, hard))
    try:
        np.testing.assert_array_equal(
            read(external(tmp_path / "a.jnrrd", [400], [1], pattern="{i}")), values
        )
        np.testing.assert_array_equal(
            read(external(tmp_path / "b.jnrrd", [400], [1], pattern="{x}")), values
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


json_values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=6)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = list(tiling_fields.schema()["properties"])


@given(
    changes=st.dictionaries(
        st.sampled_from(
            [
                *(f"tile:{f}" for f in FIELDS),
                "type",
                "sizes",
                "dimension",
                "encoding",
                "endian",
                "labels",
                "kinds",
                "space_directions",
                "space_origin",
                "spacings",
                "units",
                "space_units",
                "content",
                "extensions",
                "data_file",
                "byte_skip",
                "line_skip",
                "tile:sizes[0]",
                "tile:files[1].file",
            ]
        ),
        json_values,
        max_size=3,
    )
)
@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@pytest.mark.filterwarnings("ignore::anychunk.errors.FormatWarning")
def test_any_values_of_fields(tmp_path, changes):
    fields = core([9, 7], extensions={"tile": URI}) | {
        "tile:enabled": True,
        "tile:dimensions": [0, 1],
        "tile:sizes": [4, 3],
        "tile:storage": "internal",
        "tile:offset_table": [1024 + 12 * n for n in range(9)],
    }
    path = write(tmp_path / "a.jnrrd", fields | changes)
    path.write_bytes(path.read_bytes().ljust(1024) + b"".join(TILES))
    try:
        index = anychunk.index(path)
        for _, array in index.arrays():
            if np.prod(array.shape, dtype=float) < 1e5:
                assert anychunk.open_array(index)[...].size
    except (AnychunkError, FileNotFoundError):
        pass
    assert isinstance(jnrrd.validate(path), list)


@given(data=st.binary(max_size=300), cut_at=st.integers(0, 400))
@settings(max_examples=200, deadline=None)
@pytest.mark.filterwarnings("ignore::anychunk.errors.FormatWarning")
def test_any_bytes_after_the_magic(data, cut_at):
    text = b'{"jnrrd": "0004"}\n{"type": "uint8"}\n{"dimension": 1}\n{"sizes": [3]}\n{"encoding": "raw"}\n'
    for start in (
        text[:cut_at],
        text,
        b"NRRD0004\ntype: uint8\ndimension: 1\nsizes: 3\nencoding: raw\n",
    ):
        source = MemorySource(start + data, "any")
        if jnrrd.sniff(start):
            with contextlib.suppress(AnychunkError, FileNotFoundError, IsADirectoryError):
                assert jnrrd.parse(source)["0/0/image"].shape


def test_names_are_limited_for_all_levels_together(tmp_path):
    more = {"levels": 3, "level_scales": [1, 2, 4], "pattern": "{l}_{i}"}
    path = external(tmp_path / "a.jnrrd", [512, 450], [1, 1], **more)
    with pytest.raises(LimitError, match="302"):
        anychunk.index(path)
