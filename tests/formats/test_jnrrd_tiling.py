"""The tiling extension: one test for each ruling on what its text leaves open, by its name there."""

import bz2
import gzip
import json
import math
import zlib

import imagecodecs
import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError, ChunkDecodeError, FormatError, FormatWarning
from anychunk.formats import jnrrd
from anychunk.formats.jnrrd import tiling
from anychunk.source import open_source
from tests.formats import naive_jnrrd as naive
from tests.formats.naive_jnrrd import URI, core, tiled, write

GRID = np.arange(9 * 7, dtype=np.uint8).reshape(7, 9)
ENCODE = {
    "raw": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "zstd": lambda data: bytes(imagecodecs.zstd_encode(data)),
    "lz4": lambda data: bytes(imagecodecs.lz4f_encode(data)),
}


def cut(array, tile, *, pad=0, halo=(0, 0), variable=False):
    """Cut a 2-D array into tiles in table order, x fastest."""
    rows, columns = array.shape
    wide = np.pad(
        array, [(halo[0], halo[0] + tile[0]), (halo[1], halo[1] + tile[1])], constant_values=pad
    )
    tiles = []
    for y in range(0, rows, tile[0]):
        for x in range(0, columns, tile[1]):
            if variable:
                part = array[
                    max(0, y - halo[0]) : y + tile[0] + halo[0],
                    max(0, x - halo[1]) : x + tile[1] + halo[1],
                ]
            else:
                part = wide[y : y + tile[0] + 2 * halo[0], x : x + tile[1] + 2 * halo[1]]
            tiles.append(part.tobytes())
    return tiles


def read(path, level=0, **options):
    return anychunk.open_array(path, level=level, **options)[...]


def header(path):
    return jnrrd.read_header(open_source(str(path))).fields


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
    with pytest.raises(FormatError, match="level 1, there are 1"):
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
    with pytest.warns(FormatWarning, match="level [01] at [12], but its tiles are at 4"):
        np.testing.assert_array_equal(read(path, 1), coarse)
    for bad, match in (
        (100, "expected inside the data"),
        (4096 + 10**6, "expected inside the data"),
        (2**70, "no file can have"),
        (-5, "no file can have|minimum"),
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
        anychunk.write(np.zeros(count, np.uint8), path, tile=1)
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
        ({"edge_handling": "variable"}, True),
        ({"overlap": 1}, True),
    ):
        anychunk.write(GRID, tmp_path / "d.jnrrd", tile=(3, 4), **options)
        assert ("tile:size_table" in header(tmp_path / "d.jnrrd")) == has


def test_format(tmp_path):
    """Contiguous exactly when in index order without gaps."""
    for asked in ("contiguous", "chunked"):
        anychunk.write(GRID, tmp_path / "a.jnrrd", tile=(3, 4), format=asked, levels=2)
        found = header(tmp_path / "a.jnrrd")
        assert found["tile:format"] == asked
        offsets = found["tile:offset_table"]
        assert (offsets == sorted(offsets)) == (asked == "contiguous")
        np.testing.assert_array_equal(read(tmp_path / "a.jnrrd"), GRID)
        assert jnrrd.validate(tmp_path / "a.jnrrd") == []
    anychunk.write(GRID, tmp_path / "b.jnrrd", tile=(7, 9), format="chunked")
    assert header(tmp_path / "b.jnrrd")["tile:format"] == "contiguous"
    path = tiled(tmp_path / "c.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)), format="chunked")
    (finding,) = jnrrd.validate(path)
    assert (finding.severity, finding.field) == ("warning", "tile:format")


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
    anychunk.write(GRID, tmp_path / "c.jnrrd", tile=(3, 4), padding_value=99)
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
    """A halo around the tile; other readings by count and size; what cannot be told is an error."""

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
    np.testing.assert_array_equal(read(file(shared, [4, 4], overlap=[1, 1])), GRID)
    # tiles of 5 x 5 of which a border of 1 on each side is the neighbours': steps of 3
    wide = np.pad(GRID, ((1, 8), (1, 8)))
    border = [wide[y : y + 5, x : x + 5].tobytes() for y in (0, 3, 6) for x in (0, 3, 6)]
    np.testing.assert_array_equal(read(file(border, [5, 5], overlap=[1, 1])), GRID)
    with pytest.raises(AnychunkError, match="no way to overlap fits|has 17 bytes|decodes to 17"):
        read(file([b"x" * 17] * 6, [4, 4], overlap=[2, 1]))


def test_overlap_that_cannot_be_told(tmp_path):
    line = np.arange(10, dtype=np.uint8)
    # two tiles of 6: sharing 2 voxels (0-6, 4-10), or with borders of 2 (steps of 2) they would be five
    shared = [line[0:6].tobytes(), line[4:10].tobytes()]
    path = tiled(tmp_path / "a.jnrrd", [10], [6], shared, overlap=[2])
    np.testing.assert_array_equal(read(path), line)
    # tiles anywhere and no sizes: a halo of 1 and shared voxels both leave room
    gaps = [bytes(50), bytes(50)]
    path = tiled(tmp_path / "b.jnrrd", [10], [6], gaps, overlap=[1], format="chunked")
    with pytest.raises(FormatError, match="several ways to overlap fit"):
        read(path)


def test_levels(tmp_path):
    """max(1, dim // scale); scalar or per-axis scales; tile sizes a level."""
    found = tiling.complete(
        {
            "enabled": True,
            "dimensions": [0, 2],
            "sizes": [4, 4],
            "storage": "external",
            "pattern": "{x}{y}",
            "levels": 3,
            "level_scales": [1, [2, 1], 16],
        }
    )
    volume = jnrrd.volume.read_volume(core([13, 9, 6]), "a")
    made, findings = tiling.read_tiling(found, volume)
    assert findings == ()
    levels = tiling.levels_of(made, volume)
    assert [x.sizes for x in levels] == [(13, 9, 6), (6, 9, 6), (1, 9, 1)]
    assert [x.tile for x in levels] == [(4, 9, 4)] * 3
    assert [x.scale for x in levels] == [(1, 1, 1), (2, 1, 1), (16, 1, 16)]
    cube = np.arange(13 * 9 * 6, dtype=np.uint16).reshape(6, 9, 13)
    path = tmp_path / "a.jnrrd"
    anychunk.write(
        cube,
        path,
        tile=(2, 4, 5),
        level_scales=[1, (1, 2, 3), 4],
        level_tile_sizes=[(2, 4, 5), (3, 3, 3), (1, 2, 2)],
        downsample="max",
    )
    assert header(path)["tile:level_scales"] == [1, [3, 2, 1], 4]
    assert header(path)["tile:level_tile_sizes"] == [[5, 4, 2], [3, 3, 3], [2, 2, 1]]
    assert anychunk.open_array(path, level=1).chunks == (3, 3, 3)
    np.testing.assert_array_equal(
        read(path, 1), cube[:, :8, :12].reshape(6, 1, 4, 2, 4, 3).max((1, 3, 5))
    )
    np.testing.assert_array_equal(
        read(path, 2), cube[:4, :8, :12].reshape(1, 4, 2, 4, 3, 4).max((1, 3, 5))
    )
    (image,) = anychunk.open(path)["0"].attrs["ome"]["multiscales"]
    assert image["datasets"][1]["coordinateTransformations"] == [
        {"type": "scale", "scale": [1.0, 2.0, 3.0]},
        {"type": "translation", "translation": [0.0, 0.5, 1.0]},
    ]


def test_virtual_levels(tmp_path):
    """In no table, 0 in level_offsets; computed from the nearest finer stored level."""
    values = np.random.default_rng(2).integers(0, 999, (20, 30), dtype=np.uint16)
    path = tmp_path / "a.jnrrd"
    anychunk.write(
        values, path, tile=(4, 8), levels=5, levels_virtual=[1, 3, 4], downsample="average"
    )
    found = header(path)
    assert found["tile:levels_stored"] == [0, 2]
    assert found["tile:levels_virtual"] == [1, 3, 4]
    assert [o > 0 for o in found["tile:level_offsets"]] == [True, False, True, False, False]
    assert len(found["tile:offset_table"]) == 5 * 4 + 2 * 1
    half = anychunk.downsample.downsample
    np.testing.assert_array_equal(read(path, 1), half(values, (2, 2)))
    stored = read(path, 2)
    np.testing.assert_array_equal(stored, half(values, (4, 4)))
    np.testing.assert_array_equal(read(path, 3), half(stored, (2, 2)))
    np.testing.assert_array_equal(read(path, 4), half(stored, (4, 4)))
    assert read(path, 4).shape == (1, 1)
    np.testing.assert_array_equal(
        jnrrd.read_tile(path, (1, 1), level=1), half(values, (2, 2))[4:8, 8:15]
    )
    array = anychunk.open_array(path, level=1)
    assert array[3, 5] == half(values, (2, 2))[3, 5]
    with pytest.raises(AnychunkError, match="level 0 is the data"):
        anychunk.write(values, path, tile=(4, 8), levels=2, levels_virtual=[0])


@pytest.mark.parametrize("method", ["average", "gaussian", "lanczos", "max", "min", "mode"])
def test_downsampling(tmp_path, method):
    """Levels equal the method on the whole volume, whether tiles hold whole windows or not."""
    values = np.random.default_rng(4).integers(0, 9, (11, 22, 17)).astype(np.int16)
    for tile, scales in (
        ((4, 8, 8), [1, 2, 4]),
        ((3, 5, 7), [1, 2, (2, 3, 2)]),
        ((4, 30, 30), [1, 32]),
    ):
        path = tmp_path / f"{method}.jnrrd"
        anychunk.write(values, path, tile=tile, level_scales=scales, downsample=method)
        assert header(path)["tile:downsample_method"] == method
        for level, scale in enumerate(scales[1:], 1):
            ratio = (scale,) * 3 if isinstance(scale, int) else scale
            np.testing.assert_array_equal(
                read(path, level), anychunk.downsample.downsample(values, ratio, method)
            )


def test_quality(tmp_path):
    """PSNR and RMSE of a level brought back to full resolution."""
    values = np.random.default_rng(5).integers(0, 255, (9, 14), dtype=np.uint8)
    path = tmp_path / "a.jnrrd"
    anychunk.write(values, path, tile=(4, 4), levels=3, levels_virtual=[2], quality=True)
    first, second, third = header(path)["tile:level_quality"]
    assert first == {"psnr": 100.0, "rmse": 0.0}
    back = read(path, 1).astype(float)[np.minimum(np.arange(9) // 2, 3)][
        :, np.minimum(np.arange(14) // 2, 6)
    ]
    error = math.sqrt(((values - back) ** 2).mean())
    assert second["rmse"] == pytest.approx(error, rel=1e-12)
    assert second["psnr"] == pytest.approx(20 * math.log10(255 / error), rel=1e-12)
    assert third == {}
    assert anychunk.open(path)["0"].attrs["jnrrd"]["tile:level_quality"][0] == first
    anychunk.write(values.astype("f4") / 7, path, tile=(4, 4), levels=2, quality=True)
    assert header(path)["tile:level_quality"][1]["rmse"] == pytest.approx(error / 7, rel=0.05)
    anychunk.write(values, path, tile=(4, 4), levels=2)
    assert "tile:level_quality" not in header(path)


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
        GRID, tmp_path / "b.jnrrd", tile=(3, 4), compression=compression, compression_levels=levels
    )
    assert header(tmp_path / "b.jnrrd")["tile:compression_levels"] == levels
    assert header(tmp_path / "b.jnrrd").get("tile:compression", "raw") == compression
    np.testing.assert_array_equal(naive.read(tmp_path / "b.jnrrd"), GRID)
    with pytest.raises(AnychunkError, match="compression_levels for 9 tiles"):
        anychunk.write(
            GRID,
            tmp_path / "c.jnrrd",
            tile=(3, 4),
            compression=compression,
            compression_levels=[1, 2],
        )
    if compression != "raw":
        with pytest.raises(AnychunkError, match="level 99"):
            anychunk.write(
                GRID,
                tmp_path / "c.jnrrd",
                tile=(3, 4),
                compression=compression,
                compression_levels=99,
            )


def test_encoding(tmp_path):
    """Says nothing when tiled: written raw; anything else with internal tiles is an error."""
    anychunk.write(
        GRID, tmp_path / "a.jnrrd", tile=(3, 4), compression="gzip", header={"encoding": "gzip"}
    )
    assert header(tmp_path / "a.jnrrd")["encoding"] == "raw"
    path = tiled(tmp_path / "b.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)), **{":": None})
    path.write_bytes(path.read_bytes().replace(b'"encoding": "raw"', b'"encoding": "hex"'))
    with pytest.raises(FormatError, match="internal tiles with encoding 'hex'"):
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


def external(path, sizes, tile, **more):
    fields = core(
        sizes, extensions={"tile": URI}, **{k: more.pop(k) for k in ("labels",) if k in more}
    )
    fields |= {
        "tile:enabled": True,
        "tile:dimensions": more.pop("dimensions", list(range(len(tile)))),
        "tile:sizes": tile,
        "tile:storage": "external",
    }
    return write(path, fields | {f"tile:{k}": v for k, v in more.items()})


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("t/{z}_{y}_{x}.raw", lambda i, n: f"t/{i[2]}_{i[1]}_{i[0]}.raw"),
        ("{d0}-{d1}-{d2}", lambda i, n: f"{i[0]}-{i[1]}-{i[2]}"),
        ("{z:03d}_{y:02d}_{x:1d}.raw", lambda i, n: f"{i[2]:03d}_{i[1]:02d}_{i[0]}.raw"),
        ("{i}.raw", lambda i, n: f"{n}.raw"),
        ("{l}/{i:04d}.raw", lambda i, n: f"0/{n:04d}.raw"),
        ("{x}{y}{z}", lambda i, n: f"{i[0]}{i[1]}{i[2]}"),
    ],
)
def test_external(tmp_path, pattern, name):
    """Placeholders by position, our own format; two tiles of one name are an error."""
    values = np.arange(4 * 4 * 6, dtype=np.uint8).reshape(4, 4, 6)
    number = 0
    for z in range(2):
        for y in range(2):
            for x in range(3):
                file = tmp_path / "base" / name((x, y, z), number)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(
                    values[2 * z : 2 * z + 2, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].tobytes()
                )
                number += 1
    path = external(tmp_path / "a.jnrrd", [6, 4, 4], [2, 2, 2], pattern=pattern, base_dir="base")
    np.testing.assert_array_equal(read(path), values)
    (tmp_path / "base" / name((2, 1, 0), 5)).unlink()
    with pytest.raises(AnychunkError, match="missing|no such"):
        read(path)


@pytest.mark.parametrize(
    ("pattern", "match"),
    [
        ("{x}_{y}.raw", "dimension 2"),
        ("same.raw", "dimension 0"),
        ("{q}", "no placeholder"),
        ("{x.__class__}_{y}_{z}", "brace"),
        ("{x!r}_{y}_{z}", "brace"),
        ("{0}_{y}_{z}", "brace"),
        ("{x}_{y}_{z}_{d3}", "3 dimensions"),
        ("{x:>99999999}_{y}_{z}", "brace"),
        ("../{x}_{y}_{z}", "leaves the folder"),
        ("/tmp/{x}_{y}_{z}", "leaves the folder"),
        ("s3://bucket/{x}_{y}_{z}", "leaves the folder"),
    ],
)
def test_external_pattern_is_refused(tmp_path, pattern, match):
    with pytest.raises(FormatError, match=match):
        anychunk.index(external(tmp_path / "a.jnrrd", [60, 40, 4], [2, 2, 2], pattern=pattern))


def test_external_names_that_run_together(tmp_path):
    with pytest.raises(FormatError, match="two tiles the name '110'"):
        anychunk.index(external(tmp_path / "a.jnrrd", [12, 12], [1, 1], pattern="{x}{y}"))
    anychunk.index(external(tmp_path / "b.jnrrd", [12, 12], [1, 1], pattern="{x:02d}{y:02d}"))
    with pytest.raises(FormatError, match="add {l}"):
        anychunk.index(
            external(
                tmp_path / "c.jnrrd",
                [12, 12],
                [4, 4],
                pattern="{x}_{y}",
                levels=2,
                level_scales=[1, 2],
            )
        )


def test_external_fourth_and_fifth_axis_and_labels(tmp_path):
    values = np.arange(2 * 3 * 2 * 2 * 2, dtype=np.uint8).reshape(2, 3, 2, 2, 2)
    for c in range(3):
        for t in range(2):
            (tmp_path / f"c{c}t{t}").write_bytes(values[t, c].tobytes())
    options = {"pattern": "c{c}t{t}"}
    path = external(tmp_path / "a.jnrrd", [2, 2, 2, 3, 2], [2, 2, 2, 1, 1], **options)
    np.testing.assert_array_equal(read(path), values)
    # by label: c is the first axis in the list here
    path = external(
        tmp_path / "b.jnrrd",
        [2, 2, 2, 3, 2],
        [1, 1],
        dimensions=[3, 4],
        labels=["x", "y", "z", "c", "t"],
        **options,
    )
    np.testing.assert_array_equal(read(path), values)


def test_files(tmp_path):
    """Level 0 if missing; duplicates and gaps are errors; nothing leaves the folder."""
    tiles = cut(GRID, (4, 5))
    entries = []
    for number, tile in enumerate(tiles):
        (tmp_path / f"t{number}").write_bytes(tile)
        entries.append({"indices": [number % 2, number // 2], "file": f"t{number}"})
    np.testing.assert_array_equal(
        read(external(tmp_path / "a.jnrrd", [9, 7], [5, 4], files=entries[::-1])), GRID
    )
    for broken, match in (
        ([*entries, entries[0]], "has 5 entries, expected 4"),
        ([*entries[:3], entries[0]], r"tile \[0, 0\] of level 0 again"),
        (entries[:3], "has 3 entries, expected 4"),
        ([*entries[:3], {**entries[3], "file": "t0"}], "named for two tiles"),
        ([*entries[:3], {**entries[3], "level": 1}], "level 1, which is not stored"),
        ([*entries[:3], {**entries[3], "indices": [9, 9]}], "has indices"),
        ([*entries[:3], {"indices": [1, 1]}], "'file' is a required property"),
        ([*entries[:3], {**entries[3], "file": "../t3"}], "leaves the folder"),
        ([*entries[:3], {**entries[3], "file": "/etc/passwd"}], "leaves the folder"),
        ([*entries[:3], {**entries[3], "file": "http://x/y"}], "leaves the folder"),
        ([*entries[:3], {**entries[3], "file": ""}], "without a name"),
    ):
        with pytest.raises(FormatError, match=match):
            read(external(tmp_path / "b.jnrrd", [9, 7], [5, 4], files=broken))
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(FormatError, match="leaves the folder"):
        read(
            external(
                tmp_path / "c.jnrrd",
                [9, 7],
                [5, 4],
                files=[*entries[:3], {**entries[3], "file": "link"}],
            )
        )
    with pytest.raises(FormatError, match="leaves the folder"):
        read(
            external(
                tmp_path / "d.jnrrd", [9, 7], [5, 4], files=entries, base_dir="/data/large_volume/"
            )
        )
    (tmp_path / "below").mkdir()
    path = external(
        tmp_path / "below/e.jnrrd", [9, 7], [5, 4], files=entries, base_dir=str(tmp_path)
    )
    np.testing.assert_array_equal(read(path, allow=[str(tmp_path)]), GRID)


def test_metadata(tmp_path):
    """One object a tile in table order; a checksum is verified where its algorithm is named."""
    values = np.pad(GRID, ((0, 2), (0, 3)))[:7, :9] + np.uint8(10)
    path = tmp_path / "a.jnrrd"
    anychunk.write(
        values, path, tile=(4, 4), tile_metadata=True, compression="zstd", levels=2, overlap=(1, 0)
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
    with pytest.raises(FormatError, match="no crc32"):
        read(tiled(tmp_path / "c.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)), metadata=nonsense))
    other = [{"checksum": "00", "checksum_algorithm": "md5"}] * 9
    with pytest.warns(FormatWarning, match="'md5' are not verified"):
        read(tiled(tmp_path / "d.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)), metadata=other))


def test_schema():
    """Shipped, with level_scales as integers or arrays of integers, and used."""
    found = tiling.schema()
    assert set(found["required"]) == {"enabled", "dimensions", "sizes", "storage"}
    assert set(found["properties"]) == {
        *(
            "enabled",
            "dimensions",
            "sizes",
            "storage",
            "format",
            "offset_table",
            "size_table",
            "pattern",
            "files",
        ),
        *(
            "base_dir",
            "edge_handling",
            "padding_value",
            "overlap",
            "compression",
            "compression_levels",
            "levels",
        ),
        *(
            "level_scales",
            "level_offsets",
            "downsample_method",
            "level_tile_sizes",
            "levels_stored",
        ),
        *("levels_virtual", "level_quality", "metadata"),
    }
    import jsonschema

    jsonschema.Draft7Validator.check_schema(found)
    base = {
        "enabled": True,
        "dimensions": [0],
        "sizes": [1],
        "storage": "internal",
        "offset_table": [1],
    }
    validator = jsonschema.Draft7Validator(found)
    assert validator.is_valid({**base, "levels": 2, "level_scales": [[1], [2]]})
    assert validator.is_valid({**base, "levels": 2, "level_scales": [1, 2]})
    assert not validator.is_valid({**base, "levels": 2, "level_scales": [1, "2"]})
    assert not validator.is_valid({**base, "levels": 2})


def test_unaware_readers(tmp_path):
    """A reader that knows no tiles would take other bytes for samples: the document's claim is false."""
    anychunk.write(GRID, tmp_path / "a.jnrrd", tile=(3, 4))
    data = (tmp_path / "a.jnrrd").read_bytes()
    start = data.index(b"\n\n") + 2
    as_if_plain = np.frombuffer(data[start : start + GRID.size], np.uint8).reshape(GRID.shape)
    assert not np.array_equal(as_if_plain, GRID)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"enabled": None}, "tile:enabled: is required"),
        ({"enabled": 1}, "enabled"),
        ({"dimensions": [0, 0]}, "not different axes"),
        ({"dimensions": [0, 2]}, "not different axes"),
        ({"sizes": [4]}, "tile:sizes: has 1 entries, expected 2"),
        ({"sizes": [4, 0]}, "minimum"),
        ({"sizes": [4, 2**60]}, "over the limit"),
        ({"storage": "elsewhere"}, "storage"),
        ({"format": "scattered"}, "format"),
        ({"offset_table": None}, "tile:offset_table: is required"),
        ({"offset_table": [4096] * 8}, r"has 8 entries, expected 9 tiles \(3x3\)"),
        ({"offset_table": [4096] * 8 + ["x"]}, "not of type|expected an integer"),
        ({"size_table": [12] * 8}, "tile:size_table: has 8 entries, expected 9"),
        ({"size_table": [12] * 8 + [11]}, r"tile \[2, 2\] of level 0 has 11 bytes, expected 12"),
        ({"size_table": [0] * 9}, "minimum|0 bytes"),
        ({"compression": "rar"}, "compression"),
        ({"compression_levels": [1]}, "tile:compression_levels: has 1 entries"),
        ({"metadata": [{}]}, "tile:metadata: has 1 entries"),
        ({"edge_handling": "mirror"}, "edge_handling"),
        ({"overlap": [1]}, "tile:overlap: has 1 entries"),
        ({"overlap": [2**62, 2**62]}, "over the limit"),
        ({"levels": 2}, "level_scales"),
        ({"levels": 3, "level_scales": [1, 2]}, "has 2 entries, expected 3"),
        ({"level_scales": [2, 4]}, "level 0 has scale 2"),
        ({"level_scales": [1, [2]]}, "1 scales for 2 axes"),
        ({"levels": 1, "level_tile_sizes": [[1, 1]]}, "but tile:sizes"),
        ({"levels": 1, "level_tile_sizes": [[4]]}, "levels of 2 sizes"),
        (
            {"levels": 2, "level_scales": [1, 2], "levels_stored": [0], "levels_virtual": [0, 1]},
            "each of the 2 levels once",
        ),
        ({"levels": 2, "level_scales": [1, 2], "levels_virtual": [0]}, "level 0 is the data"),
        ({"downsample_method": "median"}, "downsample_method"),
        ({"pattern": 5}, "pattern"),
    ],
)
def test_fields_that_do_not_fit(tmp_path, change, match):
    with pytest.raises(AnychunkError, match=match):
        anychunk.index(tiled(tmp_path / "a.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)), **change))
    findings = jnrrd.validate(tmp_path / "a.jnrrd")
    assert findings
    assert findings[0].severity == "error"


def test_extension_is_known_by_its_uri(tmp_path):
    path = tiled(tmp_path / "a.jnrrd", [9, 7], [4, 3], cut(GRID, (3, 4)))
    text = path.read_bytes()
    path.write_bytes(
        text.replace(b'"tile:', b'"brks:').replace(b'{"tile": "https', b'{"brks": "https')
    )
    np.testing.assert_array_equal(read(path), GRID)
    path.write_bytes(text.replace(b"/tile/v1", b"/tilt/v1"))
    assert read(path).tobytes() != GRID.tobytes()  # another extension: not tiles
    path.write_bytes(text.replace(b"v1.0.0", b"v2.0.0"))
    with pytest.raises(FormatError, match="opened: https"):
        read(path)
    path.write_bytes(text.replace(b'{"extensions"', b'{"extensionz"'))
    with pytest.raises(FormatError, match="declares no extension"):
        read(path)


def test_flattened_tables(tmp_path):
    tiles = cut(GRID, (3, 4))
    fields = core([9, 7], extensions={"tile": URI}) | {
        "tile:enabled": True,
        "tile:dimensions[0]": 0,
        "tile:dimensions[1]": 1,
        "tile:sizes": [4, 99],
        "tile:sizes[1]": 3,
        "tile:storage": "internal",
    }
    fields |= {f"tile:offset_table[{i}]": 2048 + 12 * i for i in range(9)}
    path = write(tmp_path / "a.jnrrd", fields)
    path.write_bytes(path.read_bytes().ljust(2048) + b"".join(tiles))
    np.testing.assert_array_equal(read(path), GRID)


def test_numbers_of_the_document():
    """Section 7.4.2: the levels are right, the sizes hold for one byte a voxel, offsets do not."""
    fields = {
        "enabled": True,
        "dimensions": [0, 1, 2],
        "sizes": [256, 256, 64],
        "storage": "internal",
        "offset_table": [],
        "levels": 4,
        "level_scales": [1, 2, 4, 8],
    }
    volume = jnrrd.volume.read_volume(core([2048, 2048, 512]), "a")
    made, _ = tiling.read_tiling(fields, volume)
    levels = tiling.levels_of(made, volume)
    layouts = [jnrrd.layout.lay_out(made, level) for level in levels]
    assert [x.sizes for x in levels] == [
        (2048, 2048, 512),
        (1024, 1024, 256),
        (512, 512, 128),
        (256, 256, 64),
    ]
    assert [x.tiles for x in layouts] == [512, 64, 8, 1]
    sizes = [math.prod(x.sizes) for x in levels]
    assert sizes == [2 << 30, 256 << 20, 32 << 20, 4 << 20]
    starts = [1024 + sum(sizes[:n]) for n in range(4)]
    # the document has 1024, 2147484672, 2415919104, 2483027968: right for two levels only
    assert starts == [1024, 2147484672, 2415920128, 2449474560]
    # section 5: tiles of 256 x 256 x 64 float32 are 16777216 bytes apart, and begin right
    assert [1024 + n * 256 * 256 * 64 * 4 for n in range(4)] == [1024, 16778240, 33555456, 50332672]
    # section 9.3: the same tiles of uint8 are 4194304 bytes, not 4197376 apart
    assert [1024 + n * 256 * 256 * 64 for n in range(3)] == [1024, 4195328, 8389632]


def test_describe_shows_no_tables(tmp_path):
    path = tmp_path / "a.jnrrd"
    anychunk.write(np.zeros(300, np.uint8), path, tile=1)
    assert "tile:offset_table" not in json.dumps(anychunk.describe(path))
    assert anychunk.open(path)["0"].attrs["jnrrd"]["tile:sizes"] == [1]
