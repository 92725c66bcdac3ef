"""Blocks of samples as colours, and colormaps of napari."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.metadata import painting
from anychunk.metadata.meaning import Display
from anychunk.metadata.painting import Limits
from anychunk.model import images as im
from anychunk.model.grid import Array
from anychunk.model.index import Json


def as_nan(block: Array, missing: Array) -> Array:
    """Return samples of floating point with NaN for missing ones."""
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
