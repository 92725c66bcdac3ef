"""Thumbnails: one plane of the closest level, drawn as the image's `Display` says."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk.decode.present import present_chunks
from anychunk.engine.opening import PlainArray
from anychunk.errors import LimitError, UnsupportedError
from anychunk.metadata import drawing, painting
from anychunk.metadata.meaning import Display, Meaning
from anychunk.metadata.reading import meaning_of
from anychunk.model import images as im
from anychunk.model.grid import Array, Shape, touched_grid
from anychunk.model.images import Image
from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, Node, Objects, find
from anychunk.selection import Part, part_of
from anychunk.selection.cuts import Selection

type Borders = npt.NDArray[np.int64]
"""Where windows begin along an axis, and where the last one ends."""

STRIP = 8 << 20
"""About how many elements are read at a time."""
BANDS = ("band", "c", "channel")
"""Names of axes whose elements are bands."""
EXPANSION = 256
"""The ratio of decoded to stored bytes up to which a thumbnail may read more than
`limits.thumbnail_bytes`."""
ONE: Borders = np.array([0, 1])
"""The borders of a single window of a single element."""
COLOUR = 3
"""Bands of a colour picture."""
STRETCH = (2.0, 98.0)
"""Percentiles of the shown values that become black and white where the file states no limits."""


def thumbnail(
    node: Node,
    *,
    image: int | str = 0,
    size: int = 512,
    at: Mapping[str, int] | None = None,
    percentiles: tuple[float, float] | None = None,
    wanted: Selection | None = None,
    open_path: Callable[[str], Any] | None = None,
) -> npt.NDArray[np.uint8]:
    """Return a picture of an image, of shape (y, x), (y, x, 3) for colour, (y, x, 4) with alpha.

    Pixels without a valid sample (nodata, NaN, or hidden by the image's mask) are transparent. The
    picture is turned upright as its file states, unless the image lies on a map; arrays never are.

    Parameters:
        node: The index.
        image: Number or path of the image.
        size: The longer side of the picture, in pixels.
        at: Positions along other axes, such as z or t; by default the middle.
        percentiles: The percentiles of the shown values that become black and white. By default,
            the limits that the file states, 0 to 255 for samples of 8 bits, and else 2 and 98.
        wanted: The part to draw, by default the image, in the colours that its file states; three
            or more bands without colours as red, green and blue, of two the first. Three bands that
            are chosen are drawn as red, green and blue, one in grey, unless the image has channels
            with colours of their own, or a palette. Of a part without a level the closest level is
            read.
        open_path: Opens the array at a path, for callers that cache chunks; not for parts.

    Raises `UnsupportedError` if the image has no plane, or no such band, axis or position, and
    `LimitError` if a small file would decode to more than `limits.thumbnail_bytes`.
    """
    if wanted is not None and not wanted.is_everything:
        part = part_of(node, wanted, image=image, near_levels=wanted.level is None)
        node, image, open_path = part.node, 0, partial(open_cut, part)
    shown = im.chosen(list(im.images(node)), image)
    meaning = drawn_meaning(meaning_of(node, shown), wanted)
    y, x = plane_axes(shown)
    is_fixed = wanted is not None and wanted.level is not None
    path = shown.levels[0] if is_fixed else fitting_level(node, shown, (y, x), size)
    opener = open_path or partial(PlainArray, node)
    array = opener(path)
    bands = next((i for i, n in enumerate(shown.names) if n in BANDS and i not in (y, x)), None)
    count = 1 if bands is None else array.shape[bands]
    display = drawing.drawn(meaning, count)
    picked = painting.bands_needed(display, count)
    others = [i for i in range(array.ndim) if i not in (y, x, bands)]
    place = positions({i: shown.names[i] for i in others}, array.shape, at or {})
    table = without_nodata(painting.palette(display), meaning.nodata)
    mask = Mask.beside(node, path, display, opener, (array.shape[y], array.shape[x]))

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
        lengths = [len(range(*s.indices(n))) for s, n in zip(full, array.shape, strict=True)]
        limits.check_chunk(math.prod(lengths) * array.dtype.itemsize, where="thumbnail")
        data = np.asarray(array[tuple(full)]).transpose(order)
        data = data.reshape(-1, *data.shape[-2:])
        if bands is not None:
            data = data[[number - picked[0] for number in picked]]
        # look colours up before averaging: the mean of two palette indices is another colour
        return data if table is None else coloured(data[0], *table)

    height, width = array.shape[y], array.shape[x]
    check_pixels(array.shape)
    own = find(node, path)
    fixed = {i: slice(value, value + 1) for i, value in place.items()}
    if bands is not None:
        fixed[bands] = slice(picked[0], picked[-1] + 1)
    stored = Stored(own, fixed) if isinstance(own, ArrayIndex) else None
    if stored is not None:
        stored.check_work(math.prod(array.chunks) * array.dtype.itemsize, path)
    absent = np.full((len(picked), 1, 1), array.fill_value, array.dtype)
    small = shrink(
        read,
        (y, x),
        (height, width),
        size=size,
        steps=block_steps(array, y, x),
        nodata=meaning.nodata if table is None else None,
        is_absent=stored.is_absent if stored is not None and mask is None else None,
        absent=absent if table is None else coloured(absent[0], *table),
        hidden=partial(
            hidden_samples,
            mask=mask,
            axes=(y, x),
            display=display if table is None else None,
            picked=picked,
        ),
    )
    turned = orientation_of(meaning)
    if table is not None:
        return painting.upright(palette_picture(small), turned)
    own_type = own.data_type if isinstance(own, ArrayIndex) else None
    limits_of = band_limits(small, picked, display, own_type, percentiles)
    planes = dict(zip(picked, small, strict=True))
    picture = with_holes(painting.paint(planes, display, limits_of), planes, display)
    return painting.upright(picture, turned)


def orientation_of(meaning: Meaning) -> int:
    """Return how a picture is turned; not on a map, where GIS software ignores Orientation, too."""
    if meaning.display is None or meaning.place.transform is not None:
        return 1
    return meaning.display.get("orientation", 1)


def check_pixels(shape: Shape) -> None:
    """Raise `UnsupportedError` if an image is empty."""
    if not math.prod(shape):
        raise UnsupportedError(f"thumbnail: image of shape {tuple(shape)} has no pixels")


def drawn_meaning(meaning: Meaning, wanted: Selection | None) -> Meaning:
    """Return the meaning of what is drawn: three chosen bands are colours, one is grey."""
    count = 0 if wanted is None or wanted.bands is None else len(wanted.bands)
    if count not in (1, COLOUR):
        return meaning
    display = meaning.display or Display(model="grey")
    is_coloured = display["model"] == "channels" and display.get("channels")
    if display["model"] in ("rgb", "grey", "channels") and not is_coloured:
        model: Any = "rgb" if count == COLOUR else "grey"
        display = display | Display(model=model, bands=[*range(count)])
    return replace(meaning, display=display)


def open_cut(part: Part, path: str) -> Any:
    """Open an array of a part, after a look at how much there is to decode."""
    cut = part.cuts[path]
    own = find(part.source, cut.path)
    array = part.open_array(path)
    if isinstance(own, ArrayIndex):
        box = {axis: slice(min(pick), max(pick) + 1) for axis, pick in enumerate(cut.picks)}
        chunk_bytes = math.prod(own.chunk_shape) * array.dtype.itemsize
        Stored(own, box).check_work(chunk_bytes, cut.path)
    return array


class Mask:
    """The array beside an image that says which of its pixels are valid."""

    def __init__(self, array: Any, valid: float) -> None:
        self._array, self._valid = array, valid

    @classmethod
    def beside(
        cls,
        node: Node,
        path: str,
        display: Display,
        open_path: Callable[[str], Any],
        shape: tuple[int, int],
    ) -> "Mask | None":
        """Return the mask of a level, or None if it has none of the same size.

        Parameters:
            node: The index.
            path: The path of the level's array.
            display: How the image is drawn.
            open_path: Opens the array at a path.
            shape: The size of the level along y and x.
        """
        stated: Any = display.get("mask")
        name = stated.get("path") if isinstance(stated, Mapping) else None
        valid = stated.get("valid", 255) if isinstance(stated, Mapping) else None
        if not isinstance(name, str) or not isinstance(valid, int | float):
            return None
        place = im.join(path.rpartition("/")[0], name)
        own = find(node, place)
        if not isinstance(own, ArrayIndex) or own.shape != shape:
            return None
        array = open_path(place)
        chunk_bytes = math.prod(array.chunks) * array.dtype.itemsize
        Stored(own, {}).check_work(chunk_bytes, place)
        return cls(array, valid)

    def hidden(self, rows: slice, columns: slice) -> npt.NDArray[np.bool_]:
        """Return which pixels (1, y, x) of a part are not valid."""
        return np.asarray(np.asarray(self._array[rows, columns]) != self._valid)[np.newaxis]


def hidden_samples(
    box: Mapping[int, slice],
    data: Array,
    *,
    mask: Mask | None,
    axes: tuple[int, int],
    display: Display | None,
    picked: Sequence[int],
) -> npt.NDArray[np.bool_] | None:
    """Return which samples (band, y, x) have no part in the picture; None: all have.

    Those are masked samples, and the colours of transparent pixels, which mean nothing, unless they
    are multiplied by their opacity already.

    Parameters:
        box: The part that was read, as slices by axis.
        data: What was read.
        mask: The mask of the image.
        axes: The axes y and x.
        display: How the samples are drawn; None if they are colours of a palette.
        picked: The numbers of the bands.
    """
    masked = None if mask is None else mask.hidden(box[axes[0]], box[axes[1]])
    alpha = None if display is None else display.get("alpha")
    if alpha is None or alpha["band"] not in picked or alpha["associated"]:
        return None if masked is None else np.broadcast_to(masked, data.shape)
    number = list(picked).index(alpha["band"])
    hidden = np.broadcast_to(data[number] <= alpha["range"][0], data.shape).copy()
    hidden[number] = False
    return hidden if masked is None else hidden | masked


def with_holes(pixels: Array, planes: Mapping[int, Array], display: Display) -> Array:
    """Return a picture that is transparent where no band has a value.

    Parameters:
        pixels: The painted picture.
        planes: The values that it was painted from, by number of the band.
        display: How it was painted.
    """
    band = display["alpha"]["band"] if "alpha" in display else None
    shown = [plane for number, plane in planes.items() if number != band] or [*planes.values()]
    is_empty = np.logical_and.reduce([np.isnan(plane) for plane in shown])
    if not is_empty.any():
        return pixels
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., np.newaxis], COLOUR, axis=2)
    alpha = pixels[..., 3] if pixels.shape[2] > COLOUR else np.full(is_empty.shape, 255, np.uint8)
    pixels = np.dstack([pixels[..., :COLOUR], np.where(is_empty, 0, alpha).astype(np.uint8)])
    pixels[is_empty] = 0
    return pixels


def without_nodata(
    table: tuple[int, Array] | None, nodata: float | None
) -> tuple[int, Array] | None:
    """Return a palette whose entry of nodata is transparent."""
    if table is None or nodata is None:
        return table
    first, colours = table
    number = nodata - first
    if 0 <= number < len(colours) and number == int(number):
        colours = colours.copy()
        colours[int(number), 3] = 0
    return first, colours


def palette_picture(small: Array) -> npt.NDArray[np.uint8]:
    """Return the picture of colours that are multiplied by their opacity: (4, y, x), 0 to 255."""
    alpha = np.nan_to_num(small[3])
    colour = np.nan_to_num(small[:3]) * 255 / np.maximum(alpha, 1e-9)
    picture = np.stack([*np.where(alpha > 0, np.minimum(colour, 255), 0), alpha])
    pixels = np.ascontiguousarray(np.rint(picture).astype(np.uint8).transpose(1, 2, 0))
    is_opaque = bool((pixels[..., 3] == 255).all())
    return np.ascontiguousarray(pixels[..., :3]) if is_opaque else pixels


def band_limits(
    small: Array,
    picked: Sequence[int],
    display: Display,
    data_type: Any,
    percentiles: tuple[float, float] | None,
) -> dict[int, tuple[float, float]]:
    """Return the values that are drawn darkest and brightest, by number of the band.

    Parameters:
        small: The values (band, y, x) of the picture.
        picked: The numbers of the bands.
        display: How the image is drawn.
        data_type: Of the image's samples.
        percentiles: As in `thumbnail`.
    """
    stated = {b: painting.stated_limits(display, b, data_type) for b in picked}
    if percentiles is None and all(stated.values()):
        return {band: limits for band, limits in stated.items() if limits is not None}
    # CMYK and YCbCr are mixed from their bands, which therefore share their limits
    is_mixed = display["model"] in ("cmyk", "ycbcr")
    found = {}
    for number, band in enumerate(picked):
        own = value_limits(small if is_mixed else small[number], percentiles or STRETCH)
        known = stated[band] if percentiles is None else None
        found[band] = known or own
    return found


def value_limits(data: Array, percentiles: Sequence[float]) -> tuple[float, float]:
    """Return two percentiles of the finite values, or the least and largest if those are equal."""
    valid = data[np.isfinite(data)]
    if not valid.size:
        return 0.0, 1.0
    low, high = np.percentile(valid, percentiles)
    if high <= low:
        low, high = valid.min(), valid.max()
    return float(low), float(high)


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


def positions(axes: Mapping[int, str], shape: Shape, at: Mapping[str, int]) -> dict[int, int]:
    """Return the positions along axes, which are given by number and name."""
    unknown = [name for name in at if name not in axes.values()]
    if unknown:
        known = " ".join(axes.values()) or "none"
        raise UnsupportedError(
            f"thumbnail: cannot choose a position along {unknown[0]!r}; possible axes: {known}"
        )
    return {i: position(name, shape[i], at) for i, name in axes.items()}


def position(name: str, length: int, at: Mapping[str, int]) -> int:
    """Return the position along an axis: the one asked for, or the middle."""
    value = at.get(name, length // 2)
    if not 0 <= value < length:
        raise UnsupportedError(f"thumbnail: {name} {value} is outside 0..{length - 1}")
    return value


class Stored:
    """Which chunks of the shown plane are stored, and how much there is to decode."""

    def __init__(self, index: ArrayIndex, fixed: Mapping[int, slice]) -> None:
        """Prepare for one plane.

        Parameters:
            index: the array.
            fixed: the positions along all axes but y and x.
        """
        self.index, self.fixed = index, fixed
        self.tried, self.most = 0, limits.get().probed_chunks
        self.marks: npt.NDArray[np.bool_] | None = None
        """Which chunks are there, if they are too many to be tried."""
        grid = self._grid({})
        self.is_sparse = isinstance(index.chunks, Objects) and index.chunks.is_sparse
        if self.is_sparse and _count(grid) > self.most:
            present = present_chunks(index)
            if present is not None:
                self.marks = present.boxes(index.chunk_shape)
                self.most = max(self.most, EXPANSION * int(self.marks[grid].sum()))

    def _grid(self, box: Mapping[int, slice]) -> tuple[slice, ...]:
        sides = [slice(0, n) for n in self.index.shape]
        for axis, part in {**self.fixed, **box}.items():
            sides[axis] = part
        return touched_grid(
            tuple(side.start for side in sides),
            tuple(side.stop for side in sides),
            self.index.chunk_shape,
        )

    def is_absent(self, box: Mapping[int, slice]) -> bool:
        """Return whether every chunk of a box is absent; if not, it is about to be read.

        Raises `LimitError` if too many chunks are tried: a few bytes announce any number of them.
        """
        grid, chunks = self._grid(box), self.index.chunks
        if isinstance(chunks, ByteRanges):
            return not chunks.lengths[grid].any()
        if self.marks is not None and not self.marks[grid].any():
            return True
        self.tried += _count(grid)
        if self.is_sparse and self.tried > self.most:
            raise LimitError(
                f"thumbnail: more than {self.most} chunks would be tried, most of which are "
                f"absent; {limits.how_to_raise('probed_chunks')}"
            )
        return False

    def check_work(self, chunk_bytes: int, where: str) -> None:
        """Raise `LimitError` if far more is to be decoded than the file stores.

        The chunks of a small file may all refer to the same few bytes.

        Parameters:
            chunk_bytes: the length of a decoded chunk.
            where: names the array in messages.
        """
        chunks = self.index.chunks
        if not isinstance(chunks, ByteRanges):
            return
        grid = self._grid({})
        lengths = chunks.lengths[grid]
        decoded = int((lengths > 0).sum()) * chunk_bytes
        most = limits.get().thumbnail_bytes
        if decoded <= most or (lengths == WHOLE).any():
            return
        offsets, first = np.unique(chunks.offsets[grid], return_index=True)
        stored = int(lengths.reshape(-1)[first].sum())
        if decoded > EXPANSION * stored:
            raise LimitError(
                f"thumbnail: {where} has {len(offsets)} different chunks of {stored} stored bytes, "
                f"which decode to {decoded} bytes, more than {most} and {EXPANSION} times as many; "
                f"{limits.how_to_raise('thumbnail_bytes')}"
            )


def _count(grid: tuple[slice, ...]) -> int:
    """Return the number of chunks in a part of a grid."""
    return math.prod(side.stop - side.start for side in grid)


def block_steps(array: Any, y: int, x: int) -> tuple[int, int]:
    """Return how many rows and columns to read at a time: whole chunks, about `STRIP` elements."""
    height, width = array.chunks[y], array.chunks[x]
    row = max(1, array.shape[x]) * COLOUR
    rows = max(height, STRIP // row // height * height)
    columns = max(width, STRIP // (rows * COLOUR) // width * width)
    return rows, columns if rows * row > 4 * STRIP else array.shape[x]


def shrink(
    read: Callable[[Mapping[int, slice]], Array],
    axes: tuple[int, int],
    shape: tuple[int, int],
    *,
    size: int,
    steps: tuple[int, int],
    nodata: float | None,
    is_absent: Callable[[Mapping[int, slice]], bool] | None = None,
    absent: Array | None = None,
    hidden: Callable[[Mapping[int, slice], Array], npt.NDArray[np.bool_] | None] | None = None,
) -> Array:
    """Return the means of windows that cover the plane, reading it block by block.

    Parameters:
        read: Reads (band, y, x) of the part given as slices by axis.
        axes: The axes y and x.
        shape: The size along them.
        size: The longer side of the result.
        steps: About how many rows and columns to read at a time.
        nodata: The value that is excluded from means.
        is_absent: Whether the file declares all of a part absent, which is then not read.
        absent: The value (band, 1, 1) of such a part.
        hidden: Returns which samples of a part are excluded from means, given what was read.
    """
    y, x = axes
    rows, columns = (borders(n, size / max(*shape, 1)) for n in shape)
    strips = []
    for top, bottom in runs(rows, steps[0]):
        blocks = []
        for left, right in runs(columns, steps[1]):
            box = {
                y: slice(int(rows[top]), int(rows[bottom])),
                x: slice(int(columns[left]), int(columns[right])),
            }
            if is_absent is not None and absent is not None and is_absent(box):
                mean = means(absent, ONE, ONE, nodata)
                whole = (len(mean), bottom - top, right - left)
                blocks.append(np.broadcast_to(mean, whole))
                continue
            edges = columns[left : right + 1] - columns[left]
            data = read(box)
            out = None if hidden is None else hidden(box, data)
            blocks.append(piecewise_means(data, rows[top : bottom + 1], edges, nodata, out))
        strips.append(np.concatenate(blocks, axis=2))
    return np.concatenate(strips, axis=1)


def runs(edges: Borders, step: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last border of runs of whole windows, each about `step` long."""
    first = 0
    while first < len(edges) - 1:
        # not beyond the end: a chunk may announce any size
        end = min(int(edges[first]) + step, int(edges[-1]))
        last = max(first + 1, int(np.searchsorted(edges, end, "right")) - 1)
        yield first, last
        first = last


def piecewise_means(
    data: Array,
    rows: Borders,
    columns: Borders,
    nodata: float | None,
    hidden: npt.NDArray[np.bool_] | None = None,
) -> Array:
    """Return the means of windows, computed for about `STRIP` elements at a time.

    Means are computed in 64-bit floats, which take up to eight times the memory of `data`.
    """
    row = max(1, data.shape[0] * data.shape[2])
    found = []
    for first, last in runs(rows, max(1, 2 * STRIP // row)):
        part = slice(rows[first] - rows[0], rows[last] - rows[0])
        out = None if hidden is None else hidden[:, part]
        edges = rows[first : last + 1] - rows[first]
        found.append(means(data[:, part], edges, columns, nodata, out))
    return np.concatenate(found, axis=1)


def borders(length: int, scale: float) -> Borders:
    """Return the borders of the windows of an axis, one window per pixel of the picture."""
    count = max(1, min(length, round(length * scale)))
    return np.arange(count + 1, dtype=np.int64) * length // count


def means(
    data: Array,
    rows: Borders,
    columns: Borders,
    nodata: float | None,
    hidden: npt.NDArray[np.bool_] | None = None,
) -> Array:
    """Return the means of the windows of the last two axes; NaN where no value is valid."""
    if data.dtype.kind not in "biufc" and data.dtype.name != "bfloat16":
        raise UnsupportedError(
            f"thumbnail: {data.dtype} cannot be shown; expected a number or a boolean"
        )
    wide = (np.abs(data) if data.dtype.kind == "c" else data).astype(np.float64)
    is_valid = np.isfinite(wide)
    if nodata is not None:
        is_valid &= data != np.asarray(nodata).astype(data.dtype)
    if hidden is not None:
        is_valid &= ~hidden
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


def coloured(data: Array, first: int, colours: Array) -> Array:
    """Look (y, x) up in a palette; return (4, y, x), colours multiplied by their opacity.

    So that the mean of several does not contain the colour of transparent ones.

    Parameters:
        data: Samples.
        first: The sample of the first colour.
        colours: (n, 4), values from 0 to 255.
    """
    number = np.clip(np.nan_to_num(data.astype(np.float64)) - first, 0, len(colours) - 1)
    multiplied = np.hstack([colours[:, :3] * colours[:, 3:] / 255, colours[:, 3:]])
    return np.moveaxis(multiplied[number.astype(np.int64)], -1, 0)


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Encode a picture as PNG."""
    import imagecodecs  # slow to import, and not needed to compute the picture

    # the encoder needs C order; a file whose x comes before y yields a transposed view
    encoded: Any = imagecodecs.png_encode(pixels.copy(order="C"))
    return bytes(encoded)
