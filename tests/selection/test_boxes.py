"""Boxes of longitudes, across the antimeridian and around the earth, and bands with odd names."""

import numpy as np
import pytest

import anychunk
from anychunk.errors import OptionError

rasterio = pytest.importorskip("rasterio", reason="needs rasterio: pip install rasterio")
pytest.importorskip("pyproj", reason='needs pyproj: pip install "anychunk[geo]"')


def make(path, left, width, *, crs="EPSG:4326", step=0.5, top=10.0, height=20):
    """Write an image with one value per column, from `left` on."""
    values = np.broadcast_to(np.arange(width, dtype="int16"), (height, width))
    with rasterio.open(
        path, "w", driver="GTiff", width=width, height=height, count=1, dtype="int16", crs=crs,
        transform=rasterio.transform.from_origin(left, top, step, step),
    ) as file:  # fmt: skip
        file.write(values, 1)
    return path


def part(path, **options):
    """Return the columns and the bounds of a part, as rasterio reads them."""
    target = path.with_name("part.tif")
    anychunk.convert(path, target, overwrite=True, **options)
    with rasterio.open(target) as file:
        columns = file.read(1)[0].tolist()
        assert columns == list(range(columns[0], columns[-1] + 1))
        return columns[0], columns[-1] + 1, tuple(file.bounds)


@pytest.mark.parametrize("name", [None, "lonlat", "EPSG:4326"])
@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ((178, 0, 182, 5), (178, 182)),
        ((178, 0, -178, 5), (178, 182)),  # across the antimeridian
        ((-182, 0, -178, 5), (178, 182)),
        ((-180, 0, -178, 5), (180, 182)),
        ((165, 0, -178, 5), (170, 182)),
    ],
)
def test_longitudes_repeat(tmp_path, box, expected, name):
    path = make(tmp_path / "a.tif", 170, 40)
    first, last, bounds = part(path, bbox=box, bbox_crs=name)
    assert (170 + first / 2, 170 + last / 2) == expected
    assert bounds == (expected[0], 0, expected[1], 5)


def test_a_world_that_the_antimeridian_divides(tmp_path):
    path = make(tmp_path / "a.tif", -180, 720)
    assert part(path, bbox=(170, 0, 180, 5))[:2] == (700, 720)
    assert part(path, bbox=(170, 0, 190, 5))[:2] == (700, 720)  # clipped, as any other box
    with pytest.raises(OptionError, match="both edges"):
        part(path, bbox=(170, 0, -170, 5))
    # of a grid from 0 to 360, the same box is in the middle
    path = make(tmp_path / "b.tif", 0, 720)
    assert part(path, bbox=(170, 0, -170, 5))[:2] == (340, 380)


@pytest.mark.parametrize(
    "box", [(-180, -90, 180, 90), (-90, -80, 90, 80), (0, 0, 360, 90), (-170, -90, -175, 90)]
)
def test_a_box_far_larger_than_the_image(tmp_path, box):
    path = make(tmp_path / "a.tif", 500000, 40, crs="EPSG:32633", step=1000, top=5e6)
    assert part(path, bbox=box, bbox_crs="lonlat")[:2] == (0, 40)


def test_a_projected_image_across_the_antimeridian(tmp_path):
    from rasterio.warp import transform

    path = make(tmp_path / "a.tif", 730000, 200, crs="EPSG:32660", step=1000, top=30000)
    (x,), _ = transform("OGC:CRS84", "EPSG:32660", [180], [0.1])
    column = int((x - 730000) / 1000)
    assert 50 < column < 150
    first, last, _ = part(path, bbox=(179.9, 0.1, -179.9, 0.2), bbox_crs="lonlat")
    assert first < column < last
    assert last - first in (23, 24)  # 0.2 degrees of longitude are 22.3 km
    left, right = (part(path, bbox=b, bbox_crs="lonlat")[:2]
                   for b in ((179.9, 0.1, 180, 0.2), (-180, 0.1, -179.9, 0.2)))  # fmt: skip
    assert (left[0], right[1]) == (first, last)
    assert right[0] in (left[1], left[1] - 1)


def test_only_longitudes_may_be_turned_round(tmp_path):
    path = make(tmp_path / "a.tif", 500000, 40, crs="EPSG:32633", step=1000, top=5e6)
    with pytest.raises(OptionError, match="xmin < xmax"):
        part(path, bbox=(510000, 4_990_000, 505000, 5e6))


def named(path, *names):
    values = np.stack([np.full((4, 5), n, "uint8") for n in range(len(names))])
    with rasterio.open(
        path, "w", driver="GTiff", width=5, height=4, count=len(names), dtype="uint8"
    ) as file:
        file.write(values)
        file.descriptions = names
    return path


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_names_that_are_numbers(tmp_path):
    path = named(tmp_path / "a.tif", "443", "490", "1")
    target = tmp_path / "b.tif"

    def chosen(bands):
        anychunk.convert(path, target, bands=bands, overwrite=True)
        with rasterio.open(target) as file:
            return file.read()[:, 0, 0].tolist()

    assert chosen(["490", "0"]) == [1, 0]
    assert chosen(np.array([2, 0])) == [2, 0]
    assert chosen([np.int64(1)]) == [1]
    assert chosen(1) == [1]
    with pytest.raises(OptionError, match=r"bands \[1, 2\] are called '1'"):
        chosen(["1"])
    for wrong in ([1.0], [None], [True], ["²"], 1.5):
        with pytest.raises(OptionError, match="band"):
            chosen(wrong)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("options", [{}, {"window": ((40, 240), (80, 400))}])
def test_points_and_coefficients_of_a_coarser_level(tmp_path, options):
    """Overviews of GDAL state them in their own pixels."""
    from rasterio.control import GroundControlPoint
    from rasterio.rpc import RPC

    points = [(0, 0, 10, 20), (0, 400, 11, 20), (300, 0, 10, 19), (300.5, 400.25, 11, 19)]
    terms = [[1.0] + [0.0] * 19] * 4
    rpc = RPC(*[500.0, 100.0, 20.0, 5.0], *terms[:2], 150.25, 149.75, 15.0, 7.0, *terms[2:],
              200.5, 201.25, 0.0, 0.0)  # fmt: skip
    values = np.zeros((300, 400), "uint8")
    with rasterio.open(
        tmp_path / "a.tif", "w", driver="GTiff", width=400, height=300, count=1, dtype="uint8"
    ) as file:
        file.write(values, 1)
        ground = [GroundControlPoint(r, c, x, y, 0) for r, c, x, y in points]
        file.gcps = (ground, rasterio.CRS.from_epsg(4326))
        file.rpcs = rpc
        file.build_overviews([2])
    anychunk.convert(tmp_path / "a.tif", tmp_path / "b.tif", level=1, **options)
    top, left = (20, 40) if options else (0, 0)
    with (
        rasterio.open(tmp_path / "a.tif", overview_level=0) as expected,
        rasterio.open(tmp_path / "b.tif") as found,
    ):
        ours, theirs = ([(g.row, g.col, g.x, g.y) for g in f.gcps[0]] for f in (found, expected))
        moved = [(row - top, col - left, x, y) for row, col, x, y in theirs]
        np.testing.assert_allclose(ours, moved, rtol=0, atol=1e-9)
        assert found.rpcs.line_off == expected.rpcs.line_off - top
        assert found.rpcs.samp_off == expected.rpcs.samp_off - left
        assert found.rpcs.line_scale == expected.rpcs.line_scale
        assert found.rpcs.samp_scale == expected.rpcs.samp_scale
