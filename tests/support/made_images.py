"""Image groups over small raw files, made by the writer of the hierarchy without any format."""

import numpy as np

from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Axis, Level, Meaning
from anychunk.model.index import ArrayIndex, ByteRanges
from tests.support.indexes import pin_of

NAMES = ("t", "c", "z", "y", "x")


def raw_array(path, values, chunk=None, absent=()):
    """Write samples as chunks one after the other; return their index."""
    chunk = chunk or values.shape
    grid = tuple(-(-n // c) for n, c in zip(values.shape, chunk, strict=True))
    size = values.dtype.itemsize * int(np.prod(chunk))
    offsets = np.zeros(grid, np.uint64)
    lengths = np.full(grid, size, np.uint64)
    data = b""
    for where in np.ndindex(grid):
        place = tuple(slice(i * c, (i + 1) * c) for i, c in zip(where, chunk, strict=True))
        whole = np.zeros(chunk, values.dtype)
        part = values[place]
        whole[tuple(map(slice, part.shape))] = part
        if where in absent:
            lengths[where] = 0
            continue
        offsets[where] = len(data)
        data += whole.tobytes()
    path.write_bytes(data)
    return ArrayIndex(
        shape=values.shape,
        chunk_shape=tuple(chunk),
        data_type=values.dtype.name,
        codecs=({"name": "bytes", "configuration": {"endian": "little"}},),
        chunks=ByteRanges(offsets=offsets, lengths=lengths, urls=(str(path),)),
        dimension_names=(None,) * values.ndim,
    )


def made(folder, levels, *, file="a", axes=None, chunk=None, masks=(), images=1, **meaning):
    """Return the index of a file of images; `levels` are their samples, full resolution first."""
    ndim = levels[0].ndim
    axes = axes or [Axis(name=n) for n in {2: "yx", 3: "cyx", 4: "czyx", 5: "tczyx"}[ndim]]
    known = Meaning(axes=tuple(axes), **meaning)
    groups, pins = {}, {}
    for image in range(images):
        found = []
        for number, values in enumerate(levels):
            path = folder / f"{file}-{image}-{number}.raw"
            mask = None
            if masks:
                place = folder / f"{file}-{image}-{number}.mask"
                mask = raw_array(place, masks[number])
                pins[str(place)] = pin_of(place)
            found.append(Level(name=str(number), image=raw_array(path, values, chunk), mask=mask))
            pins[str(path)] = pin_of(path)
        groups[str(image)] = image_group(known, found)
    about = {"anychunk": {"format": "raw", "source": str(folder / file)}}
    return root_group(groups, about, pins=pins)
