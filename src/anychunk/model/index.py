"""What a parser returns: Zarr metadata, and where the bytes of every chunk are. Plain data.

An index compares, pickles and prints a summary of itself without zarr and without a network. Chunk
tables are numpy arrays shaped like the chunk grid, of at most 32 bytes per chunk.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
import numpy.typing as npt

from anychunk import limits
from anychunk._drawn import Drawn
from anychunk.errors import FormatError
from anychunk.model.grid import Shape, grid_shape
from anychunk.model.pin import Pin
from anychunk.options import AllSaveOptions, VirtualOptions, checked

type Json = Any
type Uint64 = npt.NDArray[np.uint64]
type Ids = npt.NDArray[np.unsignedinteger[Any]]

WHOLE = np.uint64(2**64 - 1)
"""Length of a chunk that is a whole object, however long that is."""

INLINE = ""
"""Url of a chunk whose bytes are in the index itself."""

TILES, PIECE = "anychunk.jpeg2000", "anychunk.piece"
"""Codecs of chunks that are tiles, or parts of one, and parts of one compressed stream."""


CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_dimension_names(names: Iterable[str | None], where: str) -> None:
    """Refuse names that could break out of a line of text or code in which they are shown."""
    for name in names:
        if isinstance(name, str) and CONTROL.search(name):
            raise FormatError(
                f"{where}: dimension_names has {name!r:.100}, expected no control characters"
            )


def _equal(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (
            isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and bool(np.array_equal(a, b))
        )
    return a == b


class _ByValue:
    """Equality for dataclasses that contain arrays."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        names = [f.name for f in fields(cast("Any", self)) if f.compare]
        return all(_equal(getattr(self, name), getattr(other, name)) for name in names)


def _saving_function(name: str) -> Callable[..., Any]:
    # a layer above this one, imported when an index is saved or loaded
    return cast("Callable[..., Any]", getattr(import_module("anychunk.references"), name))


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Where an index was loaded from, and which version of it."""

    url: str
    format: str
    options: Mapping[str, Any]
    """Options of loading it."""
    pin: Pin | None = None
    """The version of the saved index, unless the options name it."""


def saved_at(node: "Node") -> Saved | None:
    """Return where an index was loaded from; None if it was not, or is a changed copy of that."""
    found: Saved | None = node.__dict__.get("_saved")
    return found


def with_saved[N: "Node"](node: N, saved: Saved) -> N:
    """Return the same index with a note of where it was loaded from.

    The note is not a field: a copy by `dataclasses.replace`, which may differ, does not have it.
    """
    found = replace(node)
    object.__setattr__(found, "_saved", saved)
    return found


def load_saved(saved: Saved, storage: Any) -> "Node":
    """Load a saved index again; indexes that were loaded last are kept in memory."""
    return cast("Node", _saving_function("load_saved")(saved, storage))


class Index(Drawn, _ByValue):
    """The methods that save an index, convert it or show it; and fields that are made on demand."""

    def __repr__(self) -> str:
        # a layer above this one, which also knows CRS
        text: str = import_module("anychunk.metadata.summary").summary(self)
        return text

    if not TYPE_CHECKING:  # it would make any name valid

        def __getattr__(self, name: str) -> Any:
            # Python calls this for what the instance lacks: a field that `deferred` left out
            make = self.__dict__.get("_make")
            if make is not None and name in type(self).__dataclass_fields__:
                _complete(self, make())
            if name in self.__dict__:  # made here, or by another thread in the meantime
                return self.__dict__[name]
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        make = self.__dict__.get("_make")
        if make is not None:
            _complete(self, make())
        return self.__dict__

    @checked()
    def save(self, target: str | PathLike[str], **options: Unpack[AllSaveOptions]) -> None:
        """Save this index, as `anychunk.save(index, target)` does."""
        _saving_function("save")(self, str(target), **options)

    @checked()
    def to_virtualizarr(self, **options: Unpack[VirtualOptions]) -> Any:
        """Return this index as a `virtualizarr.manifests.ManifestStore`.

        Parameters:
            options: `registry`, the stores that sources are read through; `copy="needed"`, to copy
                chunks that a manifest cannot refer to; `storage`, obstore's options.
        """
        return _saving_function("to_virtualizarr")(self, **options)


def deferred[N: "Node"](kind: type[N], make: "Callable[[], N]", **fields: Any) -> N:
    """Return an index that `make` completes when a field is asked for that is not given.

    Reading one chunk needs a few of the fields, and making all of them takes longer than that.

    Parameters:
        kind: `GroupIndex` or `ArrayIndex`.
        make: Returns the complete index, whose fields are equal to those given; called once, or
            once by each of several threads that ask at the same time.
        **fields: Fields that are known. `pins` are those of `pins_at_once`; the complete index may
            have more.
    """
    node = object.__new__(kind)
    pins = fields.pop("pins", None)
    node.__dict__.update(fields, _make=make)
    if pins is not None:
        node.__dict__["_pins"] = pins
    return node


def pins_at_once(node: "Node") -> dict[str, Pin]:
    """Return the pins of an index that are known without completing it.

    When it is completed, others may be added to the same dictionary.
    """
    found: dict[str, Pin] | None = node.__dict__.get("_pins")
    return node.pins if found is None else found


def with_arrays(group: "GroupIndex", arrays: "Mapping[str, ArrayIndex]") -> "GroupIndex":
    """Add to a deferred group the arrays below it, by path, that `find` returns at once."""
    group.__dict__["_arrays"] = arrays
    return group


def known_arrays(node: "Node") -> "Mapping[str, ArrayIndex] | None":
    """Return the arrays below a deferred group that are known without completing it, by path."""
    found: Mapping[str, ArrayIndex] | None = node.__dict__.get("_arrays")
    return found


def address(root: "Node", path: str) -> str:
    """Return the address of a node for messages: the source, then the path."""
    if known_arrays(root) is None:
        source = root.attributes.get("anychunk", {}).get("source", "index")
    else:
        source = next(iter(pins_at_once(root)), "index")  # without making the attributes
    return f"{source} {path}" if path else str(source)


def _complete(node: Index, made: Any) -> None:
    state = node.__dict__
    pins = state.get("_pins", made.pins)
    pins.update(made.pins)
    state.setdefault("pins", pins)
    for name in made.__dataclass_fields__:
        state.setdefault(name, getattr(made, name))
    for name in ("_pins", "_arrays", "_make"):
        state.pop(name, None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Parts(_ByValue):
    """Further byte ranges of chunks that are stored in several pieces.

    The first range of chunk `i` of the flattened grid is followed by entries `starts[i]` to
    `starts[i + 1]`.
    """

    starts: Uint64
    offsets: Uint64
    lengths: Uint64


@dataclass(frozen=True, eq=False, kw_only=True)
class ByteRanges(_ByValue):
    """Chunks that are byte ranges of one or a few objects.

    The bytes of a chunk are its front, then its first range, then its further parts.
    """

    offsets: Uint64
    lengths: Uint64
    """0 if the file declares the chunk absent (it reads as fill); `WHOLE` for a whole object."""
    urls: tuple[str, ...]
    url_ids: Ids | None = None
    """For each chunk, the index of its url in `urls`; None if all chunks are in the first."""
    parts: Parts | None = None
    fronts: tuple[bytes, ...] = ()
    """Inline bytes that precede chunks, for codecs that depend on the position of the chunk."""
    front_ids: Ids | None = None
    """For each chunk, the index of its front in `fronts`; None if all have the first, or none."""
    inline: bytes = b""
    """Bytes copied into the index; chunks whose url is `INLINE` are ranges of them."""
    tables: Mapping[tuple[str, int], bytes] = field(default_factory=dict, compare=False, repr=False)
    """What is known about the inside of stored pieces, by url and offset: tables of the code-blocks
    of JPEG 2000 tiles. They save work, and are made again where they are missing."""

    def __post_init__(self) -> None:
        grid = self.offsets.shape
        for name in ("lengths", "url_ids", "front_ids"):
            table = getattr(self, name)
            if table is not None and table.shape != grid:
                raise FormatError(
                    f"index: {name} has shape {table.shape}, expected {grid}, the shape of the grid"
                )
        if self.url_ids is not None and self.url_ids.size and self.url_ids.max() >= len(self.urls):
            raise FormatError(
                f"index: url_ids go up to {self.url_ids.max()}, there are {len(self.urls)} urls"
            )
        fronts = len(self.fronts)
        if self.front_ids is not None and self.front_ids.size and self.front_ids.max() >= fronts:
            raise FormatError(
                f"index: front_ids go up to {self.front_ids.max()}, there are {fronts} fronts"
            )
        if self.parts is not None and self.parts.starts.shape != (self.offsets.size + 1,):
            raise FormatError(
                f"index: parts.starts has {self.parts.starts.size} entries, "
                f"expected {self.offsets.size + 1}"
            )

    @property
    def grid(self) -> Shape:
        return self.offsets.shape

    def picked(self, numbers: npt.NDArray[np.int64], grid: Shape) -> "ByteRanges":
        """Return a table of chunks of this one, which may repeat, by number.

        Parameters:
            numbers: As many as `grid` has chunks.
            grid: The new grid.
        """

        def column(table: Ids | None) -> Ids | None:
            return None if table is None else table.reshape(-1)[numbers].reshape(grid)

        parts = self.parts
        if parts is not None:
            starts = parts.starts.astype(np.int64)
            counts = np.diff(starts)[numbers]
            ends = np.cumsum(counts)
            rows = np.repeat(starts[:-1][numbers] - (ends - counts), counts)
            rows += np.arange(len(rows))
            parts = Parts(
                starts=np.concatenate([[0], ends]).astype(np.uint64),
                offsets=parts.offsets[rows],
                lengths=parts.lengths[rows],
            )
        return replace(
            self,
            offsets=self.offsets.reshape(-1)[numbers].reshape(grid),
            lengths=self.lengths.reshape(-1)[numbers].reshape(grid),
            url_ids=column(self.url_ids),
            front_ids=column(self.front_ids),
            parts=parts,
        )

    @property
    def nbytes(self) -> int:
        """The memory that the tables take."""
        tables: list[npt.NDArray[Any] | None] = [
            self.offsets,
            self.lengths,
            self.url_ids,
            self.front_ids,
        ]
        if self.parts is not None:
            tables += [self.parts.starts, self.parts.offsets, self.parts.lengths]
        return sum(table.nbytes for table in tables if table is not None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Objects(_ByValue):
    """Chunks that are one object each, named by a pattern of their grid coordinates."""

    base: str
    """The url of the folder that contains them, without a trailing slash."""
    pattern: str
    """Path of a chunk below `base`; `{0}` is its first grid coordinate, `{1}` its second …

    `{0:03}` has at least three digits."""
    grid: Shape
    is_sparse: bool = True
    """Whether a missing object means an absent chunk, rather than an error."""
    fronts: tuple[bytes, ...] = ()
    """Inline bytes that precede chunks, as in `ByteRanges`."""
    front_ids: Ids | None = None
    roots: tuple[str, ...] = ()
    """Local folders that links below `base` may lead to, the first of them `base` or above it."""
    document: str = ""
    """Path of the local file that describes the array, such as `zarr.json`; empty if unknown."""
    signed: Mapping[str, str] | None = field(default=None, compare=False, repr=False)
    """Signed urls of the folder or one above it, by their names."""
    pin: Pin | None = field(default=None, compare=False)
    """Its version: an array whose description was replaced may have other chunks."""

    @property
    def places(self) -> tuple[str, ...]:
        """The folders that a local object may be in: `roots`, or else `base`."""
        return self.roots or (self.base,)

    def name(self, coords: Shape) -> str:
        # not str.format, which would let an untrusted pattern access attributes of objects
        return "".join(
            [p if isinstance(p, str) else str(coords[p[0]]).zfill(p[1]) for p in self._pieces]
        )

    @cached_property
    def _pieces(self) -> tuple[str | tuple[int, int], ...]:
        """The pattern as alternating text and (axis, width)."""
        pieces = re.split(r"\{(\d+)(?::0(\d{1,2}))?\}", self.pattern)
        axes = [int(piece) for piece in pieces[1::3]]
        if any(axis >= len(self.grid) for axis in axes):
            raise FormatError(
                f"index: the pattern {self.pattern!r} refers to an axis beyond {len(self.grid)}"
            )
        widths = [int(piece or 0) for piece in pieces[2::3]]
        found: list[str | tuple[int, int]] = []
        for text, place in zip(pieces[::3], zip(axes, widths, strict=True), strict=False):
            found += [text, place]
        return (*found, pieces[-1])


@dataclass(frozen=True, eq=False, kw_only=True)
class Computed(_ByValue):
    """Chunks that the store computes from another array of the same index."""

    source: str
    """The path of that array."""
    method: str
    """How they are computed; the only method is `downsample`."""
    configuration: Json
    grid: Shape


type Chunks = ByteRanges | Objects | Computed

DEFAULT_FILLS: dict[str, Json] = {
    "bool": False,
    "complex64": (0.0, 0.0),
    "complex128": (0.0, 0.0),
    "string": "",
}
"""The default fill value of each Zarr v3 data type whose JSON is not that of a number."""


def _default_fill(data_type: Json) -> Json:
    name = data_type.get("name") if isinstance(data_type, Mapping) else data_type
    fill = DEFAULT_FILLS.get(name, 0) if isinstance(name, str) else 0
    return list(fill) if isinstance(fill, tuple) else fill


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ArrayIndex(Index):
    """A Zarr array: its metadata, and where its chunks are."""

    shape: Shape
    chunk_shape: Shape
    data_type: Json
    """Data type as in Zarr v3 metadata: a name, or an object with name and configuration."""
    codecs: tuple[Json, ...]
    chunks: Chunks
    fill_value: Json = field(default_factory=lambda: None)  # no attribute of the class: `deferred`
    """As in Zarr v3 metadata; by default the zero, False or empty string of the data type."""
    dimension_names: tuple[str | None, ...]
    attributes: dict[str, Json] = field(default_factory=dict)
    pins: dict[str, Pin] = field(default_factory=dict)
    """The version of every source, by url, if this array is the root of its index."""
    roots: tuple[str, ...] = field(default_factory=tuple, compare=False, repr=False)
    """As in `GroupIndex`."""

    def __post_init__(self) -> None:
        if self.fill_value is None:
            object.__setattr__(self, "fill_value", _default_fill(self.data_type))
        self._check_fill()
        if len(self.chunk_shape) != len(self.shape) or min(self.chunk_shape, default=1) < 1:
            raise FormatError(f"index: chunks {self.chunk_shape} do not fit shape {self.shape}")
        if len(self.dimension_names) != len(self.shape):
            raise FormatError(
                f"index: {len(self.dimension_names)} dimension names, expected {len(self.shape)}"
            )
        check_dimension_names(self.dimension_names, "index")
        grid = self.grid
        has_table = not isinstance(self.chunks, Objects)
        limits.check_table(math.prod(grid), where="index", has_table=has_table)
        if self.chunks.grid != grid:
            raise FormatError(
                f"index: the chunk table has shape {self.chunks.grid}, expected {grid}"
            )

    def _check_fill(self) -> None:
        is_complex = isinstance(self.data_type, str) and self.data_type.startswith("complex")
        fill = self.fill_value
        if is_complex and not (isinstance(fill, list | tuple) and len(fill) == 2):
            raise FormatError(
                f"index: fill_value {fill!r:.100} for {self.data_type}, expected a list of the "
                "real and the imaginary part"
            )

    @cached_property
    def grid(self) -> Shape:
        return grid_shape(self.shape, self.chunk_shape)

    def has_codec(self, name: str) -> bool:
        """Return whether the array has a codec of this name."""
        return any(isinstance(codec, dict) and codec.get("name") == name for codec in self.codecs)

    @property
    def is_inline(self) -> bool:
        """Whether all of its chunks are in the index itself, as those of coordinates are."""
        return isinstance(self.chunks, ByteRanges) and self.chunks.urls == (INLINE,)

    def metadata(self) -> dict[str, Json]:
        """Return the Zarr v3 `zarr.json` of this array."""
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": self.data_type,
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": list(self.chunk_shape)},
            },
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": self.fill_value,
            "codecs": list(self.codecs),
            "dimension_names": list(self.dimension_names),
            "attributes": self.attributes,
        }


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class GroupIndex(Index):
    """A Zarr group: attributes and members."""

    members: "Mapping[str, Node]"
    """Arrays and groups by name. The mapping may read members on demand."""
    attributes: dict[str, Json] = field(default_factory=dict)
    pins: dict[str, Pin] = field(default_factory=dict)
    """The version of every source, by url; at the root only."""
    roots: tuple[str, ...] = field(default_factory=tuple, compare=False, repr=False)
    """Folders that must contain local sources when they are read, with all links resolved; at the
    root of an index whose references are not trusted: a saved index, a volume in several files.
    Empty: anywhere."""

    def metadata(self) -> dict[str, Json]:
        """Return the Zarr v3 `zarr.json` of this group."""
        return {"zarr_format": 3, "node_type": "group", "attributes": self.attributes}

    def __getitem__(self, path: str) -> "Node":
        node = find(self, path)
        if node is None:
            raise KeyError(path)
        return node

    def arrays(self) -> "Iterator[tuple[str, ArrayIndex]]":
        """Yield (path, array) of every array, depth first."""
        for path, node in walk(self):
            if isinstance(node, ArrayIndex):
                yield path, node


type Node = ArrayIndex | GroupIndex


def find(node: Node, path: str) -> Node | None:
    """Return the node at `path` below `node`, or None."""
    known = node.__dict__.get("_arrays")
    if known is not None and path in known:
        found: ArrayIndex = known[path]
        return found
    for name in path.split("/") if path else ():
        if not isinstance(node, GroupIndex):
            return None
        member = node.members.get(name)
        if member is None:
            return None
        node = member
    return node


def walk(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """Yield (path, node) of every node, depth first, the root first with an empty path."""
    yield path, node
    if isinstance(node, GroupIndex):
        for name, member in node.members.items():
            yield from walk(member, f"{path}/{name}" if path else name)
