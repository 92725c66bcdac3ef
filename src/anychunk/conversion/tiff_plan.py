"""What a conversion to TIFF writes: pages, tiles and tags. No sample is read while planning.

The levels are planned as for Zarr, and computed by the same means; a region holds whole tiles.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anychunk.codecs import data_types
from anychunk.conversion import levels
from anychunk.conversion.levels import Chain, Level, ZarrOptions, image_levels, itemsize_of
from anychunk.conversion.plan import (
    TASKS_PER_WORKER,
    Plan,
    fingerprint,
    split_chains,
    split_runs,
)
from anychunk.errors import FormatError, OptionError, UnsupportedError
from anychunk.formats.tiff import write_tags, write_tiles
from anychunk.formats.tiff.write_directory import Page, Tag, longs, shorts, text
from anychunk.formats.tiff.write_tags import OmeImage
from anychunk.formats.tiff.write_tiles import Compression, TileFormat
from anychunk.limits import MIB
from anychunk.metadata.geo_keys import USER_DEFINED, VERTICAL_CRS, VERTICAL_UNITS
from anychunk.metadata.meaning import Axis, Band, Meaning
from anychunk.metadata.reading import levels_of
from anychunk.model import images as im
from anychunk.model.grid import Shape
from anychunk.model.images import Image
from anychunk.model.index import GroupIndex, Node
from anychunk.selection import PART_OF
from anychunk.selection.cuts import Selection

VERTICAL_KEYS = {VERTICAL_CRS: "VerticalCSTypeGeoKey", VERTICAL_UNITS: "VerticalUnitsGeoKey"}
"""As attributes of TIFF files name them."""
EXTENSIONS = (".tif", ".tiff", ".btf", ".tf8")
SUBFILE_TYPE, WIDTH, HEIGHT, DESCRIPTION, PHOTOMETRIC = 254, 256, 257, 270, 262
REDUCED, MASK = 1, 4
"""Bits of NewSubfileType."""
MASK_PHOTOMETRIC = 4
MOST_BANDS = (1 << 16) - 1
LEAST_REGION = MIB // 2
"""Regions are not made smaller than this."""
LARGEST_TILE = 64 * MIB
"""Bands whose tiles would be larger are stored apart, each in tiles of its own."""


@dataclass(frozen=True, kw_only=True)
class TiffOptions:
    """What the caller asks for in a TIFF target."""

    like: str | None = None
    """`cog` or `ome-tiff`; None: by the extension of the target."""
    compression: str | None = None
    compression_level: float | None = None
    chunk: Sequence[int] | None = None
    levels: int | None = None
    method: str | None = None
    axes: Sequence[str] | None = None
    image: int | str | None = None
    predictor: Any = None
    bigtiff: bool | None = None
    interleave: str | None = None
    """`pixel` or `band`; None: pixel, unless tiles would be too large."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How the samples of a level are spread over pages and tiles."""

    paged: tuple[int, ...]
    """Axes of the level whose elements are planes: of separate tiles."""
    banded: tuple[int, ...]
    """Axes whose elements are samples of a pixel."""
    side: int

    def planes(self, shape: Shape) -> int:
        """Return the number of planes."""
        return math.prod(shape[i] for i in self.paged)

    def tiles(self, shape: Shape) -> tuple[int, int]:
        """Return the number of tiles of a plane, down and across."""
        down, across = (-(-n // self.side) for n in shape[-2:])
        return down, across


@dataclass(frozen=True, kw_only=True)
class Written:
    """One level as it is written."""

    level: Level
    spread: Spread
    format: TileFormat
    is_mask: bool = False
    valid: int = 255
    """The value of valid pixels, of a mask."""

    @property
    def count(self) -> int:
        """The number of tiles."""
        return self.spread.planes(self.level.shape) * math.prod(self.spread.tiles(self.level.shape))


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One image of the target."""

    levels: tuple[Written, ...]
    masks: tuple[Written, ...]
    meaning: Meaning
    tags: tuple[Tag, ...]
    """Of the first page."""
    common: tuple[Tag, ...]
    """Of every page."""
    photometric: int
    planes: int
    """Pages of each level: 1 unless it is OME-TIFF."""


@dataclass(frozen=True, kw_only=True)
class TiffPlan:
    """Everything that a conversion to TIFF writes."""

    plan: Plan
    """The steps, shared with conversions to Zarr."""
    pictures: tuple[Picture, ...]
    is_cog: bool
    big: bool | None
    is_lossy: bool
    arrays: Mapping[str, Written] = field(default_factory=dict)
    """Every level and mask by its path in the plan."""

    def numbers(self) -> dict[str, int]:
        """Return the number of each array, as files of tiles have it."""
        return {path: number for number, path in enumerate(self.arrays)}


def is_tiff(url: str) -> bool:
    """Return whether a url, by its extension, names a TIFF file."""
    return url.lower().endswith(EXTENSIONS)


def is_ome(url: str, options: TiffOptions) -> bool:
    """Return whether an OME-TIFF file is asked for."""
    if options.like not in (None, "cog", "ome-tiff"):
        raise OptionError(f"{url}: like={options.like!r}, expected cog or ome-tiff")
    if options.like is not None:
        return options.like == "ome-tiff"
    return url.lower().rpartition(".")[0].endswith(".ome")


def make_tiff_plan(source: Node, url: str, options: TiffOptions, workers: int) -> TiffPlan:
    """Plan a TIFF file with the images of `source`.

    Raises `UnsupportedError` if TIFF, or the compression, cannot hold the samples.
    """
    found = list(im.images(source))
    if options.image is not None:
        found = [im.chosen(found, options.image)]
    if not found:
        raise FormatError("convert: the source has no arrays")
    as_ome = is_ome(url, options)
    if len(found) > 1 and not as_ome:
        known = " ".join(i.path or "/" for i in found[:20])
        raise FormatError(
            f"{url}: the source has {len(found)} images ({known}), expected one; choose it with "
            "image= or --image, or write .ome.tif"
        )
    compression = write_tiles.parse_compression(
        options.compression or "deflate", options.compression_level
    )
    pictures: list[Picture] = []
    losses: list[str] = []
    notes: list[str] = []
    for number, image in enumerate(found):
        maker = PictureMaker(
            source,
            image,
            str(number),
            options=options,
            compression=compression,
            url=url,
            workers=workers,
        )
        pictures.append(maker.ome_picture() if as_ome else maker.cog_picture())
        where = image.path or "image"
        losses += [f"{where}: {loss}" for loss in maker.losses]
        notes += maker.notes
    if as_ome:
        pictures = with_ome_xml(pictures, source)
        losses += lost_xml(source)
    arrays = {w.level.path: w for p in pictures for w in (*p.levels, *p.masks)}
    runs = [
        run
        for part in split_chains([w.level for w in arrays.values()])
        for run in split_runs(part, workers)
    ]
    plan = Plan(
        source=source,
        runs=tuple(runs),
        root=GroupIndex(members={}),
        pictures=(),
        arrays=tuple(w.level for w in arrays.values()),
        fingerprint=tiff_fingerprint(source, list(arrays.values()), pictures, options),
        notes=tuple(dict.fromkeys(notes)),
        losses=tuple(dict.fromkeys(losses)),
    )
    return TiffPlan(
        plan=plan,
        pictures=tuple(pictures),
        is_cog=not as_ome,
        big=options.bigtiff,
        is_lossy=compression.is_lossy,
        arrays=arrays,
    )


def tiff_fingerprint(
    source: Node, arrays: Sequence[Written], pictures: Sequence[Picture], options: TiffOptions
) -> str:
    """Return a hash that two conversions share if they write the same from the same source."""
    whole = fingerprint(source, [w.level for w in arrays], {})
    kinds = [[repr(w.format), repr(w.spread)] for w in arrays]
    # the UUID of OME-XML differs each time
    tags = [[t.code, t.data.hex()] for p in pictures for t in p.tags if t.code != DESCRIPTION]
    # tasks are named by their regions, which files of tiles must share
    regions = [w.level.region for w in arrays]
    content = json.dumps([whole, kinds, tags, regions, options.bigtiff])
    return hashlib.sha256(content.encode()).hexdigest()


class PictureMaker:
    """Plans one image of the target."""

    def __init__(
        self,
        source: Node,
        image: Image,
        path: str,
        *,
        options: TiffOptions,
        compression: Compression,
        url: str,
        workers: int,
    ) -> None:
        self.source, self.image, self.path, self.options = source, image, path, options
        self.compression, self.where = compression, f"{url}: {image.path or 'image'}"
        self.workers = workers
        self.losses: list[str] = []
        self.notes: list[str] = []
        self.side = tile_side(options.chunk)

    def chain(self, chunk: Sequence[int] | None) -> Chain:
        """Plan the levels, with regions of whole chunks of this shape."""
        count = self.options.levels
        if count is None and not self.has_flat_levels():
            count = 0  # computed, because the source's levels cannot be kept
        zarr_options = ZarrOptions(
            chunk=chunk,
            shard=False,
            compression="none",
            levels=count,
            method=self.options.method,
            axes=self.options.axes,
            notes=self.notes,
            only_planes=True,
            region_bytes=self.region_bytes(),
        )
        return image_levels(self.source, self.image, self.path, zarr_options)

    def region_bytes(self) -> int:
        """Return how much is computed at a time: less for small images, so that no core idles."""
        first = levels_of(self.source, self.image)[0].image
        share = math.prod(first.shape) * itemsize_of(first) // (TASKS_PER_WORKER * self.workers)
        return max(LEAST_REGION, min(levels.REGION_BYTES, share))

    def has_flat_levels(self) -> bool:
        """Return whether coarser levels of the source are shorter only along y and x."""
        shapes = [level.image.shape for level in levels_of(self.source, self.image)]
        names = self.image.names
        flat = all(
            n == full or names[i] in ("y", "x")
            for shape in shapes
            for i, (n, full) in enumerate(zip(shape, shapes[0], strict=True))
        )
        sizes = [math.prod(shape) for shape in shapes]
        if len(shapes) > 1 and not (flat and sizes == sorted(set(sizes), reverse=True)):
            self.losses.append(
                "the source's levels, which are not planes of falling size; computed"
            )
            return False
        return True

    def first(self) -> tuple[Level, np.dtype[Any], Meaning]:
        """Return the full resolution, its type and its meaning."""
        chain = self.chain(None)
        level = chain.levels[0]
        if chain.meaning.names[-2:] != ("y", "x"):
            raise UnsupportedError(
                f"{self.where}: axes {' '.join(chain.meaning.names)}, expected the last two to be "
                "y x; name them, for example --axes zyx"
            )
        if 0 in level.shape:
            raise UnsupportedError(f"{self.where}: shape {level.shape}; TIFF has no empty images")
        return level, data_types.native(level.metadata["data_type"]), chain.meaning

    def cog_picture(self) -> Picture:
        """Plan a Cloud Optimized GeoTIFF: one page per level, and one per mask."""
        level, dtype, meaning = self.first()
        lead = tuple(range(len(level.shape) - 2))
        bands = math.prod(level.shape[i] for i in lead)
        if bands > MOST_BANDS:
            raise UnsupportedError(
                f"{self.where}: {bands} planes, TIFF holds {MOST_BANDS} bands; write .ome.tif"
            )
        is_apart = self.is_apart(bands, dtype)
        write_tiles.check_type(self.compression, dtype, 1 if is_apart else bands, self.where)
        described = self.with_flat_bands(meaning, level, bands)
        spread = Spread(
            paged=lead if is_apart else (), banded=() if is_apart else lead, side=self.side
        )
        is_jpeg = self.compression.name == "jpeg" and not is_apart
        colors = write_tags.colors(described.display, bands, dtype, is_jpeg=is_jpeg)
        if self.compression.name == "jpeg" and bands == 3 and colors.photometric != 6:
            raise UnsupportedError(
                f"{self.where}: jpeg holds three bands only as red, green and blue; use deflate"
            )
        place, lost = write_tags.place_tags(described, vertical_keys(described))
        self.losses += [*colors.losses, *([lost] if lost else []), *self.lost_of(described)]
        tags = [
            *place,
            *write_tags.text_tags(described),
            *write_tags.metadata_tag(described, colors.names),
            *write_tags.orientation_tag(described.display),
        ]
        common = (*colors.tags, *write_tags.nodata_tag(described.nodata))
        form = self.tile_format(dtype, 1 if is_apart else bands, bands, colors.photometric)
        return self.picture(described, spread, form, tags, common, planes=1, with_masks=True)

    def ome_picture(self) -> Picture:
        """Plan an image of an OME-TIFF file: one page per plane, its levels as SubIFDs."""
        level, dtype, meaning = self.first()
        write_tags.check_type(dtype, self.where)
        names = meaning.names
        if not meaning.is_image:
            raise UnsupportedError(
                f"{self.where}: axes {' '.join(names)}; OME-TIFF has t c z y x; name them"
            )
        drawn: Mapping[str, Any] = meaning.display or {}
        count = level.shape[names.index("c")] if "c" in names else 1
        is_color = drawn.get("model") == "rgb" and drawn.get("bands") == [0, 1, 2]
        is_color = is_color and count in (3, 4) and "c" in names
        banded = (names.index("c"),) if is_color else ()
        paged = tuple(i for i in range(len(names) - 2) if i not in banded)
        samples = count if is_color else 1
        write_tiles.check_type(self.compression, dtype, samples, self.where)
        spread = Spread(paged=paged, banded=banded, side=self.side)
        is_jpeg = self.compression.name == "jpeg"
        colors = write_tags.colors(
            meaning.display if is_color else None, samples, dtype, is_jpeg=is_jpeg
        )
        place, lost = write_tags.place_tags(meaning, vertical_keys(meaning))
        self.losses += [*write_tags.losses(meaning), *([lost] if lost else [])]
        self.losses += self.native_losses(meaning)
        if any(described.mask is not None for described in levels_of(self.source, self.image)):
            self.losses.append("the mask of valid pixels; .tif holds it")
        form = self.tile_format(dtype, samples, samples, colors.photometric)
        tags = [*place, *write_tags.resolution_tags(meaning)]
        common = (*colors.tags, *write_tags.nodata_tag(meaning.nodata))
        planes = math.prod(level.shape[i] for i in paged)
        return self.picture(meaning, spread, form, tags, common, planes=planes, with_masks=False)

    def picture(
        self,
        meaning: Meaning,
        spread: Spread,
        form: TileFormat,
        tags: Sequence[Tag],
        common: Sequence[Tag],
        *,
        planes: int,
        with_masks: bool,
    ) -> Picture:
        """Plan the levels and masks of an image whose pages are known."""
        level, _, _ = self.first()
        chunk = [1] * (len(level.shape) - 2) + [self.side] * 2
        for axis in spread.banded:
            chunk[axis] = level.shape[axis]
        chain = self.chain(chunk)
        found = [Written(level=one, spread=spread, format=form) for one in chain.levels]
        masks = self.masks(chain) if with_masks else []
        return Picture(
            levels=tuple(found),
            masks=tuple(masks),
            meaning=meaning,
            tags=tuple(tags),
            common=tuple(common),
            photometric=form.photometric,
            planes=planes,
        )

    def masks(self, chain: Chain) -> list[Written]:
        """Plan the masks: one per level, or none."""
        if len(chain.masks) != len(chain.levels) or any(
            mask.shape != level.shape[-2:]
            for mask, level in zip(chain.masks, chain.levels, strict=False)
        ):
            if chain.masks:
                self.losses.append("the masks, because not every level has one of its size")
            return []
        drawn: Mapping[str, Any] = chain.meaning.display or {}
        valid = int(drawn.get("mask", {}).get("valid", 255))
        form = TileFormat(
            compression=write_tiles.parse_compression("deflate", None),
            dtype=np.dtype(np.uint8),
            bands=1,
            total_bands=1,
            photometric=MASK_PHOTOMETRIC,
            predictor=1,
            side=self.side,
            is_bits=True,
        )
        spread = Spread(paged=(), banded=(), side=self.side)
        return [
            Written(level=mask, spread=spread, format=form, is_mask=True, valid=valid)
            for mask in aligned(chain.masks, self.side)
        ]

    def is_apart(self, bands: int, dtype: np.dtype[Any]) -> bool:
        """Return whether each band has tiles of its own."""
        given = self.options.interleave
        if given not in (None, "pixel", "band"):
            raise OptionError(f"{self.where}: interleave {given!r}, expected pixel or band")
        if bands == 1 or given is not None:
            return given == "band" and bands > 1
        return self.side**2 * bands * dtype.itemsize > LARGEST_TILE

    def tile_format(
        self, dtype: np.dtype[Any], bands: int, total: int, photometric: int
    ) -> TileFormat:
        """Return how tiles are encoded."""
        return TileFormat(
            compression=self.compression,
            dtype=dtype,
            bands=bands,
            total_bands=total,
            photometric=photometric,
            predictor=write_tiles.predictor_for(self.compression, dtype, self.options.predictor),
            side=self.side,
            is_bits=dtype == np.bool_,
        )

    def with_flat_bands(self, meaning: Meaning, level: Level, bands: int) -> Meaning:
        """Return a meaning in which every plane is a band, because GeoTIFF has no other axes."""
        lead = meaning.axes[:-2]
        if [axis.name for axis in lead] in ([], ["c"]):
            return meaning
        shape = level.shape[:-2]
        self.losses.append(
            f"the axes {' '.join(a.name for a in lead)}, whose {bands} planes become bands; "
            ".ome.tif and .zarr keep them"
        )
        found = []
        for at in np.ndindex(*shape):
            here = dict(zip((a.name for a in lead), at, strict=True))
            band = meaning.band(here.get("c", 0)) if meaning.bands else Band()
            title = " ".join(
                (band.name or f"c{n}") if name == "c" else f"{name}{n}" for name, n in here.items()
            )
            found.append(replace(band, name=title))
        display = meaning.display if bands == 1 else None
        return replace(
            meaning,
            axes=(Axis(name="c"), *meaning.axes[-2:]),
            bands=tuple(found),
            display=display,
        )

    def lost_of(self, meaning: Meaning) -> Iterator[str]:
        """Yield what a GeoTIFF cannot hold."""
        if meaning.space is not None:
            yield "the orientation in space"
        kept = ("x", "y") if write_tags.per_centimetre(meaning) is not None else ()
        for axis in meaning.axes:
            if axis.scale is not None and axis.name not in kept:
                yield f"the size of elements along {axis.name}"
            if axis.origin and axis.name != "c":
                yield f"the position of the first element along {axis.name}"
            if axis.values is not None:
                yield f"the positions along {axis.name}"
        yield from self.native_losses(meaning)

    def native_losses(self, meaning: Meaning) -> Iterator[str]:
        """Yield which attributes of the source's format are not written."""
        # what a TIFF file says about itself is in its tags, or has to be computed again
        whole = meaning.native.get(PART_OF, {})
        left_out = [key for key in meaning.native if key not in ("tiff", PART_OF)]
        left_out += [key for key in whole if key not in ("tiff", *Selection.__annotations__)]
        if left_out:
            yield f"the attributes {' '.join(left_out)}"
        if domains := lost_domains(tiff_attribute(meaning, "gdal_metadata")):
            yield f"GDAL's metadata of the domains {' '.join(domains)}"


WRITTEN_DOMAINS = {"IMAGE_STRUCTURE": None, "IMAGERY": {"ACQUISITIONDATETIME"}}
"""Domains whose items, or some of them, are written in another way: {domain: items; None: all}."""


def lost_domains(items: Mapping[str, Any]) -> list[str]:
    """Return the domains of GDAL_METADATA, as an attribute, that have items which are not kept."""
    bands = [v for k, v in items.items() if k.startswith("band ") and isinstance(v, Mapping)]
    found = {
        name: domain
        for part in ({k: v for k, v in items.items() if not k.startswith("band ")}, *bands)
        for name, domain in part.items()
        if isinstance(domain, Mapping)
    }
    return [
        name
        for name, domain in found.items()
        if (kept := WRITTEN_DOMAINS.get(name, set())) is not None and set(domain) - kept
    ]


def tiff_attribute(meaning: Meaning, name: str) -> Mapping[str, Any]:
    """Return an attribute that only TIFF files have, of the source or of what it is a part of."""
    whole = meaning.native.get(PART_OF, {})
    about = meaning.native.get("tiff") or (whole.get("tiff") if isinstance(whole, Mapping) else {})
    found = about.get(name) if isinstance(about, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def vertical_keys(meaning: Meaning) -> dict[int, int]:
    """Return the GeoKeys of the CRS of heights, which only TIFF files have."""
    keys = tiff_attribute(meaning, "geo_keys")
    found = {number: keys.get(name) for number, name in VERTICAL_KEYS.items()}
    is_code = isinstance(code := found[VERTICAL_CRS], int) and 0 < code < USER_DEFINED
    return {n: v for n, v in found.items() if isinstance(v, int) and is_code and 0 <= v < 1 << 16}


def aligned(masks: Sequence[Level], side: int) -> list[Level]:
    """Return masks whose regions hold whole tiles."""

    def whole(mask: Level) -> Shape:
        sizes = [-(-n // (2 * side)) * 2 * side for n in mask.region]
        return tuple(sizes)

    # all levels share the region of the first, so that halving maps regions onto regions
    region = whole(masks[0])
    return [replace(mask, region=region) for mask in masks]


def tile_side(chunk: Sequence[int] | None) -> int:
    """Return the side of tiles: of `chunk`, whose last two numbers must be equal."""
    if chunk is None:
        return write_tiles.SIDE
    sides = tuple(chunk)[-2:]
    side = int(sides[-1])
    # TIFF 6.0 section 15: multiples of 16
    if len(set(sides)) != 1 or side % 16 or not 16 <= side <= write_tiles.LARGEST_SIDE:
        raise OptionError(
            f"tiff: chunk {'x'.join(map(str, chunk))}; expected square tiles whose side is a "
            f"multiple of 16, up to {write_tiles.LARGEST_SIDE}"
        )
    return side


def with_ome_xml(pictures: Sequence[Picture], source: Node) -> list[Picture]:
    """Return pictures of which the first page of the first one has the OME-XML."""
    images, first = [], 0
    for picture in pictures:
        level = picture.levels[0]
        images.append(
            OmeImage(
                picture.meaning,
                level.level.shape,
                level.format.dtype,
                level.format.bands,
                first,
                picture.planes,
            )
        )
        first += picture.planes
    about = source.attributes.get("tiff", {})
    before = about.get("ome_xml") if isinstance(about, Mapping) else None
    described = text(DESCRIPTION, write_tags.document(images, before))
    start = pictures[0]
    return [replace(start, tags=(*start.tags, described)), *pictures[1:]]


def lost_xml(source: Node) -> Iterator[str]:
    """Yield that the OME-XML of a part's source is not kept: it describes planes of the whole."""
    whole = source.attributes.get(PART_OF, {})
    about = whole.get("tiff") if isinstance(whole, Mapping) else None
    if isinstance(about, Mapping) and "ome_xml" in about:
        yield "what the OME-XML of the source says beyond sizes, names and colours"


def pages(plan: TiffPlan, lengths: Mapping[str, Any]) -> tuple[list[Page], list[list[Page]]]:
    """Return the pages in the order of their directories, and groups in the order of their tiles.

    Parameters:
        plan: the plan.
        lengths: of the tiles of each array, by path.
    """
    chain: list[Page] = []
    order: list[list[Page]] = []
    for picture in plan.pictures:
        found = [level_pages(picture, n, lengths) for n in range(len(picture.levels))]
        masks = [
            level_page(mask, picture, lengths[mask.level.path], number, ())
            for number, mask in enumerate(picture.masks)
        ]
        if plan.is_cog:
            for number, (page,) in enumerate(found):
                chain += [page, *masks[number : number + 1]]
            is_paired = bool(masks) and len(masks[0].lengths) == len(found[0][0].lengths)
            for number in reversed(range(len(found))):
                both = [*found[number], *masks[number : number + 1]]
                order += [both] if is_paired else [[page] for page in both]
        else:
            for number, page in enumerate(found[0]):
                page.below = [coarser[number] for coarser in found[1:]]
            chain += found[0]
            order += [[page] for level in reversed(found) for page in level]
    return chain, order


def level_pages(picture: Picture, number: int, lengths: Mapping[str, Any]) -> list[Page]:
    """Return the pages of one level."""
    written = picture.levels[number]
    parts = np.split(lengths[written.level.path], picture.planes)
    return [
        level_page(written, picture, part, number, picture.tags if not number and not n else ())
        for n, part in enumerate(parts)
    ]


def level_page(
    written: Written, picture: Picture, lengths: Any, number: int, tags: Sequence[Tag]
) -> Page:
    """Return one page: of a level, or of its mask."""
    rows, columns = written.level.shape[-2:]
    kind = (MASK if written.is_mask else 0) | (REDUCED if number else 0)
    common = () if written.is_mask else picture.common
    found = [
        longs(WIDTH, columns),
        longs(HEIGHT, rows),
        shorts(PHOTOMETRIC, written.format.photometric),
        *written.format.tags(),
        *common,
        *tags,
    ]
    if kind:
        found.append(longs(SUBFILE_TYPE, kind))
    return Page(found, lengths)
