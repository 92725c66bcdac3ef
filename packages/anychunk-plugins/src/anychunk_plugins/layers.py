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
from typing import Any

import dask.array as da
import numpy as np

from anychunk.errors import AnychunkError, FormatWarning, UnsupportedError
from anychunk.metadata import drawing, painting
from anychunk.metadata.cf import type_range
from anychunk.metadata.drawing import drawn
from anychunk.metadata.meaning import Channel, Display, Meaning
from anychunk.metadata.ome import COLORS
from anychunk.metadata.painting import Limits
from anychunk.metadata.reading import meaning_of
from anychunk.model import images as im
from anychunk.model.grid import Array
from anychunk.model.images import Image
from anychunk.model.index import ArrayIndex, Node, find
from anychunk.notebooks import Budget, is_within
from anychunk.thumbnail import without_nodata
from anychunk_plugins.colours import as_nan, colormap, label_colours, looked_up, painted
from anychunk_plugins.lazy_arrays import Bands, lazy, levels_or_one, spread
from anychunk_plugins.placement import placement

type LayerData = tuple[Any, dict[str, Any], str]
"""Data, keyword arguments and kind of a layer, as napari takes them."""

MOST_IMAGES = 64
"""Images of one file that become layers."""
MOST_CHANNELS = 16
"""Bands that become layers of their own; more are an axis with a slider, unless they have names."""
MOST_COLOURS = 256
"""Colours of a palette that a colormap of napari shows exactly."""
WINDOW = 1024
"""Sides of the part of a level that limits are found from, if reading all of it is too much."""
BUDGET = Budget(decoded=64 << 20, stored=16 << 20, stored_remote=4 << 20)
"""What may be read to find limits."""


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
        """How the image is drawn."""
        return drawn(self.meaning, self.count)

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
            return [self._painted(name), *self._hidden(name, others)]
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

    def _hidden(self, name: str, bands: Sequence[int]) -> list[LayerData]:
        """Return the bands that no colour is made of; many of them are an axis of one layer."""
        if len(bands) <= MOST_CHANNELS or self._names:
            return self._split(name, bands, is_visible=False)
        data, given, kind = self._whole(f"{name}: bands")
        return [(data, given | {"visible": False}, kind)]

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
        is_stated = any(painting.stated_limits(display, b, self.array.data_type) for b in needed)
        if display["model"] in ("cmyk", "ycbcr") and not is_stated:
            # these are mixed from their bands, which therefore share their limits
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
            return values.map_blocks(as_nan, missing, dtype=values.dtype)
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
                own = da.map_blocks(paint, own, *valid, dtype=np.uint8, chunks=chunks, meta=meta)
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
            found = None if own is None else drawing.window(own, self.meaning.nodata)
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
