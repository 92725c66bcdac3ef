"""How the samples of a TIFF image are drawn, and what GDAL calls the colour of each band.

Spec: TIFF 6.0 sections 8 (PhotometricInterpretation, ExtraSamples, ColorMap), 16 (InkSet) and 21.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import tifffile

from anychunk.codecs.tiff.tile import OLD_JPEG, PICTURES, YCBCR
from anychunk.formats.tiff.directory import SHORT
from anychunk.formats.tiff.layout import Layout
from anychunk.metadata import drawing
from anychunk.metadata.meaning import Display

MINISWHITE, MINISBLACK, RGB, PALETTE, SEPARATED, LINEAR_RAW = 0, 1, 2, 3, 5, 34892
PHOTOMETRIC, ORIENTATION, COLOR_MAP, INK_SET, EXTRA_SAMPLES = 262, 274, 320, 332, 338
CMYK_INKS = 1
"""Value of InkSet; the default."""
ASSOCIATED, UNASSOCIATED = 1, 2
"""Values of ExtraSamples that mean opacity."""
COLORS = {
    RGB: ("Red", "Green", "Blue"),
    YCBCR: ("YCbCr_Y", "YCbCr_Cb", "YCbCr_Cr"),
    SEPARATED: ("Cyan", "Magenta", "Yellow", "Black"),
    PALETTE: ("Palette",),
}
"""GDAL's names of the colours of the first bands; Gray for all other interpretations."""


def photometric(page: tifffile.TiffPage, layout: Layout) -> int:
    """Return PhotometricInterpretation as samples are after decoding: YCbCr may have become RGB.

    Without the tag, black is zero, as in GDAL.
    """
    found = layout.photometric
    if found == YCBCR and layout.bands == 3 and _is_turned_into_rgb(layout):
        return RGB
    if PHOTOMETRIC not in page.tags and found == MINISWHITE:
        return MINISBLACK
    return found


def _is_turned_into_rgb(layout: Layout) -> bool:
    """Return whether the codec converts YCbCr: that of pictures, and subsampled samples."""
    is_picture = layout.compression in (*PICTURES, OLD_JPEG)
    return not layout.is_planar and (is_picture or layout.is_subsampled)


def extra_samples(page: tifffile.TiffPage) -> tuple[int, ...] | None:
    """Return the values of ExtraSamples; None if the page does not have the tag."""
    if EXTRA_SAMPLES not in page.tags:
        return None
    value = page.tags.valueof(EXTRA_SAMPLES)
    values = value if isinstance(value, tuple | list | bytes) else (value,)
    return tuple(int(v) for v in values if isinstance(v, int))


def color_count(kind: int, bands: int) -> int:
    """Return how many of the bands are colours; the others are extra samples."""
    return min(bands, len(COLORS.get(kind, ("Gray",))))


def alpha(page: tifffile.TiffPage, kind: int, bands: int) -> tuple[int, bool] | None:
    """Return the band of opacity, and whether colours are multiplied by it; None if there is none.

    A fourth band of RGB without ExtraSamples is opacity, as GDAL and Pillow take it.
    """
    extra, first = extra_samples(page), color_count(kind, bands)
    if extra is None:
        return (3, False) if kind == RGB and bands == 4 else None
    # some writers list colours too; the last values then belong to the extra bands
    extra = extra[-(bands - first) :] if bands > first else ()
    for number, value in enumerate(extra):
        if value in (ASSOCIATED, UNASSOCIATED):
            return first + number, value == ASSOCIATED
    return None


def interpretations(page: tifffile.TiffPage, kind: int, bands: int) -> list[str | None]:
    """Return GDAL's name of the colour of each band; None where it is undefined."""
    first = color_count(kind, bands)
    names: list[str | None] = [*COLORS.get(kind, ("Gray",))[:first], *[None] * (bands - first)]
    found = alpha(page, kind, bands)
    if found is not None and EXTRA_SAMPLES in page.tags:
        names[found[0]] = "Alpha"
    return names


def display(page: tifffile.TiffPage, layout: Layout, stated: str | None = None) -> Display:
    """Return how the samples of a page are drawn.

    Parameters:
        page: the page.
        layout: its layout.
        stated: the colour of the first band by GDAL_METADATA. GDAL adds a ColorMap to pages that it
            has begun as MinIsBlack, for which TIFF 6.0 has none, and states Palette there.
    """
    kind, bands = photometric(page, layout), layout.bands
    if kind == MINISBLACK and bands == 1 and stated == COLORS[PALETTE][0]:
        kind = PALETTE
    name, bits = layout.dtype.name, layout.bits if isinstance(layout.bits, int) else None
    limits = drawing.limits_of(name, bits)
    found = _model(page, kind, bands, limits)
    if found is None:
        found = drawing.channels([]) if bands > 1 else drawing.grey(limits=limits)
    if kind == MINISWHITE and found["model"] == "grey":
        full = drawing.full_range(name, bits)
        found = drawing.grey(limits=full, is_inverted=True)
    opacity = alpha(page, kind, bands)
    if opacity is not None:
        band, is_associated = opacity
        found = drawing.with_alpha(
            found, band, limits=drawing.full_range(name, bits), is_associated=is_associated
        )
    turned = page.tags.valueof(ORIENTATION, 1)
    return drawing.with_orientation(found, int(turned) if isinstance(turned, int) else 1)


def _model(
    page: tifffile.TiffPage, kind: int, bands: int, limits: drawing.Range | None
) -> Display | None:
    if kind in (MINISWHITE, MINISBLACK) and color_and_alpha(page, kind, bands) == bands:
        return drawing.grey(limits=limits)
    if kind == PALETTE and color_and_alpha(page, kind, bands) == bands:
        colors = color_map(page)
        return None if colors is None else drawing.indexed(colors.tolist())
    if kind in (RGB, LINEAR_RAW) and bands >= 3:
        return drawing.rgb(limits=limits)
    if kind == YCBCR and bands >= 3:
        return drawing.ycbcr(limits=limits)
    if kind == SEPARATED and bands >= 4 and page.tags.valueof(INK_SET, CMYK_INKS) == CMYK_INKS:
        return drawing.cmyk(limits=limits)
    return None


def color_and_alpha(page: tifffile.TiffPage, kind: int, bands: int) -> int:
    """Return how many bands are colours or opacity."""
    return color_count(kind, bands) + (alpha(page, kind, bands) is not None)


def color_map(page: tifffile.TiffPage) -> npt.NDArray[np.integer[Any]] | None:
    """Return the palette of a page as 8-bit colours, (entries, 3); None if it has none.

    Some writers store 8-bit values in the 16-bit tag, as libtiff notices too.
    """
    tag = page.tags.get(COLOR_MAP)
    if tag is None or tag.dtype != SHORT:
        return None
    values: npt.NDArray[np.integer[Any]] = np.asarray(tag.value).reshape(-1)
    if values.size == 0 or values.size % 3 or values.size > 3 << 16:
        return None
    return (values >> 8 if values.max() > 255 else values).reshape(3, -1).T
