"""The public functions: url in, zarr out."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from anychunk.errors import OptionError, UnsupportedError
from anychunk.formats import options_of_others
from anychunk.indexing import Held, Url, described, index_held, index_one
from anychunk.io.held import is_held
from anychunk.io.source import OnChange, Storage, as_url, is_pattern, is_remote
from anychunk.model.images import array_path
from anychunk.model.index import ArrayIndex, GroupIndex, Json, Node
from anychunk.options import Copy, IndexOptions, OpenOptions, ParseOptions, checked

type Box = "Sequence[slice | int] | slice | int | None"
"""One slice or integer for each axis; None for everything."""

if TYPE_CHECKING:
    import numpy as np

    from anychunk.combine import How
    from anychunk.combine.images import Dates
    from anychunk.combine.mosaic import Overlap
    from anychunk.combine.parallel import Failures
    from anychunk.combine.stac import Items, Sign
    from anychunk.metadata.dates import Duplicates, Georeference, Order
    from anychunk.zarr.array import Array, Group


@checked(further=options_of_others)
def index(
    url: "Url | Held | Iterable[Url] | Items",
    *,
    format: str | None = None,
    storage: Storage | None = None,
    combine: "How | None" = None,
    along: str | int | None = None,
    overlap: "Overlap" = "error",
    dates: "Dates" = None,
    order: "Order" = "date",
    duplicates: "Duplicates" = "error",
    georeference: "Georeference" = "error",
    assets: str | Sequence[str] | None = None,
    sign: "Sign | None" = None,
    check_proj: bool = True,
    executor: Any = None,
    failures: "Failures | None" = None,
    **options: Unpack[ParseOptions],
) -> GroupIndex | ArrayIndex:
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
        **options: Options of the format itself:

            - DTED: `checksums=False` reads records whose checksums are wrong.
            - Icechunk: `branch`, `tag` or `snapshot`, which version is opened.
            - JNRRD, NRRD, saved indexes and STAC items: `allow=[…]`, folders or url prefixes
              outside the file's own folder that it may refer to (`["*"]`: anywhere).
            - N5: `axes="zyx"` or `"xyz"`, the order of dimensions; `content="samples"` or
              `"bytes"`, the second for chunks that are not arrays of samples.
            - NITF: `rsets=True` or `False`, whether reduced resolutions in sibling files
              (`.r1`, `.r2` …) become levels; by default they do for local files.
              `justify=True` or `False`, whether left-justified samples (PJUST L) are shifted
              down; by default they are unless their low bits are in use.
              `complex_pairs=False` keeps the I and Q bands of SAR images (SICD), which are
              otherwise one complex band.
            - TIFF, NITF, JPEG 2000: `sidecars=True` or `False`, whether to look for side files
              (`.aux.xml`, world files, `.ovr`, `.msk`); by default for local files.

    Returns:
        A `GroupIndex`; an `ArrayIndex` where the url is itself one array, such as an N5 dataset.

    Raises:
        AnychunkError: The file cannot be indexed; the subclass says why.
        OptionError: There is no such option, or the format of the file does not have it; also a
            `TypeError` and a `ValueError`.
        MissingFileError: There is no such file or object; also a `FileNotFoundError`.
    """
    is_one = is_held(url) or (isinstance(url, str | Path) and not is_pattern(str(url)))
    if not is_one or combine is not None or assets is not None or sign is not None:
        if is_held(url):
            raise OptionError("combine= takes paths and urls, not bytes or an open file")
        from anychunk.archive import index_many  # with all that combines and saves indexes

        return index_many(
            cast("Any", url),
            combine=combine,
            along=along,
            overlap=overlap,
            dates=dates,
            rules={"order": order, "duplicates": duplicates, "georeference": georeference},
            assets=assets,
            sign=sign,
            check_proj=check_proj,
            executor=executor,
            failures=failures,
            format=format,
            storage=storage,
            **options,
        )
    if is_held(url):
        return index_held(url, format, storage, options)
    return index_one(as_url(cast("Url", url)), format=format, storage=storage, **options)


def _as_index(
    url: "Url | Held | Node | Iterable[Url] | Items", storage: Storage | None, options: Any
) -> Node:
    if isinstance(url, GroupIndex | ArrayIndex):
        return url
    return index(url, storage=storage, **options)


@checked(further=options_of_others)
def open(  # noqa: A001 - the public name is anychunk.open
    url: "Url | Held | Node | Iterable[Url] | Items",
    *,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Unpack[OpenOptions],
) -> "Group | Array":
    """Open a file, or an index, as a read-only Zarr hierarchy.

    Parameters:
        url: A path or url, several, a pattern, STAC items, a saved index, or what `index` returned.
        storage: Options for obstore's store, as in `index`.
        on_change: What happens when a source is no longer the one that was indexed: `"error"`
            raises `SourceChangedError`, `"warn"` warns and reads what is there.
        **options: All other options of `index`: `format`, `combine`, `along`, `overlap`, `dates`,
            `order`, `duplicates`, `georeference`, `assets`, `sign`, `check_proj`, `executor`,
            `failures`, and those of the formats: `allow` (JNRRD, NRRD, saved indexes, STAC),
            `axes` and `content` (N5), `branch`, `snapshot` and `tag` (Icechunk), `checksums`
            (DTED), `rsets`, `justify`, `complex_pairs` (NITF), `sidecars` (TIFF, NITF, JPEG 2000).

    Returns:
        A `zarr.Group`; a `zarr.Array` where the url is itself one array, such as an N5 dataset.
        `open_group` and `open_array` return exactly one of the two.

    Raises:
        AnychunkError: The file cannot be opened; the subclass says why.
        MissingFileError: There is no such file or object; also a `FileNotFoundError`.
    """
    from anychunk.zarr import array  # zarr, which `read` does not need

    node = _as_index(url, storage, options)
    if isinstance(node, ArrayIndex):
        return array.open_path(node, "", storage=storage, on_change=on_change)
    return array.open_group(node, storage=storage, on_change=on_change)


@checked(further=options_of_others)
def open_group(
    url: "Url | Held | Node | Iterable[Url] | Items",
    *,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Unpack[OpenOptions],
) -> "Group":
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
    from anychunk.zarr import array

    return array.open_group(node, storage=storage, on_change=on_change)


@checked(further=options_of_others)
def open_array(
    url: "Url | Held | Node | Iterable[Url] | Items",
    *,
    image: int | str = 0,
    level: int | str = 0,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Unpack[OpenOptions],
) -> "Array":
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
    from anychunk.zarr.array import open_path

    node = _as_index(url, storage, options)
    return open_path(node, array_path(node, image, level), storage=storage, on_change=on_change)


@checked(further=options_of_others)
def read(
    url: "Url | Held | Node | Iterable[Url] | Items",
    *,
    image: int | str = 0,
    level: int | str = 0,
    box: "Box" = None,
    storage: Storage | None = None,
    on_change: OnChange = "error",
    **options: Unpack[OpenOptions],
) -> "np.ndarray[Any, Any]":
    """Read one array of a file, or a box of it, as a numpy array, without loading zarr.

    Parameters:
        url: As in `open_array`.
        image: The number of the image, or its path.
        level: The number of the level, 0 for full resolution, -1 for the coarsest; or its name.
        box: What to read: a sequence with one slice or integer for each axis, as numpy has them;
            an integer removes its axis. Negative numbers count from the end of the axis, slices
            may have positive steps, and may end beyond the axis. None: the whole array.
        storage: As in `open`.
        on_change: As in `open`.
        **options: As in `open`.

    Returns:
        A new array in C order.

    Raises:
        NoSuchImageError: There is no such image or level.
        OptionError: `box` is not as described, has another number of axes than the array, or an
            integer beyond the end of its axis.
        ChunkDecodeError: A chunk is damaged.
        SourceChangedError: The file is no longer the one that was indexed.
    """
    from anychunk.engine.opening import open_engine, picked

    node = _as_index(url, storage, options)
    path = array_path(node, image, level)
    return picked(open_engine(node, path, storage=storage, on_change=on_change), box)


@checked(further=options_of_others)
def describe(url: Url | Held | Node, **options: Unpack[IndexOptions]) -> dict[str, Json]:
    """Return what a file holds as plain data, ready for JSON: its attributes and every array.

    Options are those of `index`.
    """
    storage = options.pop("storage", None)
    return described(_as_index(url, storage, options))


class VirtualParser:
    """A parser for VirtualiZarr: `open_virtual_dataset(url, registry, parser=VirtualParser())`.

    One level of one image becomes the dataset, with its coordinates; with `tree=True` every level
    of every image stays at its own path, as `open_virtual_datatree` expects.
    """

    @checked(further=options_of_others)
    def __init__(
        self,
        *,
        image: int | str = 0,
        level: int | str = 0,
        name: str = "image",
        tree: bool = False,
        copy: Copy = "never",
        **options: Unpack[OpenOptions],
    ) -> None:
        """Choose what becomes the dataset.

        Parameters:
            image: The number of the image, or its path.
            level: The number of the level, 0 for full resolution, -1 for the coarsest; or its name.
            name: The name of the variable.
            tree: Whether to keep all images and levels, in groups.
            copy: `"needed"` copies chunks that a manifest cannot refer to; `"never"` refuses them.
            **options: As in `index`.
        """
        self.image, self.level, self.name, self.tree = image, level, name, tree
        self.copy, self.options = copy, options

    def __call__(self, url: str, registry: Any) -> Any:
        """Parse `url`, read by the stores of `registry`, into a `ManifestStore`."""
        from anychunk.references import virtualizarr

        storage = {"resolve": registry.resolve} if is_remote(url) else None
        node = index(url, storage=storage, **self.options)
        if self.tree:
            node = virtualizarr.group_per_level(node)
        else:
            path = array_path(node, self.image, self.level)
            node = virtualizarr.single_level(node, path, self.name)
        copy: Copy = self.copy
        return virtualizarr.to_virtualizarr(node, registry=registry, copy=copy, storage=storage)


def enable() -> None:
    """Make zarr use our codecs, data types and pipeline for everything that it opens from now on.

    No other function changes zarr. Until `disable`, this one changes:

    - the codec registry, and `codecs` in `zarr.config`: zarr chooses our class for the name of each
      of our codecs, `scale_offset`, `cast_value` and `n5_default` of other packages included;
    - the data type registry: it gains `bfloat16`, `int2`, `int4`, `uint2`, `uint4`, and the
      `float8`, `float6` and `float4` types, unless another package registers a type of that name;
    - the pipeline registry, and `codec_pipeline.path` in `zarr.config`: our pipeline reads the
      arrays of an index that zarr itself opens; the pipeline configured before reads all others.

    `zarr.config.reset` undoes the changes of the configuration only.
    """
    from anychunk.zarr import choices, pipeline  # loads all codecs and data types

    choices.enable()
    pipeline.install()


def disable() -> None:
    """Undo `enable`; what others have set in zarr's configuration or registered since stays."""
    from anychunk.zarr import choices, pipeline

    choices.disable()
    pipeline.uninstall()
