"""The public functions: url in, zarr out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, overload

import zarr

from anychunk import archive, codecs, references
from anychunk.codecs import zarr_registry
from anychunk.combine import How, stac, stac_assets
from anychunk.combine.batches import DateSource, Recipe
from anychunk.combine.mosaic import Overlap
from anychunk.combine.ordering import Dates, dates_of_urls, sorted_urls
from anychunk.combine.parallel import Failures
from anychunk.combine.patterns import expand
from anychunk.combine.stac import Items, Sign
from anychunk.errors import FilesError, FormatError, UnsupportedError
from anychunk.indexing import Held, Url, described, index_held, index_one, several_files
from anychunk.io import OnChange, Storage, as_url, is_held, is_pattern, is_remote
from anychunk.metadata.dates import Duplicates, Georeference, Order, Rules
from anychunk.metadata.meaning import Meaning
from anychunk.metadata.reading import meaning_of_level
from anychunk.model.images import array_path, image_around
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node
from anychunk.read import pipeline
from anychunk.read.zarr_array import Array, Group, open_path
from anychunk.read.zarr_array import open_group as open_index
from anychunk.read.zarr_store import IndexStore
from anychunk.references import virtualizarr


@overload
def index(
    url: Url | Held | Iterable[Url] | Items,
    *,
    format: str | None = None,
    storage: Storage | None = None,
    combine: How | None = None,
    along: str | int | None = None,
    overlap: Overlap = "error",
    dates: Dates = None,
    order: Order = "date",
    duplicates: Duplicates = "error",
    georeference: Georeference = "error",
    assets: str | Sequence[str] | None = None,
    sign: Sign | None = None,
    check_proj: bool = True,
    executor: Any = None,
    failures: Failures | None = None,
    to: None = None,
    batch: int | None = None,
    **options: Any,
) -> GroupIndex | ArrayIndex: ...


@overload
def index(
    url: Url | Held | Iterable[Url] | Items,
    *,
    format: str | None = None,
    storage: Storage | None = None,
    combine: How | None = None,
    along: str | int | None = None,
    overlap: Overlap = "error",
    dates: Dates = None,
    order: Order = "date",
    duplicates: Duplicates = "error",
    georeference: Georeference = "error",
    assets: str | Sequence[str] | None = None,
    sign: Sign | None = None,
    check_proj: bool = True,
    executor: Any = None,
    failures: Failures | None = None,
    to: Url,
    batch: int | None = None,
    **options: Any,
) -> None: ...


def index(
    url: Url | Held | Iterable[Url] | Items,
    *,
    format: str | None = None,
    storage: Storage | None = None,
    combine: How | None = None,
    along: str | int | None = None,
    overlap: Overlap = "error",
    dates: Dates = None,
    order: Order = "date",
    duplicates: Duplicates = "error",
    georeference: Georeference = "error",
    assets: str | Sequence[str] | None = None,
    sign: Sign | None = None,
    check_proj: bool = True,
    executor: Any = None,
    failures: Failures | None = None,
    to: Url | None = None,
    batch: int | None = None,
    **options: Any,
) -> GroupIndex | ArrayIndex | None:
    """Read the structure of a file, or a saved index; no samples are read.

    Parameters:
        url: A path or url, or several, or a pattern such as `"s3://bucket/*.tif"`. Accepts
            local paths and `file:`, `s3:`, `gs:`, `az:`, `abfs:`, `http:`, `https:` and `memory:`
            urls, signed ones too; bytes; and open binary files. A path in a store that is passed as
            `storage`. STAC items: objects of pystac, dictionaries, or the paths of JSON or
            GeoParquet files with items.
        format: The name of a format, instead of recognising it by content; `anychunk formats`
            lists them.
        storage: How remote files are read: a dictionary of obstore's options (credentials,
            `region`, `endpoint`, `skip_signature`, `client_options`, `retry_config`,
            `credential_provider` …), an obstore store, or an fsspec filesystem. See
            *Credentials and clouds* in the documentation.
        combine: How several files become one index: `"stack"` along a new axis, `"concat"` along
            an existing one, `"mosaic"` on one map grid, `"group"` side by side.
        along: The axis to concatenate along, by name or number; or the new axis of a stack: `"t"`
            (the default), `"z"` or `"c"`.
        overlap: What `"mosaic"` does where images overlap: `"error"`, `"first"` or `"last"`.
        dates: For a stack along t, the dates that become its coordinate: a pattern of file names
            such as `"%Y%m%d"`; a list with one date per file, a dictionary by url, or a function of
            the url; `"tags"`, which refuses files that state no date; False for none. By default
            what the files state (TIFF, NITF, STAC), if all of them do.
        order: Of a stack along t: `"date"` sorts files by date, `"given"` does not.
        duplicates: What happens to files of the same date: `"error"`, or `"keep"` in the order
            given.
        georeference: What happens to a stack of files with different CRS or transforms: `"error"`,
            or `"drop"` to stack them without a georeference.
        assets: Of STAC items, the keys of the assets, or the names of their bands; several become
            the bands of one image. By default the only asset with data.
        sign: A function that returns the signed form of a remote url of a STAC item.
        check_proj: Whether files must have the CRS, transform and shape that STAC items state.
        executor: Where many files are parsed: a `concurrent.futures.Executor` of threads or
            processes, a Dask client, or the address of a Dask scheduler; by default threads.
        failures: A dictionary. Files that cannot be indexed are left out and noted in it, with the
            reason; without it the first of them raises.
        to: Where to save the index of several files, as `save` does, instead of returning it. An
            Icechunk repository is written batch by batch, so that archives of any size are indexed
            in little memory; what was there is replaced when all files are indexed.
        batch: With `to`, the number of files that are held in memory; by default 500 or more.
        **options: Options of the format itself:

            - DTED: `checksums=False` reads records whose checksums are wrong.
            - JNRRD, NRRD, saved indexes and STAC items: `allow=[…]`, folders or url prefixes
              outside the file's own folder that it may refer to (`["*"]`: anywhere).
            - N5: `axes="zyx"` or `"xyz"`, the order of dimensions; `blocks="samples"` or
              `"bytes"`, the second for blocks that are not arrays of samples.
            - NITF: `rsets=True` or `False`, whether reduced resolutions in sibling files
              (`.r1`, `.r2` …) become levels; by default they do for local files.
              `justify=True` or `False`, whether left-justified samples (PJUST L) are shifted
              down; by default they are unless their low bits are in use.
              `complex_pairs=False` keeps the I and Q bands of SAR images (SICD), which are
              otherwise one complex band.
            - TIFF, NITF, JPEG 2000: `sidecars=True` or `False`, whether to look for side files
              (`.aux.xml`, world files, `.ovr`, `.msk`); by default for local files.

    Returns:
        A `GroupIndex`; an `ArrayIndex` where the url is itself one array, such as an N5 dataset;
        None with `to`.

    Raises:
        AnychunkError: The file cannot be indexed; the subclass says why.
        MissingFileError: There is no such file or object; also a `FileNotFoundError`.
    """
    is_one = is_held(url) or (isinstance(url, str | Path) and not is_pattern(str(url)))
    asked: Any = {"assets": assets, "sign": sign, "check_proj": check_proj}
    is_asked = assets is not None or sign is not None or stac.is_item(url)
    if not is_one or combine is not None or is_asked:
        if is_held(url):
            raise ValueError("combine= takes paths and urls, not bytes or an open file")
        files = files_to_index(
            cast("Any", url),
            combine=combine,
            along=along,
            dates=dates,
            rules=Rules(order=order, duplicates=duplicates, georeference=georeference),
            executor=executor,
            failures=failures,
            format=format,
            storage=storage,
            **asked,
            **options,
        )
        if combine is None and (len(files.urls) > 1 or not files.sources):
            raise several_files()
        if to is None:
            return archive.index_files(files, overlap=overlap)
        archive.save_files(files, as_url(to), overlap=overlap, batch=batch, storage=storage)
        return None
    if is_held(url):
        found = index_held(url, format, storage, options)
    else:
        found = index_one(as_url(cast("Url", url)), format=format, storage=storage, **options)
    if to is None:
        return found
    references.save(found, as_url(to), storage=storage)
    return None


def files_to_index(
    urls: Url | Iterable[Url] | Items,
    *,
    combine: How | None,
    along: str | int | None = None,
    dates: Dates = None,
    rules: Rules | None = None,
    assets: str | Sequence[str] | None = None,
    sign: Sign | None = None,
    check_proj: bool = True,
    executor: Any = None,
    failures: Failures | None = None,
    progress: Callable[[], object] | None = None,
    **options: Any,
) -> archive.Files:
    """Return files, and how they are indexed; parameters are those of `index`.

    `rules` are `order`, `duplicates` and `georeference`; `progress` is called after every file.
    """
    rules = rules or Rules()
    chosen = (assets,) if isinstance(assets, str) else tuple(assets or ())
    storage = options.get("storage")
    found, documents = _listed(urls, storage)
    parse: Callable[[Any], Node] = partial(index_one, **options)
    items: dict[str, stac.Item] = {}
    if documents:
        allow = options.pop("allow", None)
        folders = None if allow is None else tuple(map(str, allow))
        choice = stac.Choice(assets=chosen, sign=sign, allow=folders)
        items = _items(documents, choice, storage, failures)
        found = list(items)
        one = partial(index_one, **options)
        parse = partial(stac_assets.index_item, parse=one, check_proj=check_proj)
    elif chosen or sign is not None:
        raise FormatError(f"{next(iter(found), '')}: assets= and sign= need STAC items")
    known = _known_dates(found, dates, combine, along, failures)
    if known is None and dates is None and items and _is_dated(combine, along):
        known = {item.url: _date(item) for item in items.values()}
    if known:
        found = sorted_urls([url for url in found if url in known], known, rules)
    recipe = Recipe(
        parse=parse,
        how=combine,
        along=along,
        dates=_date_source(dates, known),
        rules=rules,
    )
    return archive.Files(
        urls=found,
        recipe=recipe,
        executor=executor,
        failures=failures,
        progress=progress,
        dates=known or {},
        names=_item_names(items),
        sources=items,
    )


def _listed(
    urls: Url | Iterable[Url] | Items, storage: Storage | None
) -> tuple[list[str], list[Any]]:
    """Return the urls of files; or nothing, and documents and objects that have STAC items."""
    if stac.is_item(urls):
        return [], [urls]
    if not isinstance(urls, str | Path | Iterable):
        hint = "; open it first, with .open()" if hasattr(urls, "open") else ""
        raise TypeError(
            f"got {type(urls).__name__}, expected a url or path, bytes, an open file or a list of "
            f"urls{hint}"
        )
    given = [urls] if isinstance(urls, str | Path) else list(cast("Iterable[Any]", urls))
    if any(stac.is_item(one) for one in given):
        return [], [as_url(one) if isinstance(one, str | Path) else one for one in given]
    found = expand(given, storage)
    is_stac = bool(found) and stac.is_document(found[0], storage)
    return ([], list(found)) if is_stac else (found, [])


def _items(
    documents: Sequence[Any],
    choice: stac.Choice,
    storage: Storage | None,
    failures: Failures | None,
) -> dict[str, stac.Item]:
    """Return STAC items by the urls that stand for them; there is at least one."""
    found = stac.read_items(documents, choice, storage=storage, failures=failures)
    if not found and failures:
        raise FilesError(failures, len(failures))
    if not found:
        raise FormatError("STAC: found no items")
    return {item.url: item for item in found}


def _item_names(items: Mapping[str, stac.Item]) -> dict[str, str]:
    """Return the names of the groups of items, which are their ids, by url."""
    names = {url: stac.group_name(item.id) for url, item in items.items()}
    if len(set(names.values())) < len(names):
        return {url: f"{name}_{number}" for number, (url, name) in enumerate(names.items())}
    return names


def _date(item: stac.Item) -> int:
    if item.date is None:
        raise FormatError(
            f"STAC item {item.id}: has neither datetime nor start_datetime; pass dates="
        )
    return item.date


def _is_dated(combine: How | None, along: str | int | None) -> bool:
    """Return whether files are stacked along t, as far as that is known before they are parsed."""
    return combine == "stack" and along in (None, "t", "time")


def _known_dates(
    urls: Sequence[str],
    dates: Dates,
    combine: How | None,
    along: str | int | None,
    failures: Failures | None,
) -> dict[str, int] | None:
    """Return the dates that the caller gives, by url; None if the files are to state them."""
    if dates is None or dates is False:
        return None if dates is None else {}
    if not _is_dated(combine, along):
        raise ValueError("dates= needs combine='stack' along t")
    found = dates_of_urls(urls, dates, failures)
    if failures and not found:
        raise FilesError(failures, len(urls))
    return found


def _date_source(dates: Dates, known: Mapping[str, int] | None) -> DateSource:
    if known is None:
        return "stated" if dates is None else "required"
    return "given" if known else "none"


def _as_index(
    url: Url | Held | Node | Iterable[Url] | Items, storage: Storage | None, options: Any
) -> Node:
    if isinstance(url, GroupIndex | ArrayIndex):
        return url
    return index(url, storage=storage, to=None, **options)


def open(  # noqa: A001 - the public name is anychunk.open
    url: Url | Held | Node | Iterable[Url] | Items,
    *,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Any,
) -> Group | Array:
    """Open a file, or an index, as a read-only Zarr hierarchy.

    The first call makes anychunk's pipeline the default of zarr, unless zarr's configuration
    already names another one; `disable` undoes that.

    Parameters:
        url: A path or url, several, a pattern, STAC items, a saved index, or what `index` returned.
        storage: Options for obstore's store, as in `index`.
        on_change: What happens when a source is no longer the one that was indexed: `"error"`
            raises `SourceChangedError`, `"warn"` warns and reads what is there.
        **options: All other options of `index`: `format`, `combine`, `along`, `overlap`, `dates`,
            `order`, `duplicates`, `georeference`, `assets`, `sign`, `check_proj`, `executor`,
            `failures`, and those of the formats: `allow` (JNRRD, NRRD, saved indexes, STAC),
            `axes` and `blocks` (N5), `checksums` (DTED), `rsets`, `justify`, `complex_pairs`
            (NITF), `sidecars` (TIFF, NITF, JPEG 2000).

    Returns:
        A `zarr.Group`; a `zarr.Array` where the url is itself one array, such as an N5 dataset.
        `open_group` and `open_array` return exactly one of the two.

    Raises:
        AnychunkError: The file cannot be opened; the subclass says why.
        MissingFileError: There is no such file or object; also a `FileNotFoundError`.
    """
    node = _as_index(url, storage, options)
    if isinstance(node, ArrayIndex):
        return open_path(node, "", storage=storage, on_change=on_change)
    return open_index(node, storage=storage, on_change=on_change)


def open_group(
    url: Url | Held | Node | Iterable[Url] | Items,
    *,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Any,
) -> Group:
    """Open a file, or an index, as a read-only `zarr.Group`.

    Parameters are those of `open`. `group.image(0, level=0)` is an array of it.

    Raises:
        UnsupportedError: The url is itself one array: use `open_array`.
    """
    node = _as_index(url, storage, options)
    if isinstance(node, ArrayIndex):
        name = node.attributes.get("anychunk", {}).get("source", "index")
        raise UnsupportedError(
            f"{name}: found a single array, expected a group; open it with open_array"
        )
    return open_index(node, storage=storage, on_change=on_change)


def open_array(
    url: Url | Held | Node | Iterable[Url] | Items,
    *,
    image: int | str = 0,
    level: int | str = 0,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Any,
) -> Array:
    """Open one array of a file, by default the first image at full resolution.

    Parameters:
        url: A path or url, a saved index, or what `index` returned; several files or STAC items,
            with the options of `index`.
        image: The number of the image, or its path.
        level: The number of the level, 0 for full resolution, -1 for the coarsest; or its name.
        storage: As in `open`.
        on_change: As in `open`.
        **options: As in `open`.

    Raises:
        NoSuchImageError: There is no such image or level.
    """
    node = _as_index(url, storage, options)
    return open_path(node, array_path(node, image, level), storage=storage, on_change=on_change)


def describe(url: Url | Held | Node, **options: Any) -> dict[str, Json]:
    """Return what a file holds as plain data, ready for JSON: its attributes and every array.

    Options are those of `index`.
    """
    return described(_as_index(url, options.pop("storage", None), options))


def opened_image(array: Any) -> tuple[Meaning, Mapping[str, Json]] | None:
    """Return the meaning of an array that was opened by this package, and its image's attributes.

    None for any other array.
    """
    store = getattr(array, "store", None)
    if not isinstance(array, zarr.Array) or not isinstance(store, IndexStore):
        return None
    image = image_around(store.index, array.path)
    if image is None:
        return None
    meaning = meaning_of_level(store.index, image, image.levels.index(array.path))
    return meaning, image.attributes


def save(node: Node, target: str | Path, *, format: str | None = None, **options: Any) -> None:
    """Save an index, so that it can be opened again without parsing the file.

    Parameters:
        node: What `anychunk.index` returned.
        target: A path or url: `.json` kerchunk, `.parquet`, or an `.icechunk` repository.
        format: "kerchunk", "parquet" or "icechunk", instead of the target's extension.
        options: `copy="needed"` copies chunks that the format cannot refer to; `relative=False`
            writes urls that do not move with the index; `storage` is obstore's. For JSON also
            `zarr_format=2` and `layout="osml"`, for Icechunk `message`.

    Raises:
        UnsupportedError: If the format cannot express the index; nothing is written then.
    """
    references.save(node, as_url(target), format=format, **options)


def append(
    urls: Url | Iterable[Url] | Items,
    target: str | Path,
    *,
    combine: How = "group",
    along: str | int | None = None,
    dates: Dates = None,
    order: Order = "date",
    duplicates: Duplicates = "error",
    georeference: Georeference = "error",
    batch: int | None = None,
    executor: Any = None,
    failures: Failures | None = None,
    progress: Callable[[], object] | None = None,
    storage: Storage | None = None,
    copy: Literal["never", "needed"] = "never",
    **options: Any,
) -> int:
    """Add files to an Icechunk repository, one commit per batch; return how many were added.

    Files that the repository already refers to are skipped, so the same call resumes after a crash,
    which leaves the repository at its last commit. Where another writer commits at the same time,
    the files are added to what it wrote.

    Parameters:
        urls: Paths, urls or patterns; or STAC items, with the options `assets`, `sign` and
            `check_proj` of `index`.
        target: The repository, created if it does not exist.
        combine: `"group"`, `"stack"` or `"concat"`; see `index`.
        along: The axis to stack or concatenate along.
        dates: As in `index`.
        order: As in `index`. With `"date"`, appended files must not be earlier than those that the
            repository has.
        duplicates: As in `index`; also for dates that the repository has.
        georeference: As in `index`; also for the place of the files that the repository has.
        batch: The number of files per commit; by default as many as make commits cheap, at least
            500.
        executor: As in `index`.
        failures: As in `index`.
        progress: Called after every file.
        storage: As in `index`.
        copy: `"needed"` copies chunks that Icechunk cannot refer to; `"never"` refuses them.
        **options: As in `index`.
    """
    files = files_to_index(
        urls,
        combine=check_appendable(combine),
        along=along,
        dates=dates,
        rules=Rules(order=order, duplicates=duplicates, georeference=georeference),
        executor=executor,
        failures=failures,
        progress=progress,
        storage=storage,
        **options,
    )
    done = archive.append_files(files, as_url(target), batch=batch, copy=copy, storage=storage)
    return done.files


def check_appendable(combine: How) -> How:
    """Refuse a combination that needs all files at once."""
    if combine == "mosaic":
        raise ValueError(
            "append: combine='mosaic' is not supported; index all files at once and save the result"
        )
    return combine


def from_virtualizarr(found: Any, **options: Any) -> Node:
    """Return a VirtualiZarr `ManifestStore`, `ManifestGroup` or virtual dataset as an index."""
    return virtualizarr.from_virtualizarr(found, **options)


@dataclass(frozen=True, kw_only=True)
class VirtualParser:
    """A parser for VirtualiZarr: `open_virtual_dataset(url, registry, parser=VirtualParser())`.

    One level of one image becomes the dataset, with its coordinates; with `tree=True` every level
    of every image stays at its own path, as `open_virtual_datatree` expects.
    """

    image: int | str = 0
    """The number of the image, or its path."""
    level: int | str = 0
    """The number of the level, 0 for full resolution, -1 for the coarsest; or its name."""
    name: str = "image"
    """The name of the variable."""
    tree: bool = False
    """Whether to keep all images and levels, in groups."""
    copy: Literal["never", "needed"] = "never"
    """`"needed"` copies chunks that a manifest cannot refer to; `"never"` refuses them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `index`."""

    def __call__(self, url: str, registry: Any) -> Any:
        """Parse `url`, read by the stores of `registry`, into a `ManifestStore`."""
        storage = {"resolve": registry.resolve} if is_remote(url) else None
        node = index(url, storage=storage, **self.options)
        if self.tree:
            node = virtualizarr.group_per_level(node)
        else:
            path = array_path(node, self.image, self.level)
            node = virtualizarr.single_level(node, path, self.name)
        return virtualizarr.to_virtualizarr(
            node, registry=registry, copy=self.copy, storage=storage
        )


_replaced: dict[str, str | None] = {}
"""What the configuration named for each codec before ours; None for nothing."""


def enable() -> None:
    """Make zarr use our codecs and our pipeline for everything that it opens from now on.

    `disable` and `zarr.config.reset` undo it.
    """
    names = zarr_registry.register_all()
    chosen: dict[str, str] = zarr.config.get("codecs")
    for name, ours in names.items():
        if chosen.get(name) != ours:
            _replaced[name] = chosen.get(name)
    # a nested update merges; setting by dotted key would split names that hold dots
    zarr.config.update({"codecs": names})
    pipeline.install(force=True)


def disable() -> None:
    """Remove our codecs and our pipeline from zarr's configuration, and nothing else."""
    chosen: dict[str, str] = dict(zarr.config.get("codecs"))
    classes = codecs.load_all() if _replaced else {}
    for name, before in _replaced.items():
        if chosen.get(name) == zarr_registry.qualname(classes[name]):
            del chosen[name]
            if before is not None:
                chosen[name] = before
    if _replaced:
        zarr.config.set({"codecs": chosen})
        _replaced.clear()
        zarr_registry.unregister_all()
    pipeline.uninstall()
