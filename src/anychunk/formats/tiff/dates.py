"""When a TIFF image was taken, as far as its tags say.

Spec: EXIF 2.32 section 4.6.5 (DateTimeOriginal, SubSecTimeOriginal, OffsetTimeOriginal); GDAL's
      domain IMAGERY (ACQUISITIONDATETIME); TIFF 6.0 section 8 (DateTime), which many writers set
      to the time of writing, so that it comes last.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import tifffile

from anychunk.formats.tiff.gdal_metadata import GdalMetadata

DATETIME, EXIF = 306, 34665
ORIGINAL, FRACTION, OFFSET = "DateTimeOriginal", "SubsecTimeOriginal", "OffsetTimeOriginal"
"""Names that tifffile gives to tags of the EXIF directory."""


def page_time(page: tifffile.TiffPage, gdal: GdalMetadata) -> str | None:
    """Return when a page was taken, as ISO 8601; None if nothing readable says so."""
    return next(_stated(page, gdal), None)


def _stated(page: tifffile.TiffPage, gdal: GdalMetadata) -> Iterator[str]:
    exif = page.tags.valueof(EXIF)
    if isinstance(exif, Mapping):
        yield from exif_time(exif)
    text = gdal.domains.get("IMAGERY", {}).get("ACQUISITIONDATETIME")
    if text is not None:
        with suppress(ValueError):
            yield datetime.fromisoformat(text.strip()).isoformat()
    yield from _iso(page.tags.valueof(DATETIME))


def exif_time(exif: Mapping[str, Any]) -> Iterator[str]:
    """Yield DateTimeOriginal, with its fraction of a second and its offset if they are stated."""
    fraction, offset = (
        value.strip("\0 ") if isinstance(value := exif.get(name), str) else ""
        for name in (FRACTION, OFFSET)
    )
    for text in _iso(exif.get(ORIGINAL)):
        digits = fraction if fraction.isascii() and fraction.isdigit() else ""
        plain = f"{text}.{digits[:6]:0<6}" if digits else text
        try:
            yield datetime.fromisoformat(plain + offset).isoformat()
        except ValueError:  # an offset that is not one
            yield plain


def _iso(text: object) -> Iterator[str]:
    """Yield a date of TIFF and EXIF, `YYYY:MM:DD hh:mm:ss`, as ISO 8601, if it is one."""
    if not isinstance(text, str):
        return
    try:
        found = datetime.strptime(text.strip("\0 "), "%Y:%m:%d %H:%M:%S")  # noqa: DTZ007 - no zone is stated
    except ValueError:
        return
    yield found.isoformat()
