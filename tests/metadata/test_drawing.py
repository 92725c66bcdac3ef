import warnings

import numpy as np
import pytest
import rasterio
import tifffile
from rasterio.errors import NotGeoreferencedWarning

import anychunk
from anychunk.metadata.drawing import palette


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, None),
        ({"color_map": [[1], [2], [3]]}, None),  # the format's own attributes hold it
        ({"ome": {}, "tiff": {"color_map": [[1], [2], [3]]}}, [[1], [2], [3]]),
        ({"tiff": {"color_map": "red"}}, None),
        ({"tiff": "none"}, None),
    ],
)
def test_palette(attributes, expected):
    assert palette(attributes) == expected


def test_palette_is_that_of_gdal(tmp_path):
    path = tmp_path / "a.tif"
    colors = np.random.default_rng(0).integers(0, 256, (3, 256), dtype="uint16") * 257
    tifffile.imwrite(
        path, np.zeros((4, 5), "uint8"), colormap=colors, photometric="palette", metadata=None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path) as dataset:
            theirs = [dataset.colormap(1)[i][:3] for i in range(256)]
    found = np.array(palette(anychunk.index(path)["0"].attributes))
    np.testing.assert_array_equal(found.T // 257, theirs)
