"""Index the files of a STAC item: bands by name, on the grid that the item states."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

from anychunk.combine import combine
from anychunk.combine.images import SameImages, image_node, rebuilt, same_images
from anychunk.combine.stac import Asset, Item
from anychunk.errors import FormatError
from anychunk.io.source import without_secrets
from anychunk.metadata.meaning import Crs, Meaning, Place
from anychunk.model.index import ArrayIndex, GroupIndex, Node

TOLERANCE = 0.01
"""How many pixels the corners of a file may be off the transform of the item."""
ADVICE = "pass check_proj=False to use the file's"


def index_item(item: Item, *, parse: Callable[[str], Node], check_proj: bool) -> Node:
    """Return the index of an item's files; several are bands of one image.

    Parameters:
        item: The item.
        parse: Indexes one file.
        check_proj: Whether the CRS, transform and shape that the item states must be the file's.
    """
    if len({asset.url for asset in item.assets}) < len(item.assets):
        raise FormatError(f"STAC item {item.id}: two of its assets have the same file")
    found = {}
    for asset in item.assets:
        node = parse(asset.url)
        if isinstance(node, ArrayIndex):
            raise FormatError(
                f"{asset.label}: {without_secrets(asset.url)}: is a single array, expected an image"
            )
        found[asset.url] = described(node, asset, check_proj=check_proj)
    if len(found) == 1:
        return next(iter(found.values()))
    has_bands = {"c" in same.first.names for node in found.values() for same in _images(node)[:1]}
    if len(has_bands) != 1:
        raise FormatError(
            f"STAC item {item.id}: some of its assets have one band, others several; choose those "
            "of one kind by assets="
        )
    return combine(found, "concat" if has_bands.pop() else "stack", along="c")


def _images(node: GroupIndex) -> list[SameImages]:
    return same_images({"": node})


def described(node: GroupIndex, asset: Asset, *, check_proj: bool) -> GroupIndex:
    """Return a file with the names of its bands; refuse one that is not where the item says."""
    images = _images(node)
    if not images or not images[0].first_levels:
        raise FormatError(f"{asset.label}: {without_secrets(asset.url)}: has no image")
    first = images[0]
    meaning, shape = first.first, first.first_levels[0].image.shape
    if check_proj:
        check_place(meaning, shape, asset)
    count = shape[meaning.names.index("c")] if "c" in meaning.names else 1
    names = asset.bands if len(asset.bands) == count else (asset.name,) if count == 1 else ()
    if not names or first.is_array:
        return node
    bands = tuple(replace(meaning.band(n), name=name) for n, name in enumerate(names))
    made = image_node(first, replace(meaning, bands=bands), first.first_levels)
    tree = cast("GroupIndex", rebuilt(node, {first.path: made}))
    kept = {key: value for key, value in node.attributes.items() if key == "anychunk"}
    return replace(tree, attributes={**tree.attributes, **kept}, pins=node.pins, roots=node.roots)


def check_place(meaning: Meaning, shape: tuple[int, ...], asset: Asset) -> None:
    """Refuse a file whose grid is not the one that its item states; name both."""

    def differs(name: str, stated: object, found: object) -> FormatError:
        return FormatError(
            f"{asset.label}: {name} is {stated}, the file has {found or 'none'}; {ADVICE}"
        )

    names, place = meaning.names, meaning.place
    if not {"x", "y"} <= set(names):
        return
    if asset.crs is not None and not _is_crs(asset.crs, place.crs):
        name = place.crs and (place.crs.code or (place.crs.wkt or "")[:60])
        raise differs("proj:code", asset.crs, name)
    size = (shape[names.index("y")], shape[names.index("x")])
    if asset.shape is not None and asset.shape != size:
        raise differs("proj:shape", list(asset.shape), list(size))
    if asset.transform is not None and not _is_transform(asset.transform, place, size):
        found = place.transform and list(place.transform)
        raise differs("proj:transform", list(asset.transform), found)


def _is_crs(stated: str, found: Crs | None) -> bool:
    """Return whether a CRS is the one stated; True where that takes a package that is absent."""
    if found is None:
        return False
    if found.code is not None and found.code.upper() == stated:
        return True
    if found.code is not None and {found.code.partition(":")[0], stated.partition(":")[0]} == {
        "EPSG"
    }:
        return False
    try:
        import pyproj
    except ImportError:
        return True
    try:
        mine = pyproj.CRS.from_user_input(found.code or found.wkt)
        return bool(mine.equals(pyproj.CRS.from_user_input(stated), ignore_axis_order=True))
    except pyproj.exceptions.CRSError:
        return False


def _is_transform(stated: tuple[float, ...], place: Place, size: tuple[int, int]) -> bool:
    """Return whether the corners of two grids are at the same places."""
    if place.transform is None:
        return False
    a, b, _, d, e, _ = place.transform
    pixel = max(map(abs, (a, b, d, e)))

    def corner(grid: tuple[float, ...], column: int, row: int) -> tuple[float, float]:
        x = grid[0] * column + grid[1] * row + grid[2]
        return x, grid[3] * column + grid[4] * row + grid[5]

    rows, columns = size
    for column, row in ((0, 0), (columns, 0), (0, rows), (columns, rows)):
        pairs = zip(corner(stated, column, row), corner(place.transform, column, row), strict=True)
        if any(not abs(mine - theirs) <= TOLERANCE * pixel for mine, theirs in pairs):
            return False
    return True
