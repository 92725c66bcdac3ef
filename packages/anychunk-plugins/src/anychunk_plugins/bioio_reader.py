"""A reader of bioio: the images of a file as scenes, always with the axes T, C, Z, Y and X.

Pictures (red, green, blue) have an axis S behind them, as those of bioio's other readers.
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
import xarray as xr
from bioio_base import exceptions, io, types
from bioio_base import reader as base

from anychunk import api
from anychunk.errors import AnychunkError
from anychunk.io.open_sources import Sources
from anychunk.io.opening import without_maps
from anychunk.io.source import Storage, as_url, is_remote
from anychunk.metadata.meaning import TYPES
from anychunk.metadata.ome import scale_and_translation
from anychunk.metadata.reading import levels_of
from anychunk.options import OpenOptions
from anychunk.zarr import array as zarr_array
from anychunk.zarr.store import IndexStore
from anychunk_plugins.layers import Picture, drawable
from anychunk_plugins.lazy_arrays import lazy
from anychunk_plugins.placement import PIXEL, units

ORDER = "TCZYX"
SECONDS = {"millisecond": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86400.0}
"""Units of time, in seconds."""
NOTHING = "no array of two to five dimensions of numbers"


class Reader(base.Reader):
    """Read any file or url that anychunk opens: lazily, one resolution level at a time."""

    NAME: ClassVar[str | None] = "anychunk"
    _scenes: tuple[str, ...] | None
    _metadata: Any

    @staticmethod
    def _is_supported_image(fs: Any, path: str, **kwargs: Any) -> bool:
        # fs is the file's own: what it reads can be read here as well, with its credentials
        given = path if is_local(fs) else fs.unstrip_protocol(path)
        opened(given, None if is_local(fs) else fs, kwargs)
        return True

    def __init__(
        self,
        image: types.PathLike,
        fs_kwargs: Mapping[str, Any] | None = None,
        *,
        storage: Storage | None = None,
        **options: Unpack[OpenOptions],
    ) -> None:
        """Open a file.

        Parameters:
            image: A path or url.
            fs_kwargs: Options of a filesystem of fsspec, as for bioio's other readers, to read
                remote files through it. Without them, anychunk reads them itself.
            storage: How remote files are read, as in `anychunk.open`, instead of `fs_kwargs`.
            **options: Further options of `anychunk.index`.

        Raises:
            UnsupportedFileFormatError: The file cannot be opened, or has no image.
            FileNotFoundError: There is no such file.
        """
        if not isinstance(image, str | Path):
            raise TypeError(f"image is a {type(image).__name__}, expected a path or url")
        self._path = str(image)
        if not is_remote(as_url(image)) or fs_kwargs:
            self._fs, self._path = io.pathlike_to_fs(image, fs_kwargs=dict(fs_kwargs or {}))
            if storage is None and not is_local(self._fs):
                storage = self._fs
        self._store = opened(str(image), storage, options)
        self._images = [i for i in drawable(self._store.index) if len(i.axes) <= len(ORDER)]
        if not self._images:
            raise exceptions.UnsupportedFileFormatError(str(self.NAME), str(image), NOTHING)

    @property
    def scenes(self) -> tuple[str, ...]:
        """The names of the images; their paths where they have none, or share one."""
        if self._scenes is None:
            names = [self._picture(n).meaning.name for n in range(len(self._images))]
            self._scenes = tuple(
                name if name and names.count(name) == 1 else f"Image:{image.path or '0'}"
                for name, image in zip(names, self._images, strict=True)
            )
        return self._scenes

    @property
    def resolution_levels(self) -> tuple[int, ...]:
        """The numbers of the levels, 0 for full resolution."""
        return tuple(range(len(self._scene.paths)))

    @property
    def physical_pixel_sizes(self) -> types.PhysicalPixelSizes:
        """The sizes of a pixel of the current level, None where the file does not state them."""
        sizes = self._sizes()
        return types.PhysicalPixelSizes(sizes.get("z"), sizes.get("y"), sizes.get("x"))

    @property
    def time_interval(self) -> types.TimeInterval:
        """The time between two images, None where the file does not state it."""
        axis = next((axis for axis in self._scene.meaning.axes if axis.name == "t"), None)
        if axis is None or axis.scale is None or axis.unit not in SECONDS:
            return None
        return timedelta(seconds=axis.scale * SECONDS[axis.unit])

    @property
    def dimension_properties(self) -> types.DimensionProperties:
        """The units of the axes."""
        names = [*"tczyx"]
        known = dict(zip(names, units(self._scene.meaning, names), strict=True))
        sizes = self._sizes()
        found = {
            name.upper(): types.DimensionProperty(
                type=TYPES[name] if name in sizes else None,
                unit=None if known[name] == PIXEL else types.ureg.Unit(known[name]),
            )
            for name in names
        }
        return types.DimensionProperties(**found)

    @property
    def metadata(self) -> dict[str, Any]:
        """The attributes of the file and of the current image: conventions, and its format's."""
        if self._metadata is None:
            self._metadata = {**self._store.index.attributes, **self._scene.image.attributes}
        return dict(self._metadata)

    def _picture(self, number: int) -> Picture:
        image = self._images[number]
        store = self._store
        return Picture(store.index, image, lambda path: zarr_array.from_store(store, path))

    @property
    def _scene(self) -> Picture:
        return self._picture(self.current_scene_index)

    def _sizes(self) -> dict[str, float]:
        """Return the sizes of an element of the current level that are known, by axis."""
        meaning, image = self._scene.meaning, self._scene.image
        levels = levels_of(self._store.index, image)
        level = levels[self.current_resolution_level]
        scale, _ = scale_and_translation(meaning, level, levels[0].image.shape)
        is_placed = meaning.place.transform is not None
        return {
            axis.name: step
            for axis, step in zip(meaning.axes, scale, strict=True)
            if axis.scale is not None or (is_placed and axis.name in "xy")
        }

    def _read_delayed(self) -> xr.DataArray:
        return self._labelled(lazy(self._array()))

    def _read_immediate(self) -> xr.DataArray:
        return self._labelled(np.asarray(self._array()[...]))

    def _array(self) -> Any:
        scene = self._scene
        return scene.open_path(scene.paths[self.current_resolution_level])

    def _labelled(self, data: Any) -> xr.DataArray:
        """Return samples with the axes that bioio expects, their positions and names."""
        scene = self._scene
        names = axes_of(scene.meaning.names)
        is_colour = is_picture(scene)
        if is_colour:
            data = np.moveaxis(data, names.index("C"), -1)
            names = [*(name for name in names if name != "C"), "S"]
        order = [*ORDER, *(["S"] if is_colour else [])]
        # axes that bioio knows are in its order already, those of data are named in it
        data = data.reshape([data.shape[names.index(n)] if n in names else 1 for n in order])
        sizes = self._sizes()
        positions: dict[str, Any] = {
            n: self._generate_coord_array(0, count, sizes[n.lower()])
            for n, count in zip(order, data.shape, strict=True)
            if n in "TZYX" and n.lower() in sizes
        }
        positions["C"] = self._channels(data.shape[order.index("C")])
        attributes = {"unprocessed": self.metadata, "processed": self.metadata}
        return xr.DataArray(data, dims=order, coords=positions, attrs=attributes)

    def _channels(self, count: int) -> list[str]:
        """Return the names of the channels; those of bioio where the file has none."""
        scene = self._scene
        listed = {c["band"]: c.get("label") for c in scene.display.get("channels", ())}
        is_colour = is_picture(scene)
        return [
            (not is_colour and (listed.get(n) or scene.meaning.band(n).name))
            or f"Channel:{self.current_scene_index}:{n}"
            for n in range(count)
        ]


def opened(url: str, storage: Any, options: Mapping[str, Any]) -> IndexStore:
    """Open a file; raise what bioio expects if that fails."""
    try:
        # bioio's contract: between two calls, no file is open
        with without_maps():
            node = api.index(url, storage=storage, **options)
        store = zarr_array.open_store(node, storage=storage)
        store.sources = Sources(node.pins, storage=storage, mapped=False, roots=node.roots)
        return store  # noqa: TRY300
    except FileNotFoundError:
        raise
    except AnychunkError as e:
        raise exceptions.UnsupportedFileFormatError(str(Reader.NAME), url, str(e)) from e


def is_local(fs: Any) -> bool:
    """Return whether a filesystem of fsspec is that of this machine."""
    protocol = getattr(fs, "protocol", ())
    return "file" in ((protocol,) if isinstance(protocol, str) else protocol)


def is_picture(scene: Picture) -> bool:
    """Return whether the bands of an image are red, green, blue and opacity, and nothing else."""
    display = scene.display
    if scene.bands is None or display["model"] not in ("rgb", "ycbcr"):
        return False
    shown = {*display.get("bands", [])}
    if "alpha" in display:
        shown.add(display["alpha"]["band"])
    return scene.count in (3, 4) and shown == {*range(scene.count)}


def axes_of(names: tuple[str, ...]) -> list[str]:
    """Return bioio's names of axes; those of data that are not images are counted from the end."""
    ours = [name.upper() for name in names]
    ranks = [ORDER.index(name) for name in ours if name in ORDER and len(name) == 1]
    if len(ranks) == len(ours) and ranks == sorted(set(ranks)):
        return ours
    return [*ORDER[len(ORDER) - len(names) :]]
