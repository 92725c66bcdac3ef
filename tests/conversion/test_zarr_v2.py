"""The preset for older viewers: Zarr v2 with OME-Zarr 0.4 metadata, as other packages read it."""

import json

import numpy as np
import pytest
import tifffile
import zarr

import anychunk
from anychunk.conversion import zarr_v2
from anychunk.errors import OptionError, UnsupportedError
from anychunk.metadata.reading import meaning_of
from anychunk.model import images as im

LIKE = "ome-zarr-0.4"


def document(path):
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Return an OME-TIFF file with channels, and its samples."""
    folder = tmp_path_factory.mktemp("cells")
    values = np.random.default_rng(0).integers(0, 4000, (2, 3, 70, 90)).astype("uint16")
    tifffile.imwrite(
        folder / "cells.ome.tif", values, photometric="minisblack", tile=(32, 32), ome=True,
        metadata={"axes": "ZCYX", "Channel": {"Name": ["DAPI", "GFP", "RFP"]},
                  "PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.25,
                  "PhysicalSizeYUnit": "µm", "PhysicalSizeZ": 2.0, "PhysicalSizeZUnit": "µm"},
    )  # fmt: skip
    target = folder / "cells.zarr"
    done = anychunk.convert(folder / "cells.ome.tif", target, like=LIKE, levels=2, verify=True)
    assert done.is_verified
    return target, values.transpose(1, 0, 2, 3)


def test_plain_zarr_reads_it(cells):
    target, values = cells
    assert not list(target.rglob("zarr.json"))
    group = zarr.open_group(target, mode="r", zarr_format=2)
    assert np.array_equal(group["0/image"][:], values)
    assert group["0/image"].metadata.zarr_format == 2
    assert document(target / "0/image/.zarray")["dimension_separator"] == "/"
    assert (target / "0/image/0/0/0/0").is_file()
    consolidated = zarr.open_consolidated(target, mode="r", zarr_format=2)
    assert np.array_equal(consolidated["1/image"][:], group["1/image"][:])
    assert consolidated["1/image"].shape == (3, 2, 35, 45)


@pytest.mark.parametrize("compression", [None, "zstd", "gzip", "blosc", "none"])
def test_tensorstore_reads_it(tmp_path, compression):
    import tensorstore

    values = np.random.default_rng(3).integers(0, 9, (40, 50)).astype("uint16")
    np.save(tmp_path / "a.npy", values)
    anychunk.convert(tmp_path / "a.npy", tmp_path / "a.zarr", like=LIKE, compression=compression)
    folder = (tmp_path / "a.zarr/0/image").as_posix()
    spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    assert np.array_equal(tensorstore.open(spec).result().read().result(), values)


def test_ome_zarr_models_validates_it(cells):
    models = pytest.importorskip(
        "ome_zarr_models", reason="needs ome-zarr-models: pip install ome-zarr-models"
    )
    group = zarr.open_group(cells[0], mode="r", zarr_format=2)
    image = models.open_ome_zarr(group, version="0.4")
    (scales,) = image.attributes.multiscales
    assert scales.version == "0.4"
    assert [axis.name for axis in scales.axes] == ["c", "z", "y", "x"]
    assert scales.datasets[0].coordinateTransformations[0].scale == [1, 2, 0.25, 0.25]
    assert scales.datasets[1].coordinateTransformations[0].scale == [1, 2, 0.5, 0.5]
    assert [c.label for c in image.attributes.omero.channels] == ["DAPI", "GFP", "RFP"]


def test_our_reader_finds_the_same_meaning(cells, tmp_path):
    target, values = cells
    node = anychunk.index(target)
    image = next(im.images(node))
    assert np.array_equal(anychunk.open_array(target)[:], values)
    anychunk.convert(target, tmp_path / "new.zarr")
    newer = anychunk.index(tmp_path / "new.zarr")
    ours, theirs = meaning_of(node, image), meaning_of(newer, next(im.images(newer)))
    assert ours.axes == theirs.axes
    assert ours.bands == theirs.bands
    assert len(image.levels) == 2


def test_gdal_reads_pixels_and_place(tmp_path):
    rasterio = pytest.importorskip("rasterio", reason="needs rasterio: pip install rasterio")
    values = np.random.default_rng(1).normal(size=(2, 90, 130)).astype("float32")
    values[:, :5] = -9999
    place = rasterio.Affine(10, 0, 500000, 0, -10, 5000000)
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", width=130, height=90, count=2, dtype="float32",
        nodata=-9999, crs="EPSG:32633", transform=place,
    ) as file:  # fmt: skip
        file.write(values)
    for compression in (None, "zstd", "gzip", "none"):
        anychunk.convert(tmp_path / "a.tif", tmp_path / "a.zarr", like=LIKE, levels=2,
                         compression=compression, overwrite=True)  # fmt: skip
        with rasterio.open(tmp_path / "a.zarr/0") as file:
            assert np.array_equal(file.read(), values)
            assert file.crs == rasterio.CRS.from_epsg(32633)
            assert file.transform == place
            assert file.nodata == -9999
        with rasterio.open(tmp_path / "a.zarr/1") as file:
            assert file.transform == rasterio.Affine(20, 0, 500000, 0, -20, 5000000)
            coarse = file.read()
        assert np.array_equal(coarse, anychunk.open_array(tmp_path / "a.zarr", level=1)[:])


def test_several_images(tmp_path):
    values = np.arange(40 * 50, dtype="uint8").reshape(40, 50)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", values)
    anychunk.convert([tmp_path / "a.npy", tmp_path / "b.npy"], tmp_path / "o.zarr", like=LIKE)
    assert document(tmp_path / "o.zarr/.zattrs")["bioformats2raw.layout"] == 3
    for name in "01":
        attributes = document(tmp_path / f"o.zarr/{name}/.zattrs")
        assert attributes["multiscales"][0]["datasets"][0]["path"] == "0/image"
        group = zarr.open_group(tmp_path / f"o.zarr/{name}", mode="r", zarr_format=2)
        assert np.array_equal(group["0/image"][:], values)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64", "complex64"])
def test_types(tmp_path, dtype):
    values = np.arange(30 * 40).reshape(30, 40).astype(dtype)
    values[:16, :16] = 0
    np.save(tmp_path / "a.npy", values)
    anychunk.convert(tmp_path / "a.npy", tmp_path / "a.zarr", like=LIKE, chunk=(16, 16),
                     levels=1, verify=True)  # fmt: skip
    found = zarr.open_array(tmp_path / "a.zarr/0/image", mode="r", zarr_format=2)
    assert found.dtype == values.dtype
    assert np.array_equal(found[:], values)


def test_an_existing_target_is_replaced_only_if_asked(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(64 * 64, dtype="uint32").reshape(64, 64))
    anychunk.convert(tmp_path / "a.npy", tmp_path / "a.zarr", like=LIKE, verify=True)
    for options in ({"like": LIKE}, {}):
        with pytest.raises(anychunk.AnychunkError, match="already exists"):
            anychunk.convert(tmp_path / "a.npy", tmp_path / "a.zarr", **options)
    anychunk.convert(tmp_path / "a.npy", tmp_path / "a.zarr", overwrite=True)
    assert not (tmp_path / "a.zarr/.zgroup").exists()
    assert (tmp_path / "a.zarr/zarr.json").exists()


@pytest.mark.parametrize(
    ("options", "word"), [({"shard": (64, 64)}, "shards"), ({"shard": True}, "shards")]
)
def test_what_zarr_v2_lacks_is_refused_before_anything_is_written(tmp_path, options, word):
    np.save(tmp_path / "a.npy", np.zeros((64, 64)))
    with pytest.raises((UnsupportedError, OptionError), match=word):
        anychunk.convert(tmp_path / "a.npy", tmp_path / "a.zarr", like=LIKE, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_attributes_move_out_of_ome():
    found = zarr_v2.group_attributes(
        {
            "ome": {"version": "0.5", "multiscales": [{"axes": []}], "labels": ["cells"],
                    "image-label": {"colors": []}},
            "multiscales": {"layout": []},
            "zarr_conventions": [{"name": "multiscales"}, {"name": "proj"}],
            "proj:code": "EPSG:4326",
        }
    )  # fmt: skip
    assert found == {
        "multiscales": [{"version": "0.4", "axes": []}],
        "labels": ["cells"],
        "image-label": {"version": "0.4", "colors": []},
        "zarr_conventions": [{"name": "proj"}],
        "proj:code": "EPSG:4326",
    }
