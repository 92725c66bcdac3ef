"""Paint samples as colours by an image's `Display`; one formula per colour model. Pure.

All values in between are floats from 0 to 1, rounded once at the end. Alpha is straight, not
premultiplied.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from anychunk.metadata.meaning import Alpha, Display
from anychunk.metadata.ome import COLORS
from anychunk.model.grid import Array

type Limits = tuple[float, float]


def bands_needed(display: Display, count: int) -> list[int]:
    """Return the numbers of the bands that a picture is painted from, in increasing order.

    Parameters:
        display: how the image is drawn.
        count: how many bands it has; numbers beyond are left out.
    """
    needed = set(display.get("bands", [0]))
    if display["model"] == "channels":
        listed = display.get("channels") or [{"band": b} for b in range(count)]
        needed = {c["band"] for c in listed if c.get("active", True)}
    if "alpha" in display:
        needed.add(display["alpha"]["band"])
    return sorted(band for band in needed if 0 <= band < count) or [0]


def paint(planes: dict[int, Array], display: Display, limits: dict[int, Limits]) -> Array:
    """Return the picture as bytes: (y, x) for grey, (y, x, 3) for colour, (y, x, 4) with alpha.

    Parameters:
        planes: samples (y, x) by number of the band; NaN where there is no value.
        display: how the image is drawn; not a palette.
        limits: the samples that are drawn darkest and brightest, by number of the band.
    """
    model, alpha = display["model"], display.get("alpha")
    if model == "channels":
        colour = _composite(planes, display, limits)
    else:
        shown = [band for band in display.get("bands", [0]) if band in planes] or [*planes][:1]
        values = [_unit(planes[band], limits[band]) for band in shown]
        if display.get("inverted"):
            values = [1 - value for value in values]
        colour = _by_model(model, values)
    if alpha is not None and alpha["band"] in planes:
        opacity = _opacity(planes[alpha["band"]], alpha)
        if alpha["associated"]:
            colour = np.where(opacity > 0, np.clip(colour / np.maximum(opacity, 1e-9), 0, 1), 0)
        colour = np.stack([*(colour if len(colour) == 3 else [colour[0]] * 3), opacity])
    # halves up, as in the page; not rint, which rounds them to even
    pixels = np.floor(np.nan_to_num(colour) * 255 + 0.5).astype(np.uint8)
    return pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))


def _by_model(model: str, values: list[Array]) -> Array:
    """Return (1 or 3, y, x) of bands from 0 to 1."""
    if model == "cmyk" and len(values) >= 4:
        cyan, magenta, yellow, black = values[:4]
        return np.stack([(1 - ink) * (1 - black) for ink in (cyan, magenta, yellow)])
    if model == "ycbcr" and len(values) >= 3:
        # ITU-R BT.601, full range
        luma, blue, red = values[0], values[1] - 128 / 255, values[2] - 128 / 255
        green = luma - 0.344136 * blue - 0.714136 * red
        return np.clip(np.stack([luma + 1.402 * red, green, luma + 1.772 * blue]), 0, 1)
    return np.stack(values[:3] if len(values) >= 3 else values[:1])


def _composite(planes: dict[int, Array], display: Display, limits: dict[int, Limits]) -> Array:
    """Return the sum of the active channels, each in its colour."""
    listed = display.get("channels") or [{"band": band} for band in planes]
    shown = [c for c in listed if c.get("active", True) and c["band"] in planes]
    if len(shown) == 1 and shown[0].get("color", "FFFFFF").upper() == "FFFFFF":
        return _unit(planes[shown[0]["band"]], limits[shown[0]["band"]])[np.newaxis]
    first = next(iter(planes.values()))
    found = np.zeros((3, *first.shape))
    for channel in shown:
        band = channel["band"]
        value = np.nan_to_num(_unit(planes[band], limits[band]))
        if channel.get("inverted"):
            value = 1 - value
        color = channel.get("color") or COLORS[band % len(COLORS)]
        for i in range(3):
            found[i] += value * (int(color[2 * i : 2 * i + 2], 16) / 255)
    return np.clip(found, 0, 1)


def _unit(values: Array, limits: Limits) -> Array:
    low, high = limits
    return np.clip((values - low) / ((high - low) or 1.0), 0, 1)


def _opacity(values: Array, alpha: Alpha) -> Array:
    low, high = alpha["range"]
    return np.nan_to_num(_unit(values, (low, high)))


def upright(pixels: Array, orientation: int) -> Array:
    """Return a picture (y, x, …) turned and mirrored as the TIFF tag Orientation asks for."""
    # TIFF 6.0, page 36: the sides of the picture where the first row and column are
    turned = {
        2: lambda: pixels[:, ::-1],
        3: lambda: pixels[::-1, ::-1],
        4: lambda: pixels[::-1],
        5: lambda: pixels.swapaxes(0, 1),
        6: lambda: np.rot90(pixels, -1),
        7: lambda: pixels[::-1, ::-1].swapaxes(0, 1),
        8: lambda: np.rot90(pixels),
    }.get(orientation)
    return pixels if turned is None else np.ascontiguousarray(turned())


def palette(display: Display | None) -> tuple[int, Array] | None:
    """Return the first value of a palette, and its colours as (n, 4) values from 0 to 255."""
    described = display.get("palette") if display is not None else None
    if display is None or display["model"] != "palette" or not isinstance(described, dict):
        return None
    try:
        colours = np.asarray(described.get("colors"), np.float64)
        first = int(described.get("first", 0))
    except (TypeError, ValueError):  # a saved index may contain any attributes
        return None
    if colours.ndim != 2 or colours.shape[1] not in (3, 4) or not len(colours):
        return None
    if not np.isfinite(colours).all():
        return None
    if colours.shape[1] == 3:
        colours = np.hstack([colours, np.full((len(colours), 1), 255.0)])
    return first, np.clip(colours, 0, 255)


def stated_limits(display: Display, band: int, data_type: Any) -> Limits | None:
    """Return the limits of a band that the file states, or that follow from its type.

    Photographs of 8 bits are never stretched. None: the limits have to be found from the samples.
    """
    for channel in display.get("channels", ()):
        if channel["band"] == band and _is_limits(channel.get("window")):
            low, high = channel["window"]
            return float(low), float(high)
    ranges = display.get("range") or []
    bands = display.get("bands", [0])
    number = bands.index(band) if band in bands else 0
    own: Any = ranges[min(number, len(ranges) - 1)] if ranges else None
    if _is_limits(own):
        return float(own[0]), float(own[1])
    return {"uint8": (0.0, 255.0), "bool": (0.0, 1.0)}.get(str(data_type))


def _is_limits(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and len(value) == 2
        and all(isinstance(n, int | float) for n in value)
    )
