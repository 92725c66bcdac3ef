"""Which codec configurations osml-imagery-io 0.2.2 decodes to the same pixels as anychunk.

Its codecs ignore configuration keys that they do not know, and then decode wrong pixels. It also
misreads some JPEG 2000 tiles, because it moves each tile to the origin of the reference grid. A
saved index has such codecs under names that only anychunk registers.
"""

from collections.abc import Mapping

from anychunk.codecs import OWN_NAMES, SHARED
from anychunk.codecs.jpeg2000.codec import parse_header
from anychunk.codecs.tiff.tile import JPEG, NONE, PACKBITS
from anychunk.codestream.jpeg2000 import MainHeader
from anychunk.model.index import Json

JPEG2000 = f"{SHARED}jpeg2000"
TIFF_TILE = f"{SHARED}tiff-tile"
DTED = f"{SHARED}dted"
JBP_BLOCK = f"{SHARED}jbp-block"
KNOWN = {
    TIFF_TILE: {
        "compression", "bits_per_sample", "samples_per_pixel", "photometric", "planar_config",
        "predictor", "tile_width", "tile_height", "sample_format", "jpeg_tables",
    },
    JBP_BLOCK: {"num_bands", "block_height", "block_width", "nbpp", "imode", "pvtype"},
    f"{SHARED}jpeg": {
        "bits_per_pixel", "num_bands", "block_width", "block_height", "imode", "color_space",
    },
    JPEG2000: {"main_header", "resolution_level"},
    DTED: {
        "num_lat_points", "num_lon_lines", "record_size", "trim_top", "trim_bottom", "trim_left",
        "trim_right",
    },
}  # fmt: skip
"""The keys that osml-imagery-io 0.2.2 reads, by codec."""
CHECKS = {"last_height", "last_width", "verify_checksums"}
"""Keys added by anychunk that only make decoding stricter."""
YCBCR = 6
"""TIFF's PhotometricInterpretation of luminance and chroma."""


def with_own_name(codec: Json) -> Json:
    """Return a codec under our own name if osml-imagery-io would misread it."""
    return {**codec, "name": OWN_NAMES[codec["name"]]} if misread(codec) else codec


def misread(codec: Json) -> str:
    """Return why osml-imagery-io decodes wrong pixels with a codec; empty if it does not."""
    known = KNOWN.get(codec["name"]) if isinstance(codec, dict) else None
    configuration = codec.get("configuration", {}) if known else None
    if known is None or not isinstance(configuration, Mapping):
        return ""  # where it is malformed, reading says so
    if ignored := sorted(set(configuration) - known - _harmless(configuration)):
        return f"it ignores {' '.join(ignored)} of {codec['name'].removeprefix(SHARED)}"
    if codec["name"] == TIFF_TILE:
        return _misread_tile(configuration)
    return _misread_codestream(configuration) if codec["name"] == JPEG2000 else ""


def _harmless(configuration: Mapping[str, Json]) -> set[str]:
    """Return the keys added by anychunk that do not change the pixels of a codec."""
    bits = configuration.get("bits_per_sample", 8)
    return CHECKS | {"byte_order"} if isinstance(bits, int) and bits <= 8 else CHECKS


def _misread_tile(configuration: Mapping[str, Json]) -> str:
    compression = configuration.get("compression", NONE)
    if configuration.get("photometric") == YCBCR and compression not in JPEG:
        # without the tag YCbCrSubSampling, libtiff expects 2 x 2 (TIFF 6.0 section 21)
        return "YCbCr that is not JPEG"
    if configuration.get("predictor", 1) != 1 and compression in (NONE, PACKBITS):
        return f"it ignores the predictor of compression {compression}"
    return ""


def _misread_codestream(configuration: Mapping[str, Json]) -> str:
    main_header = configuration.get("main_header")
    if main_header is None:
        return "JPEG 2000 that cannot be divided into tiles (PPM, or mixed subsampling)"
    problem = _moved(parse_header(str(main_header)))
    return problem and f"JPEG 2000 with {problem}"


def _moved(header: MainHeader) -> str:
    """Return what moving tiles to the origin does not take into account; empty if nothing.

    A tile that is moved to the origin keeps its sub-bands, precincts and code-blocks only if its
    position is a multiple of its size, and its size a power of two in samples of every component
    and every resolution (T.800 B.5 to B.7). A single tile at the origin is not moved.
    """
    siz = header.siz
    corner, origin = (siz.image.x0, siz.image.y0), (siz.tile_x0, siz.tile_y0)
    if any((*corner, *origin)):
        return f"an image offset {corner} or a tile offset {origin} other than (0, 0)"
    for count, size, steps, side in (
        (siz.columns, siz.tile_width, [c.dx for c in siz.components], "wide"),
        (siz.rows, siz.tile_height, [c.dy for c in siz.components], "high"),
    ):
        if any(step % min(steps) or not _is_power(step // min(steps)) for step in steps):
            return f"components subsampled by {sorted(set(steps))}, not by powers of two"
        for step, style in zip(steps, header.styles, strict=True):
            samples, rest = divmod(size, step)
            if count > 1 and (rest or not _is_power(samples) or samples < 1 << style.levels):
                return (
                    f"several tiles that are {size / step:g} samples {side}, not a power of two "
                    f"of at least {1 << style.levels}"
                )
    return ""


def _is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
