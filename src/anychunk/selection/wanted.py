"""What a caller wants of an image, checked as far as that is possible without the image."""

import math
import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anychunk.errors import OptionError
from anychunk.model.index import Json

type Window = tuple[tuple[int | None, int | None], tuple[int | None, int | None]]
"""(first row, row after the last), (first column, column after the last); None: the edge."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the caller wants of each image; None: everything."""

    bbox: tuple[float, float, float, float] | None = None
    """(xmin, ymin, xmax, ymax): every pixel that the box touches. Of longitudes, xmin may be larger
    than xmax."""
    bbox_crs: str | None = None
    """The CRS of `bbox`, x before y; None: that of the image. `lonlat`: degrees."""
    window: Window | None = None
    """Rows and columns of the full resolution."""
    bands: tuple[int | str, ...] | None = None
    """By number or name, in the order of the result."""
    level: int | str | None = None
    """The level that becomes the full resolution of the part."""
    time: int | str | None = None
    """A number or range (`2:5`) along t, a date (`2026-03`), or an interval (`2026-01/2026-03`)."""

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        return self == Selection()

    def json(self) -> dict[str, Json]:
        """Return what was asked for."""
        return {key: value for key, value in asdict(self).items() if value is not None}


def selection(
    *,
    bbox: Sequence[float] | None = None,
    bbox_crs: str | None = None,
    window: Sequence[Any] | None = None,
    bands: Sequence[int | str] | int | str | None = None,
    level: int | str | None = None,
    time: int | str | None = None,
) -> Selection:
    """Return a selection; raise `OptionError` if it is not one."""
    if bbox is not None and window is not None:
        raise OptionError("bbox and window: expected one of them")
    if bbox is None and bbox_crs is not None:
        raise OptionError("bbox_crs: there is no bbox")
    return Selection(
        bbox=None if bbox is None else _checked_box(bbox),
        bbox_crs=bbox_crs,
        window=None if window is None else _checked_window(window),
        bands=None if bands is None else _checked_bands(bands),
        level=level,
        time=time,
    )


def _checked_box(bbox: Sequence[float]) -> tuple[float, float, float, float]:
    try:
        xmin, ymin, xmax, ymax = (float(n) for n in bbox)
    except (TypeError, ValueError):
        raise OptionError(f"bbox {bbox!r}: expected xmin, ymin, xmax, ymax") from None
    if not all(math.isfinite(n) for n in (xmin, ymin, xmax, ymax)):
        raise OptionError(f"bbox {bbox!r}: expected finite numbers")
    # xmin > xmax: across the antimeridian, which only the CRS can tell
    if xmin == xmax or ymin >= ymax:
        raise OptionError(f"bbox {bbox!r} is empty: expected xmin < xmax and ymin < ymax")
    return xmin, ymin, xmax, ymax


def _checked_bands(bands: Sequence[int | str] | int | str) -> tuple[int | str, ...]:
    listed: Any = [bands] if isinstance(bands, int | str) else bands
    try:
        return tuple(_checked_band(band) for band in listed)
    except TypeError:
        raise OptionError(f"bands {bands!r}: expected numbers from 0, or names") from None


def _checked_band(band: Any) -> int | str:
    if isinstance(band, bool):
        raise TypeError(band)
    return band if isinstance(band, str) else operator.index(band)


def _checked_window(window: Sequence[Any]) -> Window:
    try:
        (top, bottom), (left, right) = (
            (side.start, side.stop) if isinstance(side, slice) else side for side in window
        )
        rows, columns = ((_edge(a), _edge(b)) for a, b in ((top, bottom), (left, right)))
    except (TypeError, ValueError):
        raise OptionError(
            f"window {window!r}: expected ((first row, end), (first column, end)), not negative"
        ) from None
    return rows, columns


def _edge(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or int(value) != value or value < 0:
        raise ValueError(value)
    return int(value)
