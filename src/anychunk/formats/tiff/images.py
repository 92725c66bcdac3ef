"""The images of a TIFF file: series as tifffile finds them, with their levels and masks."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import tifffile

from anychunk.codecs.tiff.tile import OLD_JPEG
from anychunk.errors import AnychunkError, LimitError, UnsupportedError
from anychunk.formats.tiff.page_stack import Stack, page_stack, series_stacks

Refusal = (UnsupportedError, LimitError)
"""Errors that prevent one image from opening, but not the others of its file."""
REDUCED, MASK = 1, 4
"""Bits of NewSubfileType (TIFF 6.0 section 8)."""


@dataclass(eq=False, kw_only=True)
class Image:
    """One image: its levels, full resolution first, and the masks of some of them."""

    levels: list[Stack]
    masks: list[Stack] = field(default_factory=list)
    series: Any = None
    """The tifffile series of the image."""
    kind: str = ""
    """Kind of the series: ome, imagej, svs, generic …"""
    name: str = ""


def find_images(tif: tifffile.TiffFile, where: str) -> tuple[list[Image], list[AnychunkError]]:
    """Return the images of a file, and the errors of those that are refused."""
    found: list[Image] = []
    refused: list[AnychunkError] = []
    for series in _series(tif):
        try:
            images, reasons = _images(series, where)
        except Refusal as e:
            refused.append(e)
        else:
            found += images
            refused += reasons
    if not found and not refused:
        # tifffile builds no series from pages without pixels
        pages = [page.aspage() for page in tif.pages]
        found = [Image(levels=[page_stack(page, where)]) for page in pages if page.tags]
    return attach_levels_and_masks(found), refused


def _series(tif: tifffile.TiffFile) -> list[Any]:
    """Return the series of a file, ignoring its vendor metadata if that is damaged."""
    try:
        return list(tif.series(squeeze=False))
    except (AnychunkError, OSError, MemoryError):
        raise
    except Exception:  # noqa: BLE001 - tifffile has no error class for this
        return list(tif.series(kind="generic", squeeze=False))


def _images(series: Any, where: str) -> tuple[list[Image], list[AnychunkError]]:
    """Return the images of one series: one, or several if its pages differ in layout."""
    read = [series_stacks(level, where) for level in series.levels]
    reasons = [reason for _, reasons in read for reason in reasons]
    # levels can be told apart only if each one is a single stack
    if any(len(stacks) != 1 for stacks, _ in read):
        return [Image(levels=[stack]) for stacks, _ in read for stack in stacks], reasons
    return _images_of([stacks[0] for stacks, _ in read], series), reasons


def _images_of(levels: list[Stack], series: Any) -> list[Image]:
    first = levels[0]
    if first.layout.compression == OLD_JPEG and len(first.planes) > 1:
        # each page has its own tables, which one array cannot hold
        singles = [p for p in first.planes if p is not None and p.page is not None]
        return [
            Image(
                levels=[
                    replace(
                        first, planes=[p], axes=(), sizes=(), keyframe=cast("Any", p.page).aspage()
                    )
                ],
                series=series,
                kind=series.kind,
            )
            for p in singles
        ]
    return [Image(levels=levels, series=series, kind=series.kind, name=series.name)]


def attach_levels_and_masks(images: list[Image]) -> list[Image]:
    """Attach reduced-resolution pages and masks to the images that they belong to."""
    kept: list[Image] = []
    masks: list[Image] = []
    for image in images:
        flags = subfile_type(image.levels[0])
        # in a file that contains only masks, they are the images
        if flags & MASK and any(not subfile_type(i.levels[0]) & MASK for i in images):
            masks.append(image)
        elif flags & REDUCED and (owner := _owner(image, kept)) is not None:
            owner.levels = sorted([*owner.levels, *image.levels], key=_area, reverse=True)
        else:
            kept.append(image)
    for mask in masks:
        for stack in mask.levels:
            target = next((i for i in kept if any(_fits(stack, s) for s in i.levels)), None)
            if target is None:
                kept.append(Image(levels=[stack], kind=mask.kind))
            else:
                target.masks.append(stack)
    return kept


def subfile_type(stack: Stack) -> int:
    """Return NewSubfileType of the first page."""
    return int(stack.keyframe.subfiletype or 0)


def _area(stack: Stack) -> int:
    return stack.layout.width * stack.layout.height


def _fits(a: Stack, b: Stack) -> bool:
    return (a.layout.width, a.layout.height) == (b.layout.width, b.layout.height)


def _owner(image: Image, candidates: list[Image]) -> Image | None:
    """Return the image that `image` is a level of: same bands and type, same proportions."""
    small = image.levels[0]
    for other in candidates:
        full = other.levels[0]
        same = small.sizes == full.sizes and small.layout.bands == full.layout.bands
        if (
            same
            and small.layout.dtype == full.layout.dtype
            and small.layout.depth == full.layout.depth
            and _area(small) < _area(full)
            and _is_proportional(small, full)
        ):
            return other
    return None


def _is_proportional(small: Stack, full: Stack) -> bool:
    """Return whether one reduction factor explains width and height, each rounded up or down."""
    a, b = small.layout, full.layout
    if not a.width or not a.height:
        return False
    factors = [
        (b.width / (a.width + d), b.height / (a.height + e))
        for d in (-0.999, 0, 0.999)
        for e in (-0.999, 0, 0.999)
        if a.width + d > 0 and a.height + e > 0
    ]
    low_x, high_x = min(f[0] for f in factors), max(f[0] for f in factors)
    low_y, high_y = min(f[1] for f in factors), max(f[1] for f in factors)
    return low_x <= high_y and low_y <= high_x
