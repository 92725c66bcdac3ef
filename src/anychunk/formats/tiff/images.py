"""The images of a TIFF file: series as tifffile finds them, with their levels and masks."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import tifffile

from anychunk.codecs.tiff.tile import OLD_JPEG
from anychunk.errors import AnychunkError, FormatError, LimitError, UnsupportedError
from anychunk.formats.tiff.directory import page_entries
from anychunk.formats.tiff.page_stack import Stack, page_stack, series_stacks
from anychunk.formats.tiff.tifffile_source import broken_chain
from anychunk.io.source import Source

Refusal = (UnsupportedError, LimitError, FormatError)
"""Errors that prevent one image from opening, but not the others of its file."""
PLAIN_KINDS = {"generic", "geotiff", "shaped", "uniform"}
"""Kinds of series that take all pages; others leave out pages that their format does not show."""
CONTENT_CREDENTIALS = 52545
"""The only tag of a directory that holds a C2PA manifest, and no image."""
UIC2 = 33629
"""Tag of MetaMorph STK with a record per plane."""
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

    def level_of(self, mask: Stack) -> int:
        """Return the number of the level that a mask belongs to."""
        return next(i for i, level in enumerate(self.levels) if _fits(mask, level))


def find_images(tif: tifffile.TiffFile, source: Source) -> tuple[list[Image], list[AnychunkError]]:
    """Return the images of a file, and the errors of those that are refused."""
    where = source.url
    found: list[Image] = []
    refused: list[AnychunkError] = []
    every = _series(tif)
    cut_off = broken_chain(tif, source)
    if cut_off is not None and any(series.kind == "imagej" for series in every):
        # ImageJ's planes follow each other, but bytes that are lost have shifted those behind them
        every = list(tif.series(kind="generic", squeeze=False))
    for series in every:
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
        found = [
            Image(levels=[page_stack(page, f"{where} page {page.index}")])
            for page in pages
            if page.tags
        ]
    elif all(series.kind in PLAIN_KINDS for series in every):
        runs = [run for image in found for run in _runs(image)]
        for offset, number, name in _left_out(tif, every, where):
            try:
                found += _single(tif, offset, number, name, runs)
            except Refusal as e:
                refused.append(e)
    if cut_off is not None:
        refused.append(cut_off)
    found, without_size = _with_a_size(found, where)
    return attach_levels_and_masks(found), refused + without_size


def _with_a_size(images: list[Image], where: str) -> tuple[list[Image], list[AnychunkError]]:
    """Leave out images without ImageWidth or ImageLength, which are required (TIFF 6.0 section 8).

    If there is no other image, they have no pixels, as in tifffile; the errors say why.
    """
    kept: list[Image] = []
    errors: list[AnychunkError] = []
    for image in images:
        page, layout = image.levels[0].keyframe, image.levels[0].layout
        size = {256: ("ImageWidth", layout.width), 257: ("ImageLength", layout.height)}
        missing = [name for code, (name, n) in size.items() if not n and code not in page.tags]
        if missing:
            name = " and ".join(missing)
            errors.append(
                FormatError(f"{where} page {page.index}: no {name}, which has no default")
            )
        else:
            kept.append(image)
    return kept or images, errors


def _left_out(
    tif: tifffile.TiffFile, every: list[Any], where: str
) -> Iterator[tuple[int, tuple[int, ...], str]]:
    """Yield offset, number and name of each directory that tifffile has put in no series.

    It leaves out pages whose tags make no sense to it, without an error.
    """
    levels = [level for series in every for level in series.levels]
    pages = [page for level in levels for page in level._pages if page is not None]  # noqa: SLF001
    known = {int(page.offset) for page in pages}
    # if tifffile has not followed the chain, one series has all pages
    chain = tif.pages._offsets if tif.pages._indexed else []  # noqa: SLF001
    for number, offset in enumerate(chain):
        if offset not in known:
            yield offset, (number,), f"{where} page {number}"
    for page in pages:
        for number, offset in enumerate(page.subifds or ()):
            if offset not in known:
                name = f"{where} page {page.index} SubIFD {number}"
                yield offset, (page.index, number), name


def _runs(image: Image) -> Iterator[range]:
    """Yield where the samples of stacks are whose pages follow each other without gaps."""
    for stack in image.levels:
        if stack.run is not None:
            size = math.prod(stack.layout.shape) * stack.layout.dtype.itemsize
            yield range(stack.run, stack.run + size * math.prod(stack.sizes))


def _single(
    tif: tifffile.TiffFile, offset: int, number: tuple[int, ...], where: str, runs: list[range]
) -> list[Image]:
    """Return the image of the directory at `offset`; none if it holds something else.

    Parameters:
        tif: the file.
        offset: offset of the directory.
        number: number of the page, or of the SubIFD after it.
        where: names the page in messages.
        runs: samples of pages that belong to other images.
    """
    try:
        tif.filehandle.seek(offset)
        page = tifffile.TiffPage(tif, number)
    except (AnychunkError, OSError, MemoryError):
        raise
    except Exception as e:
        raise FormatError(
            f"{where}: tifffile cannot read its directory at {offset} ({type(e).__name__}: {e})"
        ) from e
    if [tag.code for tag in page.tags] == [CONTENT_CREDENTIALS]:
        return []
    if not page.tags:
        raise FormatError(f"{where}: its directory at {offset} has no tags")
    if page.dataoffsets and any(page.dataoffsets[0] in run for run in runs):
        return []  # a page of a stack of which tifffile lists only the first
    return [Image(levels=[page_stack(page, where)])]


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
    if series.kind == "stk":
        _check_plane_count(series.keyframe, where)
    read = [series_stacks(level, where) for level in series.levels]
    reasons = [reason for _, reasons in read for reason in reasons]
    # levels can be told apart only if each one is a single stack, all with the same axes
    is_one_each = all(len(stacks) == 1 for stacks, _ in read)
    if not is_one_each or (len(read) > 1 and len({_outer_shape(s[0]) for s, _ in read}) > 1):
        every = [stack for stacks, _ in read for stack in stacks]
        if series.kind == "ome":
            every, odd = _of_one_type(every, where)
            reasons += odd
        return [Image(levels=[stack]) for stack in every], reasons
    return _images_of([stacks[0] for stacks, _ in read], series), reasons


def _of_one_type(stacks: list[Stack], where: str) -> tuple[list[Stack], list[AnychunkError]]:
    """Leave out stacks of another data type than most pages: OME-XML declares one per image."""
    types = Counter(stack.layout.dtype for stack in stacks for _ in stack.planes)
    ((usual, _),) = types.most_common(1)
    odd: list[AnychunkError] = [
        FormatError(
            f"{where} page {stack.keyframe.index}: samples of type {stack.layout.dtype}, expected "
            f"{usual}, as on the other pages of the OME image"
        )
        for stack in stacks
        if stack.layout.dtype != usual
    ]
    return [stack for stack in stacks if stack.layout.dtype == usual], odd


def _check_plane_count(page: tifffile.TiffPage, where: str) -> None:
    """Raise if the number of planes of an STK file is in a tag that tifffile could not read."""
    entries = {entry.code for entry in page_entries(page, where)}
    if UIC2 in entries and UIC2 not in page.tags:
        raise FormatError(
            f"{where} page {page.index}: UIC2Tag ({UIC2}), which states the number of planes, "
            "cannot be read"
        )


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
        elif (
            flags & REDUCED
            # thumbnails of LSM are drawings of all bands, not bands at a lower resolution
            and image.kind != "lsm"
            and (owner := _owner(image, kept)) is not None
        ):
            owner.levels = sorted([*owner.levels, *image.levels], key=_area, reverse=True)
        else:
            kept.append(image)
    for mask in masks:
        for stack in mask.levels:
            # an image has one mask per level
            target = next(
                (
                    i
                    for i in kept
                    if stack.arrangement.names == ("y", "x")
                    and any(_fits(stack, s) for s in i.levels)
                    and not any(_fits(stack, m) for m in i.masks)
                ),
                None,
            )
            if target is None:
                kept.append(Image(levels=[stack], kind=mask.kind))
            else:
                target.masks.append(stack)
    return kept


def subfile_type(stack: Stack) -> int:
    """Return NewSubfileType of the first page."""
    return int(stack.keyframe.subfiletype or 0)


def _outer_shape(stack: Stack) -> tuple[tuple[str, int], ...]:
    """Return the axes of a stack that its levels must share."""
    found = stack.arrangement
    pairs = zip(found.names, found.shape, strict=True)
    divided = (("", found.count),)
    return divided + tuple((name, size) for name, size in pairs if name not in "xyz")


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
