"""Real formats in, every target out: georeference, axes, masks, N5 and JNRRD."""

import numpy as np
import pytest
import rasterio
import tifffile
import zarr

import anychunk
import anychunk.model.images
from anychunk.conversion import others
from anychunk.errors import FormatError, UnsupportedError
from tests.corpus import needs_corpus, samples


@pytest.fixture
def cog(tmp_path):
    data = np.random.default_rng(0).integers(0, 4000, (2, 515, 770), dtype="uint16")
    profile = {"width": 770, "height": 515, "count": 2, "dtype": "uint16", "crs": "EPSG:32611"}
    transform = rasterio.transform.from_origin(440720, 3751320, 10, 10)
    with rasterio.open(
        tmp_path / "a.tif",
        "w",
        driver="COG",
        blocksize=256,
        compress="deflate",
        transform=transform,
        **profile,
    ) as out:
        out.write(data)
    return tmp_path / "a.tif", data


def test_levels_of_the_source_are_copied(cog, tmp_path):
    file, data = cog
    anychunk.convert(file, tmp_path / "b.zarr", verify=True)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    np.testing.assert_array_equal(group["0"][:], data)
    with rasterio.open(file, overview_level=0) as overview:
        np.testing.assert_array_equal(group["1"][:], overview.read())
    assert group.attrs["proj:code"] == "EPSG:32611"
    assert group.attrs["tiff"]["compression"]


def test_levels_that_are_made_have_their_own_georeference(cog, tmp_path):
    file, _ = cog
    anychunk.convert(file, tmp_path / "b.zarr", levels=3, verify=True)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    for number, size in enumerate((10, 20, 40)):
        attributes = group[str(number)].attrs
        assert attributes["spatial:transform"] == [size, 0, 440720, 0, -size, 3751320]
        assert tuple(attributes["spatial:shape"]) == group[str(number)].shape[1:]
        assert attributes["proj:code"] == "EPSG:32611"
    scale = group.attrs["ome"]["multiscales"][0]["datasets"][2]["coordinateTransformations"][0]
    assert scale["scale"] == [1.0, 40.0, 40.0]


def test_an_axis_of_one_band_is_left_out_beside_channels(tmp_path):
    data = np.arange(2 * 3 * 40 * 50, dtype="uint16").reshape(2, 3, 40, 50)
    tifffile.imwrite(
        tmp_path / "a.ome.tif", data, tile=(16, 16), metadata={"axes": "CZYX", "PhysicalSizeX": 0.5}
    )
    anychunk.convert(tmp_path / "a.ome.tif", tmp_path / "b.zarr", verify=True)
    group = zarr.open_group(tmp_path / "b.zarr", mode="r")
    np.testing.assert_array_equal(group["0"][:], data)
    assert group["0"].metadata.dimension_names == ("c", "z", "y", "x")


def test_a_mask_goes_along(tmp_path):
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(
            tmp_path / "a.tif",
            "w",
            driver="GTiff",
            width=64,
            height=64,
            count=1,
            dtype="uint8",
            transform=rasterio.transform.from_origin(0, 64, 1, 1),
        ) as out,
    ):
        out.write(np.ones((1, 64, 64), "uint8"))
        out.write_mask(np.eye(64, dtype="uint8") * 255)
    anychunk.convert(tmp_path / "a.tif", tmp_path / "b.zarr", verify=True)
    mask = np.squeeze(zarr.open_group(tmp_path / "b.zarr", mode="r")["mask"][:])
    np.testing.assert_array_equal(mask != 0, np.eye(64, dtype=bool))


def test_n5(cog, tmp_path):
    file, data = cog
    tensorstore = pytest.importorskip("tensorstore")
    anychunk.convert(file, tmp_path / "b.n5", options={"block": (1, 128, 128)})
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(tmp_path / "b.n5")}}
    read = tensorstore.open(spec).result()[...].read().result()
    np.testing.assert_array_equal(read, data.T)  # N5's first axis is x
    attributes = anychunk.index(tmp_path / "b.n5").attributes
    assert attributes["n5"]["pixelResolution"]["dimensions"] == [10.0, 10.0, 1.0]


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
def test_wishes_reach_every_format(cog, tmp_path, target):
    file, _ = cog
    wishes = {"chunk": (64, 128), "compression": "zstd", "levels": 2}
    done = anychunk.convert(file, tmp_path / target, verify=True, **wishes)
    assert done.is_verified
    images = list(anychunk.model.images.images(anychunk.index(tmp_path / target)))
    assert len(images[0].levels) == 2
    described = anychunk.describe(tmp_path / target)["arrays"][0]
    assert sorted(described["chunk_shape"]) == [1, 64, 128]
    assert "zstd" in str(described["codecs"])
    for wish in ({"shard": (64, 128)}, {"like": "cloud"}, {"method": "max"}, {"axes": "zyx"}):
        with pytest.raises(UnsupportedError, match=f"{next(iter(wish))} is for Zarr"):
            anychunk.convert(file, tmp_path / f"c{target}", **wish)
    assert not (tmp_path / f"c{target}").exists()


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
def test_what_is_there_is_not_written_over(cog, tmp_path, target):
    file, data = cog
    anychunk.convert(file, tmp_path / target)
    with pytest.raises(FormatError, match=target):
        anychunk.convert(file, tmp_path / target)
    if target == "b.jnrrd":
        anychunk.convert(file, tmp_path / target, overwrite=True)
    found = anychunk.open_array(tmp_path / target)[...]
    np.testing.assert_array_equal(found.T if target == "b.n5" else found, data)


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
def test_a_wrong_pixel_is_found_in_every_format(cog, tmp_path, target, monkeypatch):
    """The samples change between writing and reading back."""
    file, _ = cog
    real = others.compare

    def compare(samples, url, **options):
        changed = np.asarray(samples[...])
        changed[1, 2, 3] += 1
        real(changed, url, **options)

    monkeypatch.setattr(others, "compare", compare)
    with pytest.raises(FormatError, match=r"\(1, 2, 3\): \d+ was written, \d+ expected; 1 differ"):
        anychunk.convert(file, tmp_path / target, verify=True)


def test_truth_values_become_numbers(tmp_path):
    data = np.eye(30, dtype=bool)
    np.save(tmp_path / "a.npy", data)
    for target, path in (("b.n5", ""), ("b.jnrrd", "0/0")):
        anychunk.convert(tmp_path / "a.npy", tmp_path / target)
        opened = anychunk.open(tmp_path / target)
        array = opened[path] if path else opened
        np.testing.assert_array_equal(array[...], data.astype("uint8"))


def test_jnrrd(cog, tmp_path):
    file, data = cog
    anychunk.convert(file, tmp_path / "b.jnrrd", options={"compression": "zstd"})
    index = anychunk.index(tmp_path / "b.jnrrd")
    np.testing.assert_array_equal(anychunk.open(index)["0/0"][...], data)
    image = index["0"].attributes["ome"]["multiscales"][0]
    assert [axis["name"] for axis in image["axes"]] == ["band", "y", "x"]
    assert image["datasets"][0]["coordinateTransformations"][0]["scale"][1:] == [10.0, 10.0]


def test_one_image_fits_in_a_jnrrd(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as out:
        out.write(np.zeros((20, 30), "uint8"))
        out.write(np.ones((40, 50), "uint16"))
    with pytest.raises(FormatError, match="one image fits in there, the source has 2: 0 1"):
        anychunk.convert(tmp_path / "a.tif", tmp_path / "b.jnrrd")
    anychunk.convert(tmp_path / "a.tif", tmp_path / "b.jnrrd", image=1)
    assert anychunk.open_array(tmp_path / "b.jnrrd").shape[-2:] == (40, 50)
    anychunk.convert(tmp_path / "a.tif", tmp_path / "b.n5")
    assert sorted(anychunk.open(tmp_path / "b.n5").keys()) == ["0", "1"]


SAMPLED = [
    sample for sample in samples() if "/" in sample.path and not sample.path.startswith("malformed")
][::53]


@needs_corpus
@pytest.mark.parametrize("sample", SAMPLED, ids=lambda sample: sample.path)
def test_real_files_convert_and_verify(sample, tmp_path):
    try:
        index = anychunk.index(sample.file)
    except anychunk.AnychunkError as e:
        pytest.skip(f"refused: {e}")
    if not list(index.arrays() if hasattr(index, "arrays") else [1]):
        pytest.skip("its images are refused by name")
    try:
        report = anychunk.convert(index, tmp_path / "b.zarr", verify=True)
    except anychunk.AnychunkError as e:
        # what does not convert must not read either
        if anychunk.verify(index).is_good:
            raise AssertionError("it reads, and does not convert") from e
        return
    assert report.is_verified


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
def test_levels_keep_bands_and_classes_apart(tmp_path, target):
    colours = np.arange(3 * 256, dtype="uint16").reshape(3, 256)
    classes = np.kron([[1, 9], [9, 1]], np.ones((8, 8), "uint8")).astype("uint8")
    classes[::2, ::2] = 3
    tifffile.imwrite(tmp_path / "a.tif", classes, photometric="palette", colormap=colours)
    bands = np.full((2, 16, 16), 10, "uint8")
    bands[1] = 200
    tifffile.imwrite(tmp_path / "b.tif", bands, photometric="minisblack", planarconfig="separate")
    for name, expected in (("a.tif", {1, 9}), ("b.tif", {10, 200})):
        anychunk.convert(tmp_path / name, tmp_path / f"{name}{target}", levels=2, format=target[2:])
        node = anychunk.index(tmp_path / f"{name}{target}")
        (image,) = anychunk.model.images.images(node)
        level = anychunk.open(node)[image.levels[1]]
        assert sorted(level.shape) == [len(expected) if name == "b.tif" else 1, 8, 8]
        assert set(np.unique(level[...])) == expected


def test_nodata_has_no_say_in_levels_of_n5(tmp_path):
    data = np.full((1, 8, 8), 100, "int16")
    data[:, ::2, ::2] = -99
    with rasterio.open(
        tmp_path / "a.tif",
        "w",
        driver="GTiff",
        width=8,
        height=8,
        count=1,
        dtype="int16",
        nodata=-99,
        transform=rasterio.transform.from_origin(0, 8, 1, 1),
    ) as out:
        out.write(data)
    anychunk.convert(tmp_path / "a.tif", tmp_path / "b.n5", levels=2)
    assert set(np.unique(anychunk.open(tmp_path / "b.n5")["s1"][...])) == {100}
