"""What the longer text of the tiling extension describes, and the extensions beside it."""

import gzip
import json

import numpy as np
import pytest
import zarr

import anychunk
from anychunk.errors import AnychunkError, FormatError, FormatWarning
from anychunk.formats import jnrrd
from anychunk.metadata.reading import meaning_of
from anychunk.model import images as im

URI = "https://jnrrd.org/extensions/tile/v1.0.0"
VALUES = np.arange(4 * 6 * 8, dtype="<u2").reshape(4, 6, 8)
TILES = {
    (x, y, z): VALUES[2 * z : 2 * z + 2, 3 * y : 3 * y + 3, 4 * x : 4 * x + 4]
    for z in range(2)
    for y in range(2)
    for x in range(2)
}


def header(**fields):
    core = {"jnrrd": "0004", "type": "uint16", "dimension": 3, "sizes": [8, 6, 4]}
    core |= {"endian": "little", "encoding": "raw", "extensions": {"tile": URI}}
    tiling = {"enabled": True, "dimensions": [0, 1, 2], "sizes": [4, 3, 2], "storage": "external"}
    return {**core, **{f"tile:{k}": v for k, v in tiling.items()}, **fields}


def write(path, fields, data=b""):
    lines = "".join(json.dumps({k: v}) + "\n" for k, v in fields.items() if v is not None)
    path.write_bytes(lines.encode() + b"\n" + data)
    return path


def put(folder, name, tile):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(tile.tobytes())


def read(path):
    return anychunk.open_array(path)[...]


def test_cached_tiles_and_the_rest(tmp_path):
    """9.3.3: some tiles are listed, the rest follow the pattern."""
    listed = [{"indices": [1, 0, 0], "file": "cache/a.raw"}]
    for (x, y, z), tile in TILES.items():
        put(tmp_path, "cache/a.raw" if (x, y, z) == (1, 0, 0) else f"t/{z}_{y}_{x}.raw", tile)
    fields = {"tile:pattern": "t/{z}_{y}_{x}.raw", "tile:files": listed}
    path = write(tmp_path / "a.jnrrd", header(**fields))
    np.testing.assert_array_equal(read(path), VALUES)
    (tmp_path / "cache/a.raw").unlink()
    with pytest.raises(AnychunkError):
        read(path)


def test_placeholders_of_metadata(tmp_path):
    """9.2.3: a placeholder that names a field of the header."""
    for (x, y, z), tile in TILES.items():
        put(tmp_path, f"1.2.840/brain/{z}{y}{x}.raw", tile)
    fields = {
        "extensions": {"tile": URI, "dicom": "https://jnrrd.org/extensions/dicom/v1.0.0"},
        "content": "brain",
        "dicom:study": {"instance_uid": "1.2.840"},
        "tile:pattern": "{dicom:study.instance_uid}/{content}/{z}{y}{x}.raw",
    }
    np.testing.assert_array_equal(read(write(tmp_path / "a.jnrrd", header(**fields))), VALUES)
    for bad in ({"content": "../up"}, {"content": None}, {"content": "{x}"}):
        with pytest.raises(FormatError, match="content"):
            anychunk.index(write(tmp_path / "b.jnrrd", header(**{**fields, **bad})))


def test_chunks_of_zarr(tmp_path):
    """9.4.2: the same files are a Zarr v2 array, whose absent chunks have its fill value."""
    for name in ("z/level0", "other"):
        array = zarr.create_array(
            tmp_path / name, shape=(4, 6, 8), chunks=(2, 3, 4), dtype="<u2", zarr_format=2,
            compressors=None, fill_value=7, chunk_key_encoding={"name": "v2", "separator": "/"},
        )  # fmt: skip
        array[:, :, :4] = VALUES[:, :, :4]
    expected = VALUES.copy()
    expected[:, :, 4:] = 7
    fields = {
        "tile:pattern": "z/level{l}/.zarray",
        "tile:data_pattern": "z/level{l}/{z}/{y}/{x}",
        "tile:zarr_compatible": True,
    }
    path = write(tmp_path / "a.jnrrd", header(**fields))
    np.testing.assert_array_equal(read(path), expected)
    document = json.loads((tmp_path / "z/level0/.zarray").read_text())
    for change in (
        {"dtype": ">u2"}, {"order": "F"}, {"chunks": [4, 3, 4]}, {"compressor": {"id": "blosc"}},
        {"compressor": {"id": "gzip", "level": 5}}, {"chunks": [3, 2, 4]}, {"shape": [4, 6, 9]}, {"shape": [4, 6]},
    ):  # fmt: skip
        (tmp_path / "z/level0/.zarray").write_text(json.dumps({**document, **change}))
        with pytest.raises(FormatError):
            anychunk.index(path)
    # without the document nothing says what an absent chunk holds
    (tmp_path / "z/level0/.zarray").unlink()
    with pytest.warns(FormatWarning):
        array = anychunk.open_array(path)
    with pytest.raises(AnychunkError):
        array[...]


def test_chunks_of_zarr_with_several_fill_values(tmp_path):
    """An absent chunk would be shown with the value of another level."""
    for level, shape in enumerate([(4, 6, 8), (2, 3, 4)]):
        zarr.create_array(
            tmp_path / f"{level}", shape=shape, chunks=(2, 3, 4), dtype="<u2", zarr_format=2,
            compressors=None, fill_value=level, chunk_key_encoding={"name": "v2", "separator": "/"},
        )  # fmt: skip
    fields = {"tile:pattern": "{l}/.zarray", "tile:data_pattern": "{l}/{z}/{y}/{x}"}
    fields |= {"tile:zarr_compatible": True, "tile:levels": 2, "tile:level_scales": [1, 2]}
    with pytest.raises(FormatError, match="fill values differ"):
        anychunk.index(write(tmp_path / "a.jnrrd", header(**fields)))


def test_chunks_of_zarr_with_their_axes_in_another_order(tmp_path):
    """A chunk of Zarr has its last axis fastest, a tile x: the same files cannot be both."""
    array = zarr.create_array(
        tmp_path / "z", shape=(8, 6, 4), chunks=(2, 2, 2), dtype="<u2", zarr_format=2,
        compressors=None, fill_value=0, chunk_key_encoding={"name": "v2", "separator": "/"},
    )  # fmt: skip
    array[...] = VALUES.T
    fields = {"tile:sizes": [2, 2, 2], "tile:pattern": "z/.zarray", "tile:zarr_compatible": True}
    path = tmp_path / "a.jnrrd"
    write(path, header(**fields, **{"tile:data_pattern": "z/{x}/{y}/{z}"}))
    with pytest.raises(FormatError, match="order"):
        anychunk.index(path)


def test_braces_of_names(tmp_path):
    """`{{` and `}}` are braces of a name; a folder may have them, too."""
    for (x, y, z), tile in TILES.items():
        put(tmp_path, f"run{{0}}/a{{x}}_{z}{{{y}}}{x}.raw", tile)
    fields = {"tile:pattern": "a{{x}}_{z}{{{y}}}{x}.raw", "tile:base_dir": "run{0}"}
    path = write(tmp_path / "a.jnrrd", header(**fields))
    np.testing.assert_array_equal(read(path), VALUES)
    assert jnrrd.validate(path) == []
    for bad in ("{x}}{y}{z}", "{x}{y}{z}{", "{{x}{y}{z}"):
        with pytest.raises(FormatError, match="brace outside"):
            anychunk.index(write(tmp_path / "b.jnrrd", header(**{"tile:pattern": bad})))


def test_patterns_are_written_with_fields_and_braces(tmp_path):
    pattern = "{{{content}}}_{z}_{y}_{x}.raw"
    anychunk.write(
        VALUES, tmp_path / "a.jnrrd", chunk=(2, 3, 4), external=True, pattern=pattern,
        header={"content": "brain"},
    )  # fmt: skip
    for (x, y, z), tile in TILES.items():
        assert (tmp_path / f"{{brain}}_{z}_{y}_{x}.raw").read_bytes() == tile.tobytes()
    assert jnrrd.read_header(tmp_path / "a.jnrrd").fields["tile:pattern"] == pattern
    np.testing.assert_array_equal(read(tmp_path / "a.jnrrd"), VALUES)


def test_overlap_with_names_from_the_header(tmp_path):
    """The first tile, which shows whether the overlap is a halo, is named by the pattern."""
    padded = np.pad(VALUES, 1)
    stored = {
        (x, y, z): padded[2 * z : 2 * z + 4, 3 * y : 3 * y + 5, 4 * x : 4 * x + 6]
        for x, y, z in TILES
    }
    for (x, y, z), tile in stored.items():
        put(tmp_path, f"a/b_{z}{y}{x}", tile)
    fields = {"tile:overlap": [1, 1, 1], "tile:pattern": "{content}/b_{t}{y}{x}", "content": "a"}
    fields["labels"] = ["x", "y", "t"]
    path = write(tmp_path / "a.jnrrd", header(**fields))
    np.testing.assert_array_equal(np.squeeze(read(path)), VALUES)


@pytest.mark.parametrize("version", [4, 5])
def test_tiles_in_nrrd(tmp_path, version):
    """The NRRD extension mechanism: fields of extensions are key/value pairs of JSON."""
    start = 2048
    offsets = [start + n * 48 for n in range(8)]
    lines = [
        f"NRRD000{version}", "type: unsigned short", "dimension: 3", "sizes: 8 6 4",
        "endian: little", "encoding: raw", f'extensions.tile:="{URI}"', "tile:enabled:=true",
        "tile:dimensions:=[0, 1, 2]", "tile:sizes:=[4,3,2]", 'tile:storage:= "internal" ',
        f"tile:offset_table:={offsets}", "plain:=[1",
    ]  # fmt: skip
    data = b"".join(TILES[key].tobytes() for key in sorted(TILES, key=lambda k: k[::-1]))
    text = "".join(f"{line}\n" for line in lines).encode() + b"\n"
    (tmp_path / "a.nrrd").write_bytes(text.ljust(start, b"\0") + data)
    np.testing.assert_array_equal(read(tmp_path / "a.nrrd"), VALUES)
    assert anychunk.open(tmp_path / "a.nrrd")["0"].attrs["nrrd"]["key_values"] == {"plain": "[1"}


def test_flattened_declaration(tmp_path):
    for (x, y, z), tile in TILES.items():
        put(tmp_path, f"{z}{y}{x}", tile)
    fields = header(**{"tile:pattern": "{z}{y}{x}"})
    del fields["extensions"]
    fields = {**fields, "extensions.tile": URI, "extensions.meta": "https://example.org/meta"}
    path = write(tmp_path / "a.jnrrd", fields)
    np.testing.assert_array_equal(read(path), VALUES)
    anychunk.write(VALUES, tmp_path / "b.jnrrd", header=jnrrd.read_header(path), chunk=(2, 3, 4))
    assert jnrrd.read_header(tmp_path / "b.jnrrd").extensions == {
        "tile": URI,
        "meta": "https://example.org/meta",
    }


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("compression", ["raw", "gzip"])
@pytest.mark.parametrize("edges", ["padded", "cropped"])
def test_sparse(tmp_path, external, compression, edges):
    """10.1: tiles of nothing but the padding value are left out."""
    values = np.full((5, 7, 9), 3, "u1")
    values[1, 2, 3] = 9
    values[4, 6, 8] = 1
    path = tmp_path / "a.jnrrd"
    options = {"chunk": (2, 3, 4), "padding_value": 3, "edges": edges}
    anychunk.write(values + 1, path, external=external, compression=compression, **options)
    anychunk.write(
        values,
        path,
        external=external,
        compression=compression,
        sparse=True,
        levels=2,
        **options,
        overwrite=True,
    )
    np.testing.assert_array_equal(read(path), values)
    fields = jnrrd.read_header(path).fields
    assert fields["tile:sparse"] is True
    if not external:
        sizes = fields["tile:size_table"]
        assert sizes.count(0) == len(sizes) - 2 - (anychunk.open(path)["0/1/image"][...] != 3).any()
        stored = path.read_bytes()[fields["tile:offset_table"][0] :][: sizes[0]]
        tile = gzip.decompress(stored) if compression == "gzip" else stored
        assert tile == values[:2, :3, :4].tobytes()
    else:
        level = next(tmp_path.glob("*.tiles")) / "level_0"
        assert len(list(level.rglob("*.*"))) == 2
    assert jnrrd.validate(path) == []


def test_sparse_tiles_that_are_listed(tmp_path):
    """Section 6.2: only tiles that have a file are listed."""
    values = np.zeros((4, 6, 8), "<f4")
    values[0, 0, 0] = 5
    values[3, 5, 7] = -0.0  # not the padding value: its bits would be lost
    path = tmp_path / "a.jnrrd"
    anychunk.write(values, path, chunk=(2, 3, 4), external=True, files=True, sparse=True)
    listed = jnrrd.read_header(path).fields["tile:files"]
    assert [entry["indices"] for entry in listed] == [[0, 0, 0], [1, 1, 1]]
    assert read(path).tobytes() == values.tobytes()
    assert jnrrd.validate(path) == []
    anychunk.write(
        0 * values, path, chunk=(2, 3, 4), external=True, files=True, sparse=True, overwrite=True
    )
    assert jnrrd.read_header(path).fields["tile:files"][-1:] == [{**listed[1]}]
    anychunk.write(
        abs(0 * values),
        path,
        chunk=(4, 6, 8),
        external=True,
        files=True,
        sparse=True,
        overwrite=True,
    )
    assert jnrrd.read_header(path).fields["tile:files"] == []
    assert not read(path).any()
    assert jnrrd.validate(path) == []


def described(path):
    index = anychunk.index(path)
    return meaning_of(index, next(im.images(index)))


def plain(tmp_path, fields, shape=(2, 3, 4, 5)):
    """An untiled file of these fields, with a sample per element of `shape`."""
    core = {"jnrrd": "0004", "type": "uint8", "dimension": len(shape), "sizes": [*shape[::-1]]}
    core |= {"encoding": "raw"}
    return write(tmp_path / "p.jnrrd", {**core, **fields}, bytes(int(np.prod(shape))))


def test_ome(tmp_path):
    """Order, sizes and channels of the OME extension, where the core fields say nothing."""
    fields = {
        "extensions": {"ome": "https://jnrrd.org/extensions/ome/v1.0.0"},
        "ome:dimensions": {
            "order": "XYCT",
            "physical_sizes": {
                "X": {"value": 0.1, "unit": "µm"},
                "Y": {"value": 0.2, "unit": "µm"},
                "T": {"value": 10.0, "unit": "min"},
            },
        },
        "ome:channels": [
            {"name": "DAPI", "color": "#0000FF"},
            {"name": "GFP", "color": "#00FF00"},
            {"name": "RFP"},
        ],
    }
    found = described(plain(tmp_path, fields))
    assert found.names == ("t", "c", "y", "x")
    assert [(a.scale, a.unit) for a in found.axes] == [
        (10.0, "minute"),
        (None, None),
        (0.2, "micrometer"),
        (0.1, "micrometer"),
    ]
    assert [band.name for band in found.bands] == ["DAPI", "GFP", "RFP"]
    assert [c.get("color") for c in found.display["channels"]][:2] == ["0000FF", "00FF00"]
    # the core fields decide where they say something
    again = described(plain(tmp_path, {**fields, "spacings": [3.0, 4.0, None, 2.0]}))
    assert [a.scale for a in again.axes] == [2.0, None, 4.0, 3.0]


PHYSICAL = {
    "name": "physical",
    "axes": [{"name": n, "type": "space", "unit": "millimeter"} for n in "xyz"],
}


@pytest.mark.parametrize(
    ("transformation", "affine"),
    [
        (
            {"type": "scale", "scale": [0.5, 0.6, 1.2]},
            [[0.5, 0, 0, 0], [0, 0.6, 0, 0], [0, 0, 1.2, 0]],
        ),
        (
            {
                "type": "sequence",
                "transformations": [
                    {"type": "scale", "scale": [0.5, 0.5, 1.2]},
                    {"type": "translation", "translation": [0.0, 1.0, -60.0]},
                ],
            },
            [[0.5, 0, 0, 0], [0, 0.5, 0, 1], [0, 0, 1.2, -60]],
        ),
        (
            {"type": "affine", "affine": [[0, 2, 0, 1], [3, 0, 0, 2], [0, 0, -4, 3]]},
            [[0, 2, 0, 1], [3, 0, 0, 2], [0, 0, -4, 3]],
        ),
    ],
)
def test_transforms(tmp_path, transformation, affine):
    fields = {
        "extensions": {"transform": "https://jnrrd.org/extensions/transforms/v1.0.0"},
        "transform:coordinateSystems": [PHYSICAL],
        "transform:transformations": [{"input": "array", "output": "physical", **transformation}],
    }
    found = described(plain(tmp_path, fields, (3, 4, 5)))
    assert found.names == ("z", "y", "x")
    np.testing.assert_allclose(found.space.affine[:3], affine)
    assert found.space.unit == "millimeter"


def test_transforms_with_time(tmp_path):
    axes = [*PHYSICAL["axes"], {"name": "t", "type": "time", "unit": "second"}]
    fields = {
        "extensions": {"tr": "https://jnrrd.org/extensions/transforms/v1.0.0"},
        "tr:coordinateSystems": [{"name": "world", "axes": axes}],
        "tr:transformations": [
            {"type": "scale", "input": "array", "output": "world", "scale": [1, 2, 3, 0.5]}
        ],
    }
    found = described(plain(tmp_path, fields))
    assert [(a.name, a.scale, a.unit) for a in found.axes] == [
        ("t", 0.5, "second"),
        ("z", 3.0, "millimeter"),
        ("y", 2.0, "millimeter"),
        ("x", 1.0, "millimeter"),
    ]
    for broken in ([1, 2], "x", [0, 0, 0, 0], None):
        fields["tr:transformations"][0]["scale"] = broken
        assert described(plain(tmp_path, fields)).axes[0].scale is None
