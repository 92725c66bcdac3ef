"""Index many files: held as one index, or saved batch by batch and forgotten.

What is held in memory is bounded by a batch wherever the target can be written in batches: an
Icechunk repository, and groups in every form. Stacks and concatenations in other forms are written
from anychunk.combine import stac
from one index, which is small, because it has one table per array and not one index per file.
"""

import itertools
import math
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Unpack, cast

from anychunk import references
from anychunk.combine import How, axis_of, group_names, stac
from anychunk.combine import combine as combine_files
from anychunk.combine.batches import (
    DateSource,
    Item,
    Part,
    Recipe,
    check_failures,
    dates_of_part,
    index_parts,
    joined,
)
from anychunk.combine.images import (
    Dates,
    date_of,
    dates_of_urls,
    expand,
    in_order,
    sorted_urls,
    stacked_dates,
)
from anychunk.combine.mosaic import Overlap
from anychunk.combine.parallel import Failures, attempt
from anychunk.combine.stac import Items, Sign
from anychunk.errors import AnychunkError, FilesError, FormatError, OptionError
from anychunk.formats import options_of_others
from anychunk.formats._jpeg2000 import whole
from anychunk.indexing import Url, index_one, several_files
from anychunk.io import sink
from anychunk.io.source import Storage, absolute, as_url
from anychunk.metadata.dates import Duplicates, Georeference, Order, Rules
from anychunk.metadata.joining import collected_warnings
from anychunk.model.images import is_coordinate
from anychunk.model.index import WHOLE, ArrayIndex, ByteRanges, GroupIndex, Node, walk
from anychunk.options import Copy, FileOptions, Progress, checked
from anychunk.references import icechunk
from anychunk.references.documents import MOST_IMAGES
from anychunk.references.seek_points import has_streams, with_points

FILES_PER_COMMIT = 500
"""How many files a commit has: it costs about as much as to index 50 of them."""
GROUP_SHARE = 20
"""A repository of groups commits at least this fraction of what it holds, 1/20: a commit writes the
metadata of all groups again, about 0.05 ms per file that is there."""
MOST_PER_COMMIT = 2500
"""How many files a commit has at most: they are held in memory until then."""
LARGE_GROUP = 10_000
"""From this number of files on, a repository of groups is advised against: each commit reads and
writes the metadata of all of them, and holds it in memory several times."""


@dataclass(kw_only=True)
class Summary:
    """What was indexed."""

    files: int = 0
    arrays: int = 0
    chunks: int = 0
    stored_bytes: int = 0

    def add(self, node: Node, files: int, *, is_extended: bool) -> None:
        """Count an index.

        Parameters:
            node: The index.
            files: How many files it is of.
            is_extended: Whether its arrays extend those that were counted before.
        """
        arrays = [
            array
            for path, array in walk(node)
            if isinstance(array, ArrayIndex) and not is_coordinate(path.rpartition("/")[2], array)
        ]
        self.files += files
        self.arrays = len(arrays) if is_extended else self.arrays + len(arrays)
        for array in arrays:
            self.chunks += math.prod(array.grid)
            chunks = whole(array).chunks  # chunks that are parts of a tile share its bytes
            if isinstance(chunks, ByteRanges):
                lengths = chunks.lengths
                self.stored_bytes += int(lengths[lengths != WHOLE].sum())


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files to index, and how."""

    urls: Sequence[str]
    recipe: Recipe
    executor: Any = None
    failures: Failures | None = None
    """Where files that cannot be indexed are noted; None: they raise."""
    progress: Callable[[], object] | None = None
    """Called after every file."""
    dates: Mapping[str, int] = field(default_factory=dict)
    """By url, where they are known before files are parsed; the files are in their order."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Of the groups, by url, where the urls do not give them."""
    sources: Mapping[str, Any] = field(default_factory=dict)
    """What is parsed instead of a url."""

    def parts(self, batches: Sequence[Sequence[Item]]) -> Iterator[list[Part]]:
        """Index batches; yield the parts of each."""
        progress = self.progress or (lambda: None)

        def advance(part: Part) -> None:
            for _ in range(part.count):
                progress()

        return index_parts(self.recipe, batches, self.executor, on_part=advance)

    def items(self, urls: Sequence[str]) -> list[Item]:
        """Return files with the names of their groups, which depend on all files."""
        named = self.names
        if not named:
            is_group = self.recipe.how == "group"
            names = group_names(self.urls) if is_group and self.urls else self.urls
            named = dict(zip(self.urls, names, strict=True))
        return [Item(url, named[url], self.dates.get(url), self.sources.get(url)) for url in urls]


def index_files(files: Files, *, overlap: Overlap = "error") -> Node:
    """Index many files as one index, which is held in memory.

    Raises:
        FilesError: Some files cannot be indexed and failures are not noted, or none can be.
    """
    if not files.urls:
        raise FormatError("index: the list of files is empty")
    parts = [p for some in files.parts([files.items(files.urls)]) for p in some]
    check_failures(parts, files.failures, total=len(files.urls))
    how = files.recipe.how
    if files.recipe.is_joined and how is not None:
        return _joined(parts, files.recipe)
    found = {url: node for part in parts for url, node in part.files.items()}
    if how is None:
        return next(iter(found.values()))
    return combine_files(found, how, along=files.recipe.along, overlap=overlap)


def _joined(parts: Sequence[Part], recipe: Recipe) -> GroupIndex:
    """Join parts, some of which may have no files; warn once about what is dropped."""
    how = recipe.how or "group"
    filled = [(part.node, part.urls[-1]) for part in parts if part.node is not None]
    nodes, labels = [node for node, _ in filled], [label for _, label in filled]
    with collected_warnings() as messages:
        node = joined(nodes, labels, how, recipe.rules.georeference)
    for message in dict.fromkeys([m for part in parts for m in part.warnings] + messages):
        warnings.warn(message, stacklevel=4)
    if how == "stack" and axis_of(node) == "t":
        return in_order(node, [url for part in parts for url in part.urls], recipe.rules)
    return node


def save_files(
    files: Files,
    target: str,
    *,
    format: str | None = None,
    overlap: Overlap = "error",
    batch: int | None = None,
    copy: Copy = "never",
    overwrite: bool = False,
    storage: Storage | None = None,
    target_storage: Storage | None = None,
    **options: Any,
) -> Summary:
    """Index many files and save the index, which appears at `target` when it is complete.

    Parameters:
        files: The files.
        target: A path or url.
        format: "kerchunk", "parquet" or "icechunk"; inferred from the extension by default.
        overlap: As in `combine.combine`.
        batch: The number of files that are held in memory, for Icechunk and for groups.
        copy: "needed" copies chunks that the format cannot refer to; "never" refuses them.
        overwrite: Whether an existing target is replaced.
        storage: Of the sources.
        target_storage: Of the target.
        options: Those of the index format's own `save`.
    """
    kind, how, done = references.index_format(target, format), files.recipe.how, Summary()
    sink.check_free(target, overwrite=overwrite, storage=target_storage)
    options |= {"copy": copy, "storage": storage, "target_storage": target_storage}
    if kind != "icechunk" and _is_large_group(files, batch, options):
        _save_group(files, target, kind, batch, done, **options)
        return done
    if kind != "icechunk" or how is None or not _is_in_batches(files):
        node = index_files(files, overlap=overlap)
        references.save(node, target, format=kind, overwrite=overwrite, **options)
        done.add(node, len(files.urls) - len(files.failures or ()), is_extended=False)
        return done
    archive = icechunk.Archive(target, **options)
    with archive.replacing():
        _append(files, archive, files.urls, there=0, batch=batch, done=done)
        if files.failures and not done.files:
            raise FilesError(files.failures, len(files.urls))
    return done


def _is_large_group(files: Files, batch: int | None, options: Mapping[str, Any]) -> bool:
    """Return whether files are saved as a group that is not held in memory.

    The root of a smaller one has the metadata of all files, for readers that cannot list keys.
    """
    least = max(batch or FILES_PER_COMMIT, MOST_IMAGES)
    is_group = files.recipe.how == "group" and len(files.urls) > least
    return is_group and options.get("layout") in (None, "anychunk")


def _save_group(
    files: Files, target: str, kind: str, batch: int | None, done: Summary, **options: Any
) -> None:
    """Save a group as kerchunk JSON or parquet, batch by batch; count the files in `done`."""
    options.pop("layout", None)
    batches = cut(files.items(files.urls), "group", 0, batch or FILES_PER_COMMIT)
    with references.adding(target, files.urls, format=kind, **options) as add:
        for parts in files.parts(batches):
            check_failures(parts, files.failures, total=len(files.urls), may_be_none=True)
            if count := sum(len(part.urls) for part in parts):
                node = _joined(parts, files.recipe)
                add(node)
                done.add(node, count, is_extended=False)
        if files.failures and not done.files:
            raise FilesError(files.failures, len(files.urls))


def _is_in_batches(files: Files) -> bool:
    """Return whether an Icechunk repository of these files can be written batch by batch.

    Seek points are part of the codecs, which all files of a stack share: they are found for all
    at once.
    """
    if files.recipe.how in ("stack", "concat") and files.urls:
        url = files.urls[0]
        first = attempt(files.recipe.parse, files.sources.get(url, url))
        return isinstance(first, AnychunkError) or not has_streams(first)
    return files.recipe.is_joined


def append_files(
    files: Files,
    target: str,
    *,
    batch: int | None = None,
    copy: Copy = "never",
    storage: Storage | None = None,
    target_storage: Storage | None = None,
) -> Summary:
    """Add those files to an Icechunk repository that it does not have; one commit per batch."""
    known = icechunk.saved_sources(target, storage=target_storage)
    waiting = [url for url in files.urls if absolute(url) not in known]
    done = Summary()
    archive = icechunk.Archive(target, copy=copy, storage=storage, target_storage=target_storage)
    _append(files, archive, waiting, there=len(known), batch=batch, done=done)
    if files.failures and not done.files and not known:
        raise FilesError(files.failures, len(waiting))
    return done


def _append(
    files: Files,
    archive: icechunk.Archive,
    urls: Sequence[str],
    *,
    there: int,
    batch: int | None,
    done: Summary,
) -> None:
    """Index files and append them to an archive, batch by batch; count them in `done`."""
    how = files.recipe.how or "group"
    if how == "group" and urls and there + len(urls) > LARGE_GROUP:
        warnings.warn(
            f"{archive.target}: a group of {there + len(urls):,} files: each commit writes the "
            "metadata of all of them again; combine files of one grid with combine='stack' or "
            "'concat', or divide the archive into several repositories of up to "
            f"{LARGE_GROUP:,} files",
            stacklevel=4,
        )
    for parts in _parts_in_order(files, urls, lambda items: cut(items, how, there, batch)):
        check_failures(parts, files.failures, total=len(urls), may_be_none=True)
        count = sum(len(part.urls) for part in parts)
        if not count:
            continue
        node = _joined(parts, files.recipe)
        if how == "group":
            node = with_points(node, storage=archive.storage)
        axis = None if how == "group" else axis_of(node)
        archive.append(node, along=axis, rules=files.recipe.rules if how == "stack" else None)
        done.add(node, count, is_extended=how != "group")


def _parts_in_order(
    files: Files, urls: Sequence[str], in_batches: Callable[[Sequence[Item]], list[Sequence[Item]]]
) -> Iterator[list[Part]]:
    """Index files batch by batch, for a stack in the order of the dates that they state.

    To sort them, all their dates must be known before the first batch is used: until then batches
    wait in a temporary file. They are used as they are if the files were in order, as they are if
    their names have the date. Otherwise the files are parsed once more.
    """
    batches = in_batches(files.items(urls))
    if len(batches) < 2 or not _state_dates(files, urls):
        yield from files.parts(batches)
        return
    advance = files.progress or (lambda: None)
    shown = 0

    def count() -> None:
        nonlocal shown
        shown += 1
        advance()

    with tempfile.TemporaryFile() as waiting:
        dates = _spooled(replace(files, progress=count), batches, waiting)
        if dates is not None and list(dates) == sorted_urls(list(dates), dates, files.recipe.rules):
            waiting.seek(0)
            for _ in batches:
                yield pickle.load(waiting)  # noqa: S301 - what was written above
            return
    if dates is None:
        dates = _stated_dates(files, urls)
    # files without a date, or that cannot be parsed, are reported when their batch is indexed
    rest = [url for url in urls if url not in dates]
    ordered = [*sorted_urls(list(dates), dates, files.recipe.rules), *rest]

    def go_on() -> None:  # files that were counted are not counted again
        nonlocal shown
        shown -= 1
        if shown < 0:
            advance()

    yield from replace(files, progress=go_on).parts(in_batches(files.items(ordered)))


def _state_dates(files: Files, urls: Sequence[str]) -> bool:
    """Return whether the first of some files states the date by which all are sorted."""
    recipe = files.recipe
    is_stated = recipe.dates in ("stated", "required") and recipe.rules.order == "date"
    if recipe.how != "stack" or recipe.along not in (None, "t", "time") or not is_stated:
        return False
    first = attempt(recipe.parse, files.sources.get(urls[0], urls[0]))
    return not isinstance(first, AnychunkError) and date_of(first) is not None


def _spooled(
    files: Files, batches: Sequence[Sequence[Item]], waiting: BinaryIO
) -> dict[str, int] | None:
    """Index batches into a temporary file; return the dates of the files, in their order.

    None is returned if that cannot be done: a file states none, or the files of a batch do not fit
    together, which must not keep the batches before it from being used.
    """
    dates: dict[str, int] = {}
    try:
        for parts in files.parts(batches):
            for part in parts:
                found = None if part.node is None else stacked_dates(part.node)
                if found is None and part.urls:
                    return None
                dates.update(zip(part.urls, found or (), strict=True))
            pickle.dump(parts, waiting, pickle.HIGHEST_PROTOCOL)
    except AnychunkError:
        return None
    return dates


def _stated_dates(files: Files, urls: Sequence[str]) -> dict[str, int]:
    """Return the dates that files state, of those that do, in their order."""
    found: dict[str, int] = {}
    batches = [files.items(urls)]
    for parts in index_parts(files.recipe, batches, files.executor, work=dates_of_part):
        for part in parts:
            found |= part.dates
    return {url: found[url] for url in urls if url in found}


def cut(items: Sequence[Item], how: How, there: int, batch: int | None) -> list[Sequence[Item]]:
    """Return files in batches, one per commit.

    Parameters:
        items: The files.
        how: How they are combined.
        there: How many files the archive has already.
        batch: The size of a batch; None: what a commit costs decides.
    """
    found: list[Sequence[Item]] = []
    start = 0
    while start < len(items):
        size = batch or commit_size(how, there + start)
        found.append(items[start : start + size])
        start += size
    return found


def commit_size(how: How, there: int) -> int:
    """Return how many files a commit should have, so that commits cost little against indexing."""
    if how != "group":
        return FILES_PER_COMMIT
    return min(MOST_PER_COMMIT, max(FILES_PER_COMMIT, there // GROUP_SHARE))


def index_many(
    urls: Url | Iterable[Url] | Items,
    *,
    combine: How | None,
    overlap: Overlap,
    rules: Mapping[str, Any],
    **options: Any,
) -> Node:
    """Index several files, or STAC items; parameters are those of `anychunk.index`.

    `rules` are `order`, `duplicates` and `georeference`.
    """
    files = files_to_index(urls, combine=combine, rules=Rules(**rules), **options)
    if combine is None and (len(files.urls) > 1 or not files.sources):
        raise several_files()
    return index_files(files, overlap=overlap)


@checked(further=options_of_others)
def index_to(
    url: Url | Iterable[Url] | Items,
    target: Url,
    *,
    combine: How | None = None,
    overlap: Overlap = "error",
    order: Order = "date",
    duplicates: Duplicates = "error",
    georeference: Georeference = "error",
    batch: int | None = None,
    copy: Copy = "never",
    overwrite: bool = False,
    progress: Progress | None = None,
    storage: Storage | None = None,
    target_storage: Storage | None = None,
    **options: Unpack[FileOptions],
) -> int:
    """Index files and save the index, batch by batch; return how many files were indexed.

    An Icechunk repository, and a group in every form, are written batch by batch, so that archives
    of any size are indexed in little memory. The target appears, or is replaced, when all files
    are indexed.

    Parameters:
        url: As in `index`.
        target: As in `save`; its extension decides the form.
        combine: As in `index`.
        overlap: As in `index`.
        order: As in `index`.
        duplicates: As in `index`.
        georeference: As in `index`.
        batch: The number of files that are held in memory; by default 500 or more.
        copy: `"needed"` copies chunks that the target cannot refer to; `"never"` refuses them.
        overwrite: Replace an existing target.
        progress: Called with (files done, files in total).
        storage: Of the files, as in `index`.
        target_storage: Of the target.
        **options: As in `index`.

    Raises:
        TargetExistsError: There is something at the target; also a `FileExistsError`.
    """
    rules = Rules(order=order, duplicates=duplicates, georeference=georeference)
    sink.check_free(as_url(target), overwrite=overwrite, storage=target_storage)
    files = files_to_index(url, combine=combine, rules=rules, storage=storage, **options)
    if combine is None and len(files.urls) > 1:
        raise several_files()
    done = save_files(
        replace(files, progress=counted(progress, len(files.urls))),
        as_url(target),
        overlap=overlap,
        batch=batch,
        copy=copy,
        overwrite=overwrite,
        storage=storage,
        target_storage=target_storage,
    )
    return done.files


def counted(progress: Progress | None, total: int) -> Callable[[], object] | None:
    """Return a function to call after every file, for one that is called with (done, total)."""
    number = itertools.count(1)
    return None if progress is None else lambda: progress(next(number), total)


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
) -> Files:
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
        parse = partial(stac.index_item, parse=one, check_proj=check_proj)
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
    return Files(
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
        raise OptionError("dates= needs combine='stack' along t")
    found = dates_of_urls(urls, dates, failures)
    if failures and not found:
        raise FilesError(failures, len(urls))
    return found


def _date_source(dates: Dates, known: Mapping[str, int] | None) -> DateSource:
    if known is None:
        return "stated" if dates is None else "required"
    return "given" if known else "none"


@checked(further=options_of_others)
def append(
    url: Url | Iterable[Url] | Items,
    target: Url,
    *,
    combine: "How" = "group",
    order: Order = "date",
    duplicates: Duplicates = "error",
    georeference: Georeference = "error",
    batch: int | None = None,
    copy: Copy = "never",
    progress: Progress | None = None,
    storage: Storage | None = None,
    target_storage: Storage | None = None,
    **options: Unpack[FileOptions],
) -> int:
    """Add files to an Icechunk repository, one commit per batch; return how many were added.

    Files that the repository already refers to are skipped, so the same call resumes after a crash,
    which leaves the repository at its last commit. Where another writer commits at the same time,
    the files are added to what it wrote.

    Parameters:
        url: As in `index`.
        target: The repository, created if it does not exist.
        combine: `"group"`, `"stack"` or `"concat"`; see `index`.
        order: As in `index`. With `"date"`, appended files must not be earlier than those that the
            repository has.
        duplicates: As in `index`; also for dates that the repository has.
        georeference: As in `index`; also for the place of the files that the repository has.
        batch: The number of files per commit; by default as many as make commits cheap, at least
            500.
        copy: `"needed"` copies chunks that Icechunk cannot refer to; `"never"` refuses them.
        progress: Called with (files done, files in total).
        storage: Of the files, as in `index`.
        target_storage: Of the repository.
        **options: As in `index`.
    """
    files = files_to_index(
        url,
        combine=check_appendable(combine),
        rules=Rules(order=order, duplicates=duplicates, georeference=georeference),
        storage=storage,
        **options,
    )
    done = append_files(
        replace(files, progress=counted(progress, len(files.urls))),
        as_url(target),
        batch=batch,
        copy=copy,
        storage=storage,
        target_storage=target_storage,
    )
    return done.files


def check_appendable(combine: How) -> How:
    """Refuse a combination that needs all files at once."""
    if combine == "mosaic":
        raise OptionError(
            "append: combine='mosaic' is not supported; index all files at once and save the result"
        )
    return combine
