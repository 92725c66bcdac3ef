"""Conversion to N5 and JNRRD: options, levels, and what was written, read by other readers."""

import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
import anychunk.model.images
from anychunk.conversion import single_files
from anychunk.errors import FormatError, UnsupportedError


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
    for option in ({"shard": (64, 128)}, {"like": "cloud"}, {"method": "max"}, {"axes": "zyx"}):
        with pytest.raises(UnsupportedError, match=rf"c{target}: {next(iter(option))}\b"):
            anychunk.convert(file, tmp_path / f"c{target}", **option)
    assert not (tmp_path / f"c{target}").exists()


@pytest.mark.parametrize("target", ["b.n5", "b.jnrrd"])
def test_an_existing_target_is_not_overwritten(cog, tmp_path, target):
    file, data = cog
    anychunk.convert(file, tmp_path / target)
    with pytest.raises(FormatError, match=rf"/{target}: .*already exists"):
        anychunk.convert(file, tmp_path / target)
    if target == "b.jnrrd":
        anychunk.convert(file, tmp_path / target, overwrite=True)
    found = anychunk.open_array(tmp_path / target)[...]
    np.testing.assert_array_equal(found.T if target == "b.n5" else found, data)


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
        assert sorted(level.shape) == [len(expected) if name == "b.tif" else 1, 8, 8]
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
    assert set(np.unique(anychunk.open(tmp_path / "b.n5")["s1"][...])) == {100}
