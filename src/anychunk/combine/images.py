"""The images of several files side by side, and the tree that joined images make."""

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from anychunk.codecs.choice import MOST, Choice
from anychunk.combine.parallel import Failures
from anychunk.errors import FormatError, MissingFileError, UnsupportedError
from anychunk.formats._jpeg2000 import divided_tree, whole_tree
from anychunk.io.opening import list_objects
from anychunk.io.source import (
    Storage,
    as_url,
    below,
    is_pattern,
    is_remote,
    local_path,
    slashes,
    without_secrets,
)
from anychunk.metadata import comparison, geo
from anychunk.metadata import dates as dates_of
from anychunk.metadata.dates import Rules
from anychunk.metadata.hierarchy import has_absent_chunks, image_group
from anychunk.metadata.joining import warn
from anychunk.metadata.meaning import Level, Meaning, Place
from anychunk.metadata.reading import levels_of, meaning_of
from anychunk.model import images as im
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Json, Node, find

# Checks that arrays of several files may become one array.
#
# Only chunk tables are joined, no chunk is decoded. So the arrays must have the same data type
# and
# chunk shape, codecs that one chain decodes (`choices.py` makes one for files that are compressed
# in
# different ways), and their samples must mean the same: one set of attributes describes all.

type Files = Mapping[str, GroupIndex]
"""The indexes of files, by url."""

NAMES = {
    "data_type": "data type",
    "chunk_shape": "chunk shape",
    "dimension_names": "axes",
    "shape": "shape",
    "fill_value": "fill value",
}
"""What arrays must share: the field, and its name in messages. What decides most comes first."""
ADVICE = "; use combine='group', or convert one of the files first"


def raise_problems(problems: Sequence[str]) -> None:
    """Raise an error with the first problem, in one line; do nothing if there are none."""
    if problems:
        more = f" (and {len(problems) - 1} more differences)" if len(problems) > 1 else ""
        raise FormatError(f"combine: {problems[0]}{more}")


def check_sample_meaning(
    path: str, meanings: Mapping[str, Meaning], *, has_own_bands: bool = False
) -> None:
    """Refuse files whose samples have another meaning than those of the first.

    Parameters:
        path: The path of the images inside their files, for messages.
        meanings: One per file, by url.
        has_own_bands: Whether the bands of each file stay bands of their own.
    """
    first_url, first = next(iter(meanings.items()))
    raise_problems(
        [
            _problem(url, path, found, first_url)
            for url, meaning in meanings.items()
            for found in comparison.sample_differences(meaning, first, has_own_bands=has_own_bands)
        ]
    )


def _problem(url: str, path: str, found: comparison.Difference, first_url: str) -> str:
    return f"{url} {path}: {found.expected(f'as in {first_url}')}"


def check_compatible(
    path: str, arrays: Mapping[str, ArrayIndex], *, free_axes: Sequence[int] = ()
) -> tuple[Json, ...]:
    """Check that arrays can be joined; return the codecs that decode the chunks of all.

    Parameters:
        path: The path of the arrays inside their files, for messages.
        arrays: One array per file, by url.
        free_axes: The axes along which lengths may differ.

    Raises:
        FormatError: If arrays differ in what they must share; the first difference is named.
        UnsupportedError: If an array's chunks are not byte ranges.
    """
    first_url, first = next(iter(arrays.items()))
    codecs = comparison.common_codecs([array.codecs for array in arrays.values()])
    problems = []
    for url, array in arrays.items():
        found = _differences(array, first, free_axes)
        problems += [_problem(url, path, difference, first_url) for difference in found]
        if codecs is None and comparison.common_codecs([first.codecs, array.codecs]) is None:
            difference = comparison.codec_difference(array.codecs, first.codecs)
            problem = _problem(url, path, difference, first_url)
            problems.append(problem if found else problem + ADVICE)
        attributes = comparison.attribute_differences(array.attributes, first.attributes)
        problems += [_problem(url, path, difference, first_url) for difference in attributes]
        if not isinstance(array.chunks, ByteRanges):
            raise UnsupportedError(
                f"combine: {url} {path}: its chunks are {type(array.chunks).__name__.lower()}, "
                "expected byte ranges; use combine='group'"
            )
    raise_problems(problems)
    if codecs is None:  # each fits the first, but the partial chunks of two others differ in size
        raise FormatError(f"combine: {path}: the chunks at the edges of the files differ in size")
    return codecs


def _differences(
    array: ArrayIndex, first: ArrayIndex, free_axes: Sequence[int]
) -> list[comparison.Difference]:
    """Return the fields in which an array differs from the first one."""
    found = []
    for name, word in NAMES.items():
        here, there = getattr(array, name), getattr(first, name)
        if name == "shape":
            is_same = _fixed(array, free_axes) == _fixed(first, free_axes)
        else:
            is_same = here == there or (here != here and there != there)  # noqa: PLR0124 - NaN
        if not is_same:
            found.append(comparison.Difference(word, here, there))
    return found


def _fixed(array: ArrayIndex, free_axes: Sequence[int]) -> list[int]:
    """Return the lengths of an array along all but its `free_axes`."""
    ndim = len(array.shape)
    free = {axis % ndim for axis in free_axes} if ndim else set()
    return [n for axis, n in enumerate(array.shape) if axis not in free]


# The files of a stack in the order of their dates.
#
# Where dates are known before files are parsed, the files are sorted. Where the files themselves
# state them, the finished stack is: its chunks have length 1 along t, so that sorting it moves rows
# of the chunk tables.


type Dates = str | bool | Sequence[Any] | Mapping[str, Any] | Callable[[str], Any] | None
"""What a caller gives as dates: see `anychunk.index`."""
AXIS = "t"
TAGS = "tags"
"""The word for dates that the files state, which all of them must."""


def dates_of_urls(
    urls: Sequence[str], given: Dates, failures: Failures | None = None
) -> dict[str, int] | None:
    """Return the date of every file, by url; None if it is the files that state them.

    Parameters:
        urls: The files.
        given: A pattern for their names, one date per file, dates by url, or a function.
        failures: Where files whose names have no date are noted; None: they raise.

    Raises:
        ValueError: What is given is neither, or not dates.
        FormatError: The name of a file has no date; the first is named.
    """
    if given is None or isinstance(given, bool):
        return {} if given is False else None
    if isinstance(given, str):
        return None if given == TAGS else _from_names(urls, given, failures)
    if isinstance(given, Mapping):
        missing = next((url for url in urls if url not in given), None)
        if missing is not None:
            raise FormatError(f"{missing}: dates= has no date for this file")
        return {url: dates_of.from_value(given[url]) for url in urls}
    if callable(given):
        return {url: dates_of.from_value(given(url)) for url in urls}
    found = list(given)
    if len(found) != len(urls):
        raise ValueError(f"dates= has {len(found)} dates, expected {len(urls)}, one per file")
    return {url: dates_of.from_value(value) for url, value in zip(urls, found, strict=True)}


def _from_names(urls: Sequence[str], pattern: str, failures: Failures | None) -> dict[str, int]:
    dates_of.check_pattern(pattern)
    found = {}
    for url in urls:
        path = url.partition("?")[0].rstrip("/").replace("\\", "/")
        name = path if "/" in pattern else path.rpartition("/")[2]
        value = dates_of.from_name(pattern, name)
        if value is not None:
            found[url] = value
            continue
        message = (
            f"{without_secrets(url)}: its name has no date like {pattern!r}; a number that goes on "
            "is not a date"
        )
        if failures is None:
            raise FormatError(message)
        failures[url] = message
    return found


def sorted_urls(urls: Sequence[str], dates: Mapping[str, int], rules: Rules) -> list[str]:
    """Return files in their order, checked for equal dates; equal dates keep the order given."""
    if rules.duplicates == "error":
        dates_of.refuse_twice([dates[url] for url in urls], urls)
    return sorted(urls, key=dates.__getitem__) if rules.order == "date" else list(urls)


def date_of(node: Node) -> int | None:
    """Return the date that a file states: that of its first image which has one."""
    for image in im.images(node):
        found = dates_of.from_text(meaning_of(node, image).time)
        if found is not None:
            return found
    return None


def stacked_dates(node: Node) -> list[int] | None:
    """Return the dates along t of the first image that has some."""
    for image in im.images(node):
        values = _values(meaning_of(node, image))
        if values is not None:
            return values
    return None


def _values(meaning: Meaning) -> list[int] | None:
    for axis in meaning.axes:
        if axis.name == AXIS and axis.values is not None and dates_of.is_dates(axis.attributes):
            return [int(value) for value in axis.values]
    return None


def in_order(node: GroupIndex, urls: Sequence[str], rules: Rules) -> GroupIndex:
    """Return a stack along t in the order of its dates; one without dates as it is.

    Parameters:
        node: The stack.
        urls: Its files, in their order, for messages.
        rules: What is asked for.
    """
    found = stacked_dates(node)
    if found is None:
        return node
    if rules.duplicates == "error":
        dates_of.refuse_twice(found, urls)
    order = np.argsort(np.asarray(found), kind="stable")
    if rules.order == "given" or np.array_equal(order, np.arange(len(order))):
        return node
    return _reordered(node, order)


def _reordered(node: GroupIndex, order: Any) -> GroupIndex:
    """Return a stack with its elements along t in another order."""
    whole = cast("GroupIndex", whole_tree(node))
    made: dict[str, Node] = {}
    for images in same_images({"": whole}):
        position = images.first.names.index(AXIS)
        levels = [
            replace(level, image=_taken(level.image, order, position))
            for level in images.first_levels
        ]
        made[images.path] = image_node(images, _taken_meaning(images.first, order), levels)
    tree = cast("GroupIndex", rebuilt(whole, made))
    root = {**tree.attributes, **{k: v for k, v in node.attributes.items() if k == "anychunk"}}
    tree = replace(tree, attributes=root, pins=node.pins, roots=node.roots)
    return cast("GroupIndex", divided_tree(tree))


def _taken_meaning(meaning: Meaning, order: Any) -> Meaning:
    axes = tuple(
        replace(axis, values=tuple(axis.values[n] for n in order.tolist()))
        if axis.name == AXIS and axis.values is not None
        else axis
        for axis in meaning.axes
    )
    return replace(meaning, axes=axes)


def _taken(array: ArrayIndex, order: Any, position: int) -> ArrayIndex:
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges) or array.chunk_shape[position] != 1:
        raise FormatError("combine: the chunks of this stack cannot be sorted by date")
    numbers = np.arange(chunks.offsets.size).reshape(array.grid)
    taken = np.take(numbers, order, axis=position).reshape(-1)
    return replace(array, chunks=chunks.picked(taken, array.grid))


# Arrays that differ only in their codecs, with one codec that has all of theirs.
#
# The codec `anychunk.choice` decodes each chunk by the chain whose number is in front of it. An
# index in memory holds such numbers for chunks of any file; what is saved holds them only where
# chunks are copied (`copy="needed"`).


type Chain = tuple[Json, ...]


def with_one_codec(arrays: Mapping[str, ArrayIndex]) -> dict[str, ArrayIndex]:
    """Return arrays that share their codecs; as they are if no codec can decode them all.

    Parameters:
        arrays: One array per file, by url.
    """
    found = dict(arrays)
    if comparison.common_codecs([array.codecs for array in arrays.values()]) is not None:
        return found
    if not all(_may_choose(array) for array in arrays.values()):
        return found
    choices: list[Chain] = []
    numbers = {url: [_number(choices, c) for c in chains(a)] for url, a in arrays.items()}
    # chains that differ only in the sizes of partial chunks are one choice, or cannot be joined
    if any(_is_alike(a, b) for n, a in enumerate(choices) for b in choices[:n]):
        return found
    if len(choices) > MOST:
        return found
    codec = {"name": Choice.name, "configuration": {"choices": [list(c) for c in choices]}}
    return {url: _numbered(array, codec, numbers[url]) for url, array in arrays.items()}


def chains(array: ArrayIndex) -> list[Chain]:
    """Return the chains of codecs that the chunks of an array have."""
    if not is_choice(array.codecs):
        return [array.codecs]
    return [tuple(chain) for chain in array.codecs[0]["configuration"]["choices"]]


def is_choice(codecs: Sequence[Json]) -> bool:
    """Return whether the only codec of an array is a choice."""
    first = codecs[0] if len(codecs) == 1 else None
    return isinstance(first, Mapping) and first.get("name") == Choice.name


def _may_choose(array: ArrayIndex) -> bool:
    """Return whether numbers can be put in front of chunks: nothing else is there."""
    chunks = array.chunks
    return isinstance(chunks, ByteRanges) and (is_choice(array.codecs) or not any(chunks.fronts))


def _number(choices: list[Chain], chain: Chain) -> int:
    """Return the number of a chain, which is added or merged with one that it fits."""
    for number, other in enumerate(choices):
        common = comparison.common_codecs([other, chain])
        if common is not None:
            choices[number] = common
            return number
    choices.append(chain)
    return len(choices) - 1


def _is_alike(a: Chain, b: Chain) -> bool:
    return len(a) == len(b) and all(
        comparison.is_same_but_for_edges(mine, theirs) for mine, theirs in zip(a, b, strict=True)
    )


def _numbered(array: ArrayIndex, codec: Json, numbers: Sequence[int]) -> ArrayIndex:
    """Return an array whose chunks have the numbers of their chains in front."""
    chunks = array.chunks
    if not isinstance(chunks, ByteRanges):
        raise TypeError(f"chunks are {type(chunks).__name__}, expected byte ranges")
    fronts = tuple(bytes([number]) for number in numbers)
    ids = chunks.front_ids
    if is_choice(array.codecs):
        # the fronts are numbers of the array's own chains, in any order
        fronts = tuple(bytes([numbers[front[0]]]) if front else b"" for front in chunks.fronts)
    elif ids is None:
        ids = np.zeros(array.grid, np.uint8)
    return replace(array, codecs=(codec,), chunks=replace(chunks, fronts=fronts, front_ids=ids))


type Arrays = Mapping[str, ArrayIndex]
"""The arrays of one path in all files, by url."""
type Join = Callable[[str, Arrays], ArrayIndex]
"""Joins arrays; the first argument is their path, for messages."""


@dataclass(frozen=True, kw_only=True)
class SameImages:
    """One image of every file."""

    path: str
    """Of the image, the same in all files."""
    is_array: bool
    """Whether the image is a single array outside of any image group."""
    meanings: Mapping[str, Meaning]
    levels: Mapping[str, Sequence[Level]]

    @property
    def first(self) -> Meaning:
        """The meaning in the first file."""
        return next(iter(self.meanings.values()))

    @property
    def first_levels(self) -> Sequence[Level]:
        """The levels in the first file."""
        return next(iter(self.levels.values()))

    def level(self, name: str) -> dict[str, Level] | None:
        """Return a level in all files, by url; None if a file does not have it."""
        found = {}
        for url, levels in self.levels.items():
            level = next((level for level in levels if level.name == name), None)
            if level is None:
                return None
            found[url] = level
        return found

    def array_path(self, name: str) -> str:
        """Return the path of a level for messages."""
        return self.path if self.is_array else im.join(self.path, name)


def same_images(groups: Files) -> list[SameImages]:
    """Return the images that all files have.

    Raises:
        FormatError: Files have different images, or images with more or fewer axes; the first
            that differs from that of the first file is named.
    """
    found = {url: {image.path: image for image in im.images(g)} for url, g in groups.items()}
    first_url, first = next(iter(found.items()))
    raise_problems(
        [
            f"{url} has the images {_listed(images)}, expected {_listed(first)} as in {first_url}"
            for url, images in found.items()
            if set(images) != set(first)
        ]
    )
    made = []
    for path, image in first.items():
        nodes = {url: (group, found[url][path]) for url, group in groups.items()}
        made.append(
            SameImages(
                path=path,
                is_array=image.path == image.levels[0],
                meanings={url: meaning_of(*pair) for url, pair in nodes.items()},
                levels={url: _levels(*pair) for url, pair in nodes.items()},
            )
        )
    for same in made:
        raise_problems(
            [
                f"{url} {same.path}: axes {' '.join(meaning.names)}, "
                f"expected {' '.join(same.first.names)} as in {first_url}"
                for url, meaning in same.meanings.items()
                if len(meaning.names) != len(same.first.names)
            ]
        )
    return made


def _levels(node: Node, image: im.Image) -> Sequence[Level]:
    """Return the levels of an image; a single array keeps the attributes that describe it."""
    array = array_at(node, image.path)
    return levels_of(node, image) if array is None else [Level(name="0", image=array)]


def _listed(paths: Mapping[str, object]) -> str:
    return " ".join(path or "/" for path in paths) or "(none)"


def check_levels(images: SameImages) -> None:
    """Refuse files whose images have other levels than that of the first."""
    url_of_first = next(iter(images.levels))
    names = [level.name for level in images.first_levels]
    raise_problems(
        [
            f"{url} {images.path}: has the levels {' '.join(level.name for level in levels)}, "
            f"expected {' '.join(names)} as in {url_of_first}"
            for url, levels in images.levels.items()
            if [level.name for level in levels] != names
        ]
    )


def with_common_levels(images: SameImages, skipped: int | None = None) -> SameImages:
    """Return the images with the levels that all files have; warn about those that are dropped.

    Levels are the same if they have the same shape: files may have overviews of different factors.

    Parameters:
        images: The images.
        skipped: The number of an axis along which lengths may differ.
    """

    def shape(level: Level) -> tuple[int, ...]:
        found = level.image.shape
        return found if skipped is None else (*found[:skipped], *found[skipped + 1 :])

    if images.is_array:
        return images
    # the full resolutions stay, whatever their shapes: how they differ is reported later
    coarser = {
        url: {shape(level): level for level in reversed(levels[1:])}
        for url, levels in images.levels.items()
    }
    kept = [
        size
        for size in map(shape, images.first_levels[1:])
        if all(size in found for found in coarser.values())
    ]
    if all(len(kept) == len(found) for found in coarser.values()):
        return images
    warn(f"combine: image {images.path or '/'}: levels that not all files have are dropped")
    levels = {
        url: numbered([*levels[:1], *(coarser[url][size] for size in dict.fromkeys(kept))])
        for url, levels in images.levels.items()
    }
    return replace(images, levels=levels)


def numbered(levels: Sequence[Level]) -> list[Level]:
    """Return levels that are named by numbers with consecutive ones."""
    if not all(level.name.isdigit() for level in levels):
        return list(levels)
    return [replace(level, name=str(number)) for number, level in enumerate(levels)]


def joined_levels(
    images: SameImages, join: Join, join_mask: Join | None, *, may_drop: bool
) -> list[Level]:
    """Return all levels, each of the arrays of all files.

    Parameters:
        images: The images.
        join: Joins the arrays.
        join_mask: As in `joined_level`.
        may_drop: Whether coarser levels whose arrays do not fit are dropped, with a warning.
    """
    full, *coarser = (level.name for level in images.first_levels)
    found = [joined_level(images, full, join, join_mask)]
    for name in coarser:
        try:
            found.append(joined_level(images, name, join, join_mask))
        except (FormatError, UnsupportedError) as e:
            if not may_drop:
                raise
            warn(f"{e}; level {name} is dropped")
    return numbered(found)


def joined_level(images: SameImages, name: str, join: Join, join_mask: Join | None) -> Level:
    """Return a level whose arrays are those of all files, joined.

    Parameters:
        images: The images.
        name: The name of the level.
        join: Joins the arrays.
        join_mask: Joins the masks; None if masks cannot be joined like that.
    """
    levels = images.level(name)
    if levels is None:
        raise FormatError(f"combine: {images.path}: not all files have the level {name}")
    path = images.array_path(name)
    names = images.first.names
    raise_problems(
        [
            f"{url} {path}: shape {level.image.shape}, expected the axes {' '.join(names)}"
            for url, level in levels.items()
            if len(level.image.shape) != len(names)
        ]
    )
    arrays = {url: replace(level.image, dimension_names=names) for url, level in levels.items()}
    first = next(iter(levels.values()))
    mask = None
    masks = {url: level.mask for url, level in levels.items() if level.mask is not None}
    if len(masks) == len(levels) and join_mask is not None:
        try:
            mask = join_mask(f"{path} mask", masks)
        except (FormatError, UnsupportedError):
            mask = None
    if masks and mask is None and name == images.first_levels[0].name:
        warn(f"combine: image {images.path}: the masks are dropped")
    return replace(first, image=join(path, with_one_codec(with_one_fill(arrays))), mask=mask)


def with_one_fill(arrays: Arrays) -> dict[str, ArrayIndex]:
    """Return arrays with the fill value of those that use it: where a chunk may be absent."""
    used = {repr(a.fill_value): a.fill_value for a in arrays.values() if has_absent_chunks(a)}
    if len(used) != 1:
        return dict(arrays)
    (fill,) = used.values()
    return {
        url: array if has_absent_chunks(array) else replace(array, fill_value=fill)
        for url, array in arrays.items()
    }


def image_node(images: SameImages, meaning: Meaning, levels: Sequence[Level]) -> Node:
    """Return joined levels as an image group, or as an array where files have only that."""
    if not images.is_array:
        return image_group(meaning, levels)
    array = replace(levels[0].image, dimension_names=meaning.names)
    if meaning.place == images.first.place:
        return array
    prefixes = geo.PREFIXES if meaning.place == Place() else ("spatial:",)
    return replace(array, attributes=geo.without_georeference(array.attributes, prefixes))


def rebuilt(node: Node, made: Mapping[str, Node], path: str = "") -> Node:
    """Return the tree of the first file with its images replaced by joined ones.

    Parameters:
        node: The first file, or a group in it.
        made: The joined images by path.
        path: The path of `node`.
    """
    if path in made:
        return made[path]
    if isinstance(node, ArrayIndex):
        return node
    # coordinates beside single arrays describe the first file alone
    members = {
        name: rebuilt(member, made, im.join(path, name))
        for name, member in node.members.items()
        if isinstance(member, GroupIndex) or im.join(path, name) in made
    }
    return GroupIndex(members=members, attributes=node.attributes)


def full_arrays(images: SameImages) -> list[ArrayIndex]:
    """Return the full resolution in every file."""
    missing = [url for url, levels in images.levels.items() if not levels]
    if missing:
        raise FormatError(f"combine: {missing[0]}: image {images.path} has no levels")
    return [levels[0].image for levels in images.levels.values()]


def array_at(node: Node, path: str) -> ArrayIndex | None:
    """Return the array at a path."""
    found = find(node, path)
    return found if isinstance(found, ArrayIndex) else None


# Expansion of url patterns such as `s3://bucket/scenes/*.tif`, local and remote.


def expand(
    urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], storage: Storage | None
) -> list[str]:
    """Return every url that `urls` names, patterns expanded, without duplicates.

    The order of `urls` is kept; matches of one pattern are sorted.

    Raises:
        MissingFileError: If a pattern matches nothing.
    """
    given = [urls] if isinstance(urls, str | os.PathLike) else list(urls)
    found: dict[str, None] = {}
    for url in map(as_url, given):
        found |= dict.fromkeys(_matches(url, storage) if is_pattern(url) else [url])
    return list(found)


def _matches(pattern: str, storage: Storage | None) -> list[str]:
    if not is_remote(pattern):
        found = sorted(map(slashes, glob.glob(local_path(pattern), recursive=True)))  # noqa: PTH207 - of a url
    else:
        # only what lies below the last folder without a wildcard is listed
        folder = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
        names = (name for name, _ in list_objects(folder, storage=storage))
        matching = re.compile(_regular_expression(pattern))
        found = sorted(
            below(folder, name) for name in names if matching.fullmatch(f"{folder}/{name}")
        )
    if not found:
        raise MissingFileError(f"{pattern}: no files match this pattern")
    return found


def _regular_expression(pattern: str) -> str:
    """Translate a pattern into a regular expression, in which `*` does not cross a slash.

    `fnmatch.translate` on the whole pattern would let `*` match slashes too, which `glob` does not.
    """
    pieces = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", pattern)
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(special.get(p) or _character_class(p) for p in pieces)


def _character_class(piece: str) -> str:
    """Translate `[a-c]` and `[!a-c]` as fnmatch does; escape any other text."""
    if not (piece.startswith("[") and piece.endswith("]")):
        return re.escape(piece)
    return "(?!/)" + fnmatch.translate(piece)[len("(?s:") : -len(r")\Z")]
