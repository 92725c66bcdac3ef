"""STAC items: which files they name, and what they say about them.

Spec: STAC 1.0 and 1.1 items, with the extensions `eo` (`eo:bands`), `projection` (`proj:epsg`,
      `proj:code`, `proj:transform`, `proj:shape`); ItemCollections; the GeoParquet layout of
      stac-geoparquet, in which properties are columns of their own.

Items are read from JSON or GeoParquet, or taken as objects of pystac, which is not needed here.
They are untrusted: whoever wrote an item must not make this process open files of its machine. A
remote href is followed from anywhere. A local path is followed from an item that is itself local,
as far as it stays in the item's folder; from an object without a link to where it came from, which
the caller has made, unless `allow` is given; and below the folders of `allow`.
"""

import io
import json
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeGuard, cast
from urllib.parse import unquote

from anychunk import limits
from anychunk.combine import combine
from anychunk.combine.images import SameImages, image_node, rebuilt, same_images
from anychunk.errors import FormatError, MissingDependencyError, untrusted
from anychunk.io.inside import resolve
from anychunk.io.opening import open_source
from anychunk.io.source import (
    Storage,
    absolute,
    as_url,
    is_absolute,
    is_remote,
    local_path,
    without_secrets,
)
from anychunk.metadata import dates as dates_of
from anychunk.metadata.meaning import Crs, Meaning, Place
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node

ENDINGS = (".json", ".geojson", ".parquet", ".geoparquet")
"""Of the names of files that may hold items."""
PARQUET = b"PAR1"
HEAD = 1 << 18
"""How many bytes of a JSON file are searched for the version of STAC, which each item states."""
EVERYWHERE = "*"
RASTERS = ("image/", "application/x-hdf", "application/vnd.zarr")
"""Beginnings of the media types of assets that may be data."""
NOT_DATA = {"thumbnail", "overview", "metadata", "visual-thumbnail"}
"""Roles of assets that are not data."""

type Sign = Callable[[str], str]


class PystacItem(Protocol):
    """An item of pystac, as far as it is used here."""

    id: str
    assets: Any
    properties: Any


type Items = Mapping[str, Any] | PystacItem | Iterable[Mapping[str, Any] | PystacItem]
"""Items as objects of pystac or as JSON: one, a collection, or several."""


@dataclass(frozen=True, kw_only=True)
class Asset:
    """A file of an item, and what the item says about it."""

    label: str
    """Names the item and the asset in messages."""
    name: str
    """What its band is called if it has one and the item does not name it."""
    url: str
    """Signed, if the caller signs urls."""
    bands: tuple[str, ...] = ()
    crs: str | None = None
    """AUTHORITY:CODE."""
    transform: tuple[float, ...] | None = None
    """(a, b, c, d, e, f), as in `Place`."""
    shape: tuple[int, int] | None = None
    """Rows and columns."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item: the chosen files, which are its bands, and a date."""

    id: str
    assets: tuple[Asset, ...]
    date: int | None = None

    @property
    def url(self) -> str:
        """The url of the first file, which stands for the item."""
        return without_secrets(self.assets[0].url)


class Origin(NamedTuple):
    """Where an item comes from."""

    url: str | None = None
    """None: unknown, the caller has made it."""
    is_own: bool = True
    """Whether it is the url of the item, which relative references start from, and not that of the
    catalog."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a caller asks for."""

    assets: tuple[str, ...] = ()
    """Keys of assets, or names of their bands; empty: the only one with data."""
    sign: Sign | None = None
    allow: tuple[str, ...] | None = None


def is_item(given: object) -> bool:
    """Return whether an object is an item or a collection of items, of pystac or as JSON."""
    if isinstance(given, Mapping):
        return given.get("type") in ("Feature", "FeatureCollection")
    module = type(given).__module__.partition(".")[0]
    return module.startswith("pystac")


def is_document(url: str, storage: Storage | None) -> bool:
    """Return whether a file has items: JSON that states a version of STAC, or GeoParquet."""
    name = url.partition("?")[0].lower()
    if not name.endswith(ENDINGS) or (not is_remote(url) and Path(local_path(url)).is_dir()):
        return False
    try:
        source = open_source(url, storage=storage)
        head = source.read(0, min(HEAD, source.size())).tobytes()
    except FileNotFoundError:
        if is_remote(url) and not name.endswith("json"):
            return False  # a folder, which is a saved index
        raise
    return head[:4] == PARQUET or (head.lstrip()[:1] in (b"{", b"[") and b'"stac_version"' in head)


def read_items(
    given: Iterable[Any],
    choice: Choice,
    *,
    storage: Storage | None,
    failures: dict[str, str] | None = None,
) -> list[Item]:
    """Return the items of documents and objects.

    Parameters:
        given: Urls of documents, objects of pystac, or dictionaries.
        choice: Which assets are meant.
        storage: obstore's options, for the documents.
        failures: Where items that lack an asset are noted, by id; None: they raise.

    Raises:
        FormatError: What is given is not STAC, an asset is missing, or a reference is not followed.
    """
    found: dict[str, Item] = {}
    for one in given:
        pairs = _of_document(as_url(one), storage) if isinstance(one, str) else _of_object(one)
        for entry, origin in pairs:
            name = _text(entry.get("id")) or "item"
            try:
                with untrusted(f"STAC item {name}"):
                    item = item_of(entry, origin, choice)
            except FormatError as e:
                if failures is None:
                    raise
                failures[name] = str(e)
                continue
            item = _signed(item, choice.sign)
            if item.url in found:
                raise FormatError(
                    f"STAC items {found[item.url].id} and {item.id} have the same file {item.url}"
                )
            found[item.url] = item
    return list(found.values())


def _of_object(given: Any) -> Iterator[tuple[Mapping[str, Any], Origin]]:
    """Yield items as JSON, each with its origin."""
    if isinstance(given, Mapping):
        yield from _of_json(given, None, "STAC")
    elif hasattr(given, "assets") and hasattr(given, "properties"):
        root = given.get_root() if hasattr(given, "get_root") else None
        own = given.get_self_href()
        other = root.get_self_href() if root is not None else None
        entry = given.to_dict(include_self_link=False, transform_hrefs=False)
        yield entry, Origin(own or other, is_own=own is not None or other is None)
    elif hasattr(given, "get_items"):
        raise TypeError(
            f"{type(given).__name__} {given.id!r} may have items anywhere; pass its items: "
            "list(catalog.get_items(recursive=True))"
        )
    else:
        for item in given:  # an ItemCollection
            yield from _of_object(item)


def _of_document(url: str, storage: Storage | None) -> Iterator[tuple[Mapping[str, Any], Origin]]:
    source = open_source(url, storage=storage)
    limits.check_index(source.size(), where=url)
    data = source.read(0, source.size()).tobytes()
    base = absolute(url)
    with untrusted(url):
        if data[:4] == PARQUET:
            entries: Iterable[Any] = _rows(data, url)
        else:
            parsed = _parsed(data, url)
            entries = parsed if isinstance(parsed, list) else [parsed]
        pairs = [pair for entry in entries for pair in _of_json(entry, base, url)]
    yield from pairs


def _parsed(data: bytes, url: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as e:
        raise FormatError(
            f"{url}: is not JSON, expected STAC items as the other sources have: {e}"
        ) from e


def _of_json(
    given: Any, base: str | None, where: str
) -> Iterator[tuple[Mapping[str, Any], Origin]]:
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind == "FeatureCollection":
        for entry in _list(given.get("features")):
            if isinstance(entry, Mapping):
                # items of a search come from elsewhere than the document that lists them
                own = _linked(entry)
                is_far = own.url is not None and is_remote(own.url)
                yield entry, own if is_far or base is None else Origin(base)
    elif kind == "Feature":
        yield given, _linked(given) if base is None else Origin(base)
    else:
        raise FormatError(
            f"{where}: type {kind!r:.40}, expected a STAC item (Feature) or an ItemCollection "
            "(FeatureCollection)"
        )


def _linked(entry: Mapping[str, Any]) -> Origin:
    """Return where an item says that it is, or else where its catalog is."""
    links = [link for link in _list(entry.get("links")) if isinstance(link, Mapping)]
    for relation in ("self", "root", "parent", "collection"):
        for link in links:
            href = _text(link.get("href")) or ""
            # a relative link says nothing about where the item is
            is_whole = is_remote(href) or is_absolute(href) or href.startswith("file:")
            if link.get("rel") == relation and is_whole:
                return Origin(href, is_own=relation == "self")
    return Origin()


def _rows(data: bytes, where: str) -> list[dict[str, Any]]:
    """Return the rows of GeoParquet as items, with their properties below `properties`."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as e:
        raise MissingDependencyError(
            f"{where}: reading GeoParquet needs pyarrow; install it with: "
            'pip install "anychunk[parquet]"'
        ) from e
    file = parquet.ParquetFile(io.BytesIO(data))
    names = [name for name in file.schema_arrow.names if name not in ("geometry", "bbox")]
    unpacked = sum(
        file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups)
    )
    limits.check_index(unpacked, where=where)
    if not {"id", "assets"} <= set(names):
        raise FormatError(f"{where}: has no columns id and assets, expected STAC items")
    table = file.read(columns=names)
    columns = {
        name: table[name].cast(pa.timestamp("us", column.type.tz))
        if pa.types.is_timestamp((column := table[name]).type) and column.type.unit == "ns"
        else table[name]
        for name in names
    }
    return [_row(row) for row in pa.table(columns).to_pylist()]


TOP = ("type", "stac_version", "stac_extensions", "id", "links", "assets", "collection")
"""Members of an item that are not properties."""


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as an item. A column has a value for every row: one that is absent is null."""
    found = {key: _without_nulls(row.get(key)) for key in TOP if key in row}
    rest = {key: _without_nulls(value) for key, value in row.items() if key not in TOP}
    assets = found.get("assets")
    if isinstance(assets, list):  # a map of Arrow is a list of pairs
        found["assets"] = {
            pair[0]: pair[1] for pair in assets if isinstance(pair, list) and len(pair) == 2
        }
    return {**found, "type": "Feature", "properties": rest}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        pairs = {key: _without_nulls(entry) for key, entry in value.items()}
        return {key: entry for key, entry in pairs.items() if entry is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(entry) for entry in value]
    return value


def item_of(entry: Mapping[str, Any], origin: Origin, choice: Choice) -> Item:
    """Return an item with the chosen assets, whose urls are not signed.

    Parameters:
        entry: The item's JSON.
        origin: Where it comes from.
        choice: Which assets are meant.
    """
    name = _text(entry.get("id")) or "item"
    assets, properties = _mapping(entry.get("assets")), _mapping(entry.get("properties"))
    keys = choice.assets or (_only_data(assets, name),)
    found = []
    for key in keys:
        own = _find(assets, key, name)
        description = _mapping(assets[own])
        label = f"STAC item {name}, asset {own}"
        href = _text(description.get("href"))
        if href is None:
            raise FormatError(f"{label}: has no href")
        bands = _band_names(description)
        found.append(
            Asset(
                label=label,
                name=key,
                url=resolved_href(href, origin, choice.allow, label),
                # a file that was asked for by the name of its band is labelled so
                bands=bands if own == key or len(bands) != 1 else (key,),
                crs=_crs(description, properties),
                transform=_numbers(_either("proj:transform", description, properties), (6, 9)),
                shape=_shape(_either("proj:shape", description, properties)),
            )
        )
    return Item(id=name, assets=tuple(found), date=_date(properties))


def _only_data(assets: Mapping[str, Any], name: str) -> str:
    """Return the key of the only asset with data; refuse an item with several."""

    def is_data(asset: Mapping[str, Any]) -> bool:
        roles = set(map(str, _list(asset.get("roles"))))
        kind = _text(asset.get("type"))
        is_raster = kind is None or kind.startswith(RASTERS)
        return "data" in roles or (is_raster and not roles & NOT_DATA)

    found = [key for key, asset in assets.items() if is_data(_mapping(asset))]
    if len(found) != 1:
        listed = " ".join(assets) or "(none)"
        raise FormatError(f"STAC item {name}: has the assets {listed:.500}; choose some by assets=")
    return str(found[0])


def _find(assets: Mapping[str, Any], key: str, name: str) -> str:
    """Return the key of an asset by its key, or by the name or common name of its only band."""
    if key in assets:
        return key
    found = []
    for own, asset in assets.items():
        bands = _bands(_mapping(asset))
        names = ("name", "common_name", "eo:common_name")
        if len(bands) == 1 and key in [bands[0].get(n) for n in names]:
            found.append(own)
    if len(found) == 1:
        return str(found[0])
    listed = " ".join(assets) or "(none)"
    what = f"has no asset {key!r}" if not found else f"has several assets for {key!r}"
    raise FormatError(f"STAC item {name}: {what}; its assets are {listed:.500}")


def resolved_href(href: str, origin: Origin, allow: Sequence[str] | None, label: str) -> str:
    """Return the url that an asset refers to, if it may be followed.

    Parameters:
        href: The reference: a url, an absolute path, or a path relative to the item.
        origin: Where the item comes from.
        allow: Folders that a local path may lead to; `*`: any.
        label: Names the asset in messages.
    """
    base = origin.url
    is_whole = is_remote(href) or href.startswith("file:") or is_absolute(href)
    is_memory = href.startswith("memory:")
    if is_remote(href) and not is_memory:
        return as_url(href)
    if not is_whole:
        if base is None or not origin.is_own:
            raise FormatError(
                f"{label}: the href {href!r:.200} is relative, and the item has no self link; "
                "give absolute urls, or the path of the item's file"
            )
        if is_remote(base):
            return _joined(base, href)
    if (allow is None and base is None) or (allow and EVERYWHERE in allow):
        folder = "" if is_whole else f"{posixpath.dirname(absolute(str(base)))}/"
        return _named(lambda name: as_url(f"{folder}{name}"), href)
    if base is not None and not is_remote(base):
        folder = posixpath.dirname(absolute(base))
        allow = (folder, *(allow or ()))
    else:
        folder = label
    return _named(lambda name: resolve(folder, name, allow=allow or ()), href)


def _named(resolved: Callable[[str], str], href: str) -> str:
    """Return the path of a local reference, which may be percent-encoded (RFC 3986).

    Some writers do not encode paths: a file of exactly that name is the one that is meant.
    """
    if "%" not in href or is_remote(href) or href.startswith("file:"):
        return resolved(href)
    with suppress(FormatError):  # it may stay in the folder once it is decoded
        found = resolved(href)
        if os.path.lexists(found):
            return found
    return resolved(unquote(href))


def _joined(base: str, href: str) -> str:
    """Return a path relative to a remote item as a url."""
    scheme, _, rest = base.partition("://")
    host, _, path = rest.partition("?")[0].partition("/")
    whole = posixpath.normpath(f"/{posixpath.dirname(path)}/{href}")
    return f"{scheme}://{host}/{whole.lstrip('/')}"


def _signed(item: Item, sign: Sign | None) -> Item:
    """Return an item whose remote files are signed by the caller's function."""
    found = []
    for asset in item.assets:
        url = sign(asset.url) if sign is not None and is_remote(asset.url) else asset.url
        if not isinstance(url, str):
            raise TypeError(
                f"{asset.label}: sign= returned {type(url).__name__}, expected a url as text"
            )
        found.append(replace(asset, url=url))
    return replace(item, assets=tuple(found))


def _bands(asset: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the bands of an asset: `bands` of STAC 1.1, or else `eo:bands`."""
    listed = _list(asset.get("bands")) or _list(asset.get("eo:bands"))
    return [band if isinstance(band, Mapping) else {} for band in listed]


def _band_names(asset: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of all bands of an asset; empty if one has none, or two have the same."""
    bands = _bands(asset)
    for keys in (("name",), ("common_name", "eo:common_name")):
        names = [next((_text(b.get(k)) for k in keys if _text(b.get(k))), None) for b in bands]
        if names and all(names) and len(set(names)) == len(names):
            return tuple(str(name) for name in names)
    return ()


def _crs(asset: Mapping[str, Any], properties: Mapping[str, Any]) -> str | None:
    for holder in (asset, properties):
        code, number = _text(holder.get("proj:code")), holder.get("proj:epsg")
        if code is not None:
            return code.upper()
        if _is_number(number):
            return f"EPSG:{int(number)}"
    return None


def _either(name: str, asset: Mapping[str, Any], properties: Mapping[str, Any]) -> Any:
    return asset[name] if asset.get(name) is not None else properties.get(name)


def _numbers(value: Any, counts: Sequence[int]) -> tuple[float, ...] | None:
    found = _list(value)
    if len(found) not in counts or not all(map(_is_number, found)):
        return None
    return tuple(float(n) for n in found[:6])


def _is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number; Python reads NaN and Infinity in JSON, too."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < LARGEST


LARGEST = 1e300
"""Numbers beyond are not those of any place."""


def _shape(value: Any) -> tuple[int, int] | None:
    found = _numbers(value, (2,))
    return None if found is None else (int(found[0]), int(found[1]))


def _date(properties: Mapping[str, Any]) -> int | None:
    """Return `datetime`, or the start of the interval of an item that has none."""
    for key in ("datetime", "start_datetime", "end_datetime"):
        found = dates_of.from_text(_text(properties.get(key)))
        if found is not None:
            return found
    return None


def group_name(name: str) -> str:
    """Return an id as the name of a group; ids may have any characters."""
    found = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip("._") or "item"
    return found[:200]


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Json]:
    return value if isinstance(value, list | tuple) else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# Index the files of a STAC item: bands by name, on the grid that the item states.

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
