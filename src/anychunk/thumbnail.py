"""Thumbnails: one plane of the closest level, stretched between two percentiles."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr

from anychunk.errors import UnsupportedError
from anychunk.metadata import drawing, samples
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Node, find
from anychunk.read import zarr_array

type Array = npt.NDArray[Any]
type Borders = npt.NDArray[np.int64]
"""Where windows begin along an axis, and where the last one ends."""

STRIP = 8 << 20
"""About how many elements are read at a time."""
BANDS = ("band", "c", "channel")
"""Names of axes whose elements are bands."""
COLOUR = 3
"""Bands of a colour picture."""


def thumbnail(
    node: Node,
    *,
    image: int | str = 0,
    size: int = 512,
    at: Mapping[str, int] | None = None,
    band: int | None = None,
    percentiles: tuple[float, float] = (2.0, 98.0),
    open_path: Callable[[str], Any] | None = None,
) -> npt.NDArray[np.uint8]:
    """Return a picture of an image, of shape (y, x), or (y, x, 3) for colour.

    Parameters:
        node: The index.
        image: Number or path of the image.
        size: The longer side of the picture, in pixels.
        at: Positions along other axes, such as z or t; by default the middle.
        band: Show one band in grey. By default, an image of three or four bands is shown in colour,
            any other by its first band.
        percentiles: The percentiles of the shown values that become black and white.
        open_path: Opens the array at a path, for callers that cache chunks.

    Raises `UnsupportedError` if the image has no plane, or no such band, axis or position.
    """
    shown = im.chosen(list(im.images(node)), image)
    y, x = plane_axes(shown)
    path = fitting_level(node, shown, (y, x), size)
    array = zarr_array.open_path(node, path) if open_path is None else open_path(path)
    bands = next((i for i, n in enumerate(shown.names) if n in BANDS and i not in (y, x)), None)
    picked = pick_bands(array, bands, band)
    others = [i for i in range(array.ndim) if i not in (y, x, bands)]
    unknown = [name for name in at or {} if name not in [shown.names[i] for i in others]]
    if unknown:
        known = " ".join(shown.names[i] for i in others) or "none"
        raise UnsupportedError(
            f"thumbnail: cannot choose a position along {unknown[0]!r}; possible axes: {known}"
        )
    place = {i: position(shown.names[i], array.shape[i], at or {}) for i in others}
    colours = colours_of(shown) if len(picked) == 1 else None

    def read(box: Mapping[int, slice]) -> Array:
        """Read (band, y, x)."""
        full = [slice(None)] * array.ndim
        for axis, value in place.items():
            full[axis] = slice(value, value + 1)
        for axis, part in box.items():
            full[axis] = part
        if bands is not None:
            full[bands] = slice(picked[0], picked[-1] + 1)
        order = [*others, *([] if bands is None else [bands]), y, x]
        data = np.asarray(array[tuple(full)]).transpose(order)
        data = data.reshape(-1, *data.shape[-2:])
        # look colours up before averaging: the mean of two palette indices is another colour
        return data if colours is None else coloured(data[0], colours)

    height, width = array.shape[y], array.shape[x]
    if not math.prod(array.shape):
        raise UnsupportedError(f"thumbnail: image of shape {tuple(array.shape)} has no pixels")
    own = find(node, path)
    nodata = samples.nodata(shown.attributes, own) if isinstance(own, ArrayIndex) else None
    small = shrink(
        read,
        (y, x),
        (height, width),
        size=size,
        step=row_step(array, y, x),
        nodata=nodata if colours is None else None,
    )
    if colours is not None:
        return np.ascontiguousarray(np.rint(small).astype(np.uint8).transpose(1, 2, 0))
    return picture(small, percentiles)


def plane_axes(image: Image) -> tuple[int, int]:
    """Return the axes of the picture: y and x, or else the last two that are not bands."""
    names = image.names
    if "y" in names and "x" in names:
        return names.index("y"), names.index("x")
    space = [i for i, name in enumerate(names) if name not in BANDS]
    if len(space) < 2:
        raise UnsupportedError(
            f"thumbnail: axes {' '.join(names)}, expected at least two besides bands"
        )
    return space[-2], space[-1]


def fitting_level(node: Node, image: Image, axes: tuple[int, int], size: int) -> str:
    """Return the path of the coarsest level that is at least as large as the picture."""
    best = image.levels[0]
    for path in image.levels:
        array = find(node, path)
        if not isinstance(array, ArrayIndex) or len(array.shape) != len(image.axes):
            continue
        if max(array.shape[i] for i in axes) >= size:
            best = path
    return best


def pick_bands(array: zarr.Array[Any], axis: int | None, band: int | None) -> list[int]:
    """Return the bands to show: the one asked for, three for colour, or the first."""
    count = 1 if axis is None else array.shape[axis]
    if band is not None:
        if not 0 <= band < count:
            raise UnsupportedError(f"thumbnail: band {band} is outside 0..{count - 1}")
        return [band]
    return list(range(COLOUR)) if count in (COLOUR, COLOUR + 1) else [0]


def position(name: str, length: int, at: Mapping[str, int]) -> int:
    """Return the position along an axis: the one asked for, or the middle."""
    value = at.get(name, length // 2)
    if not 0 <= value < length:
        raise UnsupportedError(f"thumbnail: {name} {value} is outside 0..{length - 1}")
    return value


def row_step(array: zarr.Array[Any], y: int, x: int) -> int:
    """Return how many rows to read at a time: whole chunks, about `STRIP` elements."""
    row = max(1, array.shape[x]) * COLOUR
    chunk = array.chunks[y]
    return max(chunk, STRIP // row // chunk * chunk)


def shrink(
    read: Callable[[Mapping[int, slice]], Array],
    axes: tuple[int, int],
    shape: tuple[int, int],
    *,
    size: int,
    step: int,
    nodata: float | None,
) -> Array:
    """Return the means of windows that cover the plane, reading it strip by strip.

    Parameters:
        read: Reads (band, y, x) of the part given as slices by axis.
        axes: The axes y and x.
        shape: The size along them.
        size: The longer side of the result.
        step: About how many rows to read at a time.
        nodata: The value that is excluded from means.
    """
    y, x = axes
    rows, columns = (borders(n, size / max(*shape, 1)) for n in shape)
    strips = []
    first = 0
    while first < len(rows) - 1:
        last = max(first + 1, int(np.searchsorted(rows, rows[first] + step, "right")) - 1)
        strip = read({y: slice(int(rows[first]), int(rows[last])), x: slice(0, shape[1])})
        strips.append(means(strip, rows[first : last + 1] - rows[first], columns, nodata))
        first = last
    return np.concatenate(strips, axis=1)


def borders(length: int, scale: float) -> Borders:
    """Return the borders of the windows of an axis, one window per pixel of the picture."""
    count = max(1, min(length, round(length * scale)))
    return np.arange(count + 1, dtype=np.int64) * length // count


def means(data: Array, rows: Borders, columns: Borders, nodata: float | None) -> Array:
    """Return the means of the windows of the last two axes; NaN where no value is valid."""
    if data.dtype.kind not in "biufc" and data.dtype.name != "bfloat16":
        raise UnsupportedError(
            f"thumbnail: {data.dtype} cannot be shown; expected a number or a boolean"
        )
    wide = (np.abs(data) if data.dtype.kind == "c" else data).astype(np.float64)
    is_valid = np.isfinite(wide)
    if nodata is not None:
        is_valid &= data != np.asarray(nodata).astype(data.dtype)
    counts = np.outer(np.diff(rows), np.diff(columns)).astype(np.float64)
    if not is_valid.all():
        counts = sums(is_valid.astype(np.float64), rows, columns)
    total = sums(np.where(is_valid, wide, 0.0), rows, columns)
    return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)


def sums(data: Array, rows: Borders, columns: Borders) -> Array:
    """Return the sums of the windows of the last two axes."""
    for axis, edges in ((1, rows), (2, columns)):
        if len(edges) - 1 < data.shape[axis]:
            data = np.add.reduceat(data, edges[:-1], axis=axis)
    return data


def colours_of(image: Image) -> Array | None:
    """Return the palette of an image as (n, 3) values from 0 to 255, or None if it has none."""
    table = drawing.palette(image.attributes)
    if table is None:
        return None
    try:
        colours = np.asarray(table, np.float64)
    except (TypeError, ValueError):  # a saved index may contain any attributes
        return None
    if colours.ndim != 2 or COLOUR not in colours.shape or not colours.size:
        return None
    if not np.isfinite(colours).all():
        return None
    # TIFF stores a palette by channel and in 16 bits, other formats by colour and in 8
    colours = colours.T if colours.shape[0] == COLOUR else colours
    return np.clip(colours / (257 if colours.max(initial=0) > 255 else 1), 0, 255)


def coloured(data: Array, colours: Array) -> Array:
    """Look (y, x) up in a palette; return (3, y, x)."""
    number = np.clip(np.nan_to_num(data.astype(np.float64)), 0, len(colours) - 1)
    return np.moveaxis(colours[number.astype(np.int64)], -1, 0)


def picture(data: Array, percentiles: Sequence[float]) -> npt.NDArray[np.uint8]:
    """Stretch (band, y, x) to bytes between two percentiles; NaN becomes black."""
    is_valid = np.isfinite(data)
    if not is_valid.any():
        nothing = np.zeros((*data.shape[1:], data.shape[0]), np.uint8)
        return nothing[..., 0] if data.shape[0] == 1 else nothing
    low, high = np.percentile(data[is_valid], percentiles)
    if high <= low:
        low, high = data[is_valid].min(), data[is_valid].max()
    scaled = (np.where(is_valid, data, low) - low) / ((high - low) or 1.0)
    pixels = np.rint(np.clip(scaled, 0, 1) * 255).astype(np.uint8)
    return pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode a picture as PNG."""
    import imagecodecs  # slow to import, and not needed to compute the picture

    # the encoder needs C order; a file whose x comes before y yields a transposed view
    encoded: Any = imagecodecs.png_encode(pixels.copy(order="C"))
    return bytes(encoded)
