"""Layers of napari as plain data: the right samples, placed and drawn as the file says."""

import math

import dask.array as da
import nibabel
import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
from anychunk.decode.chunks import ChunkReader
from anychunk.errors import FormatWarning, LimitError, UnsupportedError
from anychunk.metadata.drawing import channels, grey, indexed, rgb, with_alpha, with_mask
from anychunk.metadata.meaning import Axis
from anychunk.model.index import ArrayIndex, Objects
from anychunk_plugins import layers as module
from anychunk_plugins.napari import get_reader, name_of
from tests.support.effort import at_most
from tests.support.http_server import serve
from tests.support.made_images import made
from tests.support.scenes import GRID, RANDOM, cells, picture, raster, segmented


def read(*paths):
    given = str(paths[0]) if len(paths) == 1 else [str(path) for path in paths]
    return get_reader(given)(given)


def layers_of(index):
    opened = anychunk.open(index)
    return module.layers(index, open_path=lambda path: opened[path], title="made")


def test_channels_are_lazy_multiscale_layers(tmp_path, monkeypatch):
    path, data = cells(tmp_path)
    started = []
    begin = ChunkReader.begin
    monkeypatch.setattr(
        ChunkReader, "begin", lambda self: (started.append(self.index.shape), begin(self))[1]
    )
    found = read(path)
    assert set(started) == {(2, 3, 48, 80)}  # for limits: only the coarsest level
    assert [kind for *_, kind in found] == ["image", "image"]
    assert [given["name"] for _, given, _ in found] == ["cells: DAPI", "cells: GFP"]
    for number, (levels, given, _) in enumerate(found):
        assert [type(level) for level in levels] == [da.Array, da.Array]
        np.testing.assert_array_equal(levels[0], data[number])
        np.testing.assert_array_equal(levels[1], data[number][..., ::2, ::2])
        assert given["scale"].tolist() == [2.0, 0.5, 0.25]
        assert given["translate"].tolist() == [0, 0, 0]
        assert given["units"] == ("micrometer",) * 3
        assert given["axis_labels"] == ("z", "y", "x")
        assert given["blending"] == "additive"
        low, high = np.percentile(data[number, 1, ::2, ::2], (0.5, 99.5))
        assert given["contrast_limits"] == pytest.approx((low, high))
    colours = [given["colormap"]["colors"][1] for _, given, _ in found]
    assert colours == [[0, 0, 1, 1], [0, 1, 0, 1]]


def test_colours_limits_and_switches_of_channels(tmp_path):
    listed = [
        {"band": 0, "label": "a", "color": "FF8000", "window": [5.0, 50.0]},
        {"band": 1, "label": "b", "color": "00FF00", "window": [1.0, 1.0], "active": False},
        {"band": 2, "color": "FFFFFF", "window": [0.0, 9.0], "inverted": True},
    ]
    index = made(tmp_path, [np.ones((3, 8, 8), "uint16")], display=channels(listed))
    one, two, three = [given for _, given, _ in layers_of(index)]
    assert (one["name"], one["contrast_limits"], one["visible"]) == ("made: a", (5, 50), True)
    assert one["colormap"]["colors"][1] == pytest.approx([1, 128 / 255, 0, 1])
    assert (two["visible"], two["contrast_limits"]) == (False, (1, 2))  # napari needs low < high
    assert (three["colormap"], three["name"]) == ("gray_r", "made: 2")


def test_one_channel_keeps_its_name_and_limits(tmp_path):
    listed = [{"band": 0, "label": "DAPI", "color": "0000FF", "window": [5.0, 50.0]}]
    index = made(tmp_path, [np.ones((8, 8), "uint16")], display=channels(listed))
    ((_, given, _),) = layers_of(index)
    assert (given["name"], given["contrast_limits"]) == ("made: DAPI", (5, 50))
    assert given["colormap"]["colors"][1] == [0, 0, 1, 1]


def test_a_picture_is_rgb_and_upright_on_the_map(tmp_path):
    path, data = picture(tmp_path / "a.tif")
    (((full, half), given, kind),) = read(path)
    assert kind == "image"
    assert given["rgb"] is True
    np.testing.assert_array_equal(full, data.transpose(1, 2, 0))
    assert half.shape == (128, 192, 3)
    assert given["units"] == ("meter", "meter")
    check_place(given, GRID)
    assert given["metadata"]["anychunk"]["crs"] == "EPSG:32633"


def check_place(given, transform):
    """Compare the world coordinates of pixels with rasterio's; y points down in napari."""
    if "affine" in given:
        matrix = given["affine"]
    else:
        matrix = np.diag([*given["scale"], 1.0])
        matrix[:2, 2] = given["translate"]
    for row, column in ((0, 0), (7, 3), (100, 250)):
        x, y = rasterio.transform.xy(transform, row, column)
        assert matrix @ [row, column, 1] == pytest.approx([-y, x, 1])


@pytest.mark.parametrize(
    "transform",
    [
        rasterio.Affine(7, 7, 500_000, 7, -7, 4_000_000),
        rasterio.Affine(10, 0, 500_000, 0, 10, 4_000_000),
    ],
    ids=["rotated", "south up"],
)
def test_other_grids_have_an_affine(tmp_path, transform):
    data = RANDOM.random((1, 128, 128)).astype("float32")
    path = raster(tmp_path / "a.tif", data, transform=transform)
    ((_, given, _),) = read(path)
    assert "scale" not in given
    check_place(given, transform)


def test_opacity(tmp_path):
    path, data = picture(tmp_path / "a.tif", 4, alpha="YES")
    (((full, _), given, _),) = read(path)
    assert given["rgb"]
    np.testing.assert_array_equal(full, data.transpose(1, 2, 0))
    display = with_alpha(grey(limits=(0, 255)), 1, limits=(0, 100))
    values = np.stack([np.full((4, 4), 90), np.full((4, 4), 50)]).astype("uint8")
    ((pixels, given, _),) = layers_of(made(tmp_path, [values], display=display))
    assert given["rgb"]
    assert np.asarray(pixels)[0, 0].tolist() == [90, 90, 90, 128]


def test_nodata_of_a_picture_is_transparent(tmp_path):
    data = RANDOM.integers(100, 3000, (3, 128, 256)).astype("uint16")
    data[:, :20] = 0
    path = raster(tmp_path / "a.tif", data, photometric="RGB", nodata=0)
    ((pixels, _, _),) = read(path)
    pixels = np.asarray(pixels)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (128, 256, 4)
    assert (pixels[:20, :, 3] == 0).all()
    assert (pixels[20:, :, 3] == 255).all()
    # all bands are stretched alike, so that grey stays grey
    low, high = np.percentile(data[:, 20:], (0.5, 99.5))
    expected = np.clip((data[:, 20:].astype(float) - low) / (high - low), 0, 1) * 255
    difference = pixels[20:, :, :3].transpose(2, 0, 1) - expected
    assert np.abs(difference).max() < 3


def test_more_bands_than_colours(tmp_path):
    path, data = picture(tmp_path / "a.tif", 5, alpha="NO")
    colours, *others = read(path)
    assert colours[1]["rgb"]
    assert [given["visible"] for _, given, _ in others] == [False, False]
    np.testing.assert_array_equal(others[1][0][0], data[4])


def test_a_palette_is_a_colormap(tmp_path):
    table = {n: (n * 50, 255 - n * 50, 10, 255) for n in range(5)}
    data = (np.arange(128 * 128).reshape(1, 128, 128) % 5).astype("uint8")
    path = raster(tmp_path / "a.tif", data, photometric="PALETTE", palette=table, nodata=0)
    ((values, given, kind),) = read(path)
    assert kind == "image"
    np.testing.assert_array_equal(values, data[0])
    colours = given["colormap"]["colors"]
    assert given["contrast_limits"] == (-0.5, len(colours) - 0.5)
    assert len(given["colormap"]["controls"]) == len(colours) + 1
    assert (colours[3] * 255).tolist() == pytest.approx([150, 105, 10, 255])
    assert colours[0][3] == 0  # nodata


def test_a_long_palette_is_looked_up(tmp_path):
    table = RANDOM.integers(0, 256, (1000, 4))
    values = RANDOM.integers(10, 1010, (16, 16)).astype("uint16")
    index = made(tmp_path, [values], display=indexed(table.tolist(), first=10))
    ((pixels, given, _),) = layers_of(index)
    assert given["rgb"]
    np.testing.assert_array_equal(pixels, table[values - 10])


def test_missing_floats_are_not_drawn(tmp_path):
    data = RANDOM.random((1, 128, 128)).astype("float32")
    data[0, :9] = -9999
    ((values, given, _),) = read(raster(tmp_path / "a.tif", data, nodata=-9999))
    values = np.asarray(values)
    assert np.isnan(values[:9]).all()
    np.testing.assert_array_equal(values[9:], data[0, 9:])
    assert 0 <= given["contrast_limits"][0] < given["contrast_limits"][1] <= 1


def test_a_mask_is_a_hidden_layer_or_opacity(tmp_path):
    mask = np.full((8, 8), 255, "uint8")
    mask[:4] = 0
    values = np.full((8, 8), 7, "uint8")
    index = made(tmp_path, [values], masks=[mask], display=with_mask(grey()))
    (_, (hidden, given, _)) = layers_of(index)
    assert (given["name"], given["visible"]) == ("made: mask", False)
    np.testing.assert_array_equal(hidden, mask == 255)
    colours = np.stack([values, values, values])
    index = made(tmp_path, [colours], masks=[mask], file="b", display=with_mask(rgb()))
    ((pixels, _, _),) = layers_of(index)
    np.testing.assert_array_equal(np.asarray(pixels)[..., 3], mask)
    assert np.asarray(pixels)[6, 6].tolist() == [7, 7, 7, 255]


def test_labels(tmp_path):
    path, labels = segmented(tmp_path)
    (_, image, _), (values, given, kind) = read(path)
    assert kind == "labels"
    assert given["visible"]
    assert given["name"] == "segmented: labels/nuclei"
    np.testing.assert_array_equal(values, labels)
    assert given["colormap"] == {None: [0, 0, 0, 0], 1: [1, 0, 0, 1]}
    assert given["scale"].tolist() == image["scale"].tolist() == [0.5, 0.5]


def test_rotation_in_space(tmp_path):
    affine = np.eye(4)
    angle = math.radians(30)
    affine[:2, :2] = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    affine[:3, 3] = [10, 20, 30]
    volume = nibabel.Nifti1Image(np.arange(24, dtype="int16").reshape(4, 3, 2), affine)
    volume.header.set_xyzt_units("mm")
    nibabel.save(volume, tmp_path / "a.nii")
    ((values, given, _),) = read(tmp_path / "a.nii")
    np.testing.assert_array_equal(values, np.asarray(volume.dataobj).T)
    for x, y, z in ((0, 0, 0), (1, 2, 1)):
        expected = nibabel.affines.apply_affine(volume.affine, (x, y, z))[::-1]
        assert given["affine"] @ [z, y, x, 1] == pytest.approx([*expected, 1], rel=1e-5)
    assert given["units"] == ("millimeter",) * 3


def test_several_images(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as out:
        out.write(np.zeros((16, 16), "uint8"))
        out.write(np.ones((20, 30), "uint16"))
    first, second = read(tmp_path / "a.tif")
    assert [given["name"] for _, given, _ in (first, second)] == ["a: 0", "a: 1"]
    assert [given["visible"] for _, given, _ in (first, second)] == [True, False]


def test_too_many_images(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MOST_IMAGES", 3)
    index = made(tmp_path, [np.ones((4, 4), "uint8")], images=5)
    with pytest.warns(FormatWarning, match="more than 3 images"):
        assert len(layers_of(index)) == 3


def test_a_stack_of_files(tmp_path):
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.full((8, 9), number, "uint8"))
    ((values, given, _),) = read(*(tmp_path / f"{n}.npy" for n in range(3)))
    assert values.shape == (3, 8, 9)
    assert np.asarray(values)[:, 0, 0].tolist() == [0, 1, 2]
    assert given["name"] == "0 … 2"


def test_many_bands_without_names_are_an_axis(tmp_path):
    data = np.zeros((40, 8, 8), "uint16")
    (colours, _, _), (values, given, _) = layers_of(made(tmp_path, [data]))
    assert colours.shape == (8, 8, 3)
    assert values.shape == (40, 8, 8)
    assert (given["name"], given["visible"]) == ("made: bands", False)
    assert given["axis_labels"] == ("c", "y", "x")
    assert len(given["scale"]) == 3


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "complex64", "int64", "uint64"])
def test_types(tmp_path, dtype):
    data = (RANDOM.random((8, 8)) * 3).astype(dtype)
    ((values, given, _),) = layers_of(made(tmp_path, [data]))
    np.testing.assert_array_equal(values, abs(data) if dtype == "complex64" else data)
    low, high = given["contrast_limits"]
    assert low < high


def test_what_cannot_be_shown(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5))
    with pytest.raises(UnsupportedError, match=r"a: no array of two"):
        read(tmp_path / "a.npy")
    (tmp_path / "a.txt").write_text("no image")
    assert get_reader(str(tmp_path / "a.txt")) is None
    assert get_reader(str(tmp_path / "none.tif")) is None
    assert get_reader(str(tmp_path)) is None
    assert get_reader([str(tmp_path / "a.npy"), str(tmp_path / "a.txt")]) is None
    assert get_reader([]) is None


@pytest.mark.processes
def test_urls_and_saved_indexes(tmp_path):
    path, data = picture(tmp_path / "a.tif")
    anychunk.index(path).save(tmp_path / "a.json")
    (((full, _), _, _),) = read(tmp_path / "a.json")
    np.testing.assert_array_equal(full, data.transpose(1, 2, 0))
    with serve(tmp_path) as served:
        (((full, _), given, _),) = read(f"{served.url}/a.tif")
        np.testing.assert_array_equal(full[:9, :9], data[:, :9, :9].transpose(1, 2, 0))
    assert given["name"] == "a"


def test_names():
    assert name_of("/a/b.ome.tif") == "b"
    assert name_of("s3://bucket/a/b.tif") == "b"
    assert name_of("/a/c.zarr/") == "c"
    assert name_of("https://host/d.tif?sig=SECRET/x.y") == "d"


def huge(shape, chunk):
    """Return the index of an array of any size, whose chunks are objects that do not exist."""
    grid = tuple(-(-n // side) for n, side in zip(shape, chunk, strict=True))
    return ArrayIndex(
        shape=shape,
        chunk_shape=chunk,
        data_type="uint16",
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        chunks=Objects(
            base="/none", pattern="/".join(f"{{{i}}}" for i in range(len(shape))), grid=grid
        ),
        dimension_names=("c", "z", "y", "x")[-len(shape) :],
    )


def test_a_petabyte_is_opened_without_listing_its_chunks():
    index = huge((3, 100_000, 100_000, 30_000), (1, 64, 64, 64))
    opened = anychunk.open(index)
    with at_most(200_000):
        found = module.layers(index, open_path=lambda _: opened, title="brain")
    ((colours, _, _),) = found
    assert colours.shape == (100_000, 100_000, 30_000, 3)
    index = huge((1 << 30, 64, 64), (1, 64, 64))
    opened = anychunk.open(index)
    with pytest.raises(LimitError, match="1073741824 chunks along an axis"):
        module.layers(index, open_path=lambda _: opened, title="line")


def test_limits_of_a_large_level_are_those_of_a_window(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BUDGET", module.Budget(decoded=64))
    monkeypatch.setattr(module, "WINDOW", 4)
    values = np.zeros((16, 16), "uint16")
    values[6:10, 6:10] = np.arange(16).reshape(4, 4) + 5
    index = made(tmp_path, [values], chunk=(2, 2))
    ((_, given, _),) = layers_of(index)
    assert given["contrast_limits"] == pytest.approx(np.percentile(np.arange(16) + 5, (0.5, 99.5)))
    monkeypatch.setattr(module, "BUDGET", module.Budget(decoded=7))
    ((_, given, _),) = layers_of(index)
    assert given["contrast_limits"] == (0, 65535)


def test_units_that_napari_does_not_know(tmp_path):
    axes = [Axis(name="y", unit="<b>", scale=2.0), Axis(name="x", unit="meter", scale=3.0)]
    ((_, given, _),) = layers_of(made(tmp_path, [np.ones((4, 5), "uint8")], axes=axes))
    assert given["units"] == ("pixel", "meter")
