"""Limits between which channels are drawn, where the file states none: found from samples."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from anychunk.metadata.drawing import drawn
from anychunk.metadata.meaning import Channel, Display, Meaning

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
