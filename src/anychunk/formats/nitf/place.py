"""Where an image lies: an affine transform, or its corners and bounding box, and its RPCs.

Spec: Joint BIIF Profile table A-3 (ICORDS, IGEOLO); STDI-0002 (BLOCKA, GEOLOB, RPC00B, ICHIPB).
"""

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from anychunk.formats.nitf.header import Values
from anychunk.formats.nitf.tre import Tre
from anychunk.metadata.meaning import Crs, Place, Transform
from anychunk.model.index import Json

# Coordinates in NITF headers: IGEOLO in all of its systems, BLOCKA, GEOLOB and RPF coverage.
#
# Spec: Joint BIIF Profile table A-3 (ICORDS, IGEOLO); STDI-0002 (BLOCKA, GEOLOB); MIL-STD-2411
#       section 5.1.3 (RPF coverage); EPSG 9807 (UTM).
#
# Corners are clockwise from upper left. Longitude comes before latitude, easting before northing.

type Point = tuple[float, float]

WGS84 = "EPSG:4326"


@dataclass(frozen=True, kw_only=True)
class Corners:
    """The four corners of an image, clockwise from upper left."""

    points: tuple[Point, ...]
    code: str = WGS84
    """The CRS that they are in: WGS 84, or UTM on it."""
    are_centres: bool = True
    """Whether they are centres of the corner pixels, rather than the outer corners of these."""


DMS = re.compile(r"(\d\d)(\d\d)(\d\d)([NS])(\d{3})(\d\d)(\d\d)([EW])", re.IGNORECASE)
DECIMAL = re.compile(r"([+-]\d\d\.\d{3})([+-]\d{3}\.\d{3})")
UTM = re.compile(r"(\d\d)(\d{6})(\d{7})")
MGRS = re.compile(r"(\d\d)([C-HJ-NP-X])([A-HJ-NP-Z])([A-HJ-NP-V])(\d{5})(\d{5})", re.IGNORECASE)
LATITUDE_BANDS = "CDEFGHJKLMNPQRSTUVWX"


def igeolo_corners(icords: str, igeolo: str) -> Corners | None:
    """Return the four corners of IGEOLO; None if one of them cannot be read.

    Corners in UTM or MGRS stay in their zone; if they are in several, they become longitude and
    latitude.
    """
    texts = [igeolo.ljust(60)[i : i + 15] for i in range(0, 60, 15)]
    if icords in ("N", "S", "U"):
        placed = [p for text in texts if (p := utm_point(icords, text))]
        if len(placed) != 4:
            return None
        if len({(zone, is_south) for zone, is_south, _, _ in placed}) == 1:
            zone, is_south = placed[0][:2]
            points = tuple((east, north) for _, _, east, north in placed)
            return Corners(points=points, code=f"EPSG:{(32700 if is_south else 32600) + zone}")
        found = [from_utm(z, e, n, is_south=south) for z, south, e, n in placed]
    else:
        found = [q for text in texts if (q := geographic_point(icords, text))]
    return Corners(points=unwrapped(found)) if len(found) == 4 else None


def geographic_point(icords: str, text: str) -> Point | None:
    """Return a point of IGEOLO in degrees; `icords` is G, C (geocentric) or D (decimal)."""
    if icords in ("G", "C") and (m := DMS.fullmatch(text)):
        latitude = _dms(m[1], m[2], m[3]) * (-1 if m[4] in "Ss" else 1)
        longitude = _dms(m[5], m[6], m[7]) * (-1 if m[8] in "Ww" else 1)
        return longitude, latitude if icords == "G" else from_geocentric(latitude)
    if icords == "D" and (m := DECIMAL.fullmatch(text)):
        return float(m[2]), float(m[1])
    return None


def from_geocentric(latitude: float) -> float:
    """Return the geodetic latitude of a geocentric one on WGS 84."""
    if abs(latitude) >= 90:
        return latitude
    return math.degrees(math.atan(math.tan(math.radians(latitude)) / (1 - _E2)))


def utm_point(icords: str, text: str) -> tuple[int, bool, float, float] | None:
    """Return zone, whether it is the southern one, easting and northing; `icords` is N, S or U."""
    if icords in ("N", "S") and (m := UTM.fullmatch(text)):
        zone, is_south, east, north = int(m[1]), icords == "S", float(m[2]), float(m[3])
        return (zone, is_south, east, north) if 1 <= zone <= 60 else None
    if icords == "U" and (m := MGRS.fullmatch(text)):
        letters = f"{m[2]}{m[3]}{m[4]}".upper()
        return from_mgrs(int(m[1]), letters, east=int(m[5]), north=int(m[6]))
    return None


def unwrapped(points: list[Point]) -> tuple[Point, ...]:
    """Return points on both sides of the antimeridian with longitudes that do not jump there."""
    longitudes = [x for x, _ in points]
    if max(longitudes) - min(longitudes) <= 180:
        return tuple(points)
    return tuple((x + 360 if x < 0 else x, y) for x, y in points)


def _dms(degrees: str, minutes: str, seconds: str) -> float:
    return int(degrees) + int(minutes) / 60 + int(seconds) / 3600


def from_mgrs(
    zone: int, letters: str, *, east: int, north: int
) -> tuple[int, bool, float, float] | None:
    """Convert MGRS to UTM as `utm_point`; None if the column letter is not in the zone."""
    band, column, row = letters[0], letters[1], letters[2]
    # column letters of 100 km squares repeat every three zones, without I and O
    first = ("ABCDEFGH", "JKLMNPQR", "STUVWXYZ")[(zone - 1) % 3]
    if column not in first or not 1 <= zone <= 60:
        return None
    easting = (first.index(column) + 1) * 100_000 + east
    rows = "ABCDEFGHJKLMNPQRSTUV"
    # row letters repeat every 2000 km; even zones start at F on the equator
    within = (rows.index(row) - (5 if zone % 2 == 0 else 0)) % 20 * 100_000 + north
    index = LATITUDE_BANDS.index(band)
    is_south = index < 10
    bottom = -80 + 8 * index
    lowest = to_northing(bottom) + (10_000_000 if is_south else 0)
    # the repetition that lies in the latitude band
    northing = within + 2_000_000 * math.ceil((lowest - 100_000 - within) / 2_000_000)
    return zone, is_south, float(easting), float(northing)


# WGS 84
_A, _F = 6378137.0, 1 / 298.257223563
_E2 = _F * (2 - _F)
_K0 = 0.9996


def to_northing(latitude: float) -> float:
    """Return the UTM northing of a latitude on the central meridian."""
    p = math.radians(latitude)
    e4, e6 = _E2**2, _E2**3
    return (_K0 * _A) * (
        (1 - _E2 / 4 - 3 * e4 / 64 - 5 * e6 / 256) * p
        - (3 * _E2 / 8 + 3 * e4 / 32 + 45 * e6 / 1024) * math.sin(2 * p)
        + (15 * e4 / 256 + 45 * e6 / 1024) * math.sin(4 * p)
        - (35 * e6 / 3072) * math.sin(6 * p)
    )


def from_utm(zone: int, easting: float, northing: float, *, is_south: bool) -> Point:
    """Convert UTM on WGS 84 to longitude and latitude, to better than 1 mm within the zone."""
    x = easting - 500_000
    y = northing - (10_000_000 if is_south else 0)
    # footpoint latitude, then series in d: Snyder, USGS 1395, equations 8-17 and 8-18
    e1 = (1 - math.sqrt(1 - _E2)) / (1 + math.sqrt(1 - _E2))
    mu = y / _K0 / (_A * (1 - _E2 / 4 - 3 * _E2**2 / 64 - 5 * _E2**3 / 256))
    p = (
        mu
        + (3 * e1 / 2 - 27 * e1**3 / 32) * math.sin(2 * mu)
        + (21 * e1**2 / 16 - 55 * e1**4 / 32) * math.sin(4 * mu)
        + (151 * e1**3 / 96) * math.sin(6 * mu)
        + (1097 * e1**4 / 512) * math.sin(8 * mu)
    )
    ep2 = _E2 / (1 - _E2)
    c, t = ep2 * math.cos(p) ** 2, math.tan(p) ** 2
    n = _A / math.sqrt(1 - _E2 * math.sin(p) ** 2)
    r = _A * (1 - _E2) / (1 - _E2 * math.sin(p) ** 2) ** 1.5
    d = x / (n * _K0)
    latitude = p - (n * math.tan(p) / r) * (
        d**2 / 2
        - (5 + 3 * t + 10 * c - 4 * c**2 - 9 * ep2) * d**4 / 24
        + (61 + 90 * t + 298 * c + 45 * t**2 - 252 * ep2 - 3 * c**2) * d**6 / 720
    )
    longitude = (
        d
        - (1 + 2 * t + c) * d**3 / 6
        + (5 - 2 * c + 28 * t - 3 * c**2 + 8 * ep2 + 24 * t**2) * d**5 / 120
    ) / math.cos(p)
    return math.degrees(longitude) + 6 * zone - 183, math.degrees(latitude)


def blocka_corners(tre: Tre, rows: int) -> Corners | None:
    """Return the corners of BLOCKA, more precise than those of IGEOLO.

    None if it leaves them out, or if it describes only a part of the image's rows.
    """
    text = tre.data.decode("latin-1")
    if len(text) != 123 or _whole(text[7:12].strip()) != rows:
        return None
    # FRLC, LRLC, LRFC, FRFC: first or last row, first or last column
    pairs = [text[34 + 21 * i : 55 + 21 * i] for i in (3, 0, 1, 2)]
    found = [p for pair in pairs if (p := _blocka_point(pair))]
    return Corners(points=unwrapped(found)) if len(found) == 4 else None


def _blocka_point(text: str) -> Point | None:
    if m := re.fullmatch(r"([NS])(\d\d)(\d\d)(\d\d\.\d\d)([EW])(\d{3})(\d\d)(\d\d\.\d\d)", text):
        latitude = int(m[2]) + int(m[3]) / 60 + float(m[4]) / 3600
        longitude = int(m[6]) + int(m[7]) / 60 + float(m[8]) / 3600
        return longitude * (-1 if m[5] == "W" else 1), latitude * (-1 if m[1] == "S" else 1)
    if m := re.fullmatch(r"([+-]\d\d\.\d{6})([+-]\d{3}\.\d{6})", text):
        return float(m[2]), float(m[1])
    return None


def geolob_corners(tre: Tre, shape: tuple[int, int]) -> Corners | None:
    """Return the corners of GEOLOB, which states the first one and the pixels per 360 degrees.

    Parameters:
        tre: the extension.
        shape: height and width of the image.
    """
    text = tre.data.decode("latin-1")
    across, down = _whole(text[:9]), _whole(text[9:18])
    try:
        west, north = float(text[18:33]), float(text[33:48])
    except ValueError:
        return None
    if len(text) != 48 or across < 1 or down < 1 or not _is_degrees(west, north):
        return None
    east, south = west + shape[1] * 360 / across, north - shape[0] * 360 / down
    return _box(west, north, east, south)


def coverage_corners(data: bytes) -> Corners | None:
    """Return the corners of an RPF coverage section: of NW, SW, NE and SE, latitude first."""
    if len(data) < 64:
        return None
    numbers = struct.unpack(">8d", data[:64])
    points = list(zip(numbers[1::2], numbers[0::2], strict=True))
    if not all(_is_degrees(x, y) for x, y in points):
        return None
    northwest, southwest, northeast, southeast = points
    clockwise = [northwest, northeast, southeast, southwest]
    return Corners(points=unwrapped(clockwise), are_centres=False)


def _box(west: float, north: float, east: float, south: float) -> Corners:
    points = ((west, north), (east, north), (east, south), (west, south))
    return Corners(points=points, are_centres=False)


def _is_degrees(longitude: float, latitude: float) -> bool:
    return abs(longitude) <= 360 and abs(latitude) <= 90  # neither holds for NaN


def _whole(text: str) -> int:
    return int(text) if text.isdigit() and text.isascii() else 0


TOLERANCE = 0.5
"""How many pixels the corners may be off an affine transform that describes the image."""


def image_place(
    values: Values,
    tres: Sequence[Tre],
    shape: tuple[int, int],
    *,
    coverage: bytes = b"",
    is_rough: bool = False,
) -> Place:
    """Return the place of an image.

    Parameters:
        values: the subheader.
        tres: its extensions.
        shape: height and width of the image.
        coverage: the coverage section of an RPF frame; empty if it has none.
        is_rough: whether corners only say roughly where the image is, as in SICD and SIDD, whose
            XML has the geometry.
    """
    corners = find_corners(values, tres, shape, coverage)
    rpc = find_rpc(tres)
    if corners is None:
        return Place(rpc=rpc)
    crs = Crs(code=corners.code, is_geographic=corners.code == "EPSG:4326")
    transform = None if is_rough else affine(corners, shape)
    if transform is not None:
        return Place(crs=crs, transform=transform, rpc=rpc)
    xs, ys = zip(*corners.points, strict=True)
    points = zip(pixels(corners, shape), corners.points, strict=True)
    return Place(
        crs=crs,
        bbox=(min(xs), min(ys), max(xs), max(ys)),
        gcps=tuple((column, row, x, y, 0.0) for (column, row), (x, y) in points),
        rpc=rpc,
    )


def find_corners(
    values: Values, tres: Sequence[Tre], shape: tuple[int, int], coverage: bytes
) -> Corners | None:
    """Return the most precise corners that an image states; None if there are none."""
    if coverage and (found := coverage_corners(coverage)):
        return found
    for tre in tres:
        if tre.tag == "GEOLOB" and (found := geolob_corners(tre, shape)):
            return found
    # of several BLOCKA, each describes only a part of the image
    blocks = [tre for tre in tres if tre.tag == "BLOCKA"]
    rows = values.get("NROWS")
    if len(blocks) == 1 and isinstance(rows, int) and (found := blocka_corners(blocks[0], rows)):
        return found
    igeolo = values.get("IGEOLO")
    return igeolo_corners(str(values.get("ICORDS", "")), igeolo) if igeolo else None


def pixels(corners: Corners, shape: tuple[int, int]) -> tuple[tuple[float, float], ...]:
    """Return column and row of each corner, from the outer corner of the first pixel."""
    edge = 0.5 if corners.are_centres else 0.0
    height, width = shape
    left, top, right, bottom = edge, edge, width - edge, height - edge
    return ((left, top), (right, top), (right, bottom), (left, bottom))


def affine(corners: Corners, shape: tuple[int, int]) -> Transform | None:
    """Return the affine transform of four corners; None if they are not those of a parallelogram.

    Corners are rounded in the file, so they may be off by less than half a pixel.
    """
    (left, top), _, (right, bottom), _ = pixels(corners, shape)
    if right <= left or bottom <= top:
        return None
    (ax, ay), (bx, by), (cx, cy), (dx, dy) = corners.points
    width, height = right - left, bottom - top
    # least squares; four corners of a rectangle have the same error, with alternating signs
    a, d = (bx - ax + cx - dx) / (2 * width), (by - ay + cy - dy) / (2 * width)
    b, e = (dx - ax + cx - bx) / (2 * height), (dy - ay + cy - by) / (2 * height)
    size = a * e - b * d
    if abs(size) <= 1e-12 * (abs(a * e) + abs(b * d)) or size == 0:
        return None
    x, y = (ax - bx + cx - dx) / 4, (ay - by + cy - dy) / 4
    column, row = (e * x - b * y) / size, (a * y - d * x) / size
    if max(abs(column), abs(row)) >= TOLERANCE:
        return None
    middle = (left + right) / 2, (top + bottom) / 2
    c = (ax + bx + cx + dx) / 4 - a * middle[0] - b * middle[1]
    f = (ay + by + cy + dy) / 4 - d * middle[0] - e * middle[1]
    return a, b, c, d, e, f


CHIP_TOLERANCE = 0.05
"""How many pixels the corners of a chip may be off a rectangle; files round them."""

RPC_FIELDS = (
    ("err_bias", 7), ("err_rand", 7), ("line_off", 6), ("samp_off", 5), ("lat_off", 8),
    ("long_off", 9), ("height_off", 5), ("line_scale", 6), ("samp_scale", 5), ("lat_scale", 8),
    ("long_scale", 9), ("height_scale", 5),
)  # fmt: skip
RPC_COEFFICIENTS = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
RPC00A_ORDER = (0, 1, 2, 3, 4, 5, 6, 10, 7, 8, 9, 11, 14, 17, 12, 15, 18, 13, 16, 19)
"""Where RPC00A has the coefficients that RPC00B has at 0, 1, 2 …"""


def find_rpc(tres: Sequence[Tre]) -> dict[str, Json] | None:
    """Return the rational polynomial coefficients of an image; None if it has none.

    They belong to the image as it was taken; where a chip was cut out of it, to that chip.
    """
    found = next((values for tag in ("RPC00B", "RPC00A") for values in _rpcs(tres, tag)), None)
    chip = next((tre for tag in ("ICHIPB", "ICHIPA") for tre in tres if tre.tag == tag), None)
    return found if found is None or chip is None else chipped(found, chip)


def _rpcs(tres: Sequence[Tre], tag: str) -> list[dict[str, Json]]:
    return [values for tre in tres if tre.tag == tag if (values := rpc(tre))]


def rpc(tre: Tre) -> dict[str, Json] | None:
    """Return the coefficients of RPC00B or RPC00A; None if they cannot be read."""
    text = tre.data.decode("latin-1")
    if len(text) != 1041 or text[0] != "1":
        return None
    order = RPC00A_ORDER if tre.tag == "RPC00A" else range(20)
    values: dict[str, Json] = {}
    at = 1
    try:
        for name, width in RPC_FIELDS:
            values[name] = float(text[at : at + width])
            at += width
        for name in RPC_COEFFICIENTS:
            values[name] = [float(text[at + 12 * i : at + 12 * i + 12]) for i in order]
            at += 240
    except ValueError:
        return None
    return values


def chipped(values: dict[str, Json], chip: Tre) -> dict[str, Json] | None:
    """Return coefficients that take rows and columns of a chip (ICHIPB), not of the full image.

    None if the chip is not a scaled rectangle of the full image: no offset and scale describes it.
    """
    text = chip.data.decode("latin-1")
    if len(text) != 224 or text[:2] != "00":
        return None
    try:
        numbers = [float(text[at : at + 12]) for at in range(16, 208, 12)]
    except ValueError:
        return None
    # four points, row before column: first row and column, first and last, last and first, last
    product, full = numbers[:8], numbers[8:]
    found = dict(values)
    for name, first, twin, last, opposite in (("line", 0, 2, 4, 6), ("samp", 1, 5, 3, 7)):
        # rows are the same along a row, and columns along a column
        pairs = [
            (side[i], side[j])
            for side in (product, full)
            for i, j in ((first, twin), (last, opposite))
        ]
        if any(abs(i - j) > CHIP_TOLERANCE for i, j in pairs) or full[last] == full[first]:
            return None
        scale = (product[last] - product[first]) / (full[last] - full[first])
        if scale <= 0:
            return None
        # ICHIPB has the centre of the first pixel at 0.5, RPC00B at 0
        shifted = (found[f"{name}_off"] + 0.5 - full[first]) * scale + product[first] - 0.5
        found |= {f"{name}_off": shifted, f"{name}_scale": found[f"{name}_scale"] * scale}
    return found
