"""The georeference of an image: IGEOLO, BLOCKA and RPC00B as attributes.

Spec: Joint BIIF Profile table A-3 (ICORDS, IGEOLO); STDI-0002 (BLOCKA, RPC00B); EPSG 9807 (UTM).

Corners are the centres of the corner pixels as (longitude, latitude), clockwise from upper left.
"""

import math
import re

from anychunk.formats.nitf.tre import Tre
from anychunk.metadata.geo import convention
from anychunk.model.index import Json

type Corners = list[tuple[float, float]]

DMS = re.compile(r"(\d\d)(\d\d)(\d\d)([NS])(\d{3})(\d\d)(\d\d)([EW])", re.IGNORECASE)
DECIMAL = re.compile(r"([+-]\d\d\.\d{3})([+-]\d{3}\.\d{3})")
UTM = re.compile(r"(\d\d)(\d{6})(\d{7})")
MGRS = re.compile(r"(\d\d)([C-HJ-NP-X])([A-HJ-NP-Z])([A-HJ-NP-V])(\d{5})(\d{5})", re.IGNORECASE)
LATITUDE_BANDS = "CDEFGHJKLMNPQRSTUVWX"


def corners(icords: str, igeolo: str) -> Corners | None:
    """Return the four corners of IGEOLO; None if one of them cannot be read."""
    pairs = [igeolo.ljust(60)[i : i + 15] for i in range(0, 60, 15)]
    found = [point(icords, pair) for pair in pairs]
    return [p for p in found if p] if all(found) else None


def point(icords: str, text: str) -> tuple[float, float] | None:
    """Return one point of IGEOLO in the coordinate system that ICORDS names."""
    if icords in ("G", "C") and (m := DMS.fullmatch(text)):
        latitude = _dms(m[1], m[2], m[3]) * (-1 if m[4] in "Ss" else 1)
        longitude = _dms(m[5], m[6], m[7]) * (-1 if m[8] in "Ww" else 1)
        return longitude, latitude
    if icords == "D" and (m := DECIMAL.fullmatch(text)):
        return float(m[2]), float(m[1])
    if icords in ("N", "S") and (m := UTM.fullmatch(text)):
        return from_utm(int(m[1]), float(m[2]), float(m[3]), is_south=icords == "S")
    if icords == "U" and (m := MGRS.fullmatch(text)):
        letters = f"{m[2]}{m[3]}{m[4]}".upper()
        return from_mgrs(int(m[1]), letters, east=int(m[5]), north=int(m[6]))
    return None


def _dms(degrees: str, minutes: str, seconds: str) -> float:
    return int(degrees) + int(minutes) / 60 + int(seconds) / 3600


def from_mgrs(zone: int, letters: str, *, east: int, north: int) -> tuple[float, float] | None:
    """Convert MGRS to longitude and latitude; None if the column letter is not in the zone."""
    band, column, row = letters[0], letters[1], letters[2]
    # column letters of 100 km squares repeat every three zones, without I and O
    first = ("ABCDEFGH", "JKLMNPQR", "STUVWXYZ")[(zone - 1) % 3]
    if column not in first:
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
    return from_utm(zone, easting, northing, is_south=is_south)


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


def from_utm(zone: int, easting: float, northing: float, *, is_south: bool) -> tuple[float, float]:
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


def blocka_corners(tre: Tre) -> Corners | None:
    """Return the corners of BLOCKA, more precise than IGEOLO; None if it leaves them out."""
    if len(tre.data) != 123:
        return None
    text = tre.data.decode("latin-1")
    # FRLC, LRLC, LRFC, FRFC: first or last row, first or last column
    pairs = [text[34 + 21 * i : 55 + 21 * i] for i in (3, 0, 1, 2)]
    found = [_blocka_point(pair) for pair in pairs]
    return [p for p in found if p] if all(found) else None


def _blocka_point(text: str) -> tuple[float, float] | None:
    if m := re.fullmatch(r"([NS])(\d\d)(\d\d)(\d\d\.\d\d)([EW])(\d{3})(\d\d)(\d\d\.\d\d)", text):
        latitude = int(m[2]) + int(m[3]) / 60 + float(m[4]) / 3600
        longitude = int(m[6]) + int(m[7]) / 60 + float(m[8]) / 3600
        return longitude * (-1 if m[5] == "W" else 1), latitude * (-1 if m[1] == "S" else 1)
    if m := re.fullmatch(r"([+-]\d\d\.\d{6})([+-]\d{3}\.\d{6})", text):
        return float(m[2]), float(m[1])
    return None


RPC_FIELDS = (
    ("err_bias", 7), ("err_rand", 7), ("line_off", 6), ("samp_off", 5), ("lat_off", 8),
    ("long_off", 9), ("height_off", 5), ("line_scale", 6), ("samp_scale", 5), ("lat_scale", 8),
    ("long_scale", 9), ("height_scale", 5),
)  # fmt: skip
RPC_COEFFICIENTS = ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")


def rpc(tre: Tre) -> Json | None:
    """Return the rational polynomial coefficients of RPC00B; None if they cannot be read."""
    text = tre.data.decode("latin-1")
    if len(text) != 1041 or text[0] != "1":
        return None
    values: dict[str, Json] = {}
    at = 1
    try:
        for name, width in RPC_FIELDS:
            values[name] = float(text[at : at + width])
            at += width
        for name in RPC_COEFFICIENTS:
            values[name] = [float(text[at + 12 * i : at + 12 * i + 12]) for i in range(20)]
            at += 240
    except ValueError:
        return None
    return values


def ground_attributes(icords: str, igeolo: str | None, tres: list[Tre]) -> dict[str, Json]:
    """Return the georeference of an image as attributes; empty if it has none."""
    found: dict[str, Json] = {}
    shape = corners(icords, igeolo) if igeolo else None
    blocka = [c for tre in tres if tre.tag == "BLOCKA" if (c := blocka_corners(tre))]
    # with several BLOCKA, each one describes only a part of the image
    if len(blocka) == 1:
        shape = blocka[0]
    if shape:
        longitudes, latitudes = [p[0] for p in shape], [p[1] for p in shape]
        found["zarr_conventions"] = [convention("proj"), convention("spatial")]
        found["spatial:dimensions"] = ["y", "x"]
        found["spatial:bbox"] = [
            min(longitudes), min(latitudes), max(longitudes), max(latitudes)
        ]  # fmt: skip
        found["proj:code"] = "EPSG:4326"
        found["nitf:corners"] = [list(p) for p in shape]
    for tre in tres:
        if tre.tag == "RPC00B" and (polynomials := rpc(tre)):
            found["rpc"] = polynomials
            break
    return found
