"""NITF 2.1, NITF 2.0 and NSIF 1.0: images in segments of one file.

Spec:    Joint BIIF Profile 2024.1, MIL-STD-2500C (2.1), MIL-STD-2500A (2.0), STANAG 4545 (NSIF).
Axes:    (c, y, x), or (y, x) for one band.
Opened:  all image segments; IC NC NM C1 M1 C3 M3 I1 C4 M4 C5 M5 C8 M8 CD MD; IMODE B P R S; INT
         and SI of 1 to 64 bits, B, R of 32 and 64, C of 64; blocked, in one block, masked, padded;
         reduced resolutions in sibling files (.r1, .r2 …) as levels.
Refused: other IC, encrypted segments, other sample types, headers that contradict themselves. A
         refused image does not prevent the others of its file from opening; its attribute
         `nitf.refused` says why.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anychunk.errors import AnychunkError, FormatError, TruncatedError, UnsupportedError
from anychunk.formats import _jpeg2000
from anychunk.formats._axes import without_single_band
from anychunk.formats._side_files import NONE, SideFiles, side_files, with_side_files
from anychunk.formats._two_steps import Plain, in_two_steps, quick_source
from anychunk.formats.nitf.blocks import Image, Stored, block_grid, read_image, without_mask
from anychunk.formats.nitf.compressed import (
    COVERAGE,
    bilevel_index,
    jpeg2000_index,
    jpeg_index,
    rpf_locations,
    vq_index,
)
from anychunk.formats.nitf.header import (
    HEAD,
    IMAGE_EXTENSIONS,
    UNKNOWN_LENGTH,
    VERSIONS,
    File,
    Segment,
    Values,
    layout,
    read,
    read_file,
)
from anychunk.formats.nitf.meaning import (
    header_json,
    image_meaning,
    overflow_tres,
    placement,
    segment_list,
    split_tres,
)
from anychunk.formats.nitf.place import image_place
from anychunk.formats.nitf.tre import Tre
from anychunk.formats.nitf.uncompressed import (
    LISTED,
    Options,
    block_bytes,
    block_offsets,
    blocks_array,
    has_complex_pairs,
    has_other_bits,
    uncompressed_index,
)
from anychunk.io.block_cache import buffered
from anychunk.io.file import FileSource
from anychunk.io.inside import resolve
from anychunk.io.opening import open_beside
from anychunk.io.source import Source
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Level, Meaning
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json
from anychunk.model.pin import Pin

# Parsed files, and R-sets: reduced resolutions of an image in sibling files, .r1, .r2 …
#
# Each R-set is half as large as the one before.


MAX_LEVELS = 16
"""Maximum number of levels, including full resolution."""


@dataclass(frozen=True, kw_only=True)
class ParsedImage:
    """One image: what it means and its levels; neither if it is refused."""

    meaning: Meaning | None = None
    levels: tuple[Level, ...] = ()
    native: Mapping[str, Json] = field(default_factory=dict)
    """Attributes of a refused image."""

    def group(self) -> GroupIndex:
        """Return the group of the image."""
        if self.meaning is None:
            return GroupIndex(members={}, attributes=dict(self.native))
        return image_group(self.meaning, self.levels)


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """The images of a file."""

    images: Mapping[str, ParsedImage]
    attributes: Mapping[str, Json]
    """What the file header states."""
    pins: Mapping[str, Pin] = field(default_factory=dict)

    def group(self) -> GroupIndex:
        """Return the root group of the file."""
        images = {name: image.group() for name, image in self.images.items()}
        return root_group(images, self.attributes, pins=dict(self.pins))


def with_rsets(parsed: Parsed, main: Source, parse: Callable[[Source], Parsed]) -> Parsed:
    """Add the R-set files next to a file as levels of its image.

    Files with several images, or whose image has several levels already, are returned unchanged.

    Parameters:
        parsed: the file.
        main: source of the file; `.r1` … are appended to its url, or replace its `.r0`.
        parse: parses one file.
    """
    full = only_array(parsed)
    if full is None:
        return parsed
    base = main.url.removesuffix(".r0")
    arrays, pins = [full], dict(parsed.pins)
    for number in range(1, MAX_LEVELS):
        found = sibling(f"{base}.r{number}", parse, main)
        if found is None or not is_next_level(found[0], arrays[-1]):
            break
        arrays.append(found[0])
        pins.update(found[1])
    levels = (rset_level(number, array) for number, array in enumerate(arrays))
    image = replace(parsed.images["0"], levels=tuple(levels))
    return replace(parsed, images={"0": image}, pins=pins)


def rset_level(number: int, array: ArrayIndex) -> Level:
    """Return an R-set as a level; its pixels are 2**n as wide, whatever sizes are rounded to."""
    factor = float(1 << number)
    lead = (1.0,) * (len(array.shape) - 2)
    return Level(name=str(number), image=array, factor=(*lead, factor, factor))


def only_array(parsed: Parsed) -> ArrayIndex | None:
    """Return the array of a file with one image of one level; None for any other file."""
    image = parsed.images.get("0")
    if len(parsed.images) != 1 or image is None or len(image.levels) != 1:
        return None
    return image.levels[0].image


def sibling(
    url: str, parse: Callable[[Source], Parsed], main: Source
) -> tuple[ArrayIndex, dict[str, Pin]] | None:
    """Return the array and pin of a file beside `main`; None if it is missing or unreadable."""
    try:
        folder, _, name = url.rpartition("/")
        resolve(folder or ".", name)  # raises for a link that leads out of the folder
        source = open_beside(main, url)
        array = only_array(parse(buffered(source)))
    except (FileNotFoundError, AnychunkError):
        return None
    return None if array is None else (array, {url: source.pin()})


def is_next_level(array: ArrayIndex, before: ArrayIndex) -> bool:
    """Return whether `array` has the bands and type of `before`, and half its size."""
    if (array.data_type, array.shape[:-2]) != (before.data_type, before.shape[:-2]):
        return False
    # writers round odd sizes up or down
    return all(
        abs(2 * small - large) <= 2
        for small, large in zip(array.shape[-2:], before.shape[-2:], strict=True)
    )


EXTENSIONS = (".ntf", ".nitf", ".nsf")


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a NITF or NSIF file."""
    return head[:9] in VERSIONS


def parse(
    source: Source,
    *,
    rsets: bool | None = None,
    justify: bool | None = None,
    complex_pairs: bool = True,
    sidecars: bool | None = None,
) -> GroupIndex:
    """Index a NITF file by its headers, without reading samples.

    Parameters:
        source: the file.
        rsets: whether to look for reduced resolutions in sibling files (.r1, .r2 …). The default is
            True for local files, and for remote files whose name ends in .r0.
        justify: whether left-justified samples (PJUST L) are shifted to the low end, and signed
            ones extended from their highest significant bit. The default is to do so unless the
            other bits are in use.
        complex_pairs: whether pairs of I and Q bands of SAR images (SICD) are one complex band.
        sidecars: whether to look for side files (.aux.xml, .nfw, .ovr, .msk); None: if the file is
            local. Those of a file with several images are ignored.
    """
    options = Options(justify=justify, complex_pairs=complex_pairs)
    file = quick_source(source)
    plain = None if file is None else plain_array(file)
    if plain is None or file is None:
        return parse_all(source, options, rsets=rsets, sidecars=sidecars)
    later = partial(
        parse_all, options=options, rsets=rsets, sidecars=sidecars is not False,
        first=len(plain.pieces[0]),
    )  # fmt: skip
    return in_two_steps(file, plain, later)


def parse_all(
    source: Source,
    options: Options,
    *,
    rsets: bool | None = None,
    sidecars: bool | None = None,
    first: int = HEAD,
) -> GroupIndex:
    """Index any NITF file, as `parse` does; `first` is the number of bytes of the first read."""
    one = partial(parse_file, options=options)
    parsed = one(source, first=first)
    has_rsets = source.is_local or source.url.endswith(".r0") if rsets is None else rsets
    if has_rsets:
        parsed = with_rsets(parsed, source, one)
    return beside(parsed, side_files(source, sidecars=sidecars)).group()


def beside(parsed: Parsed, side: SideFiles) -> Parsed:
    """Return a file with what its side files state about its only image."""
    image = parsed.images.get("0")
    if side is NONE or len(parsed.images) != 1 or image is None or image.meaning is None:
        return parsed
    if image.meaning.place.crs is not None:
        # as in GDAL: the corners of a NITF image count for more than what is beside it
        pam = side.pam and replace(side.pam, transform=None, crs=None, gcps=())
        side = replace(side, pam=pam, world=None)
    meaning, levels = with_side_files(image.meaning, image.levels, side)
    attributes = dict(parsed.attributes)
    if side.refused:
        attributes["nitf"] = {**attributes["nitf"], "refused": [str(e) for e in side.refused]}
    return replace(
        parsed,
        images={"0": replace(image, meaning=meaning, levels=tuple(levels))},
        attributes=attributes,
        pins={**parsed.pins, **side.pins},
    )


def parse_file(source: Source, *, options: Options, first: int = HEAD) -> Parsed:
    """Parse one file, without its R-sets."""
    file = read_file(source, first=first)
    further = overflow_tres(file, source)
    images: dict[str, ParsedImage] = {}
    refusals: list[AnychunkError] = []
    for segment in file.of("image"):
        found, rests = split_tres(segment.values)
        tres = found + further.get(("image", segment.number), [])
        about = image_attributes(segment, tres, rests)
        try:
            parsed = parse_image(source, segment, tres, file=file, about=about, options=options)
        except (UnsupportedError, FormatError) as e:
            if isinstance(e, TruncatedError) and segment.end > source.size():
                raise  # a truncated file: its images must not look like refused ones
            refusals.append(e)
            parsed = ParsedImage(native={"nitf": {**about, "refused": str(e)}})
        images[str(segment.number)] = parsed
    if refusals and len(refusals) == len(images):
        raise refusals[0]
    return Parsed(images=images, attributes=file_attributes(file, further))


def parse_image(
    source: Source,
    segment: Segment,
    tres: list[Tre],
    *,
    file: File,
    about: dict[str, Json],
    options: Options,
) -> ParsedImage:
    """Return what an image means, and its levels."""
    if segment.refusal:
        raise segment.refusal
    if segment.values.get("ENCRYP") not in ("0", "", None):
        raise UnsupportedError(
            f"{source.url} {segment.name}: ENCRYP is {segment.values['ENCRYP']!r}; encrypted "
            "segments are not supported"
        )
    image = read_image(segment, source.url, source.size())
    try:
        locations = frame_locations(image, tres)
        stored = stored_image(source, image, locations, options)
    except AnychunkError as e:
        raise (e if image.where in str(e) else type(e)(f"{image.where}: {e}")) from e
    arrays = [without_single_band(array) for array in stored.arrays]
    stored = replace(stored, arrays=arrays)
    height, width = arrays[0].shape[-2:]
    place = image_place(
        segment.values,
        tres,
        (height, width),
        coverage=coverage(source, locations),
        is_rough=is_sensor_data(segment, file),
    )
    native: dict[str, Json] = {"nitf": about}
    if stored.codestream is not None:
        native["j2k"] = _jpeg2000.describe(stored.codestream)
    meaning = image_meaning(image, stored, place, file=file.values, native=native)
    levels = [Level(name="0", image=arrays[0])]
    if stored.codestream is not None:
        levels = _jpeg2000.levels(stored.codestream, arrays, meaning)
    return ParsedImage(meaning=meaning, levels=tuple(levels))


def stored_image(
    source: Source, image: Image, locations: dict[int, int], options: Options
) -> Stored:
    """Return the arrays of an image, by its compression.

    Parameters:
        source: the file.
        image: the image.
        locations: file offsets of the sections of an RPF frame by identifier; empty otherwise.
        options: what the caller decides about samples.
    """
    if image.ic in ("NC", "NM"):
        return uncompressed_index(source, image, options)
    # C1 and M1 differ only in the mask; so do C3 and M3, and so on
    kind = image.ic[1]
    if kind in "8D":
        return jpeg2000_index(source, image)
    if kind in "35" or image.ic == "I1":
        return jpeg_index(source, image)
    if kind == "1":
        return bilevel_index(source, image)
    return vq_index(source, image, locations)


def frame_locations(image: Image, tres: list[Tre]) -> dict[int, int]:
    """Return the file offsets of the sections of an RPF frame by identifier; empty otherwise."""
    frame = next((tre for tre in tres if tre.tag == "RPFIMG"), None)
    try:
        return rpf_locations(frame.data, image.where) if frame else {}
    except FormatError:
        if image.ic in ("C4", "M4"):
            raise
        return {}  # only vector quantization needs it to find its pixels


def coverage(source: Source, locations: dict[int, int]) -> bytes:
    """Return the coverage section of an RPF frame; empty if there is none."""
    at = locations.get(COVERAGE)
    if at is None or at + 64 > source.size():
        return b""
    return source.read(at, 64).tobytes()


def is_sensor_data(segment: Segment, file: File) -> bool:
    """Return whether an image is SICD or SIDD, whose geometry is in their XML."""
    if str(segment.values.get("IID1", "")).startswith(("SICD", "SIDD")):
        return True
    texts = (des.values.get("DESSHF", b"") for des in file.of("des"))
    return any(
        isinstance(text, bytes) and (b":SICD:" in text or b":SIDD:" in text) for text in texts
    )


def image_attributes(segment: Segment, tres: list[Tre], rests: list[bytes]) -> dict[str, Json]:
    """Return the attributes of an image that its subheader and TREs state, for `nitf`."""
    values = segment.values
    about = header_json(values, tres, rests)
    about["placement"] = placement(values)
    about["offset"], about["length"] = segment.offset, segment.length
    if segment.problem:
        about["problem"] = segment.problem
    return about


def file_attributes(file: File, further: dict[tuple[str, int], list[Tre]]) -> dict[str, Json]:
    """Return the attributes of the root group."""
    tres, rests = split_tres(file.values)
    about = header_json(file.values, tres + further.get(("file", 0), []), rests)
    about["segments"] = segment_list(file)
    return {"nitf": about}


# The array of a NITF 2.1 file that has one uncompressed image and no extensions.
#
# The headers of a NITF file have hundreds of fields, most of which are blank and say nothing
# about
# the samples. Where the counts in the file header leave no choice, the few fields that do are at
# fixed places. Whatever else a file has, or if any value is doubtful, `plain_array` returns None,
# and
# the general parser decides, which also reports the errors. The arrays that both find are equal.
#
# Spec: MIL-STD-2500C tables A-1 and A-3.

PLAIN_VERSIONS = (b"NITF02.10", b"NSIF01.00")
HEADER = 404
"""Length of a file header with one image, and neither other segments nor extensions."""
FL, HL, IMAGES, OTHERS = slice(342, 354), slice(354, 360), slice(360, 379), slice(379, 404)
"""FL; HL; NUMI, LISH and LI; the counts and lengths of everything else."""
TITLES, ENCRYP, SAMPLES, ICORDS = slice(2, 290), slice(290, 291), slice(333, 372), slice(371, 372)
"""Parts of the subheader: names and security; whether it is encrypted; NROWS to ICORDS."""
IGEOLO = 60
"""Length of the coordinates that follow ICORDS, unless it is blank."""
MOST_BYTES, MOST_CHUNKS = 4096, 1 << 16
"""Longer headers and tables are left to the general parser."""


def plain_array(source: FileSource) -> Plain | None:
    """Return the array of a file with one ordinary image; None if the file is anything else."""
    size = source.size()
    head = source.read(0, min(size, MOST_BYTES)).tobytes()
    counts = head[IMAGES]
    if (
        head[:9] not in PLAIN_VERSIONS
        or head[HL] != b"%06d" % HEADER
        or head[OTHERS] != b"0" * 25
        or counts[:3] != b"001"
        or not counts.isdigit()
        or not head[FL].isdigit()
        or head[FL] == b"%d" % UNKNOWN_LENGTH
    ):
        return None
    start, length = HEADER + int(counts[3:9]), int(counts[9:])
    if start > len(head) or start + length > size:
        return None
    subheader = head[HEADER:start]
    icords = subheader[ICORDS]
    at = SAMPLES.stop + (0 if icords == b" " else IGEOLO)
    if subheader[:2] != b"IM" or subheader[ENCRYP] != b"0" or icords not in b" GDNS":
        return None
    pattern = _pattern(subheader[SAMPLES], subheader[at:], length)
    if pattern is None:
        return None
    chunks = ByteRanges(
        offsets=pattern.offsets + np.uint64(start),
        lengths=pattern.lengths.copy(),
        urls=(source.url,),
        **pattern.fronts,
    )
    fields = {
        "shape": pattern.shape,
        "chunk_shape": pattern.chunk_shape,
        "data_type": pattern.data_type,
        "codecs": tuple(_copied(codec) for codec in pattern.codecs),
        "chunks": chunks,
        "dimension_names": pattern.names,
    }
    return Plain(fields, {0: head[:start]})


def _copied(codec: Json) -> Json:
    return {**codec, "configuration": dict(codec["configuration"])}


class _Pattern(NamedTuple):
    """What files have in common whose subheaders differ only in names and places."""

    shape: Shape
    chunk_shape: Shape
    names: tuple[str | None, ...]
    data_type: Json
    codecs: tuple[Json, ...]
    offsets: npt.NDArray[np.uint64]
    """Relative to the start of the image data."""
    lengths: npt.NDArray[np.uint64]
    fronts: dict[str, Any]


@lru_cache(maxsize=256)
def _pattern(samples: bytes, rest: bytes, length: int) -> _Pattern | None:
    """Return the pattern of images with these parts of a subheader; None if they are not plain.

    Parameters:
        samples: NROWS to ICORDS.
        rest: what follows the coordinates, from NICOM on.
        length: that of the image data.
    """
    place = b"" if samples.endswith(b" ") else b" " * IGEOLO
    subheader = b"IM".ljust(SAMPLES.start) + samples + place + rest
    try:
        values = _values(subheader)
        if values is None:
            return None
        segment = Segment(
            kind="image", number=0, header_offset=0, header_length=0, offset=0, length=length,
            values=values, is_last=True,
        )  # fmt: skip
        image = read_image(segment, "", length)
        if not _is_plain(image):
            return None
        if image.bands == 1:
            image = replace(image, imode="B")  # with one band all modes are the same
        mask = without_mask(image)
        array = without_single_band(blocks_array("", image, mask, block_offsets(image, mask)))
    except AnychunkError:
        return None
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges) or any(
        "configuration" not in codec for codec in array.codecs
    ):
        return None
    fronts: dict[str, Any] = {}
    if chunks.fronts:
        fronts = {"fronts": chunks.fronts, "front_ids": chunks.front_ids}
    return _Pattern(
        array.shape, array.chunk_shape, array.dimension_names, array.data_type, array.codecs,
        chunks.offsets, chunks.lengths, fronts,
    )  # fmt: skip


def _values(subheader: bytes) -> Values | None:
    """Return the values of a subheader; None if it has comments, palettes or extensions."""
    values, at = read(layout("image", "2.1"), subheader)
    for extension in IMAGE_EXTENSIONS:
        found, at = read(extension, subheader, at)
        values.update(found)
    is_bare = (values["NICOM"], values["UDIDL"], values["IXSHDL"]) == (0, 0, 0)
    has_tables = any(band["NLUTS"] != 0 for band in values["BANDS"])
    return values if is_bare and not has_tables and at == len(subheader) else None


def _is_plain(image: Image) -> bool:
    """Return whether the general parser is not needed to make sense of an image."""
    abpp = image.segment.values["ABPP"]
    count = math.prod(block_grid(image))
    return (
        image.ic == "NC"
        and isinstance(abpp, int)
        and 1 <= abpp <= image.nbpp
        and image.nbpp in LISTED
        and count <= MOST_CHUNKS
        and count * block_bytes(image) == image.segment.length
        and not has_other_bits(image)
        and not has_complex_pairs(image)
    )
