"""Masks and lists of numbers along some axes, `array.oindex`, against numpy on the whole array."""

import glymur
import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
from anychunk.engine.run import Engine

RANDOM = np.random.default_rng(8)
VALUES = RANDOM.integers(0, 4000, (2, 100, 130), "u2")


def save_jpeg2000(path, bands, tile):
    count, height, width = bands.shape
    options = {
        "blockxsize": tile,
        "blockysize": tile,
        "resolutions": 3,
        "quality": 100,
        "reversible": "yes",
    }
    with rasterio.open(
        path,
        "w",
        driver="JP2OpenJPEG",
        dtype="uint16",
        count=count,
        height=height,
        width=width,
        **options,
    ) as file:
        file.write(bands)


def save_small_tiles(path, values):
    """Write tiles of 16 pixels, which are decoded together. GDAL writes none below 64."""
    if glymur.version.openjpeg_version < "2.4.0":
        pytest.skip("glymur finds no OpenJPEG library: install libopenjp2")
    glymur.Jp2k(path, data=values, tilesize=(16, 16), numres=3)


WRITERS = {
    # the last rows and columns of tiles are cut
    "small.jp2": lambda path: save_small_tiles(path, VALUES[0]),
    "small bands.jp2": lambda path: save_small_tiles(path, VALUES.transpose(1, 2, 0)),
    "tiles.jp2": lambda path: save_jpeg2000(path, VALUES[:1], 64),
    "whole.jp2": lambda path: save_jpeg2000(path, VALUES[:1], 1024),
    "bands.jp2": lambda path: save_jpeg2000(path, VALUES, 64),
    "tiles.tif": lambda path: tifffile.imwrite(path, VALUES[0], tile=(16, 16), compression="zlib"),
    "bands.tif": lambda path: tifffile.imwrite(path, VALUES, rowsperstrip=9, planarconfig=2),
    "plain.npy": lambda path: np.save(path, VALUES),
    "cubes.n5": lambda path: anychunk.write(VALUES, path),
}


def selectors(size):
    """Masks, lists of numbers, numbers and slices along an axis."""
    last, some = np.zeros(size, bool), RANDOM.random(size) < 0.3
    last[-1] = True
    return [
        some, last, np.zeros(size, bool), np.ones(size, bool), np.arange(size) > size - 4,
        np.array([], int), np.array([size - 1, 0, -2 % size]), [0, 0, size - 1],
        slice(None), slice(1, size, 3), slice(size // 2, size), size - 1, 0,
    ]  # fmt: skip


def taken(values, selection):
    """Return what each selector takes along its own axis."""
    for axis, selector in reversed(list(enumerate(selection))):
        found = np.asarray(selector) if isinstance(selector, list) else selector
        values = values[(*(slice(None),) * axis, found)]
    return values


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", WRITERS)
def test_each_selection_equals_that_of_the_whole_array(tmp_path, name):
    path = tmp_path / name
    WRITERS[name](path)
    array = anychunk.open_array(path)
    values = array[...]
    np.testing.assert_array_equal(values, VALUES if values.ndim == 3 else VALUES[0])
    lead = (slice(None),) * (values.ndim - 2)
    for rows in selectors(100):
        found = array.oindex[(*lead, rows)]
        np.testing.assert_array_equal(found, taken(values, (*lead, rows)))
        for columns in selectors(130):
            selection = (*lead, rows, columns)
            found = array.oindex[selection]
            np.testing.assert_array_equal(found, taken(values, selection), str(selection))


@pytest.mark.parametrize("most", [1, 3000, 1 << 16])
def test_boxes_around_numbers_are_bounded_along_all_axes(tmp_path, monkeypatch, most):
    """Boxes of a selection with steps along all axes would together be the whole image."""
    pixels = VALUES.transpose(1, 2, 0)
    tifffile.imwrite(
        tmp_path / "a.tif", pixels, tile=(16, 16), planarconfig=1, photometric="minisblack"
    )
    array = anychunk.open_array(tmp_path / "a.tif")
    monkeypatch.setattr("anychunk.engine.run.MOST_AROUND", most)
    sizes = []
    read = Engine._read

    def counted(self, plan, numbers, out, *args, **options):
        sizes.append((len(plan), out.nbytes))
        return read(self, plan, numbers, out, *args, **options)

    monkeypatch.setattr(Engine, "_read", counted)
    values = array[...]
    for selection in (
        np.s_[:, ::3, 1::5],
        ([1, 0], [99, 3, 3, 50], slice(129, None)),
        np.s_[1, ::9, ::2],
    ):
        sizes.clear()
        np.testing.assert_array_equal(array.oindex[selection], taken(values, selection))
        assert all(chunks == 1 or nbytes <= most for chunks, nbytes in sizes)
