"""The options of the public functions: one name and one type per concept, checked in one place.

`docs/reference/options.md` is generated from these, so are the signatures that completion shows.
"""

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args, get_origin

from anychunk.errors import OptionError

if TYPE_CHECKING:
    from anychunk.combine import How
    from anychunk.combine.images import Dates
    from anychunk.combine.mosaic import Overlap
    from anychunk.combine.parallel import Failures
    from anychunk.combine.stac import Sign
    from anychunk.formats._raw import Checkpoints
    from anychunk.formats.jnrrd.header import Header
    from anychunk.io.source import Storage
    from anychunk.metadata.dates import Duplicates, Georeference, Order
    from anychunk.metadata.meaning import Meaning
    from anychunk.model.index import Json
    from anychunk.references.osml_layout import Layout

type Progress = Callable[[int, int], object]
"""Called with (done, total) as the work proceeds."""
type Copy = Literal["never", "needed"]


class ParseOptions(TypedDict, total=False):
    """Options of single formats, to open their files."""

    allow: Iterable[str]
    """Folders or prefixes of urls that a file may refer to (JNRRD, NRRD, saved indexes, STAC)."""
    axes: Sequence[str]
    """Names of the axes, slowest first: of N5, `"zyx"` or `"xyz"`."""
    branch: str
    """Of an Icechunk repository."""
    checksums: bool
    """Whether wrong checksums of records are an error (DTED)."""
    complex_pairs: bool
    """Whether I and Q bands of SAR images are one complex band (NITF)."""
    content: Literal["samples", "bytes"]
    """What the chunks of a dataset hold (N5)."""
    justify: bool | None
    """Whether left-justified samples are shifted down (NITF)."""
    rsets: bool | None
    """Whether reduced resolutions in sibling files become levels (NITF)."""
    sidecars: bool | None
    """Whether to look for side files (TIFF, NITF, JPEG 2000)."""
    snapshot: str | None
    """Of an Icechunk repository."""
    tag: str | None
    """Of an Icechunk repository, instead of a branch."""


class FileOptions(ParseOptions, total=False):
    """How files are recognised and parsed; explained by `index`."""

    format: str | None
    along: str | int | None
    dates: "Dates"
    assets: str | Sequence[str] | None
    sign: "Sign | None"
    check_proj: bool
    executor: Any
    failures: "Failures | None"


class OpenOptions(FileOptions, total=False):
    """The options of `index`, without `storage`."""

    combine: "How | None"
    overlap: "Overlap"
    order: "Order"
    duplicates: "Duplicates"
    georeference: "Georeference"


class IndexOptions(OpenOptions, total=False):
    """The options of `index`."""

    storage: "Storage | None"


class SaveOptions(TypedDict, total=False):
    """Options of single forms of saved indexes."""

    layout: "Layout"
    """Of kerchunk JSON and parquet: `"anychunk"` or `"osml"`."""
    message: str | None
    """Of the commit (Icechunk)."""
    relative: bool | None
    """False: urls that do not move with the index."""
    zarr_format: Literal[2, 3]
    """Of kerchunk JSON."""


class AllSaveOptions(SaveOptions, total=False):
    """The options of `save`."""

    format: str | None
    copy: Copy
    overwrite: bool
    storage: "Storage | None"
    target_storage: "Storage | None"


class VirtualOptions(TypedDict, total=False):
    """The options of indexes as VirtualiZarr stores."""

    registry: Any
    copy: Copy
    storage: "Storage | None"


class TiffOptions(TypedDict, total=False):
    """Options that only TIFF targets have."""

    bigtiff: bool | None
    """Whether to write BigTIFF; by default if the file needs it."""
    interleave: Literal["pixel", "band"] | None
    """How bands are stored; by default by pixel, unless tiles would be too large."""
    predictor: int | bool | None
    """By default what suits the samples."""


class SampleOptions(TypedDict, total=False):
    """Options of N5 and JNRRD targets."""

    edges: Literal["cropped", "padded"]
    """Whether chunks at the edge are cropped to the array or padded (N5, JNRRD)."""
    meaning: "Meaning | None"
    """What the samples mean, if the array does not say it (N5, JNRRD, NRRD)."""


class N5Options(SampleOptions, total=False):
    """Options that only N5 targets have."""

    also_zarr: bool
    """Whether to write a `zarr.json` next to the attributes."""
    attributes: "Mapping[str, Json] | None"
    """Further attributes."""
    nodata: float | None
    """A value that is excluded from computed levels."""
    resolution: Sequence[float] | None
    """The size of an element along each axis."""
    still: Sequence[int]
    """The axes along which computed levels keep their length."""
    unit: str | None
    """Of `resolution`."""


class HeaderOptions(SampleOptions, total=False):
    """Options of JNRRD and NRRD targets."""

    chunked: bool | None
    """Whether JNRRD has tiles, as it does by default; NRRD has none."""
    endian: Literal["little", "big"]
    """Byte order."""
    header: "Header | Mapping[str, Json] | None"
    """Further fields, or a header whose lines are kept."""


class PlainOptions(HeaderOptions, total=False):
    """Options of NRRD, and of JNRRD without tiles."""

    data_file: str | bool | None
    """A name, or True for one beside the header, of the file with the samples."""
    slices: bool
    """Whether to write a data file per index of the slowest axis."""
    version: Literal[4, 5] | None
    """Of NRRD."""


class TiledOptions(HeaderOptions, total=False):
    """Options of tiled JNRRD."""

    base_dir: str | None
    """The folder of external tiles."""
    chunk_axes: Sequence[int] | None
    """The axes that are tiled."""
    chunk_metadata: bool
    """Whether to write minimum, maximum and CRC-32 of every tile."""
    chunk_order: Literal["contiguous", "chunked"]
    """Of the tiles in the file: that of the tables, or Morton order."""
    external: bool
    """Whether every tile is a file."""
    files: Sequence[str] | bool | None
    """The names of external tiles; True: list those of the pattern."""
    halo: Sequence[int] | None
    """How far stored tiles reach into their neighbours, along each tiled axis."""
    level_chunks: Sequence[Sequence[int]] | None
    """The chunk shape of each level."""
    level_scales: Sequence[int | Sequence[int]] | None
    """The factor of each level, or the factors along its tiled axes."""
    levels_virtual: Sequence[int] | None
    """The levels that are computed when they are read."""
    padding_value: float
    """Of padded and of absent tiles."""
    pattern: str | None
    """Of the names of external tiles."""
    quality: bool
    """Whether to write how close coarser levels are to the full resolution."""
    sparse: bool
    """Whether tiles of nothing but the padding value are left out."""


class CommonOptions(TypedDict, total=False):
    """Options of most targets."""

    chunk: Sequence[int] | None
    """Shape of chunks (Zarr), blocks (N5), tiles (TIFF, JNRRD): of the last axes."""
    compression: "str | Sequence[Json] | Mapping[str, Json] | None"
    """A name: of Zarr zstd, blosc, gzip or none, with +crc32c for checksums, or codecs; of
    TIFF deflate, zstd, lzw, lzma, packbits, jpeg, webp, lerc or none; of N5 and JNRRD their own."""
    compression_level: float | Sequence[int] | None
    """Its level; the quality of jpeg and webp, the largest error of lerc; of JNRRD also one per
    tile."""
    levels: int | None
    """The number of levels, including the full resolution; by default as `like` says, and a source
    with several levels keeps its own."""
    method: str | None
    """How levels are computed: average, mode, max or min; of JNRRD also gaussian and lanczos."""
    overwrite: bool
    """Whether an existing target is replaced."""
    progress: Progress | None
    """Called with (done, total) as the work proceeds."""
    workers: int | None
    """The number of threads; by default one per core."""


class JnrrdOptions(CommonOptions, PlainOptions, TiledOptions, total=False):
    """The options of the writer of JNRRD and NRRD."""

    checkpoints: "Checkpoints | None"


class WriteOptions(CommonOptions, TiffOptions, N5Options, PlainOptions, TiledOptions, total=False):
    """The options of `write`, and of the target of `convert`."""

    axes: Sequence[str] | None
    """The names of the axes, slowest first, if the source names none (Zarr, TIFF); of N5 `"zyx"` or
    `"xyz"`, the order of the array."""
    like: str | None
    """A preset: of Zarr ome-zarr (the default), cloud, archive, or ome-zarr-0.4, which writes Zarr
    v2; of TIFF cog or ome-tiff. Other options override its settings one by one."""
    pack: str | None
    """The integer type in which floats are stored, such as `int16`; nodata reads as NaN. With
    `int16:0.01`, values are rounded as far as this error allows, otherwise as little as the type
    allows. `largest_error` of the report is the error that was measured (Zarr)."""
    shard: Sequence[int] | bool | None
    """Shape of shards, of the last axes; False: none (Zarr)."""
    target_storage: "Storage | None"
    """Of the target, as `storage` of `open` (Zarr, TIFF, N5)."""


def names(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the keyword options of a function with their types, those of a `TypedDict` too."""
    found: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            found[parameter.name] = parameter.annotation
        elif parameter.kind is parameter.VAR_KEYWORD:
            found |= _unpacked(parameter.annotation)
    return found


def _unpacked(annotation: Any) -> dict[str, Any]:
    is_typed = get_origin(annotation) is Unpack
    return dict(get_args(annotation)[0].__annotations__) if is_typed else {}


def check(where: str, given: Iterable[str], known: Collection[str]) -> None:
    """Refuse an option that does not exist.

    Parameters:
        where: The function, or the target or file and its format.
        given: The names that the caller passed.
        known: All names that there are.

    Raises:
        OptionError: One of them is not known.
    """
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            listed = " ".join(sorted({*known} - {"checkpoints"})) or "none"
            raise OptionError(f"{where}: no option {name!r}; {hint}Options: {listed}")


def takes_any(function: Callable[..., Any]) -> bool:
    """Return whether a function, of a plug-in, takes options without naming them."""
    parameters = inspect.signature(function).parameters.values()
    return any(p.kind is p.VAR_KEYWORD and not _unpacked(p.annotation) for p in parameters)


def check_for(function: Callable[..., Any], where: str, given: Collection[str]) -> None:
    """Refuse options that a function does not have; as `check`."""
    if given and not takes_any(function):
        check(where, given, names(function))


def taking[**P, T](known: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Make a function take the keywords of another one, or of a class, and refuse others."""

    def decorate(function: Callable[..., T]) -> Callable[P, T]:
        signature = inspect.signature(known)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            check(function.__qualname__, kwargs, signature.parameters)
            return function(*args, **kwargs)

        vars(call)["__signature__"] = signature
        return call

    return decorate


def checked[**P, T](
    *, further: Callable[[], Collection[str] | None] = tuple
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function refuse unknown options with `OptionError`, and show all that it has.

    Parameters:
        further: Returns what else it takes, of plug-ins, None: anything; called for names that are
            not known.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        written, typed = inspect.signature(function), names(function)
        every = {*written.parameters, *typed}

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if not kwargs.keys() <= every and (more := further()) is not None:
                check(function.__qualname__, kwargs, {*every, *more} - hidden)
            return function(*args, **kwargs)

        kept = [p for p in written.parameters.values() if p.kind is not p.VAR_KEYWORD]
        hidden = written.parameters.keys() - {p.name for p in kept}
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=kind)
            for name, kind in typed.items()
            if name not in written.parameters
        ]
        vars(call)["__signature__"] = written.replace(parameters=[*kept, *more])
        return call

    return decorate
