"""Images of an index as layers of napari: lazy arrays, where they lie and how they are drawn.

Plain data, as napari's readers return it; needs dask, not napari. How an image is drawn follows its
`Display`, as in thumbnails and on the page:

- grey: one image
- channels: an image per band, added up
- rgb, cmyk, ycbcr: one image of colours, other bands as hidden images
- palette: one image with the palette as its colormap; above 256 colours, an image of colours
- segmentations of OME-Zarr: labels
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from anychunk.errors import (
    AnychunkError,
    FormatWarning,
    LimitError,
    MissingDependencyError,
    UnsupportedError,
)
from anychunk.integrations.cost import Budget, is_within
from anychunk.metadata import painting, windows
from anychunk.metadata.cf import type_range
from anychunk.metadata.crs import is_geographic, linear_unit
from anychunk.metadata.meaning import Channel, Display, Meaning
from anychunk.metadata.ome import COLORS, scale_and_translation
from anychunk.metadata.painting import Limits
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model import images as im
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Json, Node, find
from anychunk.thumbnail import without_nodata

type Array = npt.NDArray[Any]
type LayerData = tuple[Any, dict[str, Any], str]
"""Data, keyword arguments and kind of a layer, as napari takes them."""

MOST_IMAGES = 64
"""Images of one file that become layers."""
MOST_CHANNELS = 16
"""Bands that become layers of their own; more are an axis with a slider, unless they have names."""
MOST_COLOURS = 256
"""Colours of a palette that a colormap of napari shows exactly."""
LEAST_BYTES = 1 << 20
"""Small chunks are read several at a time: dask takes a while for each."""
MOST_BYTES = 64 << 20
"""The longest such read."""
MOST_BLOCKS = 1 << 14
"""Above so many of them in a plane, dask takes noticeably long for one."""
MOST_ALONG = 1 << 20
"""Chunks along one axis, which dask lists when an array is made."""
WINDOW = 1024
"""Sides of the part of a level that limits are found from, if reading all of it is too much."""
BUDGET = Budget(decoded=64 << 20, stored=16 << 20, stored_remote=4 << 20)
"""What may be read to find limits."""
UNITS = {
    *("angstrom", "nanometer", "micrometer", "millimeter", "centimeter", "meter", "kilometer"),
    *(
        "inch",
        "foot",
        "survey_foot",
        "second",
        "millisecond",
        "microsecond",
        "minute",
        "hour",
        "day",
        "degree",
    ),
}
"""Units that napari's library of units knows by these names, which are OME-Zarr's."""
MAP_UNITS = {"metre": "meter", "degree": "degree", "foot": "foot", "US survey foot": "survey_foot"}
"""Units of map coordinates as napari's library of units calls them."""
PIXEL = "pixel"
"""The unit of axes without one."""


def layers(node: Node, *, open_path: Callable[[str], Any], title: str) -> list[LayerData]:
    """Return the layers of all images of an index.

    Parameters:
        node: the index.
        open_path: opens the array at a path of it.
        title: what the layers are called, with the names of images and channels.
    """
    found = list(itertools.islice(drawable(node), MOST_IMAGES + 1))
    if not found:
        raise UnsupportedError(f"{title}: no array of two or more dimensions of numbers to show")
    if len(found) > MOST_IMAGES:
        message = f"{title}: more than {MOST_IMAGES} images; only the first {MOST_IMAGES} are shown"
        warnings.warn(message, FormatWarning, stacklevel=2)
        del found[MOST_IMAGES:]
    made: list[LayerData] = []
    for number, image in enumerate(found):
        picture = Picture(node, image, open_path)
        name = title
        if len(found) > 1:
            name = f"{title}: {picture.meaning.name or image.path or number}"
        # other images would cover the first one
        is_shown = number == 0 or picture.is_labels
        made += [
            (data, {**given, "visible": given.get("visible", True) and is_shown}, kind)
            for data, given, kind in picture.layers(name)
        ]
    return made


def drawable(node: Node) -> Iterator[Image]:
    """Yield the images that can be shown: two or more dimensions, of numbers, not empty."""
    for image in im.images(node):
        array = find(node, image.levels[0])
        if not isinstance(array, ArrayIndex) or len(array.shape) < 2 or 0 in array.shape:
            continue
        if isinstance(array.data_type, str) and array.data_type not in ("string", "bytes"):
            yield image


@dataclass
class Picture:
    """One image of an index, and its arrays."""

    node: Node
    image: Image
    open_path: Callable[[str], Any]

    @cached_property
    def meaning(self) -> Meaning:
        return meaning_of(self.node, self.image)

    @cached_property
    def paths(self) -> list[str]:
        """Paths of the levels, as far as they have the axes of the first."""
        arrays = ((path, find(self.node, path)) for path in self.image.levels)
        ndim = len(self.image.axes)
        return [p for p, a in arrays if isinstance(a, ArrayIndex) and len(a.shape) == ndim]

    @cached_property
    def array(self) -> ArrayIndex:
        """The full resolution."""
        return self._array(0)

    def _array(self, number: int) -> ArrayIndex:
        found = find(self.node, self.paths[number])
        if not isinstance(found, ArrayIndex):
            raise UnsupportedError(f"{self.paths[number]}: found a group, expected an array")
        return found

    @cached_property
    def bands(self) -> int | None:
        """The number of the axis c, unless it is one of the two of the picture."""
        names = self.meaning.names
        axis = names.index("c") if "c" in names else None
        return axis if axis is not None and axis < len(names) - 2 else None

    @property
    def count(self) -> int:
        """The number of bands."""
        return 1 if self.bands is None else self.array.shape[self.bands]

    @cached_property
    def display(self) -> Display:
        """How the image is drawn: as its file states, or its bands as channels."""
        known = self.meaning.display or Display(model="channels")
        if known["model"] != "channels" or self.count > 1 or known.get("channels"):
            return known
        return cast("Display", {**known, "model": "grey", "bands": [0]})

    @cached_property
    def is_labels(self) -> bool:
        """Whether samples are numbers of objects: OME-Zarr's labels."""
        ome = self.image.attributes.get("ome")
        stated = ome if isinstance(ome, Mapping) else self.image.attributes
        is_named = "image-label" in stated or "labels" in self.image.path.split("/")[:-1]
        return is_named and str(self.array.data_type).lstrip("u").startswith("int")

    def layers(self, name: str) -> list[LayerData]:
        """Return the layers of this image, called `name` and the names of channels."""
        if self.is_labels:
            return [self._labels(name)]
        model = self.display["model"]
        if model == "palette":
            return [self._indexed(name), *self._mask(name)]
        if model in ("rgb", "cmyk", "ycbcr") or "alpha" in self.display:
            needed = painting.bands_needed(self.display, self.count)
            others = [band for band in range(self.count) if band not in needed]
            hidden = self._split(name, others[:MOST_CHANNELS], is_visible=False)
            return [self._painted(name), *hidden]
        if model == "channels" and (self.count <= MOST_CHANNELS or self._names):
            return [*self._split(name, range(self.count)), *self._mask(name)]
        if model == "channels":
            return [self._whole(name), *self._mask(name)]
        band = next((b for b in self.display.get("bands", [0]) if b < self.count), 0)
        others = [b for b in range(self.count) if b != band and b < MOST_CHANNELS]
        hidden = self._split(name, others, is_visible=False)
        return [self._grey(name, band), *hidden, *self._mask(name)]

    # layers

    def _grey(self, name: str, band: int) -> LayerData:
        is_inverted = self.display.get("inverted", False)
        given = self._given(name, contrast_limits=self._limits(band))
        given["colormap"] = "gray_r" if is_inverted else "gray"
        return self._values(band), given, "image"

    def _split(
        self, name: str, bands: Sequence[int], *, is_visible: bool = True
    ) -> list[LayerData]:
        """Return one layer per band."""
        listed: dict[int, Channel] = {c["band"]: c for c in self.display.get("channels", ())}
        found: list[LayerData] = []
        for band in bands:
            own = listed.get(band, Channel(band=band))
            label = own.get("label") or self.meaning.band(band).name
            label = label or (str(band) if self.count > 1 else "")
            colour = own.get("color") or self._colour(band, is_visible=is_visible)
            called = f"{name}: {label}" if label else name
            given = self._given(called, contrast_limits=self._limits(band))
            given |= {
                "blending": "additive",
                "colormap": colormap(colour, is_inverted=own.get("inverted", False)),
                "visible": is_visible and own.get("active", True),
            }
            found.append((self._values(band), given, "image"))
        return found

    def _colour(self, band: int, *, is_visible: bool) -> str:
        """Return the colour of a channel that states none, as OME viewers choose it."""
        return COLORS[band % len(COLORS)] if is_visible and self.count > 1 else "FFFFFF"

    def _whole(self, name: str) -> LayerData:
        """Return all bands as one layer, whose axis c is a slider."""
        limits = self._limits(self.count // 2)
        given = self._given(name, contrast_limits=limits, is_whole=True)
        return self._values(None), given, "image"

    def _indexed(self, name: str) -> LayerData:
        """Return a palette image: its numbers with a colormap, or its colours."""
        table = without_nodata(painting.palette(self.display), self.meaning.nodata)
        if table is None:
            return self._grey(name, 0)
        first, colours = table
        bands = self.display.get("bands", [0])
        band = bands[0] if bands and bands[0] < self.count else 0
        if len(colours) > MOST_COLOURS:
            paint = partial(looked_up, first=first, colours=colours.astype(np.uint8))
            return self._coloured([band], paint, 4), self._given(name, rgb=True), "image"
        given = self._given(name, contrast_limits=(first - 0.5, first + len(colours) - 0.5))
        given["colormap"] = {
            "name": f"{name} palette",
            "colors": colours / 255,
            "controls": np.linspace(0, 1, len(colours) + 1),
            "interpolation": "zero",
        }
        return self._values(band), given, "image"

    def _painted(self, name: str) -> LayerData:
        """Return an image of colours."""
        display, needed = self.display, painting.bands_needed(self.display, self.count)
        given = self._given(name, rgb=True)
        mask = self._mask_of_levels()
        has_holes = self.meaning.nodata is not None or mask is not None
        if self._is_plain_rgb() and not has_holes:
            return self._coloured(needed, None, len(needed)), given, "image"
        limits = {band: self._limits(band) for band in needed}
        if not any(painting.stated_limits(display, b, self.array.data_type) for b in needed):
            # the bands of a picture share their limits
            shared = min(low for low, _ in limits.values()), max(h for _, h in limits.values())
            limits = dict.fromkeys(needed, shared)
        samples = 4 if has_holes or "alpha" in display else 3
        paint = partial(
            painted,
            bands=needed,
            display=display,
            limits=limits,
            nodata=self.meaning.nodata,
            samples=samples,
        )
        return self._coloured(needed, paint, samples, mask), given, "image"

    def _is_plain_rgb(self) -> bool:
        """Return whether samples are red, green, blue and opacity as napari draws them."""
        display, alpha = self.display, self.display.get("alpha")
        shown = display.get("bands", [0, 1, 2])
        is_plain = display["model"] == "rgb" and shown == [0, 1, 2] and self.count >= 3
        if alpha is not None:
            is_plain = is_plain and alpha["band"] == 3 and not alpha["associated"]
            is_plain = is_plain and alpha["range"] == [0, 255]
        ranges = display.get("range") or [[0, 255]]
        is_plain = is_plain and all(list(pair) == [0, 255] for pair in ranges)
        return is_plain and self.array.data_type == "uint8" and not display.get("inverted")

    def _labels(self, name: str) -> LayerData:
        given = self._given(name)
        colours = label_colours(self.image.attributes)
        if colours:
            given["colormap"] = colours
        return self._values(0), given, "labels"

    def _mask(self, name: str) -> list[LayerData]:
        """Return the mask of pixels that are not valid, as a hidden layer; none without a mask."""
        found = self._mask_of_levels()
        if found is None:
            return []
        names = ("y", "x")
        given = self._given(f"{name}: mask", names=names, contrast_limits=(0, 1))
        given["visible"] = False
        return [(levels_or_one(found), given, "image")]

    # arrays

    def _values(self, band: int | None) -> Any:
        """Return a band of every level, or all bands, as napari can show it."""
        found = []
        for path in self.paths:
            array = self.open_path(path)
            if self.bands is not None and band is not None:
                array = Bands(array, self.bands, [band], is_single=True)
            found.append(self._shown(lazy(array)))
        return levels_or_one(found)

    def _shown(self, values: Any) -> Any:
        """Return samples of a type that napari shows; missing floats are NaN, not drawn."""
        nodata = self.meaning.nodata
        if values.dtype.kind == "c":
            return abs(values)
        if values.dtype.kind not in "biuf":  # bfloat16 and smaller
            values = values.astype(np.float32)
        if values.dtype.kind == "f" and nodata is not None and not math.isnan(nodata):
            missing = np.asarray(nodata).astype(values.dtype)
            return values.map_blocks(_as_nan, missing, dtype=values.dtype)
        return values

    def _coloured(
        self,
        bands: Sequence[int],
        paint: Callable[..., Array] | None,
        samples: int,
        masks: Sequence[Any] | None = None,
    ) -> Any:
        """Return every level with colours along a last axis.

        Parameters:
            bands: the bands that the colours are made of.
            paint: makes colours of (…, band); None if the bands are the colours.
            samples: how many it makes.
            masks: which pixels are valid, (y, x) of every level.
        """
        found = []
        for number, path in enumerate(self.paths):
            own = lazy(Bands(self.open_path(path), self.bands, bands))
            if paint is not None:
                chunks = (*own.chunks[:-1], (samples,))
                valid = [] if masks is None else [spread(masks[number], own)]
                meta = np.empty((0,) * own.ndim, np.uint8)
                own = dask_array().map_blocks(
                    paint, own, *valid, dtype=np.uint8, chunks=chunks, meta=meta
                )
            found.append(own)
        return levels_or_one(found)

    def _mask_of_levels(self) -> list[Any] | None:
        """Return which pixels of every level are valid; None where a level has no such array."""
        stated = self.display.get("mask")
        if not isinstance(stated, Mapping) or not isinstance(stated.get("path"), str):
            return None
        names, valid = self.meaning.names, stated.get("valid", 255)
        if names[-2:] != ("y", "x") or not isinstance(valid, int | float):
            return None
        found = []
        for path in self.paths:
            place = im.join(path.rpartition("/")[0], stated["path"])
            mask, array = find(self.node, place), find(self.node, path)
            if not isinstance(mask, ArrayIndex) or not isinstance(array, ArrayIndex):
                return None
            if mask.shape != array.shape[-2:]:
                return None
            found.append(lazy(self.open_path(place)) == valid)
        return found

    # how they are drawn

    @cached_property
    def _names(self) -> bool:
        """Whether all bands are named by their file."""
        stated = {c["band"] for c in self.display.get("channels", ()) if "label" in c}
        return all(b in stated or self.meaning.band(b).name for b in range(self.count))

    def _limits(self, band: int) -> Limits:
        """Return the values that are drawn darkest and brightest, found from samples if need be."""
        found = painting.stated_limits(self.display, band, self.array.data_type)
        if found is None:
            sample = self._sample
            own = None if sample is None else sample[min(band, len(sample) - 1)]
            found = None if own is None else windows.window(own, self.meaning.nodata)
        low, high = found if found is not None else type_range(self.array.data_type)
        return (low, high) if high > low else (low, low + 1)

    @cached_property
    def _sample(self) -> Array | None:
        """Samples (band, …) of a plane of the coarsest level; None if they cannot be read."""
        array = self._array(len(self.paths) - 1)
        box = [slice(n // 2, n // 2 + 1) for n in array.shape]
        plane = range(len(box) - 2, len(box))
        for axis in plane:
            box[axis] = slice(0, array.shape[axis])
        if self.bands is not None:
            box[self.bands] = slice(0, array.shape[self.bands])
        if not is_within(BUDGET, array, box):
            for axis in plane:
                middle = array.shape[axis] // 2
                box[axis] = slice(
                    max(0, middle - WINDOW // 2), min(array.shape[axis], middle + WINDOW // 2)
                )
        if not is_within(BUDGET, array, box):
            return None
        try:
            data = np.asarray(self.open_path(self.paths[-1])[tuple(box)])
        except AnychunkError:
            return None
        data = abs(data) if data.dtype.kind == "c" else data
        data = data if data.dtype.kind in "biuf" else data.astype(np.float32)
        return data[np.newaxis] if self.bands is None else np.moveaxis(data, self.bands, 0)

    # where they lie

    def _given(
        self,
        name: str,
        *,
        is_whole: bool = False,
        names: Sequence[str] | None = None,
        **given: Any,
    ) -> dict[str, Any]:
        """Return the keyword arguments that all layers of this image share, and others.

        Parameters:
            name: of the layer.
            is_whole: whether the layer has an axis of bands.
            names: its axes, if they are not those of the image without the bands.
            given: further ones.
        """
        if names is None:
            names = [n for i, n in enumerate(self.meaning.names) if is_whole or i != self.bands]
        about = {"source": self.node.attributes.get("anychunk", {}), "image": self.image.path}
        place = self.meaning.place
        if place.crs is not None:
            about["crs"] = place.crs.code or place.crs.wkt
        if self.meaning.tags:
            about["tags"] = dict(self.meaning.tags)
        return {
            "name": name,
            "metadata": {"anychunk": about},
            **placement(self.node, self.image, self.meaning, names),
            **given,
        }


def placement(node: Node, image: Image, meaning: Meaning, names: Sequence[str]) -> dict[str, Any]:
    """Return axis labels, units, and scale and translation, or an affine where there is rotation.

    Rows of georeferenced images go south: napari's y axis points down, and is -y of the map.

    Parameters:
        node: the index.
        image: one of its images.
        meaning: what its samples mean.
        names: the axes of the layer, in order.
    """
    levels = levels_of(node, image)
    scale, origin = scale_and_translation(meaning, levels[0], levels[0].image.shape)
    steps = dict(zip(meaning.names, scale, strict=True))
    starts = dict(zip(meaning.names, origin, strict=True))
    matrix = np.diag([*(steps.get(n, 1.0) for n in names), 1.0])
    matrix[:-1, -1] = [starts.get(n, 0.0) for n in names]
    turned = map_matrix(meaning, names) if meaning.place.transform else space_matrix(meaning, names)
    if turned is not None:
        matrix = turned(matrix)
    found: dict[str, Any] = {"axis_labels": tuple(names)}
    known = units(meaning, names)
    if any(unit != PIXEL for unit in known):
        found["units"] = known
    linear = matrix[:-1, :-1]
    is_straight = np.count_nonzero(linear - np.diag(np.diagonal(linear))) == 0
    if is_straight and (np.diagonal(linear) > 0).all():
        return found | {"scale": np.diagonal(linear).copy(), "translate": matrix[:-1, -1].copy()}
    return found | {"affine": matrix}


def map_matrix(meaning: Meaning, names: Sequence[str]) -> Callable[[Array], Array] | None:
    """Return what puts the georeference of an image into a matrix of its axes."""
    transform = meaning.place.transform
    if transform is None or not {"x", "y"} <= set(names):
        return None
    a, b, c, d, e, f = transform
    y, x = names.index("y"), names.index("x")

    def put(matrix: Array) -> Array:
        matrix[[[y], [x]], [[y, x]]] = [[-e, -d], [b, a]]
        # of the centre of the first pixel
        matrix[y, -1], matrix[x, -1] = -((d + e) / 2 + f), (a + b) / 2 + c
        return matrix

    return put


def space_matrix(meaning: Meaning, names: Sequence[str]) -> Callable[[Array], Array] | None:
    """Return what puts a rotation in space into a matrix of axes; None if there is none."""
    space = meaning.space
    present = [n for n in "xyz" if n in names]
    if space is None or len(present) < 2:
        return None
    affine = np.asarray(space.affine, np.float64)
    linear = affine[:3, :3]
    off = linear - np.diag(np.diagonal(linear))
    if np.abs(off).max() <= 1e-6 * max(np.abs(linear).max(), 1e-300):
        return None
    rows = ["xyz".index(n) for n in present]
    places = [names.index(n) for n in present]

    def put(matrix: Array) -> Array:
        matrix[np.ix_(places, places)] = linear[np.ix_(rows, rows)]
        matrix[places, -1] = affine[rows, 3]
        return matrix

    # a plane of a tilted volume may collapse
    part = linear[np.ix_(rows, rows)]
    return put if np.isfinite(part).all() and abs(np.linalg.det(part)) > 0 else None


def units(meaning: Meaning, names: Sequence[str]) -> tuple[str, ...]:
    """Return the unit of every axis; `pixel` where none is known."""
    known = {axis.name: axis.unit for axis in meaning.axes if axis.scale is not None}
    crs = meaning.place.crs
    if meaning.place.transform is not None and crs is not None:
        unit = "degree" if is_geographic(crs) else MAP_UNITS.get(linear_unit(crs) or "")
        known |= {"x": unit, "y": unit}
    return tuple(unit if (unit := known.get(name)) in UNITS and unit else PIXEL for name in names)


# pieces


class Bands:
    """Some bands of an array, along its last axis; or one band without that axis.

    Not a selection of a dask array, which would list every chunk of an array of any size.
    """

    def __init__(
        self, array: Any, axis: int | None, bands: Sequence[int], *, is_single: bool = False
    ) -> None:
        """Choose bands.

        Parameters:
            array: a zarr array.
            axis: its axis of bands; None if it is one band.
            bands: their numbers.
            is_single: whether the result has no axis of bands.
        """
        self.array, self.axis, self.bands, self.is_single = array, axis, [*bands], is_single
        place = [n for i, n in enumerate(array.shape) if i != axis]
        chunks = [n for i, n in enumerate(array.chunks) if i != axis]
        self.shape = tuple(place) if is_single else (*place, len(self.bands))
        self.chunks = tuple(chunks) if is_single else (*chunks, len(self.bands))
        self.dtype, self.ndim = array.dtype, len(self.shape)

    def __getitem__(self, selection: Any) -> Array:
        """Read a selection of slices and integers."""
        given = selection if isinstance(selection, tuple) else (selection,)
        given = (*given, *[slice(None)] * (self.ndim - len(given)))
        if self.is_single:
            given = (*given, 0)
        parts = [part if isinstance(part, slice) else slice(part, part + 1) for part in given]
        bands, first = self.bands[parts.pop()], min(self.bands)
        if self.axis is None:
            data = np.asarray(self.array[tuple(parts)])[..., np.newaxis]
        else:
            # bands lie close together, and those of pictures in one chunk
            first, last = min(bands, default=0), max(bands, default=-1)
            parts.insert(self.axis, slice(first, last + 1))
            data = np.moveaxis(np.asarray(self.array[tuple(parts)]), self.axis, -1)
            data = data[..., [band - first for band in bands]]
        return data[tuple(slice(None) if isinstance(part, slice) else 0 for part in given)]


def lazy(array: Any) -> Any:
    """Return a zarr array, or bands of one, as a dask array; its chunks are the file's, or several.

    Raises `LimitError` if there are so many that dask could not list those of one axis.
    """
    is_last = isinstance(array, Bands) and not array.is_single
    sides = 1 if is_last else 0
    shape, chunk = (given[: array.ndim - sides] for given in (array.shape, array.chunks))
    chunks = several_chunks(shape, chunk, array.dtype.itemsize)
    most = max((-(-n // side) for n, side in zip(shape, chunks, strict=True)), default=0)
    if most > MOST_ALONG:
        raise LimitError(f"{most} chunks along an axis are over the limit of {MOST_ALONG} of dask")
    chunks = (*chunks, array.shape[-1]) if is_last else chunks
    meta = np.empty((0,) * array.ndim, array.dtype)
    # not named by its content, which would have to be hashed
    return dask_array().from_array(array, chunks=chunks, name=False, meta=meta)


def spread(mask: Any, like: Any) -> Any:
    """Return a mask (y, x) with the axes and chunks of an image (…, y, x, samples)."""
    shape = (*like.shape[:-1], 1)
    found = dask_array().broadcast_to(mask[..., np.newaxis], shape)
    return found.rechunk((*like.chunks[:-1], (1,)))


def dask_array() -> Any:
    """Return the module of dask's arrays, which is optional."""
    try:
        import dask.array
    except ImportError as e:
        raise MissingDependencyError(
            'layers of napari need dask; install it with: pip install "anychunk[napari]"'
        ) from e
    return dask.array


def several_chunks(shape: Sequence[int], chunk: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return a multiple of a chunk along the last two axes.

    The least one of `LEAST_BYTES`, or with which a plane has at most `MOST_BLOCKS`, as far as they
    are not longer than `MOST_BYTES`.
    """
    found = [max(1, min(n, side)) for n, side in zip(shape, chunk, strict=True)]
    plane = [axis for axis in range(len(found)) if axis >= len(found) - 2]

    def is_enough() -> bool:
        nbytes = math.prod(found) * itemsize
        blocks = math.prod(-(-shape[axis] // found[axis]) for axis in plane)
        return nbytes >= LEAST_BYTES and (blocks <= MOST_BLOCKS or 2 * nbytes > MOST_BYTES)

    while not is_enough():
        growing = [axis for axis in plane if found[axis] < shape[axis]]
        if not growing:
            break
        axis = min(growing, key=lambda i: found[i])
        found[axis] = min(2 * found[axis], shape[axis])
    return tuple(found)


def levels_or_one(levels: list[Any]) -> Any:
    """Return levels as napari takes them: a list if there are several that become smaller."""
    kept = levels[:1]
    for level in levels[1:]:
        if math.prod(level.shape) < math.prod(kept[-1].shape):
            kept.append(level)
    return kept if len(kept) > 1 else kept[0]


def _as_nan(block: Array, missing: Array) -> Array:
    return np.where(block == missing, block.dtype.type(np.nan), block)


def painted(
    block: Array,
    mask: Array | None = None,
    *,
    bands: Sequence[int],
    display: Display,
    limits: Mapping[int, Limits],
    nodata: float | None,
    samples: int,
) -> npt.NDArray[np.uint8]:
    """Return samples (…, x, band) as colours (…, x, 3 or 4).

    Parameters:
        block: the samples.
        mask: which pixels are valid, (…, x, 1).
        bands: the numbers of the bands in `block`.
        display: how they are drawn.
        limits: the samples that are drawn darkest and brightest, by number of the band.
        nodata: the value of missing samples.
        samples: 3, or 4 with opacity.
    """
    wide = block.astype(np.float64)
    if nodata is not None:
        wide = np.where(block == np.asarray(nodata).astype(block.dtype), np.nan, wide)
    flat = wide.reshape(-1, *block.shape[-2:])  # colours do not depend on neighbours
    planes = {b: flat[..., i].reshape(-1, block.shape[-2]) for i, b in enumerate(bands)}
    colours = painting.paint(planes, display, dict(limits))
    if colours.ndim == 2:
        colours = np.repeat(colours[..., np.newaxis], 3, axis=2)
    alpha = display.get("alpha")
    hidden = np.logical_and.reduce(
        [np.isnan(p) for b, p in planes.items() if alpha is None or b != alpha["band"]]
    )
    if mask is not None:
        hidden = hidden | ~mask.reshape(hidden.shape)
    if samples == 4:
        opacity = colours[..., 3] if colours.shape[2] == 4 else np.full(hidden.shape, 255, np.uint8)
        colours = np.dstack([colours[..., :3], np.where(hidden, 0, opacity).astype(np.uint8)])
    found: npt.NDArray[np.uint8] = colours.reshape(*block.shape[:-1], samples)
    return found


def looked_up(block: Array, *, first: int, colours: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return numbers of colours (…, 1) as colours (…, 4)."""
    number = np.clip(block[..., 0].astype(np.int64) - first, 0, len(colours) - 1)
    found: npt.NDArray[np.uint8] = colours[number]
    return found


def colormap(colour: str, *, is_inverted: bool) -> Any:
    """Return a colormap of napari from black to a colour given as RRGGBB, or back."""
    if colour.upper() == "FFFFFF":
        return "gray_r" if is_inverted else "gray"
    rgb = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    ends = [[0.0, 0.0, 0.0, 1.0], [*rgb, 1.0]]
    name = f"#{colour.lower()}{' inverted' if is_inverted else ''}"
    return {"name": name, "colors": ends[::-1] if is_inverted else ends}


def label_colours(attributes: Mapping[str, Json]) -> dict[int | None, list[float]]:
    """Return the colours of labels that OME-Zarr states, by number; empty if it states none."""
    ome = attributes.get("ome")
    stated = (ome if isinstance(ome, Mapping) else attributes).get("image-label")
    listed = im.entries(stated.get("colors")) if isinstance(stated, Mapping) else ()
    found: dict[int | None, list[float]] = {}
    for entry in listed:
        rgba = im.entries(entry.get("rgba")) if isinstance(entry, Mapping) else ()
        value = entry.get("label-value") if isinstance(entry, Mapping) else None
        if len(rgba) == 4 and all(isinstance(n, int) for n in (value, *rgba)):
            found[value] = [min(max(n, 0), 255) / 255 for n in rgba]
    return {None: [0.0] * 4, **found} if found else {}
