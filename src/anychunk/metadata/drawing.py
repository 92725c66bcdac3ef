"""How samples are drawn: builders of `Display`, whichever format states it.

`range` is stated only where a file or its type says what is black and what is white: photographs of
up to 8 bits, and samples of fewer bits than their type has. Where it is missing, whoever draws the
image finds limits from samples (`band_window`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.metadata.meaning import Alpha, Channel, Display, Meaning

type Range = tuple[float, float]
"""The values of black and white."""
OPAQUE = 255
COLOURS = ("Red", "Green", "Blue")
"""GDAL's names of the colours of bands."""
ORIENTATIONS = range(1, 9)
"""Values of the TIFF tag Orientation; 1 is the usual one, rows from the top."""


def drawn(meaning: Meaning, count: int) -> Display:
    """Return how an image is drawn, also if its file does not state it.

    Bands without colours are then red, green and blue if there are at least three of them, and
    otherwise the first is grey, as in QGIS and rio-tiler. Colours are added up only where a file
    lists channels, as those of microscopes do.

    Parameters:
        meaning: of the image.
        count: how many bands it has.
    """
    display = meaning.display
    if display is not None and (display["model"] != "channels" or display.get("channels")):
        return display
    names = [meaning.band(band).interpretation for band in range(count)]
    opacity = None if display is None else display.get("alpha")
    free = [b for b in range(count) if opacity is None or b != opacity["band"]] or [0]
    if all(name in names for name in COLOURS):
        shown = [names.index(name) for name in COLOURS]
    else:
        shown = free[:3] if len(free) >= 3 else free[:1]
    found = Display(model="channels") if display is None else display.copy()
    found["model"], found["bands"] = "rgb" if len(shown) == 3 else "grey", shown
    return found


def grey(*, limits: Range | None = None, is_inverted: bool = False) -> Display:
    """Return how the first band is drawn in shades of grey.

    Parameters:
        limits: its values of black and white, if stated.
        is_inverted: whether the lower limit is white.
    """
    found = Display(model="grey", bands=[0])
    if is_inverted:
        found["inverted"] = True
    return _with_range(found, limits)


def rgb(*, limits: Range | None = None) -> Display:
    """Return how three bands are drawn as red, green and blue."""
    return _with_range(Display(model="rgb", bands=[0, 1, 2]), limits)


def cmyk(*, limits: Range | None = None) -> Display:
    """Return how four bands are drawn as inks: cyan, magenta, yellow, black; 0 is no ink."""
    return _with_range(Display(model="cmyk", bands=[0, 1, 2, 3]), limits)


def ycbcr(*, limits: Range | None = None) -> Display:
    """Return how bands of luma and two colour differences are drawn, where samples are stored so.

    Not for samples that the codec turns into RGB.
    """
    return _with_range(Display(model="ycbcr", bands=[0, 1, 2]), limits)


def indexed(colors: Sequence[Sequence[int]], *, first: int = 0) -> Display:
    """Return how a band of numbers of colours is drawn.

    Parameters:
        colors: red, green, blue, and alpha unless the colour is opaque, of 0 to 255 each.
        first: the value that the first colour belongs to.
    """
    table = [[*map(int, color[:4]), *[OPAQUE] * (4 - len(color))] for color in colors]
    return Display(model="palette", bands=[0], palette={"first": first, "colors": table})


def channels(listed: Sequence[Channel]) -> Display:
    """Return how bands are drawn as a sum of colours, one per channel."""
    return Display(model="channels", channels=list(listed))


def with_alpha(
    display: Display, band: int, *, limits: Range, is_associated: bool = False
) -> Display:
    """Return a display with a band of opacity.

    Parameters:
        display: the display; listed channels have no opacity, and are returned as they are.
        band: the band.
        limits: its values of transparent and opaque.
        is_associated: whether colours are multiplied by it already.
    """
    if display.get("channels"):
        return display
    found = display.copy()
    found["alpha"] = Alpha(band=band, associated=is_associated, range=list(limits))
    return found


def with_mask(display: Display | None, *, valid: int = OPAQUE) -> Display:
    """Return a display with the array `mask` of each level, which says which pixels are valid.

    Parameters:
        display: the display; None if nothing else is known.
        valid: its value for valid pixels.
    """
    found = Display(model="channels") if display is None else display.copy()
    found["mask"] = {"path": "mask", "valid": valid}
    return found


def with_orientation(display: Display, orientation: int) -> Display:
    """Return a display of an image that is to be turned or mirrored, by TIFF's Orientation."""
    if orientation == 1 or orientation not in ORIENTATIONS:
        return display
    found = display.copy()
    found["orientation"] = orientation
    return found


def limits_of(data_type: str, bits: int | None = None) -> Range | None:
    """Return the values of black and white that a type implies; None if it implies none.

    Parameters:
        data_type: Zarr's name of the type.
        bits: significant bits of a sample, if fewer than the type has.
    """
    if data_type == "bool":
        return 0, 1
    if not data_type.startswith("uint"):
        return None
    width = int(data_type[4:])
    bits = width if bits is None else min(bits, width)
    return (0, 2**bits - 1) if bits <= 8 or bits < width else None


def full_range(data_type: str, bits: int | None = None) -> Range:
    """Return the values of nothing and everything, of alpha for example: 0 to 1 for floats."""
    if data_type.startswith(("uint", "int")):
        width = int(data_type.lstrip("uint"))
        bits = width if bits is None else min(bits, width)
        return 0, 2 ** (bits - data_type.startswith("int")) - 1
    return 0, 1


def _with_range(display: Display, limits: Range | None) -> Display:
    if limits is not None:
        display["range"] = [list(limits)]
    return display


def is_categorical(display: Display | None) -> bool:
    """Return whether samples are numbers of colours or classes, whose mean means nothing."""
    return display is not None and display["model"] == "palette"


# Limits between which channels are drawn, where the file states none: found from samples.

PERCENTILES = (0.5, 99.5)
"""The percentiles of the samples that become black and white."""


def lacks_windows(meaning: Meaning, data_type: Any) -> bool:
    """Return whether the limits of an image's channels have to be found from its samples.

    Photographs of 8 bits are drawn from 0 to 255, and palettes as they are.
    """
    display = meaning.display or Display(model="channels")
    if "c" not in meaning.names or display["model"] not in ("grey", "channels", "rgb"):
        return False
    if data_type in ("uint8", "bool") or display.get("range"):
        return False
    listed = display.get("channels", [])
    return not listed or any("window" not in channel for channel in listed)


def window(values: npt.NDArray[Any], nodata: float | None) -> tuple[float, float] | None:
    """Return the limits for a sample of a channel's values; None if none of them is valid."""
    flat = values.reshape(-1)
    if flat.dtype.kind not in "biuf":
        return None
    is_valid = np.isfinite(flat)
    if nodata is not None:
        is_valid &= flat != np.asarray(nodata).astype(flat.dtype)
    valid = flat[is_valid]
    if not valid.size:
        return None
    low, high = np.percentile(valid.astype(np.float64), PERCENTILES)
    return (float(low), float(high)) if high > low else (float(low), float(low) + 1)


def with_windows(meaning: Meaning, windows: Sequence[tuple[float, float] | None]) -> Meaning:
    """Return a meaning whose channels have these limits, one per band, unless they state others."""
    display = drawn(meaning, len(windows))
    listed = {channel["band"]: channel for channel in display.get("channels", [])}
    channels: list[Channel] = []
    for band, limits in enumerate(windows):
        channel = listed.get(band, Channel(band=band)).copy()
        if limits is not None and "window" not in channel:
            channel["window"] = list(limits)
        channels.append(channel)
    found = display.copy()
    found["channels"] = channels
    return replace(meaning, display=found)
