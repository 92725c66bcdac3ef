"""Where an image lies: an affine transform, or its corners and bounding box, and its RPCs.

Spec: Joint BIIF Profile table A-3 (ICORDS, IGEOLO); STDI-0002 (BLOCKA, GEOLOB, RPC00B, ICHIPB).
"""

from collections.abc import Sequence

from anychunk.formats.nitf.geolocation import (
    Corners,
    blocka_corners,
    coverage_corners,
    geolob_corners,
    igeolo_corners,
)
from anychunk.formats.nitf.header import Values
from anychunk.formats.nitf.tre import Tre
from anychunk.metadata.meaning import Crs, Place, Transform
from anychunk.model.index import Json

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
