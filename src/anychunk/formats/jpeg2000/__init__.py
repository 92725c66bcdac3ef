"""JPEG 2000: raw codestreams, JP2, JPH (HTJ2K) and JPX files.

Spec:    ITU-T T.800 and T.814; JP2: T.800 annex I; JPX: T.801 annex M; GeoJP2; OGC GMLJP2.
Axes:    (c, y, x), or (y, x) for one component; an image per codestream, a level per resolution.
Opened:  .j2k .j2c .jhc .jp2 .jph .jpx: any tiling, offsets, progression, tile-parts in any order;
         1 to 31 bits, signed and unsigned, components that differ in depth or sampling.
         Values are those of the codestream: YCbCr is not converted, palette images are indices
         with the palette in the attributes, subsampled components are repeated to the full grid.
Refused: wavelets and decompositions of part 2, samples of more than 31 bits, JPX fragment tables.
"""

import base64
import math
import re
import struct
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from io import BytesIO
from typing import Any, NamedTuple

from anychunk import limits
from anychunk.codecs import to_json
from anychunk.codecs.jpeg2000 import Jpeg2000
from anychunk.codecs.jpeg2000.tiles import check_decodable, level_image
from anychunk.codestream.jpeg2000 import (
    PLM,
    PPM,
    SOT,
    TLM,
    MainHeader,
    Siz,
    read_main_header,
    segments,
)
from anychunk.codestream.tiles import Codestream, index_tiles
from anychunk.errors import AnychunkError, FormatError, UnsupportedError
from anychunk.formats._jpeg2000 import (
    CODESTREAM_MAGIC,
    axes,
    band_axis,
    describe,
    divided,
    has_single_parts,
    is_large,
    level_arrays,
    levels,
    single_parts,
)
from anychunk.formats._side_files import NONE, SideFiles, side_files, with_side_files
from anychunk.formats._two_steps import Plain, in_two_steps, quick_source
from anychunk.formats.jpeg2000.boxes import SIGNATURE, Box, Header, read_header, scan
from anychunk.io.file import FileSource
from anychunk.io.source import Source
from anychunk.metadata import crs as crs_text
from anychunk.metadata.geo import geotiff_transform
from anychunk.metadata.geo_keys import PIXEL_IS_POINT, RASTER_TYPE, geo_keys
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Alpha, Axis, Band, Crs, Display, Meaning, Place
from anychunk.model.grid import Shape
from anychunk.model.index import ArrayIndex, GroupIndex, Json

# The array of full resolution of a file that has one ordinary codestream, and no more boxes.
#
# Every resolution of a codestream is an array, and making all of them takes longer than decoding
# a small image. Files of a series have the same main header, so what follows from it is computed
# once. Whatever else a file has, or if any value is doubtful, `plain_image` returns None, and the
# general parser decides, which also reports the errors. The arrays that both find are equal.
#
# Spec: ITU-T T.800 annexes A and I.


MOST_BYTES = 4096
"""Longer headers are left to the general parser."""
IMAGE_HEADER, COLOUR = 22, 15
"""Lengths of the boxes ihdr, and colr with an enumerated colour space."""


def plain_image(source: FileSource) -> tuple[Plain, Codestream] | None:
    """Return the array and the codestream of an ordinary file; None if it is anything else.

    Raises:
        AnychunkError: The codestream is damaged, as the general parser says.
    """
    head = source.read(0, min(source.size(), MOST_BYTES)).tobytes()
    place = _codestream(head, source.size())
    if place is None:
        return None
    start, size, is_announced = place
    try:
        *_, (_, end, _) = segments(head, start + 2, SOT)
    except AnychunkError:
        return None
    pattern = _pattern(head[start : end + 2])
    if pattern is None:
        return None
    area = pattern.header.siz.image
    if size not in (None, (area.height, area.width)):
        return None
    stream = index_tiles(
        source, start, source.size() - start, is_announced=is_announced, header=pattern.header
    )
    if not has_single_parts(stream):
        return None
    limits.check_chunk(
        pattern.chunk_bytes, where=f"{source.url} codestream @{start}", stored=stream.length
    )
    fields: dict[str, Any] = {
        "shape": pattern.shape,
        "chunk_shape": pattern.chunk_shape,
        "data_type": pattern.data_type,
        "codecs": tuple({**c, "configuration": dict(c["configuration"])} for c in pattern.codecs),
        "chunks": single_parts(stream, source.url),
        "dimension_names": pattern.names,
    }
    if is_large(pattern.header):
        parts = divided(ArrayIndex(fill_value=0, **fields))
        fields |= {name: getattr(parts, name) for name in ("chunk_shape", "codecs", "chunks")}
    return Plain(fields, {0: head[: end + 2]}), stream


def _codestream(head: bytes, end: int) -> tuple[int, tuple[int, int] | None, bool] | None:
    """Return where the codestream begins, the size of the image, and whether its length is stated.

    None unless the file is a codestream, or the boxes jP, ftyp, jp2h and jp2c and nothing else.
    """
    if head.startswith(CODESTREAM_MAGIC):
        return 0, None, False
    if not head.startswith(SIGNATURE):
        return None
    at, size = len(SIGNATURE), None
    for expected in (b"ftyp", b"jp2h"):
        length, kind = _box(head, at)
        if kind != expected or length < 8 or at + length > len(head):
            return None
        if kind == b"jp2h":
            size = _image_size(head[at + 8 : at + length])
        at += length
    length, kind = _box(head, at)
    if kind != b"jp2c" or size is None or length not in (0, end - at):
        return None
    return (at + 8, size, length != 0) if head[at + 8 :].startswith(CODESTREAM_MAGIC) else None


def _image_size(boxes: bytes) -> tuple[int, int] | None:
    """Return height and width of the image by jp2h; None if it has boxes that are not ordinary."""
    if _box(boxes, 0) != (IMAGE_HEADER, b"ihdr") or len(boxes) < IMAGE_HEADER:
        return None
    at = IMAGE_HEADER
    while at < len(boxes):
        length, kind = _box(boxes, at)
        is_inside = at + length <= len(boxes)
        is_colour = kind == b"colr" and length == COLOUR and is_inside and boxes[at + 8] == 1
        if not is_inside or not (is_colour or (kind == b"bpcc" and length > 8)):
            return None
        at += length
    height, width = struct.unpack(">II", boxes[8:16])
    return height, width


def _box(data: bytes, at: int) -> tuple[int, bytes]:
    """Return length and type of the box at a position; (0, b"") if the data end there."""
    return struct.unpack_from(">I4s", data, at) if at + 8 <= len(data) else (0, b"")


class _Pattern(NamedTuple):
    """What files have in common that have the same main header."""

    header: MainHeader
    shape: Shape
    chunk_shape: Shape
    names: tuple[str, ...]
    data_type: str
    codecs: tuple[Json, ...]
    chunk_bytes: int


@lru_cache(maxsize=64)
def _pattern(data: bytes) -> _Pattern | None:
    """Return the pattern of files with this main header, given with the first SOT marker.

    None if their chunks are not whole tiles.
    """
    try:
        header = read_main_header(data)
        check_decodable(header)
        siz = header.siz
        image = level_image(siz, 0)
        # subsampling may leave no sample at all
        is_other = header.markers & {PPM, TLM, PLM} or not (image.width and image.height)
        found = None if is_other else axes(siz, 0)
        if found is None:
            return None
    except AnychunkError:
        return None
    y, x = found
    if not (y.is_plain(siz.rows) and x.is_plain(siz.columns)):
        return None
    bands = band_axis(siz)
    chunk_shape = (*bands, y.chunk, x.chunk)
    codec = Jpeg2000(main_header=base64.b64encode(header.data).decode(), resolution_level=0)
    return _Pattern(
        header=header,
        shape=(*bands, y.size, x.size),
        chunk_shape=chunk_shape,
        names=("c", "y", "x") if bands else ("y", "x"),
        data_type=siz.dtype.name,
        codecs=({"name": "bytes", "configuration": {"endian": "little"}}, to_json(codec)),
        chunk_bytes=math.prod(chunk_shape) * siz.dtype.itemsize,
    )


EXTENSIONS = (".jp2", ".j2k", ".j2c", ".jpx", ".jph", ".jhc")


def sniff(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a codestream or a file of the JP2 family."""
    return head.startswith((CODESTREAM_MAGIC, SIGNATURE))


def parse(source: Source, *, sidecars: bool | None = None) -> GroupIndex:
    """Index a JPEG 2000 file by its boxes and markers, without reading samples.

    Parameters:
        source: the file.
        sidecars: whether to look for side files (.aux.xml, .j2w, .ovr, .msk); None: if the file is
            local.
    """
    file = quick_source(source)
    plain = None if file is None else plain_image(file)
    if plain is None or file is None:
        return parse_file(source, sidecars=sidecars)
    array, stream = plain
    later = partial(parse_file, sidecars=sidecars is not False, known=stream)
    return in_two_steps(file, array, later)


def parse_file(
    source: Source, *, sidecars: bool | None = None, known: Codestream | None = None
) -> GroupIndex:
    """Index any JPEG 2000 file, as `parse` does; `known` is its only codestream."""
    side = side_files(source, sidecars=sidecars)
    about: dict[str, Json] = {}
    if side.refused:
        about["refused"] = [str(e) for e in side.refused]
    if source.read(0, min(4, source.size())).tobytes() == CODESTREAM_MAGIC:
        stream = known or index_tiles(source, 0, source.size())
        group = image(stream, source.url, Header(), Found(side=side))
        return root_group({"0": group}, {"j2k": about} if about else {}, pins=dict(side.pins))
    boxes = scan(source)
    if any(box.type == "ftbl" for box in boxes):
        raise UnsupportedError(
            f"{source.url}: codestreams in JPX fragment tables (ftbl) are not supported; "
            "supported: codestreams in jp2c boxes"
        )
    streams = [box for box in boxes if box.type == "jp2c"]
    if not streams:
        types = " ".join(sorted({box.type.strip() for box in boxes}))
        raise FormatError(f"{source.url}: found boxes {types}, expected a codestream (jp2c)")
    default = next((read_header(source, box) for box in boxes if box.type == "jp2h"), Header())
    own = [read_header(source, box) for box in boxes if box.type == "jpch"]
    found = replace(metadata(source, boxes), side=side)
    members = {}
    for number, box in enumerate(streams):
        stream = known or index_tiles(source, box.offset, box.length, is_announced=box.is_announced)
        header = own[number].over(default) if number < len(own) else default
        if len(streams) == 1:
            check_size(stream, header, source.url)
        # the georeference is that of the first codestream
        members[str(number)] = image(stream, source.url, header, found if number == 0 else Found())
    about["boxes"] = [box.json() for box in boxes]
    return root_group(members, {"j2k": about}, pins=dict(side.pins))


def check_size(stream: Codestream, header: Header, url: str) -> None:
    """Refuse a codestream that contradicts the image header box (T.800 I.5.3.1)."""
    area = stream.header.siz.image
    if header.size is not None and header.size != (area.height, area.width):
        raise FormatError(
            f"{url}: the codestream is {area.height} x {area.width} (SIZ), the image header box "
            f"says {header.size[0]} x {header.size[1]} (ihdr); expected the same"
        )


@dataclass(frozen=True)
class Found:
    """What the boxes of a file, and files beside it, state about its first codestream."""

    place: Place = field(default_factory=Place)
    texts: dict[str, Json] = field(default_factory=dict)
    """The XML, and what could not be read, for `j2k`."""
    side: SideFiles = NONE


def image(stream: Codestream, url: str, header: Header, found: Found) -> GroupIndex:
    """Return the group of one codestream.

    Parameters:
        stream: the codestream.
        url: url of the file.
        header: what JP2 boxes state about its components.
        found: what other boxes state about it.
    """
    arrays = [divided(level) for level in level_arrays(stream, url)]
    if header.palette is not None:
        arrays = arrays[:1]  # lower resolutions are means, which are meaningless for indices
    meaning = Meaning(
        axes=image_axes(len(arrays[0].shape), header, found.place),
        place=found.place,
        bands=image_bands(stream.header, header),
        display=image_display(stream.header, header),
        native={"j2k": {**describe(stream.header), **header.json(), **found.texts}},
    )
    placed = levels(stream.header, arrays, meaning)
    if found.side is not NONE:
        meaning, placed = with_side_files(meaning, placed, found.side)
    return image_group(meaning, placed)


def image_axes(ndim: int, header: Header, place: Place) -> tuple[Axis, ...]:
    """Return the axes, scaled by the resolution boxes unless a georeference states the scale."""
    resolution = header.resolution or {}
    density = resolution.get("capture") or resolution.get("display") or {}
    axes = []
    for name in ("c", "y", "x")[-ndim:]:
        samples = density.get(name, 0.0)  # per metre
        is_stated = samples > 0 and place.transform is None
        axes.append(
            Axis(name=name, unit="meter", scale=1 / samples) if is_stated else Axis(name=name)
        )
    return tuple(axes)


def metadata(source: Source, boxes: list[Box]) -> Found:
    """Return the XML texts of a file, and its georeference: GeoJP2, or else GMLJP2."""
    texts = [box.text(source) for box in boxes if box.type == "xml "]
    about: dict[str, Json] = {"xml": texts} if texts else {}
    place = Place()
    for box in boxes:
        if box.type == "uuid" and place.transform is None and box.is_geojp2(source):
            try:
                place = read_geojp2(box.read(source)[16:])
            except FormatError as e:  # pixels can be read without a georeference
                about["warning"] = str(e)
    if place.transform is None:
        for text in texts:
            described = read_gml(text)
            if described.transform is not None:
                place = Place(transform=described.transform, crs=described.crs or place.crs)
                break
    return Found(place, about)


# How a codestream is drawn, by the boxes of a JP2 file: colour space, palette, channels.
#
# Spec: T.800 I.5.3.3 to I.5.3.6 (colr, pclr, cmap, cdef).


ANY = 65535
"""Value of cdef: the type of a channel is not known, or it belongs to no colour."""
OPACITY = {"opacity": False, "premultiplied opacity": True}
"""Types of channels that hold opacity; whether colours are multiplied by it."""
MODELS = {"sRGB": "rgb", "greyscale": "grey", "sYCC": "ycbcr", "CMYK": "cmyk", "bilevel": "grey"}
"""Models of the enumerated colour spaces."""
COUNTS = {"grey": 1, "rgb": 3, "ycbcr": 3, "cmyk": 4}
"""Number of colour channels of each model."""
NAMES = {
    "grey": ("Gray",),
    "rgb": ("Red", "Green", "Blue"),
    "ycbcr": ("YCbCr_Y", "YCbCr_Cb", "YCbCr_Cr"),
    "cmyk": ("Cyan", "Magenta", "Yellow", "Black"),
}
"""GDAL's names of the colours of each model."""
FEW_BITS = 8
"""Samples of up to as many bits are drawn over their whole range."""


@dataclass(frozen=True)
class _Source:
    """Where a channel comes from."""

    component: int
    column: int | None = None
    """Column of the palette that the component's samples are looked up in."""


@dataclass(frozen=True)
class _Channels:
    colours: tuple[_Source, ...]
    """The sources of the colours, in the order of the colour space."""
    alpha: _Source | None = None
    is_associated: bool = False


def image_display(stream: MainHeader, header: Header) -> Display:
    """Return how an image is drawn.

    Parameters:
        stream: main header of the codestream.
        header: what JP2 boxes state about its components.
    """
    siz = stream.siz
    channels = _channels(siz, header)
    model = _model(stream, header, channels)
    shown = channels.colours[: COUNTS.get(model, 0)]
    if header.palette is not None and shown and all(s.column is not None for s in shown):
        table = _palette(header.palette, shown, channels.alpha)
        return Display(model="palette", bands=[shown[0].component], palette=table)
    if len(shown) != COUNTS.get(model, -1):
        return _with_alpha(Display(model="channels"), siz, channels)
    bands = [source.component for source in shown]
    drawn = Display(model=model, bands=bands)
    ranges = [_range(siz, band) for band in bands]
    if all(siz.components[band].depth <= FEW_BITS for band in bands):
        drawn["range"] = ranges[:1] if len({tuple(r) for r in ranges}) == 1 else ranges
    return _with_alpha(drawn, siz, channels)


def image_bands(stream: MainHeader, header: Header) -> tuple[Band, ...]:
    """Return the bands, with their colours as far as boxes state them; empty if they do not."""
    if not header.colors and header.channels is None:
        return ()  # a bare codestream
    display = image_display(stream, header)
    names: dict[int, str] = {}
    if display["model"] == "palette":
        names[display["bands"][0]] = "Palette"
    else:
        names |= dict(zip(display.get("bands", []), NAMES.get(display["model"], ()), strict=False))
    if "alpha" in display:
        names[display["alpha"]["band"]] = "Alpha"
    return tuple(Band(interpretation=names.get(n)) for n in range(len(stream.siz.components)))


def _channels(siz: Siz, header: Header) -> _Channels:
    """Return the sources of colours and opacity: the components, unless boxes say otherwise."""
    count = len(siz.components)
    sources = [_Source(number) for number in range(count)]
    if header.palette is not None and header.mapping is not None:
        columns = len(header.palette["depths"])
        mapped = [_Source(entry["component"], entry["column"]) for entry in header.mapping]
        sources = [s for s in mapped if s.component < count and (s.column or 0) < columns]
    if header.channels is None:
        return _Channels(tuple(sources))
    colours: dict[int, _Source] = {}
    alpha, is_associated = None, False
    for entry in header.channels:
        number, association = entry["channel"], entry["association"]
        if number >= len(sources):
            continue
        if entry["type"] == "color" and 0 < association < ANY:
            colours.setdefault(association, sources[number])
        elif entry["type"] in OPACITY and alpha is None:
            alpha, is_associated = sources[number], OPACITY[entry["type"]]
    found = tuple(colours[place] for place in sorted(colours))
    return _Channels(found, alpha, is_associated)


def _model(stream: MainHeader, header: Header, channels: _Channels) -> str:
    """Return the model that the first colour space with one has, or that the components have."""
    siz, count = stream.siz, len(channels.colours)
    if count == 3 and _has_coarse_chroma(siz):
        return "ycbcr"  # as OpenJPEG takes it, also where a box says sRGB
    for color in header.colors:
        if (model := MODELS.get(str(color.get("space")))) is not None:
            # without channel definitions, nothing says which of several components is the grey one
            is_clear = model != "grey" or count == 1 or header.palette is not None
            return model if is_clear else "channels"
    if count != 3:
        return "grey" if count == 1 else "channels"
    # the codestream's own transform (T.800 annex G) makes red, green and blue of three components
    is_colour = stream.cod.is_transformed or siz.components[0].depth <= FEW_BITS
    return "rgb" if is_colour or header.colors else "channels"


def _has_coarse_chroma(siz: Siz) -> bool:
    if len(siz.components) < 3:
        return False
    first, second, third = siz.components[:3]
    same = (second.dx, second.dy) == (third.dx, third.dy)
    return same and (second.dx > first.dx or second.dy > first.dy)


def _range(siz: Siz, band: int) -> list[float]:
    component = siz.components[band]
    if component.is_signed:
        half = 1 << component.depth - 1
        return [-half, half - 1]
    return [0, (1 << component.depth) - 1]


def _with_alpha(drawn: Display, siz: Siz, channels: _Channels) -> Display:
    source = channels.alpha
    if source is not None and source.column is None:
        drawn["alpha"] = Alpha(
            band=source.component,
            associated=channels.is_associated,
            range=_range(siz, source.component),
        )
    return drawn


def _palette(
    table: dict[str, Json], shown: tuple[_Source, ...], alpha: _Source | None
) -> dict[str, Json]:
    """Return the colours of a palette as red, green, blue and alpha of 8 bits."""
    depths = table["depths"]
    columns = [source.column or 0 for source in shown]
    columns = columns * 3 if len(columns) == 1 else columns[:3]
    opacity = alpha.column if alpha is not None else None

    def entry(row: list[int], column: int) -> int:
        top = (1 << depths[column]) - 1
        return int((row[column] & top) * 255 / top + 0.5)

    colours = [
        [*(entry(row, c) for c in columns), 255 if opacity is None else entry(row, opacity)]
        for row in table["entries"]
    ]
    return {"first": 0, "colors": colours}


# The georeference of a JPEG 2000 file: the GeoTIFF in a GeoJP2 box, or the grid of GMLJP2.
#
# Spec: GeoJP2 (a degenerate GeoTIFF in a uuid box); OGC 05-047r3 (GMLJP2 1.0), OGC 08-085 (2.0).

SRS_NAME = re.compile(
    r"srsName\s*=\s*[\"'](?P<form>[^\"']*?)\bEPSG(?:\.xml)?[:/#](?:[^\"':/#]*[:/])?(?P<code>\d+)[\"']",
    re.IGNORECASE,
)
"""EPSG:code, urn:ogc:def:crs:EPSG:version:code, http://www.opengis.net/def/crs/EPSG/0/code or
http://www.opengis.net/gml/srs/epsg.xml#code."""
OWN_ORDER = re.compile(r"urn:|https?://www\.opengis\.net/def/crs/", re.IGNORECASE)
"""Forms of names that ask for the order of axes that the CRS defines; others have x before y."""
EAST_FIRST = re.compile(r"EPSG:(32[67]\d\d|3857|269\d\d|267\d\d)")
NORTH_FIRST = re.compile(r"EPSG:(4326|4258|4269|4267|4230|4277|4283)")
"""Common CRS whose order of axes is known without a library: UTM, and longitude and latitude."""
ALTERNATE = "GDAL_JP2K_ALT_OFFSETVECTOR_ORDER=TRUE"
"""GDAL writes it into a comment where offset vectors have x and y in the opposite order."""
MATRIX, SCALE, TIEPOINTS, KEYS, DOUBLES, TEXT = 34264, 33550, 33922, 34735, 34736, 34737


def read_geojp2(data: bytes) -> Place:
    """Return the georeference of a degenerate GeoTIFF: one without pixels.

    Raises:
        FormatError: it is not a TIFF file.
    """
    tags = _tags(data)
    directory = tags.get(KEYS) or ()
    if len(directory) < 4:
        return Place()
    text = tags.get(TEXT) or ""
    keys = geo_keys(directory, tags.get(DOUBLES) or (), text if isinstance(text, str) else "")
    transform = geotiff_transform(
        scale=tags.get(SCALE),
        tiepoints=tags.get(TIEPOINTS),
        matrix=tags.get(MATRIX),
        is_point=keys.get(RASTER_TYPE) == PIXEL_IS_POINT,
    )
    return Place(transform=transform, crs=crs_text.crs_from_geokeys(keys))


def _tags(data: bytes) -> dict[int, Any]:
    from tifffile import TiffFile  # slow to import, and few files contain a GeoTIFF

    try:
        with TiffFile(BytesIO(data)) as tiff:
            tags = tiff.pages.first.tags
            found = {
                code: tags.valueof(code) for code in (MATRIX, SCALE, TIEPOINTS, KEYS, DOUBLES, TEXT)
            }
    except Exception as e:
        raise FormatError(
            f"GeoJP2 box of {len(data)} bytes: tifffile cannot read its GeoTIFF ({e})"
        ) from e
    return {code: _plain(value) for code, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    """Return a tag's value as text or tuple; tifffile does not wrap a single number."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    return value if isinstance(value, str | tuple) else (value,)


def read_gml(text: str) -> Place:
    """Return the georeference of the first rectified grid of a GML document.

    Parsed with regular expressions instead of an XML parser: real documents often have wrong
    namespaces, and nothing else is needed from them. The origin of the grid is the centre of the
    first pixel.
    """
    named = SRS_NAME.search(text)
    crs = Crs(code=f"EPSG:{named['code']}") if named else None
    grid = re.search(r"<(?:\w+:)?RectifiedGrid\b.*?</(?:\w+:)?RectifiedGrid>", text, re.DOTALL)
    if grid is None:
        return Place()
    origin = re.search(r"<(?:\w+:)?pos\b[^>]*>([^<]*)<", grid[0])
    vectors = re.findall(r"<(?:\w+:)?offsetVector\b[^>]*>([^<]*)<", grid[0])
    try:
        (x, y), (a, d), (b, e) = (
            [float(n) for n in re.split(r"[\s,]+", numbers.strip())[:2]]
            for numbers in ([origin[1], *vectors] if origin else [])
        )
    except ValueError:
        return Place(crs=crs)
    is_turned: bool | None = False
    if named and crs and OWN_ORDER.match(named["form"]) and not _states_easting(grid[0]):
        is_turned = is_north_first(crs, is_swapped=a == 0 == e, is_plain=b == 0 == d)
    if is_turned is None:
        return Place(crs=crs)  # a rotated grid, and an order of axes that is not known
    if is_turned:
        x, y = y, x
        a, d, b, e = (e, b, d, a) if ALTERNATE in text else (d, a, e, b)
    if not all(abs(n) < 1e300 for n in (x, y, a, b, d, e)) or a * e == b * d:
        return Place(crs=crs)
    return Place(crs=crs, transform=(a, b, x - (a + b) / 2, d, e, y - (d + e) / 2))


def _states_easting(grid: str) -> bool:
    """Return whether a grid names its axes as easting and northing, whatever its CRS defines."""
    names = re.findall(r"<(?:\w+:)?axisName\b[^>]*>\s*([^<]*?)\s*<", grid)
    return [name.lower() for name in names[:2]] == ["easting", "northing"]


def is_north_first(crs: Crs, *, is_swapped: bool, is_plain: bool) -> bool | None:
    """Return whether latitude or northing comes first in coordinates of a CRS.

    None if that is not known: the code is not a common one, the grid is rotated, so that its
    vectors do not show it, and pyproj is not installed.

    Parameters:
        crs: the CRS.
        is_swapped: whether rows and columns of the grid are parallel to axes, if northing is first.
        is_plain: whether they are if easting is first.
    """
    code = crs.code or ""
    if EAST_FIRST.fullmatch(code):
        return False
    if NORTH_FIRST.fullmatch(code):
        return True
    if is_swapped or is_plain:
        return is_swapped
    known = crs_text.known_crs(crs)
    if known is None or len(known.axis_info) < 2:
        return None
    first, second = known.axis_info[:2]
    if (first.direction.lower(), second.direction.lower()) == ("north", "east"):
        return True
    # at the poles both axes point north or south
    names = str(first.name).lower(), str(second.name).lower()
    return names[0].startswith("northing") and names[1].startswith("easting")
