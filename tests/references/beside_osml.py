"""Run beside osml-imagery-io: read saved indexes by zarr alone, never importing anychunk itself.

    python beside_osml.py JOBS FOUND

JOBS is JSON: a list of [index, Zarr format, paths of arrays]. FOUND gets, for each index and each
of three choices of zarr's classes, the names of codecs, the hash of every array and the warnings.
"""

import hashlib
import json
import sys
import warnings
from importlib.metadata import entry_points
from pathlib import Path

import fsspec
import numcodecs
import numpy as np
import zarr
from aws.osml.io.multi_reference_fs import MultiReferenceFileSystem

URI = "https://awslabs.github.io/osml-imagery-io/codecs/"


def choose(package):
    """Make zarr and numcodecs take the classes of one package for the shared names."""
    classes = {}
    for group in ("zarr.codecs", "numcodecs.codecs"):
        for entry in entry_points(group=group):
            if entry.name.startswith(URI) and entry.value.startswith(package):
                if group == "zarr.codecs":
                    zarr.registry.register_codec(entry.name, entry.load())
                    classes[entry.name] = entry.value.replace(":", ".")
                else:
                    numcodecs.register_codec(entry.load(), codec_id=entry.name)
    assert len(classes) == 5
    return zarr.config.set({"codecs": classes})


def store_of(index):
    options = {"fo": index, "asynchronous": True, "skip_instance_cache": True}
    if index.endswith(".parquet"):
        fs = fsspec.filesystem("reference", remote_protocol="file", **options)
    else:
        fs = MultiReferenceFileSystem(remote_options={"asynchronous": True}, **options)
    return zarr.storage.FsspecStore(fs=fs, read_only=True, path="")


def read(store, path, zarr_format):
    try:
        array = zarr.open_array(store, path=path, mode="r", zarr_format=zarr_format)
        found = array[...]
    except Exception as e:
        return [f"{type(e).__name__}: {e}", ""]
    little = found.astype(found.dtype.newbyteorder("<"), copy=False)
    names = " ".join(sorted(set(names_of(array.metadata.to_dict()))))
    return [hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest(), names]


def names_of(found):
    """Yield the shared names in the metadata of an array."""
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, list | tuple):
        for inner in found:
            yield from names_of(inner)
    elif hasattr(found, "get_config"):
        yield from names_of(found.get_config())
    elif isinstance(found, str) and found.startswith(URI):
        yield found.removeprefix(URI)


def main():
    jobs = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    found = {}
    for choice in ("default", "anychunk", "aws"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            config = None if choice == "default" else choose(choice)
            for index, zarr_format, paths in jobs:
                store = store_of(index)
                for path in paths:
                    found.setdefault(f"{index} {path}", {})[choice] = read(store, path, zarr_format)
            if config is not None:
                zarr.config.reset()
        found.setdefault("warnings", {})[choice] = sorted({str(w.message) for w in caught})
    Path(sys.argv[2]).write_text(json.dumps(found), "utf-8")


main()
