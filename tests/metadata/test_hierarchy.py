"""The writer of the hierarchy, and what is read back from it."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import xarray

from anychunk.metadata.hierarchy import consolidated, image_group, root_group
from anychunk.metadata.meaning import Axis, Band, Crs, Level, Meaning, Place, Space
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model.images import images
from anychunk.model.index import ArrayIndex, ByteRanges, find, walk
from anychunk.zarr.array import open_group

UTM = Place(crs=Crs(code="EPSG:32633"), transform=(10.0, 0.0, 500_000.0, 0.0, -10.0, 4_000_000.0))
RAW = {"name": "bytes", "configuration": {"endian": "little"}}


def stored(values: np.ndarray, *names: str, absent: bool = False, **fields) -> ArrayIndex:
    """Return an array whose one chunk is in the index."""
    data = values.tobytes()
    grid = (1,) * values.ndim
    return ArrayIndex(
        shape=values.shape,
        chunk_shape=values.shape,
        data_type=values.dtype.name,
        codecs=(RAW if values.dtype.itemsize > 1 else {"name": "bytes"},),
        chunks=ByteRanges(
            offsets=np.zeros(grid, "u8"),
            lengths=np.full(grid, 0 if absent else len(data), "u8"),
            urls=("",),
            inline=data,
        ),
        dimension_names=names,
        **fields,
    )


def axes(names: str, **known: Axis) -> tuple[Axis, ...]:
    return tuple(known.get(name, Axis(name=name)) for name in names)


def opened(meaning: Meaning, *levels: ArrayIndex):
    """Return a file of one image as an index."""
    made = [Level(name=str(n), image=array) for n, array in enumerate(levels)]
    return root_group({"0": image_group(meaning, made)})


def grey(dtype: str = "uint16", shape: tuple[int, ...] = (6, 8)) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def full_meaning(**changed) -> Meaning:
    return replace(
        Meaning(
            axes=axes("cyx"),
            place=UTM,
            nodata=3,
            bands=(
                Band(name="red", unit="K", scale=0.1, offset=2.0, interpretation="Red"),
                Band(name="nir", unit="K", scale=0.5, tags={"wavelength": "0.8"}),
            ),
            display={"model": "grey", "bands": [1], "range": [[0, 90]]},
            name="scene",
            tags={"SENSOR": "x"},
            native={"made": {"up": 1}},
        ),
        **changed,
    )


@pytest.mark.parametrize(
    "meaning",
    [
        full_meaning(),
        full_meaning(place=replace(UTM, transform=(10.0, 1.0, 5.0, 2.0, -10.0, 4.0))),
        full_meaning(place=Place(crs=Crs(wkt='LOCAL_CS["x"]'), bbox=(0.0, 1.0, 2.0, 3.0))),
        full_meaning(place=Place(gcps=((0.0, 0.0, 5.0, 6.0, 0.0),), rpc={"line_off": 1.0})),
        full_meaning(bands=(), nodata=None, display=None, name="", tags={}, native={}),
        full_meaning(
            place=Place(),
            axes=axes("cyx", x=Axis(name="x", unit="micrometer", scale=0.25, origin=3.0)),
            space=Space(
                affine=tuple(tuple(float(i == j) for j in range(4)) for i in range(4)),
                frame="LPS",
                unit="millimeter",
            ),
        ),
    ],
)
def test_what_is_written_is_read_back(meaning):
    node = opened(meaning, stored(grey(shape=(2, 6, 8)), "c", "y", "x"))
    (image,) = images(node)
    assert (image.path, image.levels) == ("0", ("0/0/image",))
    assert meaning_of(node, image) == meaning


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8"])
@pytest.mark.parametrize("nodata", [7.0, None])
def test_xarray_masks_and_scales_by_itself(dtype, nodata):
    values = grey(dtype)
    meaning = Meaning(
        axes=axes("yx"), place=UTM, nodata=nodata, bands=(Band(scale=0.5, offset=1.0, unit="K"),)
    )
    store = open_group(opened(meaning, stored(values, "y", "x"))).store
    found = xarray.open_zarr(store, group="0/0", consolidated=False)
    expected = values * 0.5 + 1
    if nodata is not None:
        expected = np.where(values == nodata, np.nan, expected)
    np.testing.assert_allclose(found["image"].values, expected)
    np.testing.assert_array_equal(found["x"].values, 500_005 + 10 * np.arange(8))
    np.testing.assert_array_equal(found["y"].values, 3_999_995 - 10 * np.arange(6))
    assert found["image"].attrs["units"] == "K"
    assert found["spatial_ref"].attrs["GeoTransform"] == "500000.0 10.0 0.0 4000000.0 0.0 -10.0"


def test_values_of_float_nodata_that_are_not_finite():
    values = np.array([[1.0, np.nan, -np.inf]])
    for nodata, fill in ((np.nan, "NaN"), (-np.inf, "-Infinity")):
        meaning = Meaning(axes=axes("yx"), nodata=nodata)
        node = opened(meaning, stored(values, "y", "x"))
        assert find(node, "0/0/image").fill_value == fill
        read = meaning_of(node, next(images(node))).nodata
        assert read == nodata or (np.isnan(read) and np.isnan(nodata))


def test_absent_chunks_keep_what_they_read_as():
    for nodata, is_absent, expected in (
        (5, True, 0),
        (5, False, 5),
        (None, True, 0),
        (None, False, "NaN"),
    ):
        array = stored(grey("float32"), "y", "x", absent=is_absent)
        made = find(opened(Meaning(axes=axes("yx"), nodata=nodata), array), "0/0/image")
        assert made.fill_value == expected


def test_bands_that_differ_have_coordinates_along_c():
    node = opened(full_meaning(), stored(grey(shape=(2, 6, 8)), "c", "y", "x"))
    group = open_group(node)["0/0"]
    assert group["scale"][:].tolist() == [0.1, 0.5]
    assert group["offset"][:].tolist() == [2.0, 0.0]
    assert group["c"][:].tolist() == ["red", "nir"]
    attributes = group["image"].attrs.asdict()
    assert "scale_factor" not in attributes
    assert attributes["coordinates"] == "spatial_ref scale offset"
    assert attributes["COLOR_INTERPRETATION"] == ["Red", "Undefined"]


def test_labels_that_are_not_unique_are_no_coordinate():
    bands = (Band(name="a"), Band(name="a"))
    node = opened(full_meaning(bands=bands), stored(grey(shape=(2, 6, 8)), "c", "y", "x"))
    assert "c" not in find(node, "0/0").members


def test_levels_by_their_sizes_and_by_stated_factors():
    full, half = stored(grey(shape=(7, 9)), "y", "x"), stored(grey(shape=(3, 4)), "y", "x")
    sizes = axes("yx", y=Axis(name="y", scale=2.0, unit="meter"))
    for factor, expected in ((None, (7 / 3, 9 / 4)), ((2.0, 2.0), (2.0, 2.0))):
        levels = [Level(name="0", image=full), Level(name="1", image=half, factor=factor)]
        group = image_group(Meaning(axes=sizes, place=UTM), levels)
        dataset = group.attributes["ome"]["multiscales"][0]["datasets"][1]
        scale, translation = (step[step["type"]] for step in dataset["coordinateTransformations"])
        assert dataset["path"] == "1/image"
        np.testing.assert_allclose(scale, [2 * expected[0], 10 * expected[1]])
        np.testing.assert_allclose(translation, [expected[0] - 1, 5 * (expected[1] - 1)])
        layout = group.attributes["multiscales"]["layout"][1]
        assert layout["transform"]["scale"] == list(expected)
        np.testing.assert_allclose(layout["spatial:transform"][0], 10 * expected[1])
        assert group["1"].attributes["spatial:shape"] == [3, 4]
        again = levels_of(root_group({"0": group}), next(images(root_group({"0": group}))))
        np.testing.assert_allclose(again[1].factor, expected)


def test_rotated_grids_have_no_coordinates_per_axis():
    rotated = replace(UTM, transform=(10.0, 1.0, 5.0, 2.0, -10.0, 4.0))
    node = opened(Meaning(axes=axes("yx"), place=rotated), stored(grey(), "y", "x"))
    assert set(find(node, "0/0").members) == {"image", "spatial_ref"}


def test_physical_sizes_are_coordinates():
    sizes = axes("zyx", z=Axis(name="z", unit="micrometer", scale=2.0, origin=1.0))
    node = opened(Meaning(axes=sizes), stored(grey(shape=(3, 2, 2)), "z", "y", "x"))
    group = open_group(node)["0/0"]
    assert group["z"][:].tolist() == [1.0, 3.0, 5.0]
    assert group["z"].attrs["units"] == "micrometer"
    assert "x" not in group


def test_data_that_is_no_image_has_no_ome():
    node = opened(Meaning(axes=(Axis(name="dim_0"),)), stored(grey(shape=(5,)), "dim_0"))
    assert "ome" not in find(node, "0").attributes
    (image,) = images(node)
    assert image.levels == ("0/0/image",)


def test_indexes_are_compared_and_pickled_with_their_coordinates():
    node = opened(full_meaning(), stored(grey(shape=(2, 6, 8)), "c", "y", "x"))
    again = pickle.loads(pickle.dumps(node))
    assert again == node
    assert again != opened(full_meaning(nodata=4), stored(grey(shape=(2, 6, 8)), "c", "y", "x"))


def test_consolidated_metadata_lists_every_node():
    node = opened(full_meaning(), stored(grey(shape=(2, 6, 8)), "c", "y", "x"))
    listed = consolidated(node)["consolidated_metadata"]["metadata"]
    assert set(listed) == {path for path, _ in walk(node) if path}
    assert listed["0/0/x"]["node_type"] == "array"


def test_the_crs_as_readers_expect_it():
    pyproj = pytest.importorskip("pyproj", reason="the extra geo is not installed")
    node = opened(full_meaning(), stored(grey(shape=(2, 6, 8)), "c", "y", "x"))
    attributes = find(node, "0/0/spatial_ref").attributes
    assert pyproj.CRS.from_wkt(attributes["crs_wkt"]) == pyproj.CRS.from_epsg(32633)
    assert attributes["grid_mapping_name"] == "transverse_mercator"
    assert find(node, "0/0/x").attributes["units"] == "metre"
    url = {"url": "http://www.opengis.net/def/crs/EPSG/0/32633"}
    assert find(node, "0/0/image").attributes["_CRS"] == url


@pytest.mark.parametrize(
    "attributes",
    [
        {"ome": 5, "multiscales": [], "anychunk.bands": {"a": 1}, "anychunk.display": "x"},
        {
            "ome": {"multiscales": [{"axes": 3, "datasets": [{"path": 4}]}]},
            "spatial:transform": [1],
        },
        {"anychunk.space": {"affine": [[1]]}, "anychunk.gcps": [[1]], "anychunk.rpc": 3},
        {"anychunk.bands": [3, {"scale": "x", "tags": 4}], "anychunk.tags": [1]},
    ],
)
def test_attributes_of_any_kind_are_read(attributes):
    node = opened(full_meaning(), stored(grey(shape=(2, 6, 8)), "c", "y", "x"))
    group = replace(find(node, "0"), attributes=attributes)
    changed = replace(node, members={"0": group})
    for image in images(changed):
        found = meaning_of(changed, image)
        assert found.place.transform is None or len(found.place.transform) == 6
        assert len(levels_of(changed, image)) <= 1
