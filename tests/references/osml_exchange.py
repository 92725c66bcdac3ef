"""Run beside osml-imagery-io: write or read indexes by its own code, never importing anychunk.

    python osml_exchange.py write FILES FOUND    an index of each file in every form
    python osml_exchange.py read INDEXES FOUND   the hash of every level of each index

FILES and INDEXES are JSON lists of paths. FOUND gets, by index, a list with the hash of each level
or the error; in `write`, of the forms that it reads back.
"""

import hashlib
import json
import sys
import warnings
from pathlib import Path

import numpy as np
import zarr
from aws.osml.io.multi_reference_fs import MultiReferenceFileSystem
from aws.osml.io.virtualizarr_parsers import OversightMLParser, write_tile_index

FORMS = ("2.json", "3.json", "2.parquet")


def levels(index, **options):
    """Return the hash of each level of an index, or the error."""
    try:
        fs = MultiReferenceFileSystem(
            fo=index, asynchronous=True, remote_options={"asynchronous": True},
            skip_instance_cache=True, **options,
        )  # fmt: skip
        store = zarr.storage.FsspecStore(fs=fs, read_only=True, path="")
        version = 3 if "3.json" in index else 2
        root = zarr.open_group(store, mode="r", zarr_format=version)
    except Exception as e:
        return [f"{type(e).__name__}: {e}"]
    found = []
    while True:
        try:
            array = root[f"{len(found)}/data"][...]
        except KeyError:
            break
        except Exception as e:
            found.append(f"{type(e).__name__}: {e}")
            continue
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        found.append(hashlib.sha256(np.ascontiguousarray(little).tobytes()).hexdigest())
    return found


def written(file):
    try:
        store = OversightMLParser()(url=f"file://{file}")
    except Exception:
        return  # has no reader for it
    for name in FORMS:
        for form, base in ((name, None), (f"portable-{name}", "{{base}}")):
            index, version = f"{file}.{form}", int(name[0])
            write_tile_index(store, index, template_base=base, zarr_format=version)
            given = {"template_overrides": {"base": f"file://{Path(file).parent}/"}} if base else {}
            yield index, levels(index, **given)


def main():
    warnings.simplefilter("ignore")
    mode, names, out = sys.argv[1:]
    paths = json.loads(Path(names).read_text("utf-8"))
    if mode == "write":
        found = dict(pair for file in paths for pair in written(file))
    else:
        found = {index: levels(index) for index in paths}
    Path(out).write_text(json.dumps(found), "utf-8")


main()
