"""The xarray engine, checked against rioxarray, tifffile and numpy."""

import numpy as np
import pytest
import rasterio
import tifffile
import xarray as xr

import anychunk
from anychunk import xarray_engine


@pytest.fixture
def scene(tmp_path):
    """A georeferenced image with overviews, by GDAL."""
    data = np.random.default_rng(0).integers(1, 4000, (3, 300, 400), dtype="int16")
    file = tmp_path / "scene.tif"
    transform = rasterio.transform.from_origin(440720.0, 3751320.0, 60.0, 60.0)
    with rasterio.open(
        file,
        "w",
        driver="GTiff",
        width=400,
        height=300,
        count=3,
        dtype="int16",
        crs="EPSG:26711",
        transform=transform,
        tiled=True,
        blockxsize=128,
        blockysize=128,
        nodata=-99,
        compress="deflate",
    ) as out:
        out.write(data)
        out.build_overviews([2], rasterio.enums.Resampling.nearest)
    return file, data


# until rioxarray multiplies transforms by @ (affine 3.1 asks for it)
@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")
def test_as_rioxarray_opens_it(scene):
    import rioxarray

    file, data = scene
    ours = xr.open_dataset(file, engine="anychunk", chunks={}, mask_and_scale=False)
    theirs = rioxarray.open_rasterio(file)
    image = ours["image"]
    assert image.dims == ("c", "y", "x")
    np.testing.assert_array_equal(image.values, data)
    for axis in ("x", "y"):
        np.testing.assert_allclose(image[axis], theirs[axis])
    assert image.rio.crs == theirs.rio.crs
    assert image.rio.transform() == theirs.rio.transform()
    assert image.rio.nodata == theirs.rio.nodata
    assert image.rio.bounds() == theirs.rio.bounds()
    assert image.rio.reproject("EPSG:4326").shape == theirs.rio.reproject("EPSG:4326").shape
    box = (442000.0, 3740000.0, 446000.0, 3745000.0)
    assert image.rio.clip_box(*box).shape == theirs.rio.clip_box(*box).shape
    image.rio.to_raster(file.with_name("out.tif"))
    with rasterio.open(file.with_name("out.tif")) as out, rasterio.open(file) as first:
        np.testing.assert_array_equal(out.read(), data)
        assert (out.crs, out.transform, out.nodata) == (first.crs, first.transform, first.nodata)
    masked = xr.open_dataset(file, engine="anychunk")["image"]
    expected = rioxarray.open_rasterio(file, mask_and_scale=True)
    assert masked.rio.encoded_nodata == expected.rio.encoded_nodata == -99
    assert np.isnan(masked.rio.nodata)
    assert masked.rio.crs == expected.rio.crs


def test_dask_chunks_are_the_tiles(scene):
    file, data = scene
    image = xr.open_dataset(file, engine="anychunk", chunks={})["image"]
    assert image.chunks == ((3,), (128, 128, 44), (128, 128, 128, 16))
    np.testing.assert_allclose(image.mean("c").values, data.mean(axis=0), rtol=1e-6)


def test_levels_and_the_tree(scene):
    file, _ = scene
    tree = xr.open_datatree(file, engine="anychunk")
    full, half = tree["/0/0/image"], tree["/0/1/image"]
    assert (full.shape, half.shape) == ((3, 300, 400), (3, 150, 200))
    assert float(half.x[0]) == pytest.approx(float(full.x[:2].mean()))
    assert float(half.y[0]) == pytest.approx(float(full.y[:2].mean()))
    level = xr.open_dataset(file, engine="anychunk", level=1)["image"]
    np.testing.assert_array_equal(level.values, half.values)
    with pytest.raises(KeyError, match=r"level 2\b.*\b0\D+1$"):
        xr.open_dataset(file, engine="anychunk", level=2)


def test_engine_is_guessed_by_content(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6).reshape(2, 3))
    (tmp_path / "a.npy").rename(tmp_path / "a.data")
    assert xr.open_dataset(tmp_path / "a.data")["image"].sum() == 15
    (tmp_path / "b.data").write_text("hello")
    with pytest.raises(ValueError, match="engine"):
        xr.open_dataset(tmp_path / "b.data")


@pytest.mark.parametrize(
    ("url", "is_ours"),
    [
        ("s3://bucket/a.TIF", False),  # rioxarray's
        ("https://host/a.jp2", False),
        ("s3://bucket/a.ntf", True),
        ("s3://bucket/a.n5/", True),
        ("https://host/a.npy", True),
        ("s3://bucket/a.zarr", False),
        ("https://host/a", False),
    ],
)
def test_engine_of_remote_urls_is_guessed_by_extension(url, is_ours):
    assert xarray_engine.AnychunkEntrypoint().guess_can_open(url) == is_ours


def test_nothing_is_read_before_it_is_asked_for(scene, monkeypatch):
    file, data = scene
    image = xr.open_dataset(file, engine="anychunk", mask_and_scale=False)["image"]
    asked = []
    real = anychunk.zarr.array.Array.__getitem__
    monkeypatch.setattr(
        anychunk.zarr.array.Array,
        "__getitem__",
        lambda s, key: asked.append(key) or real(s, key),
    )
    window = image[1, 100:110, 200:205]
    assert not asked
    np.testing.assert_array_equal(window.values, data[1, 100:110, 200:205])
    assert asked == [(1, slice(100, 110, 1), slice(200, 205, 1))]


@pytest.mark.parametrize(
    "key",
    [
        (0, slice(None, None, -1), slice(10, 300, 7)),
        ([2, 0], slice(0, 5), [5, 1, 399]),
        (slice(None), -1, slice(-10, None)),
        (..., 3),
    ],
)
def test_every_way_of_indexing(scene, key):
    file, data = scene
    image = xr.open_dataset(file, engine="anychunk")["image"]
    expected = xr.DataArray(data, dims=image.dims)[key]
    np.testing.assert_array_equal(image[key].values, expected.values)


def write_tiff(path, data, **options):
    profile = {"driver": "GTiff", "height": 60, "width": 80, "crs": "EPSG:32611", **options}
    profile.setdefault("transform", rasterio.transform.from_origin(440720, 3751320, 10, 10))
    with rasterio.open(path, "w", count=len(data), dtype=data.dtype, **profile) as out:
        out.write(data)
    return path


VALUES = np.random.default_rng(4).integers(0, 9, (2, 60, 80))


@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")
@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("uint8", {"nodata": 0}),
        ("uint8", {}),
        ("float32", {"nodata": np.nan}),
        ("int16", {"nodata": -9999}),
        ("uint16", {"crs": "EPSG:4326", "transform": rasterio.Affine(0.01, 0, -10, 0, -0.02, 50)}),
        ("uint8", {"crs": None}),
        ("int16", {"driver": "JP2OpenJPEG", "QUALITY": 100, "REVERSIBLE": "YES"}),
    ],
    ids=str,
)
def test_as_rioxarray_opens_every_kind(tmp_path, dtype, options):
    import rioxarray

    name = "a.jp2" if "driver" in options else "a.data"  # GDAL writes no boxes under other names
    file = write_tiff(tmp_path / name, VALUES.astype(dtype), **options)
    ours = xr.open_dataset(file, engine="anychunk", mask_and_scale=False)["image"]
    theirs = rioxarray.open_rasterio(file)
    np.testing.assert_array_equal(ours.values, theirs.values)
    assert (ours.rio.crs, ours.dims) == (theirs.rio.crs, ("c", "y", "x"))
    np.testing.assert_allclose(ours.rio.transform(), theirs.rio.transform())
    np.testing.assert_equal(ours.rio.nodata, theirs.rio.nodata)
    assert set(ours.coords) == set(theirs.coords) - {"band"}
    for axis in ("x", "y"):
        np.testing.assert_allclose(ours[axis], theirs[axis])
    masked = xr.open_dataset(file, engine="anychunk")["image"]
    expected = rioxarray.open_rasterio(file, mask_and_scale=True)
    np.testing.assert_array_equal(masked.values, expected.values)
    if "nodata" in options:
        assert masked.dtype == expected.dtype
    else:  # nothing to mask: samples stay what they are
        assert masked.dtype == dtype


@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")
def test_a_rotated_grid_has_a_transform_and_no_coordinates(tmp_path):
    import rioxarray  # noqa: F401 - adds the accessor `rio`

    rotated = rasterio.Affine(10, 2, 440720, 3, -10, 3751320)
    file = write_tiff(tmp_path / "a.tif", VALUES.astype("uint8"), transform=rotated)
    image = xr.open_dataset(file, engine="anychunk")["image"]
    assert set(image.coords) == {"spatial_ref"}
    np.testing.assert_allclose(image.rio.transform(), rotated)


@pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning")
@pytest.mark.filterwarnings("ignore:Scales differ")
@pytest.mark.parametrize("scales", [(0.01, 0.01), (0.01, 0.02)])
def test_packed_values_are_unpacked(tmp_path, scales):
    import rioxarray

    file = write_tiff(tmp_path / "a.tif", VALUES.astype("int16"), nodata=3)
    with rasterio.open(file, "r+") as out:
        out.scales, out.offsets = scales, (5.0, 5.0)
    raw = xr.open_dataset(file, engine="anychunk", mask_and_scale=False)["image"]
    assert raw.dtype == np.int16
    ours = xr.open_dataset(file, engine="anychunk")["image"]
    theirs = rioxarray.open_rasterio(file, mask_and_scale=True)
    np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-6)
    if scales[0] == scales[1]:
        assert (raw.attrs["scale_factor"], raw.attrs["add_offset"]) == (0.01, 5.0)
    else:  # bands that differ have none in common
        assert "scale_factor" not in raw.attrs
        assert (raw["scale"].values.tolist(), raw.attrs["add_offset"]) == ([0.01, 0.02], 5.0)
        assert "scale" not in ours.coords


def test_mask_and_scale(tmp_path):
    with rasterio.open(
        tmp_path / "a.tif",
        "w",
        driver="GTiff",
        width=4,
        height=2,
        count=1,
        dtype="int16",
        nodata=-1,
        transform=rasterio.transform.from_origin(0, 2, 1, 1),
    ) as out:
        out.write(np.array([[[0, 1, -1, 3], [4, 5, 6, 7]]], "int16"))
    raw = xr.open_dataset(tmp_path / "a.tif", engine="anychunk", mask_and_scale=False)["image"]
    assert raw.dtype == np.int16
    masked = xr.open_dataset(tmp_path / "a.tif", engine="anychunk")["image"]
    assert masked.dtype.kind == "f"
    assert int(masked.isnull().sum()) == 1


def test_physical_sizes_and_channel_names(tmp_path):
    data = np.arange(2 * 3 * 20 * 30, dtype="uint16").reshape(3, 2, 20, 30)
    tifffile.imwrite(
        tmp_path / "a.ome.tif",
        data,
        metadata={
            "axes": "ZCYX",
            "PhysicalSizeX": 0.5,
            "PhysicalSizeXUnit": "µm",
            "PhysicalSizeY": 0.5,
            "PhysicalSizeYUnit": "µm",
            "PhysicalSizeZ": 2.0,
            "PhysicalSizeZUnit": "µm",
            "Channel": {"Name": ["DAPI", "GFP"]},
        },
    )
    image = xr.open_dataset(tmp_path / "a.ome.tif", engine="anychunk")["image"].squeeze()
    np.testing.assert_array_equal(image.transpose("z", "c", "y", "x").values, data)
    assert image.x.values[:3].tolist() == [0.0, 0.5, 1.0]
    assert image.z.values.tolist() == [0.0, 2.0, 4.0]
    assert image.x.attrs["units"] == "micrometer"
    assert image.c.values.tolist() == ["DAPI", "GFP"]


def test_drop_variables(scene):
    file, _ = scene
    found = xr.open_dataset(file, engine="anychunk", drop_variables="image")
    assert "image" not in found


def test_an_array_that_is_called_as_an_axis(tmp_path):
    data = np.arange(6, dtype="uint8").reshape(2, 3)
    anychunk.write(data, str(tmp_path / "a.n5/x"))
    found = xr.open_dataset(tmp_path / "a.n5", engine="anychunk")
    assert "x" in found["image"].dims
    np.testing.assert_array_equal(found["image"], data)
