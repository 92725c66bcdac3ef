"""Independent readers to compare with: each yields boxes of an image and the pixels it reads."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anychunk.errors import MissingDependencyError, UnsupportedError
from anychunk.model.grid import Array, Shape
from anychunk.model.images import Image

type Pieces = Iterator[tuple[tuple[slice, ...], Array]]
type Rows = tuple[int, int] | None
"""The first row that is compared, and the one after the last; None: all of them."""
type Reader = Callable[[str, int, Image, Shape, Rows], Pieces | None]
"""Called with (path, image number, image, shape, rows); None: it does not read this image.

More than the rows may be returned."""

STEP = 4 << 20
"""About how many elements are compared at a time."""


def reader(name: str) -> Reader:
    """Return the reader called `name`, or raise `UnsupportedError`."""
    if name not in READERS:
        raise UnsupportedError(
            f"verify: unknown reader {name!r}; expected one of: {' '.join(READERS)}"
        )
    return READERS[name]


def _missing(name: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"verify: {name} is not installed; install it with: pip install {name}"
    )


def slabs(array: Any, shape: Shape) -> Pieces:
    """Yield slabs of anything that slices like an array, along its first axis longer than 1."""
    if not shape:
        yield (), np.asarray(array[()])
        return
    axis = next((i for i, n in enumerate(shape) if n > 1), 0)
    rest = int(np.prod(shape[:axis] + shape[axis + 1 :])) or 1
    rows = max(1, STEP // rest)
    for start in range(0, shape[axis], rows):
        box = [slice(0, n) for n in shape]
        box[axis] = slice(start, min(start + rows, shape[axis]))
        yield tuple(box), np.asarray(array[tuple(box)])


def by_numpy(url: str, number: int, image: Image, shape: Shape, rows: Rows = None) -> Pieces | None:
    """Read an NPY file with numpy."""
    return slabs(np.load(url, mmap_mode="r"), shape) if number == 0 else None


def by_rasterio(
    url: str, number: int, image: Image, shape: Shape, rows: Rows = None
) -> Pieces | None:
    """Read the first image of a file with GDAL; only (c, y, x) and (y, x) are compared."""
    try:
        import rasterio
    except ImportError as e:
        raise _missing("rasterio") from e
    if number or image.names not in (("c", "y", "x"), ("y", "x")):
        return None
    return _windows(rasterio, url, shape, rows)


def _windows(rasterio: Any, url: str, shape: Shape, wanted: Rows) -> Pieces:
    import warnings

    *bands, height, width = shape
    rows = max(1, STEP // max(1, math.prod(bands) * width))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        dataset = rasterio.open(url)
    with dataset:
        top, bottom = wanted or (0, height)
        for start in range(top, bottom, rows):
            stop = min(start + rows, bottom)
            window = rasterio.windows.Window(0, start, dataset.width, stop - start)
            box = (*(slice(0, n) for n in bands), slice(start, stop), slice(0, width))
            yield box, dataset.read(None if bands else 1, window=window)


def by_tifffile(
    url: str, number: int, image: Image, shape: Shape, rows: Rows = None
) -> Pieces | None:
    """Read a series with tifffile; its samples axis is moved in front of y, where ours is."""
    import tifffile

    with tifffile.TiffFile(url) as file:
        if number >= len(file.series):
            return None
        series = file.series[number]
        axes = series.axes
        # a large series is decoded into a temporary file rather than into memory
        data = series.asarray(out="memmap" if series.nbytes > 1 << 28 else None)
    if "S" in axes and "Y" in axes:
        data = np.moveaxis(data, axes.index("S"), axes.replace("S", "").index("Y"))
    if data.size == int(np.prod(shape)):
        # tifffile places axes of length 1 elsewhere, or drops them
        long = tuple(n for n in data.shape if n != 1)
        data = data.reshape(shape) if long == tuple(n for n in shape if n != 1) else data
    return slabs(data, shape)


def by_tensorstore(
    url: str, number: int, image: Image, shape: Shape, rows: Rows = None
) -> Pieces | None:
    """Read an N5 dataset with tensorstore, whose axes are in N5's order, the reverse of ours."""
    try:
        import tensorstore
    except ImportError as e:
        raise _missing("tensorstore") from e
    # a level of a pyramid is a dataset of its own; a lone dataset is the image group itself
    level = "/".join(filter(None, [url, image.path, image.level_names[0]]))
    lone = "/".join(filter(None, [url, image.path]))
    place = level if (Path(level) / "attributes.json").exists() else lone
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": place}}
    array = tensorstore.open(spec).result()
    return slabs(_Eager(array if tuple(array.shape) == shape else array.T), shape)


class _Eager:
    """A tensorstore array that reads when it is sliced."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, box: Any) -> Array:
        return np.asarray(self.array[box].read().result())


READERS: dict[str, Reader] = {
    "numpy": by_numpy,
    "rasterio": by_rasterio,
    "tensorstore": by_tensorstore,
    "tifffile": by_tifffile,
}
