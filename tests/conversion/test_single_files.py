"""Conversion to N5 and JNRRD: options, levels, and what was written, read by other readers."""

import json

import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
import anychunk.model.images
from anychunk.conversion import single_files
from anychunk.errors import FormatError, OptionError
from anychunk.metadata.reading import meaning_of


def test_n5(cog, tmp_path):
    file, data = cog
    import tensorstore

    anychunk.convert(file, tmp_path / "b.n5", chunk=(1, 128, 128))
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(tmp_path / "b.n5")}}
    read = tensorstore.open(spec).result()[...].read().result()
    np.testing.assert_array_equal(read, data.T)  # N5's first axis is x
    attributes = anychunk.index(tmp_path / "b.n5").attributes
    assert attributes["n5"]["pixelResolution"]["dimensions"] == [10.0, 10.0, 1.0]


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
def test_options_reach_every_format(cog, tmp_path, target):
    file, _ = cog
    options = {"chunk": (64, 128), "compression": "zstd", "levels": 2}
    done = anychunk.convert(file, tmp_path / target, verify=True, **options)
    assert done.is_verified
    images = list(anychunk.model.images.images(anychunk.index(tmp_path / target)))
    assert len(images[0].levels) == 2
    described = anychunk.describe(tmp_path / target)["arrays"][0]
    assert sorted(described["chunk_shape"]) == [1, 64, 128]
    assert "zstd" in str(described["codecs"])
    for option in ({"shard": (64, 128)}, {"like": "cloud"}, {"executor": "tcp://127.0.0.1:1"}):
        with pytest.raises(OptionError, match=rf"c{target}: .*no option '{next(iter(option))}'"):
            anychunk.convert(file, tmp_path / f"c{target}", **option)
    assert not (tmp_path / f"c{target}").exists()


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
def test_an_existing_target_is_not_overwritten(cog, tmp_path, target):
    file, data = cog
    anychunk.convert(file, tmp_path / target)
    with pytest.raises(FileExistsError, match=rf"/{target}: .*already exists"):
        anychunk.convert(file, tmp_path / target)
    if target == "b.jnrrd":
        anychunk.convert(file, tmp_path / target, overwrite=True)
    np.testing.assert_array_equal(anychunk.open_array(tmp_path / target)[...], data)


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
def test_a_wrong_pixel_is_found_in_every_format(cog, tmp_path, target, monkeypatch):
    """The samples change between writing and reading back."""
    file, data = cog
    right = int(data[1, 2, 3])
    real = single_files.compare

    def compare(samples, url, **options):
        changed = np.asarray(samples[...])
        changed[1, 2, 3] += 1
        real(changed, url, **options)

    monkeypatch.setattr(single_files, "compare", compare)
    with pytest.raises(FormatError, match=rf"\(1, 2, 3\): \D*{right}\D*{right + 1}\D*1 "):
        anychunk.convert(file, tmp_path / target, verify=True)


def test_booleans_become_integers(tmp_path):
    data = np.eye(30, dtype=bool)
    np.save(tmp_path / "a.npy", data)
    for target, path in (("b.n5", ""), ("b.jnrrd", "0/0/image")):
        done = anychunk.convert(tmp_path / "a.npy", tmp_path / target)
        assert len(done.losses) == 1
        assert "uint8" in done.losses[0]
        opened = anychunk.open(tmp_path / target)
        array = opened[path] if path else opened
        np.testing.assert_array_equal(array[...], data.astype("uint8"))


def test_jnrrd(cog, tmp_path):
    file, data = cog
    anychunk.convert(file, tmp_path / "b.jnrrd", compression="zstd")
    index = anychunk.index(tmp_path / "b.jnrrd")
    np.testing.assert_array_equal(anychunk.open(index)["0/0/image"][...], data)
    image = index["0"].attributes["ome"]["multiscales"][0]
    assert [axis["name"] for axis in image["axes"]] == ["c", "y", "x"]
    assert image["datasets"][0]["coordinateTransformations"][0]["scale"][1:] == [10.0, 10.0]


def test_one_image_fits_in_a_jnrrd(tmp_path):
    with tifffile.TiffWriter(tmp_path / "a.tif") as out:
        out.write(np.zeros((20, 30), "uint8"))
        out.write(np.ones((40, 50), "uint16"))
    with pytest.raises(FormatError, match=r"b\.jnrrd: \D*\b2\b\D*\b0 1\b"):
        anychunk.convert(tmp_path / "a.tif", tmp_path / "b.jnrrd")
    anychunk.convert(tmp_path / "a.tif", tmp_path / "b.jnrrd", image=1)
    assert anychunk.open_array(tmp_path / "b.jnrrd").shape[-2:] == (40, 50)
    anychunk.convert(tmp_path / "a.tif", tmp_path / "b.n5")
    assert sorted(anychunk.open(tmp_path / "b.n5").keys()) == ["0", "1"]


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
        assert level.shape == ((2, 8, 8) if name == "b.tif" else (8, 8))
        assert set(np.unique(level[...])) == expected


def test_nodata_is_excluded_from_levels_of_n5(tmp_path):
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
    assert set(np.unique(anychunk.open(tmp_path / "b.n5")["s1/image"][...])) == {100}


def described(path):
    node = anychunk.index(path)
    image = next(anychunk.model.images.images(node))
    return meaning_of(node, image)


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
@pytest.mark.parametrize("levels", [None, 2])
def test_the_place_on_earth_is_kept(tmp_path, target, levels):
    """CRS, transform, nodata, scale and offset per band, names, units and tags, as GDAL has them."""
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", width=16, height=12, count=2, dtype="int16",
        nodata=-99, crs="EPSG:32631", transform=rasterio.transform.from_origin(5e5, 4e6, 10, 20),
    ) as out:  # fmt: skip
        out.write(np.arange(2 * 12 * 16, dtype="int16").reshape(2, 12, 16))
        out.scales, out.offsets = (0.5, 0.25), (1.0, 2.0)
        out.descriptions = ("red edge", "depth")
        out.units = ("1", "m")
        out.update_tags(campaign="spring")
    source = described(tmp_path / "a.tif")
    options = {} if levels is None else {"levels": levels}
    done = anychunk.convert(tmp_path / "a.tif", tmp_path / target, verify=True, **options)
    assert done.losses == ()
    found = described(tmp_path / target)
    with rasterio.open(tmp_path / "a.tif") as theirs:
        assert found.place.crs.code == f"EPSG:{theirs.crs.to_epsg()}"
        assert found.place.transform == tuple(theirs.transform)[:6]
        assert found.nodata == theirs.nodata
        bands = [(band.name, band.unit, band.scale, band.offset) for band in found.bands]
        assert bands == list(
            zip(theirs.descriptions, theirs.units, theirs.scales, theirs.offsets, strict=True)
        )
        assert found.tags["campaign"] == theirs.tags()["campaign"]
    assert found.names == source.names
    assert found.tags == source.tags
    # readers that know neither CRS nor our names find the size of a pixel
    is_array = target == "b.n5" and levels is None
    native = anychunk.index(tmp_path / target).attributes if is_array else found.native
    if target == "b.n5":
        assert native["n5"]["pixelResolution"]["dimensions"] == [10.0, 20.0, 1.0]
    else:
        assert native["jnrrd"]["spacings"] == [10.0, 20.0, None]


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
def test_channels_are_kept(tmp_path, target):
    metadata = {
        "axes": "TCZYX",
        "PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm",
        "PhysicalSizeY": 0.25, "PhysicalSizeYUnit": "µm",
        "PhysicalSizeZ": 1.5, "PhysicalSizeZUnit": "µm",
        "Channel": {"Name": ["DAPI", "GFP"], "Color": [65535, 16711935]},
    }  # fmt: skip
    values = np.arange(3 * 2 * 4 * 8 * 8, dtype="uint16").reshape(3, 2, 4, 8, 8)
    tifffile.imwrite(tmp_path / "a.ome.tif", values, metadata=metadata)
    source = described(tmp_path / "a.ome.tif")
    anychunk.convert(tmp_path / "a.ome.tif", tmp_path / target, levels=2, verify=True)
    found = described(tmp_path / target)
    assert found.names == ("t", "c", "z", "y", "x")
    assert [(axis.scale, axis.unit) for axis in found.axes[-3:]] == [
        (1.5, "micrometer"), (0.25, "micrometer"), (0.25, "micrometer"),
    ]  # fmt: skip
    assert [band.name for band in found.bands] == ["DAPI", "GFP"]
    assert found.display == source.display
    (image,) = anychunk.model.images.images(anychunk.index(tmp_path / target))
    channels = image.attributes["ome"]["omero"]["channels"]
    assert [channel["label"] for channel in channels] == ["DAPI", "GFP"]


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
def test_a_mask_is_a_loss(tmp_path, target):
    place = rasterio.transform.from_origin(5e5, 4e6, 10, 20)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", width=16, height=16, count=1, dtype="uint8",
        transform=place,
    ) as out:  # fmt: skip
        out.write(np.ones((1, 16, 16), "uint8"))
        out.write_mask(np.eye(16, dtype=bool))
    done = anychunk.convert(tmp_path / "a.tif", tmp_path / target)
    assert len(done.losses) == 1
    assert "mask" in done.losses[0]
    assert "mask" not in (described(tmp_path / target).display or {})
    assert "\n" not in done.losses[0]


def test_conventions_of_n5_are_written_for_other_readers(tmp_path):
    """n5-viewer's `pixelResolution`, COSEM's `transform`; tensorstore reads `axes`."""
    import tensorstore

    metadata = {"axes": "CYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5}
    values = np.arange(2 * 8 * 8, dtype="uint16").reshape(2, 8, 8)
    tifffile.imwrite(tmp_path / "a.ome.tif", values, metadata=metadata)
    anychunk.convert(tmp_path / "a.ome.tif", tmp_path / "b.n5", levels=2)
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(tmp_path / "b.n5/s1")}}
    read = tensorstore.open(spec).result()
    assert read.domain.labels == ("x", "y", "c")
    group = json.loads((tmp_path / "b.n5/attributes.json").read_text())
    assert group["pixelResolution"] == {"dimensions": [0.5, 0.5, 1.0], "unit": "um"}
    dataset = json.loads((tmp_path / "b.n5/s1/attributes.json").read_text())
    assert dataset["transform"] == {
        "ordering": "C",
        "axes": ["c", "y", "x"],
        "scale": [1.0, 1.0, 1.0],
        "translate": [0.0, 0.25, 0.25],
        "units": ["", "um", "um"],
    }
