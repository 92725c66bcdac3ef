"""GDAL's `.aux.xml`: what its persistent auxiliary metadata states about an image.

Spec: https://gdal.org/user/pam.html; world files as GDAL reads them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from anychunk.errors import FormatError
from anychunk.metadata import drawing
from anychunk.metadata.crs import crs_from_wkt
from anychunk.metadata.meaning import Band, Crs, Meaning, Place, Transform

MOST_POINTS = 10_000
MOST_BANDS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class PamBand:
    """What is stated about one band; None and empty where nothing is."""

    nodata: str | None = None
    scale: float | None = None
    offset: float | None = None
    name: str | None = None
    unit: str | None = None
    interpretation: str | None = None
    colors: tuple[tuple[int, ...], ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Pam:
    """The contents of an `.aux.xml`."""

    crs: Crs | None = None
    transform: Transform | None = None
    gcps: tuple[tuple[float, float, float, float, float], ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    bands: Mapping[int, PamBand] = field(default_factory=dict)
    """By number, the first is 0."""


def read_pam(text: bytes, where: str) -> Pam:
    """Parse an `.aux.xml`; raises `FormatError` if it is not one.

    Parameters:
        text: the file.
        where: names it in messages.
    """
    try:
        root = ET.fromstring(text)  # noqa: S314 - expat bounds entities itself
    except (ET.ParseError, ValueError) as e:
        raise FormatError(f"{where}: not well-formed XML ({e})") from e
    if root.tag != "PAMDataset":
        raise FormatError(f"{where}: the root element is {root.tag[:40]!r}, expected PAMDataset")
    points = root.find("GCPList")
    crs = crs_from_wkt(root.findtext("SRS") or "")
    if crs is None and points is not None:
        crs = crs_from_wkt(points.get("Projection", "") or points.findtext("SRS") or "")
    bands = {}
    for element in root.iter("PAMRasterBand"):
        number = element.get("band", "")
        if number.isdecimal() and 0 < int(number) <= MOST_BANDS:
            bands[int(number) - 1] = _band(element)
    return Pam(
        crs=crs,
        transform=_transform(root.findtext("GeoTransform")),
        gcps=_gcps(points),
        tags=_tags(root),
        bands=bands,
    )


def _band(element: ET.Element) -> PamBand:
    return PamBand(
        nodata=element.findtext("NoDataValue"),
        scale=_number(element.findtext("Scale")),
        offset=_number(element.findtext("Offset")),
        name=element.findtext("Description") or None,
        unit=element.findtext("UnitType") or None,
        interpretation=element.findtext("ColorInterp") or None,
        colors=_colors(element.find("ColorTable")),
        tags=_tags(element),
    )


def _number(text: str | None) -> float | None:
    try:
        number = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _tags(element: ET.Element) -> dict[str, str]:
    """Return the items of the default domain."""
    return {
        item.get("key", ""): item.text or ""
        for metadata in element.findall("Metadata")
        if not metadata.get("domain")
        for item in metadata.findall("MDI")
    }


def _transform(text: str | None) -> Transform | None:
    numbers = [_number(part) for part in (text or "").split(",")]
    known = [number for number in numbers if number is not None]
    if len(numbers) != 6 or len(known) != 6:
        return None
    c, a, b, f, d, e = known
    return a, b, c, d, e, f


def _gcps(element: ET.Element | None) -> tuple[tuple[float, float, float, float, float], ...]:
    found = []
    for point in element.findall("GCP")[:MOST_POINTS] if element is not None else ():
        numbers = [_number(point.get(name, "0")) for name in ("Pixel", "Line", "X", "Y", "Z")]
        known = tuple(number for number in numbers if number is not None)
        if len(known) == 5:
            found.append(known)
    return tuple(found)


def _colors(element: ET.Element | None) -> tuple[tuple[int, ...], ...]:
    found = []
    for entry in element.findall("Entry")[: 1 << 16] if element is not None else ():
        values = [entry.get(f"c{n}", "255" if n == 4 else "0") for n in range(1, 5)]
        if not all(value.isdecimal() and int(value) <= 255 for value in values):
            return ()
        found.append(tuple(map(int, values)))
    return tuple(found)


def world_transform(text: bytes) -> Transform | None:
    """Return the transform of a world file; None if it does not have six numbers.

    Its position is that of the centre of the first pixel.
    """
    numbers = [_number(part) for part in text.decode("latin1").replace(",", ".").split()[:6]]
    known = [number for number in numbers if number is not None]
    if len(known) != 6:
        return None
    a, d, b, e, x, y = known
    if a * e == b * d:
        return None
    return a, b, x - (a + b) / 2, d, e, y - (d + e) / 2


def with_pam(meaning: Meaning, pam: Pam, dtype: np.dtype[Any], bands: int) -> Meaning:
    """Return a meaning with what an `.aux.xml` states, which replaces what the file itself states.

    Parameters:
        meaning: the meaning by the file itself.
        pam: the contents of the `.aux.xml`.
        dtype: data type of samples.
        bands: the number of bands.
    """
    place = meaning.place
    if pam.transform is not None:
        place = replace(place, transform=pam.transform, gcps=(), bbox=None)
    elif pam.gcps and place.transform is None:
        place = replace(place, gcps=pam.gcps)
    if pam.crs is not None:
        place = replace(place, crs=pam.crs)
    changed = replace(
        meaning,
        place=place,
        axes=_without_sizes(meaning, place),
        tags={**meaning.tags, **pam.tags},
        nodata=_nodata(pam, dtype, bands, meaning.nodata),
        bands=_bands(meaning, pam, bands),
    )
    first = pam.bands.get(0, PamBand())
    if bands == 1 and first.colors:
        changed = replace(changed, display=drawing.indexed(first.colors))
    return changed


def placed(meaning: Meaning, transform: Transform) -> Meaning:
    """Return a meaning with a transform, if it has none yet: that of a world file."""
    if meaning.place.transform is not None:
        return meaning
    place = replace(meaning.place, transform=transform, gcps=(), bbox=None)
    return replace(meaning, place=place, axes=_without_sizes(meaning, place))


def _without_sizes(meaning: Meaning, place: Place) -> Any:
    """Return the axes; on the ground, the sizes of pixels are those of the transform."""
    if place.transform is None:
        return meaning.axes
    return tuple(
        replace(axis, scale=None, unit=None, origin=0.0) if axis.name in "xy" else axis
        for axis in meaning.axes
    )


def _nodata(pam: Pam, dtype: np.dtype[Any], bands: int, known: float | None) -> float | int | None:
    """Return the nodata of all bands; that of the file if the bands state none or several."""
    texts = {band.nodata for number, band in pam.bands.items() if number < bands}
    texts.discard(None)
    if len(texts) != 1:
        return known
    found = number_of(str(texts.pop()), dtype)
    return known if found is None else found


def _bands(meaning: Meaning, pam: Pam, bands: int) -> tuple[Band, ...]:
    if not any(number < bands for number in pam.bands):
        return meaning.bands
    found = []
    for number in range(bands):
        band, stated = meaning.band(number), pam.bands.get(number, PamBand())
        color = stated.interpretation or band.interpretation
        found.append(
            Band(
                name=stated.name or band.name,
                unit=stated.unit or band.unit,
                scale=band.scale if stated.scale is None else stated.scale,
                offset=band.offset if stated.offset is None else stated.offset,
                interpretation=None if color == "Undefined" else color,
                tags={**band.tags, **stated.tags},
            )
        )
    return tuple(found)


NON_FINITE = {"1.#INF": "inf", "-1.#INF": "-inf", "1.#QNAN": "nan", "-1.#IND": "nan"}
"""Numbers as old libraries of Windows print them."""


def number_of(text: str, dtype: np.dtype[Any]) -> float | int | None:
    """Return the number of a text if `dtype` can represent it."""
    if dtype.kind in "bc":
        return None
    text = text.strip("\0 \n").replace(",", ".")
    text = NON_FINITE.get(text.upper(), text)
    try:
        if dtype.kind in "iu":
            # not through float: it cannot represent every 64-bit integer
            number = int(text) if text.lstrip("+-").isdigit() else float(text)
            bounds = np.iinfo(dtype)
            is_held = number == int(number) and bounds.min <= number <= bounds.max
            return int(number) if is_held else None
        with np.errstate(over="ignore"):
            return float(dtype.type(float(text)))
    except (ValueError, OverflowError):
        return None
