"""Fields of the tiling extension: which fit, which do not, and what else is shown of them."""

import gzip
import json
import math

import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError, FormatError
from anychunk.formats import jnrrd
from anychunk.formats.jnrrd import tiling_fields
from tests.support.jnrrd_tiles import GRID, cut, read
from tests.support.naive_jnrrd import URI, core, tiled, write


def test_schema():
    """Shipped, with level_scales as integers or arrays of integers, and used."""
    found = tiling_fields.schema()
    assert set(found["required"]) == {"enabled", "dimensions", "sizes", "storage"}
    assert set(found["properties"]) == {
        *("sparse", "data_pattern", "zarr_compatible"),
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
    # section 12: what else a field requires
    outside = {**base, "storage": "external"}
    assert validator.is_valid({**outside, "pattern": "{x}"})
    assert validator.is_valid({**outside, "files": []})
    scales = {"levels": 2, "level_scales": [1, 2]}
    for bad in (
        base | {"enabled": False},
        {key: value for key, value in base.items() if key != "offset_table"},
        outside,
        base | scales | {"levels_stored": [0]},
        base | {"level_tile_sizes": [[1]]},
    ):
        assert not validator.is_valid(bad), bad


def test_unaware_readers(tmp_path):
    """A reader that knows no tiles would take other bytes for samples: the document's claim is false."""
    anychunk.write(GRID, tmp_path / "a.jnrrd", chunk=(3, 4))
    data = (tmp_path / "a.jnrrd").read_bytes()
    start = data.index(b"\n\n") + 2
    as_if_plain = np.frombuffer(data[start : start + GRID.size], np.uint8).reshape(GRID.shape)
    assert not np.array_equal(as_if_plain, GRID)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"enabled": None}, "tile:enabled: is required"),
        ({"enabled": 1}, "enabled"),
        ({"dimensions": [0, 0]}, r"tile:dimensions: \[0, 0\].* 2"),
        ({"dimensions": [0, 2]}, r"tile:dimensions: \[0, 2\].* 2"),
        ({"sizes": [4]}, "tile:sizes: has 1 entries, expected 2"),
        ({"sizes": [4, 0]}, "minimum"),
        ({"sizes": [4, 2**60]}, "over the limit"),
        ({"storage": "elsewhere"}, "storage"),
        ({"format": "scattered"}, "format"),
        ({"offset_table": None}, "tile:offset_table: is required"),
        ({"offset_table": [4096] * 8}, r"has 8 entries, expected 9 \(3x3\)"),
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
        ({"level_scales": [1, [2]]}, "level 1 has 1 scales for 2"),
        ({"levels": 1, "level_tile_sizes": [[1, 1]]}, "but tile:sizes"),
        ({"levels": 1, "level_tile_sizes": [[4]]}, r"level_tile_sizes: \[\[4\]\].* 2"),
        (
            {"levels": 2, "level_scales": [1, 2], "levels_stored": [0], "levels_virtual": [0, 1]},
            r"\[0\] and levels_virtual \[0, 1\].* 2 levels",
        ),
        (
            {"levels": 2, "level_scales": [1, 2], "levels_virtual": [0]},
            "tile:levels_virtual: .*level 0",
        ),
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
    with pytest.raises(FormatError, match="v2.0.0.* https.*v1.0.0"):
        read(path)
    path.write_bytes(text.replace(b'{"extensions"', b'{"extensionz"'))
    with pytest.raises(FormatError, match='tile:enabled.*"extensions": {"tile"'):
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
    made, _ = tiling_fields.read_tiling(fields, volume)
    levels = tiling_fields.levels_of(made, volume)
    layouts = [tiling_fields.lay_out(made, level) for level in levels]
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
    anychunk.write(np.zeros(300, np.uint8), path, chunk=(1,))
    assert "tile:offset_table" not in json.dumps(anychunk.describe(path))
    assert anychunk.open(path)["0"].attrs["jnrrd"]["tile:sizes"] == [1]


def bricks(values, tile):
    """Cut a volume (z, y, x) into tiles (x, y, z) in table order."""
    starts = [range(0, n, t) for n, t in zip(values.shape, tile[::-1], strict=True)]
    return {
        (x // tile[0], y // tile[1], z // tile[2]): values[
            z : z + tile[2], y : y + tile[1], x : x + tile[0]
        ].tobytes()
        for z in starts[0]
        for y in starts[1]
        for x in starts[2]
    }


SPACE = {"space": "right_anterior_superior"}
TILING = {"tile:enabled": True, "tile:dimensions": [0, 1, 2]}


@pytest.mark.parametrize("is_first", [True, False])
def test_example_of_internal_tiles(tmp_path, is_first):
    """Sections 9.1 and 9.3 as printed, but for sizes and offsets; tiles have no table of sizes."""
    kind = "float32" if is_first else "uint8"
    volume = np.random.default_rng(0).integers(0, 200, (8, 32, 32)).astype(kind)
    levels = [volume] if is_first else [volume[::n, ::n, ::n].copy() for n in (1, 2, 4, 8)]
    encode = gzip.compress if is_first else bytes
    tiles = [[encode(t) for t in bricks(level, (4, 4, 1)).values()] for level in levels]
    starts = np.cumsum([1 << 16, *(len(t) for level in tiles for t in level)]).tolist()
    firsts = np.cumsum([0, *map(len, tiles)]).tolist()[:-1]
    fields = core([32, 32, 8], kind) | SPACE | {"extensions": {"tile": URI}} | TILING
    fields |= {"tile:sizes": [4, 4, 1], "tile:storage": "internal", "tile:format": "contiguous"}
    if not is_first:
        fields |= {"tile:levels": 4, "tile:level_scales": [1, 2, 4, 8]}
        fields |= {"tile:level_offsets": [starts[n] for n in firsts]}
    fields |= {"tile:offset_table": starts[:-1]} | (
        {"tile:compression": "gzip"} if is_first else {}
    )
    path = write(tmp_path / "a.jnrrd", fields)
    head = path.read_bytes()
    path.write_bytes(head.ljust(1 << 16, b"\n") + b"".join(t for level in tiles for t in level))
    for number, level in enumerate(levels):
        np.testing.assert_array_equal(read(path, number), level)


def test_example_of_external_tiles(tmp_path):
    """Section 9.2 as printed, but for sizes; its folder is absolute, and the header has no encoding."""
    volume = np.random.default_rng(0).integers(0, 9999, (4, 16, 16), dtype=np.uint16)
    folder = tmp_path / "large_volume"
    (folder / "tiles").mkdir(parents=True)
    for (x, y, z), tile in bricks(volume, (8, 8, 2)).items():
        (folder / f"tiles/volume_{z}_{y}_{x}.raw.gz").write_bytes(gzip.compress(tile))
    fields = core([16, 16, 4], "uint16") | SPACE | {"extensions": {"tile": URI}} | TILING
    del fields["encoding"]
    fields |= {"tile:sizes": [8, 8, 2], "tile:storage": "external"}
    fields |= {"tile:pattern": "tiles/volume_{z}_{y}_{x}.raw.gz", "tile:base_dir": f"{folder}/"}
    fields |= {"tile:compression": "gzip"}
    (tmp_path / "headers").mkdir()
    path = write(tmp_path / "headers/a.jnrrd", fields)
    with pytest.raises(FormatError, match="leads outside"):
        read(path)
    np.testing.assert_array_equal(read(path, allow=[str(tmp_path)]), volume)
