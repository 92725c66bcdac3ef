"""Parts of images, compared with windows of rasterio and slices of tifffile."""

import math
import pickle

import numpy as np
import pytest
import tifffile
import zarr

import anychunk
from anychunk.conversion.levels import ZarrOptions
from anychunk.conversion.plan import make_plan
from anychunk.conversion.tasks import Conversion
from anychunk.errors import MissingDependencyError, NoSuchImageError, OptionError
from anychunk.metadata import crs
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model import images as im
from anychunk.selection import interval, part_of
from anychunk.selection.cuts import Cut, near_groups, selection
from anychunk.thumbnail import thumbnail

rasterio = pytest.importorskip("rasterio", reason="needs rasterio: pip install rasterio")
windows = pytest.importorskip("rasterio.windows", reason="needs rasterio: pip install rasterio")

BANDS = ("blue", "green", "red", "nir")
NODATA = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("parts")


def make(path, transform, *, overviews=(), mask=False):
    """Write a GeoTIFF with rasterio; return its samples."""
    values = np.random.default_rng(1).integers(0, 60000, (4, 300, 420)).astype("uint16")
    values[:, 100:140, 50:90] = NODATA
    with rasterio.open(
        path, "w", driver="GTiff", width=420, height=300, count=4, dtype="uint16", nodata=NODATA,
        crs="EPSG:32633", transform=transform, tiled=True, blockxsize=64, blockysize=64,
    ) as file:  # fmt: skip
        file.write(values)
        file.descriptions = BANDS
        file.scales, file.offsets = (0.5, 1.0, 2.0, 4.0), (0.0, 1.0, 2.0, 3.0)
        if overviews:
            file.build_overviews(list(overviews), rasterio.enums.Resampling.average)
    return values


@pytest.fixture(scope="module")
def scene(folder):
    path = folder / "scene.tif"
    make(path, rasterio.Affine(10, 0, 500000, 0, -10, 5000000), overviews=(2, 4))
    return str(path)


def touched(window, width, height):
    """Return the window of all pixels that a window of fractions touches, inside the image."""
    eps = 1e-6
    left, top = math.floor(window.col_off + eps), math.floor(window.row_off + eps)
    right = math.ceil(window.col_off + window.width - eps)
    bottom = math.ceil(window.row_off + window.height - eps)
    left, top, right, bottom = max(0, left), max(0, top), min(right, width), min(bottom, height)
    return windows.Window(left, top, right - left, bottom - top)


BOXES = [
    (500100, 4998000, 502000, 4999500),  # on edges of pixels
    (500103.2, 4998001.7, 502007.1, 4999499.9),
    (499000, 4990000, 500055, 4999955),  # beyond two edges
    (500000.001, 4999999.5, 500000.002, 4999999.6),  # within one pixel
]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize(
    "transform",
    [
        (10, 0, 500000, 0, -10, 5000000),
        (10, 0, 500000, 0, 10, 4997000),  # rows go north
        (8, 3, 499600, 2, -9, 5000000),  # rotated
    ],
)
def test_a_box_is_the_window_of_rasterio(folder, box, transform):
    path = folder / "placed.tif"
    values = make(path, rasterio.Affine(*transform))
    with rasterio.open(path) as file:
        inverse = np.linalg.inv(np.reshape(file.transform, (3, 3)))
        corners = np.array([[x, y, 1] for x in (box[0], box[2]) for y in (box[1], box[3])])
        columns, rows, _ = inverse @ corners.T
        exact = windows.Window.from_slices((min(rows), max(rows)), (min(columns), max(columns)),
                                           boundless=True)  # fmt: skip
        if transform[1] == 0 and transform[4] < 0:
            theirs = windows.from_bounds(*box, file.transform)
            assert np.allclose(theirs.flatten(), exact.flatten(), atol=1e-6)
        window = touched(exact, file.width, file.height)
        if window.width <= 0 or window.height <= 0:
            with pytest.raises(OptionError, match="nothing lies in the box"):
                anychunk.convert(path, folder / "none.tif", bbox=box)
            return
        expected, place = file.read(window=window), file.window_transform(window)
    anychunk.convert(path, folder / "part.tif", bbox=box, overwrite=True, verify=True)
    with rasterio.open(folder / "part.tif") as file:
        assert np.array_equal(file.read(), expected)
        assert np.allclose(file.transform[:6], place[:6], rtol=0, atol=1e-6)
        assert file.crs == rasterio.CRS.from_epsg(32633)
        assert file.nodata == NODATA
        assert file.descriptions == BANDS
        assert file.scales == (0.5, 1.0, 2.0, 4.0)
    assert values.size


def test_a_box_in_degrees(scene, folder):
    pytest.importorskip("pyproj", reason='needs pyproj: pip install "anychunk[geo]"')
    from rasterio.warp import transform_bounds

    box = (15.005, 45.135, 15.03, 45.15)
    with rasterio.open(scene) as file:
        own = transform_bounds("OGC:CRS84", file.crs, *box)
        window = touched(windows.from_bounds(*own, file.transform), file.width, file.height)
        expected, place = file.read(window=window), file.window_transform(window)
    for name in ("lonlat", "EPSG:4326"):
        anychunk.convert(scene, folder / "deg.tif", bbox=box, bbox_crs=name, overwrite=True)
        with rasterio.open(folder / "deg.tif") as file:
            assert np.array_equal(file.read(), expected)
            assert file.transform == place
    anychunk.convert(scene, folder / "own.tif", bbox=BOXES[1], bbox_crs="EPSG:32633")
    with rasterio.open(folder / "own.tif") as file:
        assert file.shape == (150, 191)


@pytest.mark.parametrize("name", ["a.zarr", "a.tif", "a.ome.tif", "a.n5", "a.jnrrd", "a.nrrd"])
def test_every_target(scene, folder, name):
    target = folder / name
    done = anychunk.convert(scene, target, window=((33, 170), (41, 300)), bands=["red", 0],
                            verify=True)  # fmt: skip
    assert done.is_verified
    with rasterio.open(scene) as file:
        expected = file.read([3, 1], window=windows.Window(41, 33, 259, 137))
        place = file.window_transform(windows.Window(41, 33, 259, 137))
    node = anychunk.index(target)
    image = next(im.images(node))
    found = meaning_of(node, image)
    assert np.array_equal(anychunk.open_array(target)[:], expected)
    assert found.nodata == NODATA
    if name != "a.ome.tif":  # OME-XML has no scale of samples
        assert [band.scale for band in found.bands] == [2.0, 0.5]
        assert found.place.crs.code == "EPSG:32633"
        assert found.place.transform == tuple(place)[:6]
    assert [band.name for band in found.bands] == ["red", "blue"] or name == "a.ome.tif"


def test_levels_of_a_cut_part_are_computed_from_its_pixels(scene, folder):
    anychunk.convert(scene, folder / "l.zarr", window=((33, 170), (41, 300)), levels=2)
    anychunk.convert(scene, folder / "whole.zarr", window=((33, 170), (41, 300)), levels=1)
    anychunk.convert(folder / "whole.zarr", folder / "again.zarr", levels=2)
    ours, theirs = (anychunk.open_array(folder / n, level=1) for n in ("l.zarr", "again.zarr"))
    assert ours.shape == (4, 68, 129)
    assert np.array_equal(ours[:], theirs[:])


def test_levels_are_kept_without_a_box(scene, folder):
    anychunk.convert(scene, folder / "b.tif", bands=[3])
    anychunk.convert(scene, folder / "c.tif", level=1)
    with rasterio.open(scene, overview_level=0) as file:
        half, place = file.read(), file.transform
    with rasterio.open(folder / "b.tif") as file:
        assert file.overviews(1) == [2, 4]
        assert file.count == 1
    with rasterio.open(folder / "b.tif", overview_level=0) as file:
        assert np.array_equal(file.read(1), half[3])
    with rasterio.open(folder / "c.tif") as file:
        assert np.array_equal(file.read(), half)
        assert file.transform == place
        assert file.overviews(1) == [2]


def test_a_window_of_a_level_is_in_pixels_of_the_full_resolution(scene, folder):
    anychunk.convert(scene, folder / "d.tif", level=1, window=((33, 170), (41, 300)))
    with rasterio.open(scene, overview_level=0) as file:
        window = windows.Window(20, 16, 130, 69)
        expected, place = file.read(window=window), file.window_transform(window)
    with rasterio.open(folder / "d.tif") as file:
        assert np.array_equal(file.read(), expected)
        assert file.transform == place


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"bbox": (0, 0, 1, 1)}, OptionError, ["0 0 1 1", "500000 4997000 504200 5000000"]),
        ({"bbox": (2, 0, 1, 1)}, OptionError, ["empty"]),
        ({"bbox": (0, 0, 1)}, OptionError, ["xmin, ymin, xmax, ymax"]),
        ({"bbox": (0, 0, 1, math.nan)}, OptionError, ["finite"]),
        ({"bbox_crs": "EPSG:4326"}, OptionError, ["no bbox"]),
        ({"bbox": BOXES[0], "bbox_crs": "EPSG:0"}, OptionError, ["EPSG:0"]),
        ({"bbox": BOXES[0], "window": ((0, 1), (0, 1))}, OptionError, ["one of them"]),
        ({"window": ((300, 400), (0, 1))}, OptionError, ["300 x 420"]),
        ({"window": ((5, 5), (0, 1))}, OptionError, ["nothing"]),
        ({"window": ((-1, 5), (0, 1))}, OptionError, ["not negative"]),
        ({"window": (0, 1)}, OptionError, ["first row"]),
        ({"bands": [4]}, OptionError, ["no band 4", "0 blue, 1 green"]),
        ({"bands": ["swir"]}, OptionError, ["'swir'"]),
        ({"bands": []}, OptionError, ["no bands"]),
        ({"bands": [1, "green"]}, OptionError, ["twice"]),
        ({"level": 3}, OptionError, ["no level 3", "there are 3"]),
        ({"level": "fine"}, OptionError, ["'fine'"]),
        ({"time": "2026"}, OptionError, ["no axis t"]),
        ({"image": 1, "bands": [0]}, NoSuchImageError, ["image 1"]),
    ],
)
@pytest.mark.parametrize("name", ["e.zarr", "e.tif", "e.n5"])
def test_an_empty_selection_writes_nothing(scene, tmp_path, name, options, error, words):
    with pytest.raises(error) as caught:
        anychunk.convert(scene, tmp_path / name, **options)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_box_needs_a_place(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((8, 8)))
    with pytest.raises(OptionError, match="window"):
        anychunk.convert(tmp_path / "a.npy", tmp_path / "a.zarr", bbox=(0, 0, 1, 1))


def test_another_crs_needs_pyproj(scene, tmp_path, monkeypatch):
    monkeypatch.setattr(crs, "has_pyproj", lambda: False)
    with pytest.raises(MissingDependencyError, match="pip install"):
        anychunk.convert(scene, tmp_path / "a.tif", bbox=(15, 45, 16, 46), bbox_crs="lonlat")


def test_a_mask_is_cut_as_the_image_is(folder):
    path = folder / "masked.tif"
    valid = np.zeros((100, 120), "uint8")
    valid[20:60, 30:90] = 255
    values = np.arange(100 * 120, dtype="uint16").reshape(1, 100, 120)
    with (
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        rasterio.open(path, "w", driver="GTiff", width=120, height=100, count=1, dtype="uint16",
                      transform=rasterio.Affine(2, 0, 0, 0, -2, 0)) as file,
    ):  # fmt: skip
        file.write(values)
        file.write_mask(valid)
    anychunk.convert(path, folder / "m.tif", window=((10, 50), (40, 110)), verify=True)
    with rasterio.open(folder / "m.tif") as file:
        assert np.array_equal(file.read(1), values[0, 10:50, 40:110])
        assert np.array_equal(file.dataset_mask(), valid[10:50, 40:110])


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
def test_palettes_and_colours(folder):
    colours = {n: (n, 255 - n, n // 2, 255) for n in range(256)}
    with rasterio.open(folder / "p.tif", "w", driver="GTiff", width=64, height=32, count=1,
                       dtype="uint8", transform=rasterio.Affine(2, 0, 0, 0, -2, 0)) as file:  # fmt: skip
        file.write_colormap(1, colours)
        file.write(np.arange(2048, dtype="uint8").reshape(1, 32, 64))
    anychunk.convert(folder / "p.tif", folder / "q.tif", window=((3, 20), (5, 40)))
    with rasterio.open(folder / "q.tif") as file:
        assert file.colormap(1) == colours
    rgba = np.random.default_rng(2).integers(0, 255, (40, 50, 4)).astype("uint8")
    tifffile.imwrite(folder / "rgba.tif", rgba, photometric="rgb", extrasamples=["unassalpha"])
    kinds = rasterio.enums.ColorInterp
    for bands, expected in [
        ((0, 1, 2), (kinds.red, kinds.green, kinds.blue)),
        ((0, 1, 2, 3), (kinds.red, kinds.green, kinds.blue, kinds.alpha)),
    ]:
        anychunk.convert(folder / "rgba.tif", folder / "r.tif", bands=bands, overwrite=True)
        with rasterio.open(folder / "r.tif") as file:
            assert file.colorinterp == expected
            assert np.array_equal(file.read(), rgba.transpose(2, 0, 1)[list(bands)])
    anychunk.convert(folder / "rgba.tif", folder / "one.tif", bands=1)
    assert np.array_equal(tifffile.imread(folder / "one.tif"), rgba[..., 1])
    anychunk.convert(folder / "rgba.tif", folder / "bgr.tif", bands=(2, 1, 0))
    with rasterio.open(folder / "bgr.tif") as file:
        assert np.array_equal(file.read(), rgba.transpose(2, 0, 1)[[2, 1, 0]])


@pytest.fixture(scope="module")
def cells(folder):
    """Return an OME-TIFF file of channels over time, and its samples."""
    values = np.random.default_rng(3).integers(0, 4000, (5, 3, 2, 64, 80)).astype("uint16")
    tifffile.imwrite(
        folder / "cells.ome.tif", values, photometric="minisblack", tile=(32, 32), ome=True,
        metadata={"axes": "TCZYX", "Channel": {"Name": ["DAPI", "GFP", "RFP"]},
                  "PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.5,
                  "PhysicalSizeYUnit": "µm", "PhysicalSizeZ": 2.0, "PhysicalSizeZUnit": "µm",
                  "TimeIncrement": 3.0, "TimeIncrementUnit": "s"},
    )  # fmt: skip
    return str(folder / "cells.ome.tif"), values


def test_axes_of_a_volume(cells, folder):
    path, values = cells
    anychunk.convert(path, folder / "v.zarr", window=((10, 50), (20, 70)), bands="GFP", time="2:4",
                     verify=True)  # fmt: skip
    array = anychunk.open_array(folder / "v.zarr")
    assert np.array_equal(array[:], values[2:4, 1, :, 10:50, 20:70])
    node = anychunk.index(folder / "v.zarr")
    found = {axis.name: axis for axis in meaning_of(node, next(im.images(node))).axes}
    assert [*found] == ["t", "z", "y", "x"]
    assert (found["x"].scale, found["x"].origin) == (0.25, 5.0)
    assert (found["y"].scale, found["y"].origin) == (0.5, 5.0)
    assert (found["t"].scale, found["t"].origin) == (3.0, 6.0)
    anychunk.convert(path, folder / "v.ome.tif", bands=[2, 0], time=4, verify=True)
    with tifffile.TiffFile(folder / "v.ome.tif") as file:
        assert np.array_equal(file.series[0].asarray().squeeze(), values[4, [2, 0]])
        names = [c["Name"] for c in tifffile.xml2dict(file.ome_metadata)["OME"]["Image"]["Pixels"]["Channel"]]  # fmt: skip
    assert names == ["RFP", "DAPI"]


def test_a_box_in_the_unit_of_pixel_sizes(cells, folder):
    path, values = cells
    # centres of pixels are at multiples of their sizes, edges half a pixel before
    box = (5 - 0.125, 5 - 0.25, 17.5 - 0.125, 25 - 0.25)
    anychunk.convert(path, folder / "u.zarr", bbox=box)
    assert np.array_equal(anychunk.open_array(folder / "u.zarr")[:], values[..., 10:50, 20:70])


@pytest.fixture(scope="module")
def stack(folder):
    """Return an index of files with dates, and their samples."""
    values = np.arange(4 * 32 * 32, dtype="uint16").reshape(4, 32, 32)
    dates = ["2026:01:31 23:59:59", "2026:02:01 00:00:00", "2026:02:28 12:00:00", "2027:02:01 00:00:00"]  # fmt: skip
    for number, date in enumerate(dates):
        tifffile.imwrite(folder / f"s{number}.tif", values[number], datetime=date)
    files = [str(folder / f"s{number}.tif") for number in range(4)]
    return anychunk.index(files, combine="stack"), values


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("2026-02", [1, 2]),
        ("2026", [0, 1, 2]),
        ("2026-02-28", [2]),
        ("2026-02-28T12", [2]),
        ("2026-01-31T23:59:59", [0]),
        ("2026-02/..", [1, 2, 3]),
        ("2026-02-01/2026-02-28", [1, 2]),
        ("/2026-01", [0]),
        ("1:3", [1, 2]),
        (3, [3]),
        ("3", [3]),
    ],
)
def test_dates(stack, folder, time, expected):
    node, values = stack
    part = part_of(node, selection(time=time))
    image = next(im.images(part.node))
    assert np.array_equal(part.open_array(image.levels[0])[:], values[expected])
    whole = meaning_of(node, next(im.images(node))).axes[0].values
    assert meaning_of(part.node, image).axes[0].values == tuple(whole[n] for n in expected)


@pytest.mark.parametrize("time", ["2025", "9", "2:2", "1:0", "yesterday", "2026-13", "2026-02-30"])
def test_dates_that_select_nothing(stack, time):
    with pytest.raises(OptionError):
        part_of(stack[0], selection(time=time))


def test_dates_survive_as_coordinates(stack, folder):
    anychunk.convert(stack[0], folder / "t.zarr", time="2026-02")
    found = zarr.open_array(folder / "t.zarr/0/t", mode="r")
    assert found.attrs["units"] == "microseconds since 1970-01-01"
    dates = np.datetime64("1970-01-01") + found[:].astype("timedelta64[us]")
    assert [str(date)[:10] for date in dates] == ["2026-02-01", "2026-02-28"]


def test_an_interval_in_another_time_zone():
    assert interval("2026-01-01T00:00+01:00")[0] == interval("2025-12-31T23:00Z")[0]


def test_control_points_and_coefficients_move(folder):
    from rasterio.control import GroundControlPoint
    from rasterio.rpc import RPC

    points = [GroundControlPoint(row, column, 10 + column / 100, 50 - row / 100)
              for row in (0, 90) for column in (0, 110)]  # fmt: skip
    path = folder / "gcps.tif"
    with rasterio.open(path, "w", driver="GTiff", width=110, height=90, count=1, dtype="uint8",
                       crs="EPSG:4326", gcps=points) as file:  # fmt: skip
        file.write(np.ones((1, 90, 110), "uint8"))
    anychunk.convert(path, folder / "gcps2.tif", window=((10, 60), (20, 100)))
    with rasterio.open(folder / "gcps2.tif") as file:
        found = {(p.row, p.col, p.x, p.y) for p in file.gcps[0]}
    assert found == {(p.row - 10, p.col - 20, p.x, p.y) for p in points}
    numbers = [float(n) for n in range(20)]
    rpc = RPC(1, 1, 45, 5, numbers, numbers, 40, 30, 10, 5, numbers, numbers, 50, 60, 0.1, 0.1)
    path = folder / "rpc.tif"
    with rasterio.open(path, "w", driver="GTiff", width=110, height=90, count=1, dtype="uint8",
                       rpcs=rpc) as file:  # fmt: skip
        file.write(np.ones((1, 90, 110), "uint8"))
    anychunk.convert(path, folder / "rpc2.tif", window=((10, 60), (20, 100)))
    with rasterio.open(folder / "rpc2.tif") as file:
        assert (file.rpcs.line_off, file.rpcs.samp_off) == (40 - 10, 50 - 20)
        assert file.rpcs.line_num_coeff == numbers


def test_a_part_of_a_part_is_resumed_only_by_itself(scene, folder, monkeypatch):
    """Two windows of one size are different conversions, also without a place."""
    np.save(folder / "plain.npy", np.arange(100 * 100, dtype="uint32").reshape(100, 100))
    first = anychunk.convert(folder / "plain.npy", folder / "w.tif", window=((0, 50), (0, 50)))
    assert first.skipped_bytes == 0
    with pytest.raises(anychunk.AnychunkError, match="already exists"):
        anychunk.convert(folder / "plain.npy", folder / "w.tif", window=((1, 51), (0, 50)))


def test_verify_decodes_only_the_part(scene):
    whole = anychunk.verify(scene)
    part = anychunk.verify(scene, window=((0, 64), (0, 128)), level=0)
    # two chunks of the full resolution, one of each coarser level
    assert part.is_good
    assert part.chunks < whole.chunks
    assert part.chunks == 2 + 1 + 1
    last = anychunk.verify(scene, level=-1)
    assert (last.arrays, last.chunks) == (1, 4)
    bands = anychunk.verify(scene, bands=[1], level=-1)
    assert bands.is_good


def test_verify_compares_only_the_part(folder, scene):
    for reader in ("rasterio", "tifffile"):
        found = anychunk.verify(scene, window=((70, 100), (80, 300)), bands=[0, 3], against=reader)
        assert found.is_good, found.findings
        assert found.compared == reader
    with pytest.raises(OptionError):
        anychunk.verify(scene, window=((1000, 1001), (0, 1)))


def test_verify_finds_damage_only_where_it_looks(folder):
    path = folder / "damaged.tif"
    values = np.random.default_rng(4).integers(0, 255, (128, 128)).astype("uint8")
    tifffile.imwrite(path, values, tile=(64, 64), compression="zlib")
    with tifffile.TiffFile(path) as file:
        offset = file.pages[0].dataoffsets[3]
    data = bytearray(path.read_bytes())
    data[offset : offset + 20] = b"\0" * 20
    path.write_bytes(data)
    assert anychunk.verify(path, window=((0, 64), (0, 128))).is_good
    assert not anychunk.verify(path, window=((64, 65), (64, 65))).is_good


def test_thumbnails_of_parts(scene):
    node = anychunk.index(scene)
    with rasterio.open(scene) as file:
        expected = file.read([3, 2, 1], window=windows.Window(41, 33, 259, 137))
    found = thumbnail(node, size=259, percentiles=(0, 100),
                      wanted=selection(window=((33, 170), (41, 300)), bands=[2, 1, 0], level=0))  # fmt: skip
    assert found.shape[:2] == (137, 259)
    valid = (expected != NODATA).all(axis=0)
    low, high = expected[:, valid].min(), expected[:, valid].max()
    drawn = np.floor(np.clip((expected - float(low)) / (high - float(low)), 0, 1) * 255 + 0.5)
    assert np.abs(drawn[:, valid] - found[..., :3].transpose(2, 0, 1)[:, valid]).max() <= 1
    small = thumbnail(node, size=64, wanted=selection(window=((33, 170), (41, 300))))
    assert max(small.shape[:2]) == 64


def test_a_thumbnail_of_a_part_reads_the_closest_level(scene):
    node = anychunk.index(scene)
    part = part_of(node, selection(window=((33, 170), (41, 300))), near_levels=True)
    shapes = [level.image.shape[-2:] for level in levels_of(part.node, next(im.images(part.node)))]
    assert shapes == [(137, 259), (69, 130), (35, 65)]


def test_cuts_read_only_chunks_that_are_wanted():
    values = np.arange(12 * 4).reshape(12, 4)
    boxes = []

    def read(box):
        boxes.append((box[0].start, box[0].stop))
        return values[box]

    cut = Cut(path="", picks=((11, 0, 1, 6), range(1, 3)))
    found = cut.read(read, (slice(0, 4), slice(0, 2)), (2, 4), 8)
    assert np.array_equal(found, values[[11, 0, 1, 6], 1:3])
    assert boxes == [(0, 2), (6, 7), (11, 12)]
    assert list(near_groups([0, 3, 4, 9], 4)) == [[0, 3, 4, 9]]
    assert list(near_groups([0, 9], 4)) == [[0], [9]]


def test_wide_cuts_are_read_in_pieces(monkeypatch):
    from anychunk.selection import cuts

    monkeypatch.setattr(cuts, "READ_BYTES", 1000)
    values = np.arange(16 * 40 * 10).reshape(16, 40, 10)
    most = []
    cut = Cut(path="", picks=((15, 0), range(40), range(10)))

    def read(box):
        most.append(values[box].nbytes)
        return values[box]

    found = cut.read(read, (slice(0, 2), slice(0, 40), slice(0, 10)), (16, 40, 10), 8)
    assert np.array_equal(found, values[[15, 0]])
    assert max(most) <= 16 * 10 * 8


@pytest.mark.parametrize("name", ["v.npy", "v.n5", "v.jnrrd", "v.nrrd", "w.zarr", "v2.zarr"])
def test_parts_of_every_format_that_we_write(folder, name):
    values = np.random.default_rng(5).integers(0, 255, (3, 50, 60)).astype("uint8")
    source = folder / name
    if name == "v.npy":
        np.save(source, values)
    elif name.endswith(".zarr"):
        like = "ome-zarr-0.4" if name == "v2.zarr" else "ome-zarr"
        anychunk.write(values, source, axes="zyx", like=like, chunk=(1, 16, 16))
    else:
        anychunk.write(values, source)
    options = {"axes": "zyx"} if name == "v.npy" else {}
    for target in ("part.zarr", "part.n5", "part.jnrrd", "part.ome.tif"):
        given = options if target.endswith(("zarr", "tif")) else {}
        anychunk.convert(source, folder / f"{name}-{target}", window=((7, 40), (11, 60)),
                         verify=True, **given)  # fmt: skip
        found = anychunk.open_array(folder / f"{name}-{target}")
        assert np.array_equal(found[:], values[:, 7:40, 11:60])


def test_a_selection_applies_to_every_image(folder):
    values = np.arange(2 * 40 * 50, dtype="uint16").reshape(2, 40, 50)
    for number in range(2):
        np.save(folder / f"m{number}.npy", values[number])
    files = [folder / "m0.npy", folder / "m1.npy"]
    anychunk.convert(files, folder / "both.zarr", window=((3, 20), (4, 30)), verify=True)
    for number in range(2):
        found = anychunk.open_array(folder / "both.zarr", image=number)
        assert np.array_equal(found[:], values[number, 3:20, 4:30])
    anychunk.convert(files, folder / "second.zarr", image=1, window=((3, 20), (4, 30)))
    assert np.array_equal(anychunk.open_array(folder / "second.zarr")[:], values[1, 3:20, 4:30])
    assert len(list(im.images(anychunk.index(folder / "second.zarr")))) == 1


def test_a_part_is_sent_to_workers(scene):
    part = part_of(anychunk.index(scene), selection(window=((33, 170), (41, 300)), bands=[3, 0]))
    plan = make_plan(part.node, ZarrOptions(), 2)
    copy = pickle.loads(pickle.dumps(Conversion(plan, "", part=part)))
    level = copy.plan.arrays[0]
    with rasterio.open(scene) as file:
        expected = file.read([4, 1], window=windows.Window(41, 33, 259, 137))
    box = tuple(slice(0, n) for n in level.shape)
    assert np.array_equal(copy.read_source(level, box), expected)


def test_native_attributes_are_said_to_be_of_the_whole(scene, folder):
    anychunk.convert(scene, folder / "native.zarr", window=((0, 10), (0, 20)))
    attributes = zarr.open_group(folder / "native.zarr", mode="r").attrs.asdict()
    assert "tiff" not in attributes
    assert attributes["part_of"]["tiff"]["tags"]["ImageWidth"] == 420
    assert attributes["part_of"]["window"] == [[0, 10], [0, 20]]
