"""The tiling extension: one test for each ruling on what its text leaves open, by its name there."""

import zlib

import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError, ChunkDecodeError, FormatError, FormatWarning
from anychunk.formats import jnrrd
from tests.support import naive_jnrrd as naive
from tests.support.jnrrd_tiles import ENCODE, GRID, cut, header, read
from tests.support.naive_jnrrd import URI, core, tiled, write


def test_order(tmp_path):
    """Dimension 0 is fastest in the grid and inside a tile; a subset of axes in any order."""
    path = tiled(tmp_path / "a.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)))
    np.testing.assert_array_equal(read(path), GRID)
    # the document's table: tile [1,0,0] has index 1, [0,1,0] index 2, [0,0,1] index 4
    cube = np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    path = tiled(tmp_path / "b.jnrrd", [2, 2, 2], [1, 1, 1], [bytes([n]) for n in range(8)])
    np.testing.assert_array_equal(read(path), cube)
    volume = np.arange(5 * 4 * 6, dtype=np.uint8).reshape(5, 4, 6)
    for dims, steps in (([2, 0], (2, 3)), ([0, 2], (3, 2)), ([1], (3,))):
        size = dict(zip(dims, steps, strict=True))
        grids = [range(-(-(6, 4, 5)[d] // size[d])) for d in dims]
        tiles = []
        # the first listed is the fastest
        for index in np.ndindex(*(len(g) for g in reversed(grids))):
            place = dict(zip(dims, reversed(index), strict=True))
            box = np.zeros([size.get(d, (6, 4, 5)[d]) for d in (2, 1, 0)], np.uint8)
            part = volume[
                tuple(
                    slice(place.get(d, 0) * size[d], (place.get(d, 0) + 1) * size[d])
                    if d in size
                    else slice(None)
                    for d in (2, 1, 0)
                )
            ]
            box[tuple(slice(n) for n in part.shape)] = part
            tiles.append(box.tobytes())
        path = tiled(tmp_path / "c.jnrrd", [6, 4, 5], list(steps), tiles, dimensions=dims)
        np.testing.assert_array_equal(read(path), volume)


def test_coordinates(tmp_path):
    """Functions take tile indices and never divide them again."""
    path = tiled(tmp_path / "a.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)))
    np.testing.assert_array_equal(jnrrd.read_tile(path, (2, 1)), GRID[6:7, 4:8])
    np.testing.assert_array_equal(jnrrd.read_tile(path, (0, 2)), GRID[0:3, 8:9])
    assert jnrrd.tile_of_voxel(path, (6, 4)) == (2, 1)
    assert jnrrd.tile_of_voxel(path, (2, 8)) == (0, 2)
    for bad in ((3, 0), (0, 3), (-1, 0), (0,), (0, 0, 0)):
        with pytest.raises(FormatError):
            jnrrd.read_tile(path, bad)
    with pytest.raises(FormatError, match="outside level 0"):
        jnrrd.tile_of_voxel(path, (7, 0))
    with pytest.raises(FormatError, match="level 1, .* 1"):
        jnrrd.read_tile(path, (0, 0), level=1)


def test_offsets(tmp_path):
    """Absolute; the offset table rules, level_offsets only advise."""
    tiles = cut(GRID, (4, 5))
    coarse = GRID[:6:2, :8:2].copy()
    more = {"levels": 2, "level_scales": [1, 2], "level_tile_sizes": [[5, 4], [4, 3]]}
    start = 4096 + 80
    path = tiled(
        tmp_path / "a.jnrrd",
        [9, 7],
        [5, 4],
        [*tiles, coarse.tobytes()],
        level_offsets=[4096, start],
        **more,
    )
    np.testing.assert_array_equal(read(path, 1), coarse)
    path = tiled(
        tmp_path / "b.jnrrd",
        [9, 7],
        [5, 4],
        [*tiles, coarse.tobytes()],
        level_offsets=[1, 2],
        **more,
    )
    with pytest.warns(FormatWarning, match="level [01] is at [12], .* 4"):
        np.testing.assert_array_equal(read(path, 1), coarse)
    for bad, match in (
        (100, r"80 bytes at 100|20 bytes at 100"),
        (4096 + 10**6, f"bytes at {4096 + 10**6}"),
        (2**70, f"{2**70}"),
        (-5, "-5"),
        (1.5, "expected an integer|not of type"),
    ):
        with pytest.raises(FormatError, match=f"offset_table.*{match}"):
            read(
                tiled(
                    tmp_path / "c.jnrrd",
                    [9, 7],
                    [5, 4],
                    tiles,
                    offset_table=[4096, bad, 4096, 4096],
                )
            )


def test_header_contains_its_own_length(tmp_path):
    """A fixed point, then spaces at the end of the last line: data at a multiple of 1024."""
    for count in (1, 60, 61, 62, 63, 64, 65, 200, 2000):
        path = tmp_path / "a.jnrrd"
        anychunk.write(np.zeros(count, np.uint8), path, chunk=(1,), overwrite=True)
        data = path.read_bytes()
        offsets = header(path)["tile:offset_table"]
        end = data.index(b"\n\n") + 2
        assert offsets[0] == end
        assert end % 1024 == 0
        assert len(data) == end + count
        last = data[:end].split(b"\n")[-3]
        assert last.startswith(b'{"tile:offset_table"')
        # no smaller multiple would have held it
        assert len(data[: end - 2].rstrip(b" ")) + 2 > end - 1024 - len("contiguous")


@pytest.mark.parametrize("compression", [c for c in ENCODE if c != "raw"])
def test_size_table(tmp_path, compression):
    """Without it a tile goes up to the next offset or the end, and its decoder stops by itself."""
    tiles = [ENCODE[compression](t) for t in cut(GRID, (3, 4))]
    sizes = [len(t) for t in tiles]
    path = tiled(
        tmp_path / "a.jnrrd", [9, 7], [4, 3], tiles, compression=compression, size_table=sizes
    )
    np.testing.assert_array_equal(read(path), GRID)
    gaps = [t + b"\x00garbage" * (i % 3) for i, t in enumerate(tiles)]
    path = tiled(tmp_path / "b.jnrrd", [9, 7], [4, 3], gaps, compression=compression)
    np.testing.assert_array_equal(read(path), GRID)
    order = [4, 2, 0, 8, 6, 1, 3, 5, 7]
    starts = np.cumsum([4096, *(len(gaps[i]) for i in order)]).tolist()
    offsets = [starts[order.index(i)] for i in range(9)]
    path = tiled(
        tmp_path / "c.jnrrd",
        [9, 7],
        [4, 3],
        [gaps[i] for i in order],
        compression=compression,
        offset_table=offsets,
    )
    np.testing.assert_array_equal(read(path), GRID)
    for options, has in (
        ({}, False),
        ({"compression": compression}, True),
        ({"edges": "cropped"}, True),
        ({"halo": (1, 1)}, True),
    ):
        anychunk.write(GRID, tmp_path / "d.jnrrd", chunk=(3, 4), **options, overwrite=True)
        assert ("tile:size_table" in header(tmp_path / "d.jnrrd")) == has


def test_format(tmp_path):
    """Contiguous exactly when in index order without gaps."""
    for asked in ("contiguous", "chunked"):
        anychunk.write(
            GRID, tmp_path / "a.jnrrd", chunk=(3, 4), chunk_order=asked, levels=2, overwrite=True
        )
        found = header(tmp_path / "a.jnrrd")
        assert found["tile:format"] == asked
        offsets = found["tile:offset_table"]
        assert (offsets == sorted(offsets)) == (asked == "contiguous")
        np.testing.assert_array_equal(read(tmp_path / "a.jnrrd"), GRID)
        assert jnrrd.validate(tmp_path / "a.jnrrd") == []
    anychunk.write(GRID, tmp_path / "b.jnrrd", chunk=(7, 9), chunk_order="chunked")
    assert header(tmp_path / "b.jnrrd")["tile:format"] == "contiguous"
    path = tiled(tmp_path / "c.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)), format="chunked")
    assert jnrrd.validate(path) == []
    assert anychunk.verify(path).findings == []
    # as long as before: three of the spaces that the header ends with are left out
    data = (tmp_path / "a.jnrrd").read_bytes()
    wrong = data.replace(b'"chunked"', b'"contiguous"').replace(b"   \n\n", b"\n\n", 1)
    assert len(wrong) == len(data)
    (tmp_path / "d.jnrrd").write_bytes(wrong)
    (finding,) = jnrrd.validate(tmp_path / "d.jnrrd")
    assert (finding.severity, finding.field) == ("warning", "tile:format")


@pytest.mark.parametrize(
    ("options", "version"),
    [
        ({}, "v1.0.0"),
        ({"padding_value": 3, "halo": (1, 1), "levels": 2, "compression": "gzip"}, "v1.0.0"),
        ({"sparse": True}, "v1.1.0"),
        ({"sparse": True, "external": True, "files": True}, "v1.1.0"),
        ({"padding_value": np.nan}, "v1.1.0"),
    ],
)
def test_declared_version(tmp_path, options, version):
    """Tiles that are left out, and NaN as null, are features of version 1.1."""
    values = np.where(GRID < 40, 0, GRID).astype("float32")
    anychunk.write(values, tmp_path / "a.jnrrd", chunk=(3, 4), **options)
    found = header(tmp_path / "a.jnrrd")
    assert found["extensions"]["tile"].rpartition("/")[2] == version
    assert (0 in found.get("tile:size_table", [])) <= (version == "v1.1.0")
    np.testing.assert_array_equal(read(tmp_path / "a.jnrrd"), values)
    assert anychunk.verify(tmp_path / "a.jnrrd").is_good


def test_edges(tmp_path):
    """Pad: full tiles with the padding value at the high end. Variable: cropped tiles."""
    path = tiled(tmp_path / "a.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4), pad=99), padding_value=99)
    np.testing.assert_array_equal(read(path), GRID)
    assert anychunk.open_array(path).fill_value == 99
    tiles = cut(GRID, (3, 4), variable=True)
    sizes = [len(t) for t in tiles]
    for more in ({"size_table": sizes}, {}):
        path = tiled(tmp_path / "b.jnrrd", [9, 7], [4, 3], tiles, edge_handling="variable", **more)
        np.testing.assert_array_equal(read(path), GRID)
    anychunk.write(GRID, tmp_path / "c.jnrrd", chunk=(3, 4), padding_value=99)
    data, found = (tmp_path / "c.jnrrd").read_bytes(), header(tmp_path / "c.jnrrd")
    assert found["tile:padding_value"] == 99
    np.testing.assert_array_equal(
        np.frombuffer(data[found["tile:offset_table"][8] :], np.uint8).reshape(3, 4),
        [[62, 99, 99, 99], [99] * 4, [99] * 4],
    )
    for bad in (-1, 256, 1.5):
        with pytest.raises(FormatError, match="padding_value"):
            read(tiled(tmp_path / "d.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)), padding_value=bad))


@pytest.mark.parametrize("compression", ENCODE)
def test_overlap(tmp_path, compression):
    """A halo around the tile; another number or size of tiles is an error."""

    def file(tiles, tile, **more):
        stored = [ENCODE[compression](t) for t in tiles]
        return tiled(
            tmp_path / "a.jnrrd",
            [9, 7],
            tile,
            stored,
            compression=compression,
            size_table=[len(t) for t in stored],
            **more,
        )

    halo = file(cut(GRID, (4, 4), halo=(1, 2), pad=3), [4, 4], overlap=[2, 1], padding_value=3)
    np.testing.assert_array_equal(read(halo), GRID)
    clipped = file(
        cut(GRID, (4, 4), halo=(1, 2), variable=True),
        [4, 4],
        overlap=[2, 1],
        edge_handling="variable",
    )
    np.testing.assert_array_equal(read(clipped), GRID)
    np.testing.assert_array_equal(jnrrd.read_tile(clipped, (1, 1)), GRID[4:7, 4:8])
    # tiles of 4 x 4 that share 1 voxel with the next: steps of 3
    wide = np.pad(GRID, (0, 8))
    shared = [wide[y : y + 4, x : x + 4].tobytes() for y in (0, 3) for x in (0, 3, 6)]
    # tiles of 5 x 5 of which a border of 1 on each side is the neighbours': steps of 3
    wide = np.pad(GRID, ((1, 8), (1, 8)))
    border = [wide[y : y + 5, x : x + 5].tobytes() for y in (0, 3, 6) for x in (0, 3, 6)]
    others = [
        (shared, [4, 4], [1, 1]),
        (border, [5, 5], [1, 1]),
        (border[:4], [5, 5], [1, 1]),
        ([b"x" * 17] * 6, [4, 4], [2, 1]),
        ([b"x" * 49] * 6, [4, 4], [2, 1]),
    ]
    for tiles, tile, overlap in others:
        with pytest.raises(FormatError, match="tile:overlap"):
            read(file(tiles, tile, overlap=overlap))


@pytest.mark.parametrize("format", ["contiguous", "chunked"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_overlap_without_a_size_table(tmp_path, format, compression):
    """The room up to the next tile tells the size of raw tiles; others are decoded."""
    line = np.arange(10, dtype=np.uint8)
    wide = np.pad(line, (1, 6))
    halo = [wide[0:8].tobytes(), wide[6:14].tobytes()]
    shared = [line[0:6].tobytes(), line[4:10].tobytes()]
    encode = ENCODE[compression] if compression else bytes
    more = {"compression": compression} if compression else {}
    for tiles, overlap in ((halo, 1), (shared, 2)):
        path = tiled(
            tmp_path / "a.jnrrd", [10], [6], [encode(t) for t in tiles],
            overlap=[overlap], format=format, **more,
        )  # fmt: skip
        if tiles is halo:
            np.testing.assert_array_equal(read(path), line)
            continue
        with pytest.raises(FormatError, match=r"tile:overlap: \[2\]"):
            read(path)


def test_external_tiles_that_are_not_a_halo(tmp_path):
    """The first tile is read: its size must be that of the halo."""
    options = {"chunk": [4], "external": True, "pattern": "{x}.raw", "halo": [1]}
    anychunk.write(np.arange(8, dtype="u1"), tmp_path / "a.jnrrd", **options)
    assert (tmp_path / "0.raw").read_bytes() == bytes([0, 0, 1, 2, 3, 4])
    for count in (4, 7):
        (tmp_path / "0.raw").write_bytes(bytes(count))
        with pytest.raises(FormatError, match=r"tile:overlap: \[1\]"):
            anychunk.index(tmp_path / "a.jnrrd")
    (tmp_path / "0.raw").unlink()
    with pytest.raises(FormatError, match="missing"):
        anychunk.index(tmp_path / "a.jnrrd")


@pytest.mark.parametrize("compression", ENCODE)
def test_compression(tmp_path, compression):
    """gzip, bzip2, zstd and LZ4 frames; streams of several members; one level a tile."""
    tiles = cut(GRID, (3, 4))
    split = [ENCODE[compression](t[:5]) + ENCODE[compression](t[5:]) for t in tiles]
    for stored in (split, [ENCODE[compression](t) for t in tiles]):
        path = tiled(
            tmp_path / "a.jnrrd",
            [9, 7],
            [4, 3],
            stored,
            compression=compression,
            size_table=[len(t) for t in stored],
            compression_levels=[3] * 9,
        )
        np.testing.assert_array_equal(read(path), GRID)
    levels = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    anychunk.write(
        GRID, tmp_path / "b.jnrrd", chunk=(3, 4), compression=compression, compression_level=levels
    )
    assert header(tmp_path / "b.jnrrd")["tile:compression_levels"] == levels
    assert header(tmp_path / "b.jnrrd").get("tile:compression", "raw") == compression
    np.testing.assert_array_equal(naive.read(tmp_path / "b.jnrrd"), GRID)
    with pytest.raises(AnychunkError, match="compression_level has 2 entries, expected 9"):
        anychunk.write(
            GRID,
            tmp_path / "c.jnrrd",
            chunk=(3, 4),
            compression=compression,
            compression_level=[1, 2],
        )
    if compression != "raw":
        with pytest.raises(AnychunkError, match="level 99"):
            anychunk.write(
                GRID,
                tmp_path / "c.jnrrd",
                chunk=(3, 4),
                compression=compression,
                compression_level=99,
            )


def test_encoding(tmp_path):
    """Says nothing when tiled: written raw; anything else with internal tiles is an error."""
    anychunk.write(
        GRID, tmp_path / "a.jnrrd", chunk=(3, 4), compression="gzip", header={"encoding": "gzip"}
    )
    assert header(tmp_path / "a.jnrrd")["encoding"] == "raw"
    path = tiled(tmp_path / "b.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)), **{":": None})
    path.write_bytes(path.read_bytes().replace(b'"encoding": "raw"', b'"encoding": "hex"'))
    with pytest.raises(FormatError, match="tile:storage: .*'hex'"):
        read(path)
    # the document's own example of external tiles has no encoding at all
    for (y, x), tile in zip(
        ((y, x) for y in range(3) for x in range(3)), cut(GRID, (3, 4)), strict=True
    ):
        (tmp_path / f"{y}_{x}.raw").write_bytes(tile)
    fields = core([9, 7], extensions={"tile": URI}) | {
        "tile:enabled": True,
        "tile:dimensions": [0, 1],
        "tile:sizes": [4, 3],
        "tile:storage": "external",
        "tile:pattern": "{y}_{x}.raw",
    }
    del fields["encoding"]
    np.testing.assert_array_equal(read(write(tmp_path / "c.jnrrd", fields)), GRID)


def test_metadata(tmp_path):
    """One object a tile in table order; a checksum is verified where its algorithm is named."""
    values = np.pad(GRID, ((0, 2), (0, 3)))[:7, :9] + np.uint8(10)
    path = tmp_path / "a.jnrrd"
    anychunk.write(
        values, path, chunk=(4, 4), chunk_metadata=True, compression="zstd", levels=2, halo=(1, 0)
    )
    found, data = header(path), path.read_bytes()
    assert len(found["tile:metadata"]) == len(found["tile:offset_table"]) == 2 * 3 + 1 * 1
    for entry, start, size in zip(
        found["tile:metadata"], found["tile:offset_table"], found["tile:size_table"], strict=True
    ):
        assert entry["checksum"] == f"{zlib.crc32(data[start : start + size]):08x}"
        assert entry["checksum_algorithm"] == "crc32"
    # of valid voxels only: padding is 0, below every sample
    assert found["tile:metadata"][0]["min"] == values[:4, :4].min()
    assert found["tile:metadata"][5]["max"] == values[4:7, 8:9].max()
    assert found["tile:metadata"][5]["min"] == values[4:7, 8:9].min()
    np.testing.assert_array_equal(read(path), values)
    for algorithm, is_verified in (("crc32", True), (None, False)):
        tiles = cut(GRID, (3, 4))
        entries = [
            {"checksum": f"{zlib.crc32(t):08x}", "checksum_algorithm": algorithm} for t in tiles
        ]
        entries[4]["checksum"] = "deadbeef"
        entries = [{k: v for k, v in e.items() if v} for e in entries]
        path = tiled(tmp_path / "b.jnrrd", [9, 7], [4, 3], tiles, metadata=entries)
        if is_verified:
            with pytest.raises(ChunkDecodeError, match=r"chunk \(1, 1\).*expected deadbeef"):
                read(path)
            np.testing.assert_array_equal(anychunk.open_array(path)[:3], GRID[:3])
            (finding,) = jnrrd.validate(path)
            assert finding.field == "tile:metadata"
        else:
            np.testing.assert_array_equal(read(path), GRID)
    nonsense = [{"checksum": "e5f6g7h8", "checksum_algorithm": "crc32"}] * 9
    with pytest.raises(FormatError, match=r"tile \[0, 0\] .*'e5f6g7h8'"):
        read(tiled(tmp_path / "c.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)), metadata=nonsense))
    other = [{"checksum": "00", "checksum_algorithm": "md5"}] * 9
    with pytest.warns(FormatWarning, match="'md5'"):
        read(tiled(tmp_path / "d.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)), metadata=other))
