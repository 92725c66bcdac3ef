"""Real files have the same pixels with and without a server."""

import itertools
import json

import numpy as np
import pytest
import zarr
from zarr.core.buffer.cpu import Buffer
from zarr.storage import MemoryStore

from anychunk.errors import AnychunkError, LimitError, SourceError
from anychunk.model.index import ArrayIndex, Computed, walk
from anychunk.zarr.array import open_path
from anychunk_serve.box_reader import Caches
from anychunk_serve.catalog import Catalog
from anychunk_serve.descriptions import described, metadata
from anychunk_serve.hierarchy import Plane, readable_images
from anychunk_serve.responses import as_json
from tests.support.corpus import ROOT, needs_corpus, samples

MOST_IMAGES = 500
"""Most images of one file that are validated; as many as are listed."""
MEMORY = 256 << 20
MOST = 60_000
"""Most elements of an array that is compared."""


@pytest.fixture(scope="module")
def caches():
    return Caches(memory=MEMORY)


def served_array(chunks, path, array):
    """Copy an array as it is served into a `MemoryStore`, and open it with zarr."""
    held = {"zarr.json": as_json(array.metadata())}
    for coords in itertools.product(*map(range, array.grid)):
        body = chunks.body(path, array, coords)
        if body is not None:
            held["/".join(["c", *map(str, coords)])] = bytes(body.data)
    store = MemoryStore({key: Buffer.from_bytes(value) for key, value in held.items()})
    return zarr.open_array(store, mode="r")


@needs_corpus
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sample", samples(), ids=lambda sample: sample.path)
def test_every_small_array(sample, caches):
    catalog = Catalog([str(sample.file)], caches=caches)
    (entry,) = catalog.entries()
    record = described(catalog, entry)
    assert str(ROOT) not in str(record)
    if record["error"] is not None:
        assert "\n" not in record["error"]
        return
    opened = catalog.opened(entry)
    for path, array in walk(opened.zstd.tree):
        if not isinstance(array, ArrayIndex) or np.prod(array.shape) > MOST:
            continue
        if not isinstance(array.chunks, Computed) or array.chunks.method == "shrink":
            continue
        try:
            source = open_path(opened.index, array.chunks.source)
            expected = np.asarray(source)
        except AnychunkError as e:
            if array.chunks.method == "decode":
                # the server looks at the other files of a set itself
                with pytest.raises((type(e), SourceError)):
                    served_array(opened.zstd, path, array)
            continue
        if np.prod(source.chunks) * expected.dtype.itemsize > MEMORY:
            with pytest.raises(LimitError):
                served_array(opened.zstd, path, array)
            continue
        found = np.asarray(served_array(opened.zstd, path, array))
        assert found.dtype == expected.dtype
        if expected.dtype.kind in "OT":
            np.testing.assert_array_equal(found, expected)
        else:
            assert found.tobytes() == expected.tobytes(), path


def served_group(chunks, path):
    """Copy the metadata of an image as it is served into a `MemoryStore`, and open it with zarr."""
    document = json.loads(metadata(chunks, path))
    below = document["consolidated_metadata"]["metadata"]
    held = {f"{name}/zarr.json": as_json(node) for name, node in below.items()}
    held["zarr.json"] = as_json(document)
    store = MemoryStore({key: Buffer.from_bytes(value) for key, value in held.items()})
    return zarr.open_group(store, mode="r")


@needs_corpus
@pytest.mark.usefixtures("complete_lists")
@pytest.mark.filterwarnings("ignore")
def test_ome_zarr_models_validates_every_image(caches):
    from ome_zarr_models.v05 import Image

    count, refused = 0, []
    files = samples()
    for file in files:
        catalog = Catalog([str(file.file)], caches=caches)
        (entry,) = catalog.entries()
        try:
            chunks = catalog.described(entry).zstd
        except AnychunkError:
            continue  # test_every_small_array and the tests of formats say what is refused
        found, _ = readable_images(chunks.tree, MOST_IMAGES)
        for image in found:
            if Plane.of(image) is None:
                continue  # listed as data, without `ome`
            try:
                Image.from_zarr(served_group(chunks, image.path))
            except ValueError as e:
                refused.append(f"{file.path} image {image.path!r}: {e}")
            count += 1
    assert refused == []
    assert count > len(files) / 2
