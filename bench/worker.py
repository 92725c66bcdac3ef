"""Readers with conflicting dependencies, run by another interpreter: requests in, times out.

A request is a line of JSON: {"peer", "path", "window"}; the response has the seconds that
opening and reading took, and a checksum of the pixels. This module must not import anychunk.
"""

import json
import sys
import time
import warnings

warnings.simplefilter("ignore")


def virtual_tiff(path):
    import zarr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtual_tiff import VirtualTIFF

    registry = ObjectStoreRegistry({"file://": LocalStore()})
    store = VirtualTIFF(ifd=0)(f"file://{path}", registry)
    group = zarr.open_group(store, mode="r", zarr_format=3)
    return next(iter(group.arrays()))[1]


def osml(path):
    import zarr
    from aws.osml.io.multi_reference_fs import MultiReferenceFileSystem
    from aws.osml.io.virtualizarr_parsers import OversightMLParser, write_tile_index
    from zarr.storage._fsspec import FsspecStore

    index = f"{path}.osml.json"
    write_tile_index(OversightMLParser()(url=f"file://{path}"), index, zarr_format=3)
    system = MultiReferenceFileSystem(
        fo=index, asynchronous=True, remote_options={"asynchronous": True}, skip_instance_cache=True
    )
    store = FsspecStore(fs=system, read_only=True, path="")
    return zarr.open_group(store, mode="r", zarr_format=3)["0/data"]


def zarr_n5(path):
    import zarr
    from zarr_n5 import N5WrapperStore

    store = N5WrapperStore(zarr.storage.LocalStore(path, read_only=True))
    return zarr.open_array(store, mode="r")


OPENED = {}
"""Remote files stay open: only the window is measured."""


def async_geotiff(path):
    import asyncio

    from async_geotiff import GeoTIFF, Window
    from obstore.store import HTTPStore, LocalStore

    folder, _, name = path.rpartition("/")
    is_remote = path.startswith("http")
    loop = OPENED.setdefault("loop", asyncio.new_event_loop())

    async def read(window):
        opened = OPENED.get(path)
        if opened is None:
            options = {"client_options": {"allow_http": True}}
            store = HTTPStore.from_url(folder, **options) if is_remote else LocalStore(folder)
            opened = await GeoTIFF.open(name, store=store)
            if is_remote:
                OPENED[path] = opened
        if window is None:
            return (await opened.read()).data
        (top, bottom), (left, right) = window
        place = Window(col_off=left, row_off=top, width=right - left, height=bottom - top)
        return (await opened.read(window=place)).data

    class Reader:
        def __getitem__(self, where):
            found = where if isinstance(where, tuple) else (where,)
            window = [(s.start, s.stop) for s in found if isinstance(s, slice)]
            return loop.run_until_complete(read(window or None))

    return Reader()


PEERS = {
    "virtual-tiff": virtual_tiff,
    "osml-imagery-io": osml,
    "zarr-n5": zarr_n5,
    "async-geotiff": async_geotiff,
}


def checksum(array):
    """Return the sums of all elements and of their squares: readers differ in the order of axes."""
    import numpy as np

    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    bits = native.view(f"u{native.dtype.itemsize}").ravel().astype(np.uint64)
    return [int(bits.sum()), int((bits * bits).sum())]


def answer(request):
    import numpy as np

    window = request.get("window")
    where = (..., *(slice(*span) for span in window)) if window else ...
    start = time.perf_counter()
    array = PEERS[request["peer"]](request["path"])[where]
    seconds = time.perf_counter() - start
    return {"seconds": seconds} | (
        {"checksum": checksum(np.asarray(array))} if request.get("checks") else {}
    )


def main():
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception as e:  # noqa: BLE001 - whatever a peer raises is its answer
            found = {"error": f"{type(e).__name__}: {e}"[:200]}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
