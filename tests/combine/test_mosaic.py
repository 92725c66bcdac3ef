from dataclasses import replace

import numpy as np
import pytest
import rasterio
import tifffile
import xarray
from rasterio.merge import merge

import anychunk
from anychunk.combine import combine
from anychunk.errors import FormatError
from anychunk.metadata.hierarchy import image_group
from anychunk.metadata.meaning import Level
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model.images import images
from anychunk.model.index import Computed
from tests.support.combined_files import write_geotiff

RANDOM = np.random.default_rng(5)


def test_mosaic(tmp_path):
    """Four quarters of an image, the last row and column cut, one quarter missing."""
    whole = RANDOM.integers(1, 255, (50, 60), dtype="uint8")
    cuts = {"nw": (0, 0, 32, 32), "ne": (0, 32, 32, 60), "se": (32, 32, 50, 60)}
    paths = [
        write_geotiff(
            tmp_path / f"{name}.tif",
            whole[top:bottom, left:right],
            5000 + left * 10,
            9000 - top * 10,
            compress="deflate",
        )
        for name, (top, left, bottom, right) in cuts.items()
    ]
    node = anychunk.index(paths, combine="mosaic")
    truth = whole.copy()
    truth[32:, :32] = node["0/0/image"].fill_value
    np.testing.assert_array_equal(anychunk.open(node)["0/0/image"][...].reshape(50, 60), truth)
    attributes = node["0"].attributes
    assert attributes["spatial:shape"] == [50, 60]
    assert attributes["spatial:transform"] == [10.0, 0.0, 5000.0, 0.0, -10.0, 9000.0]
    assert attributes["spatial:bbox"] == [5000.0, 8500.0, 5600.0, 9000.0]


def test_mosaic_refuses_what_does_not_fit(tmp_path):
    values = np.ones((32, 32), "u1")
    first = write_geotiff(tmp_path / "a.tif", values, 0, 1000)
    half = write_geotiff(tmp_path / "half.tif", values, 325, 1000)
    off = write_geotiff(tmp_path / "off.tif", values, 400, 1000)
    big = write_geotiff(tmp_path / "big.tif", values, 320, 1000, size=20)
    same = write_geotiff(tmp_path / "same.tif", values * 2, 0, 1000)
    short = write_geotiff(tmp_path / "short.tif", np.ones((32, 20), "u1"), 0, 1000)
    beside = write_geotiff(tmp_path / "beside.tif", values, 320, 1000)
    plain = tmp_path / "plain.tif"
    tifffile.imwrite(plain, values, tile=(16, 16))
    for files, message in [
        ([first, half], r"half.tif 0: .*0\.5 pixels"),
        ([first, off], r"off.tif 0/0: .*40 .*multiple of 16"),
        ([first, big], r"big.tif 0: pixel size 20\.0 x -20\.0.*10\.0 x -10\.0"),
        ([first, same], r"same.tif 0/0: .*4 chunks of .*a.tif"),
        ([short, beside], r"short.tif 0/0: .*20, inside a chunk of 16.* 64"),
        ([first, plain], "plain.tif 0: .*georeference"),
    ]:
        with pytest.raises(FormatError, match=message):
            anychunk.index(files, combine="mosaic")
    for overlap, value in (("first", 1), ("last", 2)):
        found = anychunk.open([first, same], combine="mosaic", overlap=overlap)["0/0/image"][...]
        assert (found == value).all()


def test_levels_of_a_mosaic_say_where_they_are(tmp_path):
    """The first file is not the north-west one; every level is placed as the whole is."""
    whole = RANDOM.integers(1, 255, (448, 512), dtype="uint8")
    paths = []
    tiles = {"blockxsize": 64, "blockysize": 64}
    for name, (top, left) in {"se": (256, 256), "nw": (0, 0), "ne": (0, 256)}.items():
        path = tmp_path / f"{name}.tif"
        part = whole[top : top + 256, left : left + 256]
        paths.append(write_geotiff(path, part, 5000 + left * 10, 9000 - top * 10, **tiles))
        with rasterio.Env(GDAL_TIFF_OVR_BLOCKSIZE=64), rasterio.open(path, "r+") as file:
            file.build_overviews([2, 4], rasterio.enums.Resampling.nearest)
    node = anychunk.index(paths, combine="mosaic")
    truth, transform = merge(paths)
    np.testing.assert_array_equal(anychunk.open(node)["0/0/image"][...], truth[0])
    for level, factor in (("0", 1), ("1", 2), ("2", 4)):
        array = node[f"0/{level}/image"]
        found = node[f"0/{level}"].attributes
        a, b, c, d, e, f = transform[:6]
        assert found["spatial:transform"] == [a * factor, b, c, d, e * factor, f]
        assert found["spatial:shape"] == list(array.shape[-2:])
        assert found["spatial:bbox"] == node["0"].attributes["spatial:bbox"]
        dataset = xarray.open_dataset(node, engine="anychunk", level=level)
        np.testing.assert_allclose(dataset["x"], c + a * factor * (np.arange(512 // factor) + 0.5))
        np.testing.assert_allclose(dataset["y"], f + e * factor * (np.arange(448 // factor) + 0.5))
    opened = xarray.open_dataset(paths[1], engine="anychunk", level=1)
    again = anychunk.open(node)["0/1/image"][:128, :128]
    np.testing.assert_array_equal(again, opened["image"].to_numpy().reshape(128, 128))


def test_other_systems_without_a_code_are_told_apart(tmp_path):
    values = np.ones((32, 32), "u1")
    lambert = "+proj=lcc +lat_1={} +lat_2=60 +lat_0=40 +lon_0=10 +datum=WGS84 +units=m"
    paths = []
    for i, parallel in enumerate((30, 35, 30)):
        path = tmp_path / f"{i}.tif"
        crs = rasterio.crs.CRS.from_string(lambert.format(parallel))
        paths.append(write_geotiff(path, values, 320 * i, 1000, crs=crs))
    assert "proj:code" not in anychunk.index(paths[0])["0"].attributes
    with pytest.raises(FormatError, match="1.tif 0: .*reference system.*0.tif"):
        anychunk.index(paths[:2], combine="mosaic")
    assert anychunk.index(paths[::2], combine="mosaic")["0/0/image"].shape == (32, 96)


def test_a_level_that_is_computed_is_left_out_of_a_mosaic(tmp_path):
    values = np.ones((32, 32), "u1")
    files = {}
    for i in range(2):
        path = write_geotiff(tmp_path / f"{i}.tif", values, 320 * i, 1000)
        node = anychunk.index(path)
        (found,) = images(node)
        (full,) = levels_of(node, found)
        chunks = Computed(source="0/0/image", method="mean", configuration={}, grid=(1, 1))
        level = Level(name="1", image=replace(full.image, shape=(16, 16), chunks=chunks))
        image = image_group(meaning_of(node, found), [full, level])
        files[path] = replace(node, members={"0": image})
    with pytest.warns(UserWarning, match="image 0: 1 .*grid"):
        node = combine(files, "mosaic")
    assert list(node["0"].members) == ["0"]


TILE = (32, 32)


def random_tile(shape=TILE):
    """Values that are never 0, which is what gaps read as."""
    return RANDOM.integers(1, 255, shape, dtype="uint8")


def opened(paths, **options):
    """The full resolution of a mosaic."""
    return anychunk.open(paths, combine="mosaic", **options)["0/0/image"][...]


def merged(paths, **options):
    """What rasterio makes of the same files; one band without an axis of its own."""
    values, transform = merge(paths, **options)
    return values[0] if len(values) == 1 else values, transform


def test_gaps_read_as_fill(tmp_path):
    """Diagonal tiles, two corners of the mosaic in no file; the first file is not the first."""
    places = {"se": (640, 680), "nw": (0, 1000), "middle": (320, 840)}
    paths = [
        write_geotiff(tmp_path / f"{name}.tif", random_tile((16, 32)), west, north)
        for name, (west, north) in places.items()
    ]
    truth, transform = merged(paths)
    assert (truth == 0).sum() == 48 * 96 - 3 * 16 * 32
    np.testing.assert_array_equal(opened(paths), truth)
    node = anychunk.index(paths, combine="mosaic")
    assert node["0"].attributes["spatial:transform"] == list(transform[:6])
    np.testing.assert_array_equal((node["0/0/image"].chunks.lengths == 0).sum(), 12)


@pytest.mark.parametrize("bands", [1, 3])
@pytest.mark.parametrize("interleave", ["pixel", "band"])
@pytest.mark.parametrize("overlap", ["first", "last"])
def test_overlap_by_whole_chunks(tmp_path, overlap, bands, interleave):
    """Three tiles, each shifted by one chunk: the values are those of rasterio's rule."""
    paths = [
        write_geotiff(
            tmp_path / f"{i}.tif", random_tile((bands, *TILE)), 160 * i, 1000 - 160 * i,
            interleave=interleave,
        )
        for i in range(3)
    ]  # fmt: skip
    truth, _ = merged(paths, method=overlap)
    np.testing.assert_array_equal(opened(paths, overlap=overlap), truth)
    np.testing.assert_array_equal(
        opened(paths[::-1], overlap=overlap), merged(paths[::-1], method=overlap)[0]
    )
    with pytest.raises(
        FormatError, match=rf"1\.tif 0/0: .*{bands if interleave == 'band' else 1} "
    ):
        opened(paths)


def test_overlap_is_one_of_three(tmp_path):
    path = write_geotiff(tmp_path / "a.tif", random_tile(), 0, 1000)
    with pytest.raises(ValueError, match="'newest'"):
        anychunk.index([path], combine="mosaic", overlap="newest")


def test_absent_chunks_cover_nothing(tmp_path):
    """A sparse file over another: where it has no chunk, the other shows, whatever the rule."""
    below, above = random_tile(), random_tile()
    above[:16] = 0
    first = write_geotiff(tmp_path / "below.tif", below, 0, 1000)
    sparse = write_geotiff(tmp_path / "above.tif", above, 0, 1000, SPARSE_OK=True)
    assert (anychunk.index(sparse)["0/0/image"].chunks.lengths == 0).sum() == 2
    with pytest.raises(FormatError, match="2 chunks of .*below.tif"):
        opened([first, sparse])
    np.testing.assert_array_equal(
        opened([first, sparse], overlap="last"), np.concatenate([below[:16], above[16:]])
    )
    np.testing.assert_array_equal(opened([sparse, first], overlap="last"), below)
    np.testing.assert_array_equal(
        opened([sparse, first], overlap="first"), np.concatenate([below[:16], above[16:]])
    )


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("off", "is_refused"), [(0.9e-3, False), (1.1e-3, True), (5e-3, True)])
def test_tolerance_of_the_grid(tmp_path, off, is_refused, axis):
    """An image may lie a thousandth of a pixel off the grid, in either direction, no more."""
    values = [random_tile(), random_tile()]
    for sign in (1, -1):
        moved = 10 * off * sign
        west, north = (320 + moved, 1000) if axis else (0, 680 + moved)
        paths = [
            write_geotiff(tmp_path / "a.tif", values[0], 0, 1000),
            write_geotiff(tmp_path / "b.tif", values[1], west, north),
        ]
        if is_refused:
            with pytest.raises(FormatError, match=rf"b.tif 0: .*{off:.3g} pixels.*0\.001"):
                opened(paths)
        else:
            np.testing.assert_array_equal(opened(paths), np.concatenate(values, axis=axis))
            found = anychunk.index(paths, combine="mosaic")["0"].attributes["spatial:transform"]
            assert found == [10.0, 0.0, 0.0, 0.0, -10.0, 1000.0]


@pytest.mark.parametrize(("factor", "is_refused"), [(1 + 5e-10, False), (1 + 2e-9, True)])
def test_tolerance_of_the_pixel_size(tmp_path, factor, is_refused):
    values = [random_tile(), random_tile()]
    paths = [
        write_geotiff(tmp_path / "a.tif", values[0], 0, 1000),
        write_geotiff(tmp_path / "b.tif", values[1], 320, 1000, size=10.0 * factor),
    ]
    if is_refused:
        with pytest.raises(FormatError, match=r"b.tif 0: pixel size 10\.00000002 "):
            opened(paths)
    else:
        np.testing.assert_array_equal(opened(paths), np.concatenate(values, axis=1))


def test_another_system_is_refused(tmp_path):
    first = write_geotiff(tmp_path / "a.tif", random_tile(), 0, 1000)
    other = write_geotiff(tmp_path / "b.tif", random_tile(), 320, 1000, crs="EPSG:32632")
    with pytest.raises(FormatError, match="b.tif 0: .*a.tif"):
        opened([first, other])


def test_rotated_grids_are_refused(tmp_path):
    """As the first file, where there is no common grid, and as another."""
    turned = rasterio.Affine(10, 1, 320, 1, -10, 1000)
    first = write_geotiff(tmp_path / "a.tif", random_tile(), 0, 1000)
    other = write_geotiff(tmp_path / "b.tif", random_tile(), 0, 0, transform=turned)
    with pytest.raises(FormatError, match=r"b.tif 0: .*10\.0, 1\.0, 320\.0, 1\.0"):
        opened([other, first])
    with pytest.raises(FormatError, match=r"b.tif 0: .*1\.0 1\.0.*0\.0 0\.0"):
        opened([first, other])


def test_south_up_grids(tmp_path):
    """Rows that go north are as good as any, as long as all files have them."""
    values = [random_tile(), random_tile()]
    paths = [
        write_geotiff(
            tmp_path / f"{i}.tif", value, 0, 0, transform=rasterio.Affine(10, 0, 0, 0, 10, 320 * i)
        )
        for i, value in enumerate(values)
    ]
    node = anychunk.index(paths[::-1], combine="mosaic")
    np.testing.assert_array_equal(anychunk.open(node)["0/0/image"], np.concatenate(values))
    assert node["0"].attributes["spatial:bbox"] == [0.0, 0.0, 320.0, 640.0]


def test_transforms_without_a_pixel_size_are_refused(tmp_path):
    node = anychunk.index(write_geotiff(tmp_path / "a.tif", random_tile(), 0, 1000))
    for transform, message in (
        ([0.0, 0.0, 0.0, 0.0, -10.0, 0.0], r"transform \["),
        ([10.0, 0.0, float("nan"), 0.0, -10.0, 0.0], "georeference"),
    ):
        attributes = {**node["0"].attributes, "spatial:transform": transform}
        image = replace(node["0"], attributes=attributes)
        with pytest.raises(FormatError, match=f"x 0: .*{message}"):
            combine({"x": replace(node, members={"0": image})}, "mosaic")


def test_other_bands_and_other_images_are_refused(tmp_path):
    first = write_geotiff(tmp_path / "a.tif", random_tile((2, *TILE)), 0, 1000)
    fewer = write_geotiff(tmp_path / "b.tif", random_tile(), 320, 1000)
    with pytest.raises(FormatError, match="b.tif 0: axes y x, expected c y x as in"):
        opened([first, fewer])
    node = anychunk.index(fewer)
    more = replace(node, members={"0": node["0"], "1": node["0"]})
    with pytest.raises(FormatError, match="y .*0 1.*x"):
        combine({"x": node, "y": more}, "mosaic")
    empty = replace(node, members={"0": replace(node["0"], members={})})
    with pytest.raises(FormatError, match="y .*(none).*x"):
        combine({"x": node, "y": empty}, "mosaic")


@pytest.mark.parametrize("factors", [(2, 4), (2, 2)])
def test_levels_that_do_not_line_up_are_dropped(tmp_path, factors):
    """The second file starts one chunk from the first: half a chunk of the next level."""
    paths = []
    west = 160 if factors == (2, 2) else 640
    for i, factor in enumerate(factors):
        path = tmp_path / f"{i}.tif"
        paths.append(write_geotiff(path, random_tile((64, 64)), west * i, 1000))
        with rasterio.Env(GDAL_TIFF_OVR_BLOCKSIZE=64), rasterio.open(path, "r+") as file:
            file.build_overviews([factor], rasterio.enums.Resampling.nearest)
    with pytest.warns(UserWarning, match="image 0: 1 .*grid"):
        node = anychunk.index(paths, combine="mosaic", overlap="last")
    assert list(node["0"].members) == ["0"]
    datasets = node["0"].attributes["ome"]["multiscales"][0]["datasets"]
    assert [d["path"] for d in datasets] == ["0/image"]
    truth, _ = merged(paths, method="last")
    np.testing.assert_array_equal(anychunk.open(node)["0/0/image"][...], truth)
