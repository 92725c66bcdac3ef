"""Arrays of an opened TIFF file as pages, to compare them with readers that know pages only."""

import math

import numpy as np


def image_arrays(node):
    """List (path, array) of the images and masks of an index, without coordinates."""
    return [(p, a) for p, a in node.arrays() if p.rpartition("/")[2] in ("image", "mask")]


def pages_of_array(data, names, bands=None):
    """Return an array (t, c, z, y, x), as far as present, as pages (page, band, y, x).

    Parameters:
        data: the samples.
        names: names of the axes.
        bands: bands of a page, if there are several channels of them; all of c by default.
    """
    data = np.moveaxis(data, names.index("c"), -3) if "c" in names else data[..., None, :, :]
    bands = bands or data.shape[-3]
    count = math.prod(data.shape[:-2]) // bands  # not -1: an image may have no pixels
    return data.reshape(count, bands, *data.shape[-2:])
