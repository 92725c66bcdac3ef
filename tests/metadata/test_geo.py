import pytest
from rasterio import Affine
from rasterio.transform import array_bounds

from anychunk.metadata import geo
from anychunk.metadata.geo_keys import geo_keys
from anychunk.metadata.meaning import Crs


def test_points_are_half_a_pixel_off():
    # GeoTIFF 1.1 section 7.1: RasterPixelIsPoint ties to the centre of a pixel
    area = geo.geotiff_transform(
        scale=(10, 10, 0), tiepoints=(0, 0, 0, 100, 200, 0), matrix=None, is_point=False
    )
    point = geo.geotiff_transform(
        scale=(10, 10, 0), tiepoints=(0, 0, 0, 100, 200, 0), matrix=None, is_point=True
    )
    assert area == (10, 0, 100, 0, -10, 200)
    assert point == (10, 0, 95, 0, -10, 205)
    assert geo.bounds(area, (2, 3)) == (100, 180, 130, 200)
    assert geo.rescaled(area, 2, 4) == (20, 0, 100, 0, -40, 200)


@pytest.mark.parametrize(
    "transform", [(10, 0, 100, 0, -10, 200), (3, 4, 100, 4, -3, 200), (0, 2, 5, -2, 0, 7)]
)
def test_transforms_are_those_of_affine(transform):
    affine = Affine(*transform)
    assert geo.apply(transform, 3, 7) == pytest.approx(affine @ (3, 7))
    assert geo.rescaled(transform, 2, 4) == pytest.approx(tuple(affine @ Affine.scale(2, 4))[:6])
    assert geo.bounds(transform, (20, 30)) == pytest.approx(array_bounds(20, 30, affine))


@pytest.mark.parametrize(
    ("scale", "tiepoints", "matrix"),
    [
        (None, None, None),
        ((10, 10, 0), None, None),
        (None, (0, 0, 0, 1, 2, 0, 5, 5, 0, 3, 4, 0), None),  # tie points without a scale: a warp
        (None, None, (1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)),  # singular
        (None, None, (float("nan"), 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)),
        (None, None, (1, 0, 0, 0, 0, 1, 0, 0)),  # not 16 numbers
        ((0, 10, 0), (0, 0, 0, 1, 2, 0), None),
    ],
)
def test_no_affine_transform(scale, tiepoints, matrix):
    found = geo.geotiff_transform(scale=scale, tiepoints=tiepoints, matrix=matrix, is_point=False)
    assert found is None


def test_scale_takes_precedence_and_the_first_tie_point_counts():
    """As in GDAL, with which tests/formats/tiff/test_place.py compares files."""
    matrix = (1, 2, 0, 30, 4, 5, 0, 60, 0, 0, 0, 0, 0, 0, 0, 1)
    points = (0, 0, 0, 1, 2, 0, 5, 5, 0, 3, 4, 0)
    options = {"matrix": matrix, "is_point": False}
    found = geo.geotiff_transform(scale=(10, 10, 0), tiepoints=points, **options)
    assert found == (10, 0, 1, 0, -10, 2)
    found = geo.geotiff_transform(scale=None, tiepoints=points, **options)
    assert found == (1, 2, 30, 4, 5, 60)


def test_geo_keys():
    # GeoTIFF 1.1 section 7.1.2: version 1.1.0 with four keys; the directory is cut after three
    directory = [1, 1, 0, 4, 1024, 0, 1, 1, 1026, 34737, 6, 0, 2057, 34736, 1, 1]
    assert geo_keys(directory, (1.5, 6378137.0), "a CRS|rest") == {
        1024: 1,
        1026: "a CRS",
        2057: 6378137.0,
    }
    assert geo_keys([1, 1], (), "") == {}


def test_attributes():
    found = geo.attributes(
        shape=(20, 30),
        transform=(10.0, 0.0, 100.0, 0.0, -10.0, 200.0),
        crs=Crs(code="EPSG:32631"),
    )
    assert found["proj:code"] == "EPSG:32631"
    assert found["spatial:transform"] == [10, 0, 100, 0, -10, 200]
    assert found["spatial:bbox"] == [100, 0, 400, 200]
    assert found["spatial:shape"] == [20, 30]
    assert [c["name"] for c in found["zarr_conventions"]] == ["proj", "spatial"]
    assert geo.attributes(shape=(20, 30), transform=None) == {}


def test_without_georeference():
    whole = geo.attributes(
        shape=(2, 3), transform=(1.0, 0.0, 0.0, 0.0, -1.0, 0.0), crs=Crs(code="EPSG:1")
    )
    kept = geo.without_georeference({**whole, "other": 1}, ("spatial:",))
    assert set(kept) == {"proj:code", "zarr_conventions", "other"}
    assert [c["name"] for c in kept["zarr_conventions"]] == ["proj"]
    assert geo.without_georeference({**whole, "other": 1}) == {"other": 1}
