"""Every kind of file, in every form that we give it, read by every reader of the field."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import zarr
from obstore.store import HTTPStore
from zarr.storage import FsspecStore, ObjectStore

import anychunk
from tests.support.expected import (
    CONVERTED,
    FORMS,
    ICECHUNK,
    JSON,
    JSON_V2,
    OPENED,
    PARQUET,
    SERVED,
    reason,
    table,
)
from tests.support.readers import READERS, Found, MissingToolError, Place, quiet
from tests.support.serving import running
from tests.support.sources import SOURCES, Known

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("readers")


@pytest.fixture(scope="module")
def sources(folder):
    """The files, made once, by name of the source."""
    made = folder / "files"
    made.mkdir()
    with quiet():
        return {name: make(made) for name, make in SOURCES.items()}


@pytest.fixture(scope="module")
def server(folder, sources):
    assert sources
    with running(folder / "files") as found:
        yield found


@cache
def image_path(path: Path) -> str:
    """Return where the first image of a file is."""
    from anychunk.model.images import images

    return next(images(anychunk.index(path))).path


@cache
def level_of(path: Path) -> str:
    from anychunk.model.images import images

    image = next(images(anychunk.index(path)))
    return image.levels[0].rpartition("/")[0]


def place_of(form: str, path: Path, folder: Path, server) -> Place:
    """Give a file a form, and return where it is."""
    image, level = image_path(path), level_of(path)
    if form == CONVERTED:
        target = folder / "converted" / f"{path.name}.zarr"
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            anychunk.convert(path, target)
        return Place(url=str(target), store=str(target), image="", level="0")
    if form == OPENED:
        return Place(url="", store=anychunk.open(path).store, image=image, level=level)
    if form == JSON_V2:
        target = path.with_name(f"{path.name}.v2.json")
        if not target.exists():
            anychunk.index(path).save(target, zarr_format=2, relative=False)
        return Place(url=str(target), store=None, image=image, level=level, zarr_format=2)
    if form == SERVED:
        url = f"{server.url}/zarr/{path.name}"
        store = HTTPStore.from_url(url, client_options={"allow_http": True})
        return Place(url=url, store=ObjectStore(store, read_only=True), image=image, level=level)
    # kerchunk's parquet tables are Zarr v2
    zarr_format = 2 if form == PARQUET else 3
    return Place(url="", store=saved(form, path), image=image, level=level, zarr_format=zarr_format)


def saved(form: str, path: Path):
    """Save an index beside the file, and return a store that does not go through our reader."""
    if form == ICECHUNK:
        import icechunk

        target = path.with_name(f"{path.name}.icechunk")
        if not target.exists():
            anychunk.index(path).save(target, format="icechunk")
        storage = icechunk.local_filesystem_storage(str(target))
        known = icechunk.Repository.fetch_config(storage).virtual_chunk_containers
        access = icechunk.containers_credentials(
            {prefix: icechunk.Credentials.LocalFileSystemAccess() for prefix in known}
        )
        repository = icechunk.Repository.open(storage, authorize_virtual_chunk_access=access)
        return repository.readonly_session("main").store
    import fsspec

    target = path.with_name(f"{path.name}.{'json' if form == JSON else 'parquet'}")
    if not target.exists():
        anychunk.index(path).save(target, relative=False)
    files = fsspec.filesystem(
        "reference", fo=str(target), remote_protocol="file", asynchronous=False
    )
    from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

    return FsspecStore(fs=AsyncFileSystemWrapper(files), read_only=True, path="")


def check(found: Found, known: Known, reader: str, place: Place) -> None:
    """Compare everything that a reader tells with what the best reader of the format says."""
    if "pixels" in found.tells:
        expected = known.pixels
        if reader == "GDAL":  # it shows all planes as bands
            expected = expected.reshape(-1, *expected.shape[-2:])
        np.testing.assert_array_equal(np.asarray(found.pixels), expected)
    if "axes" in found.tells:
        assert tuple(found.axes or ()) == tuple(known.axes)
    if "crs" in found.tells:
        assert same_crs(found.crs, known.crs), (found.crs, known.crs)
    if "transform" in found.tells:
        if known.transform is None and known.step is not None and found.transform is not None:
            # GDAL takes positions in micrometres or millimetres for those of a map
            sizes = (found.transform[0], found.transform[4])
            assert sizes == pytest.approx((known.step["x"], known.step["y"]))
        elif known.transform is None:
            assert found.transform is None
        else:
            np.testing.assert_allclose(found.transform, known.transform, rtol=1e-9)
    if "nodata" in found.tells:
        expected_nodata = known.nodata
        if reader == "GDAL" and known.nodata is None and place.zarr_format == 3:
            # GDAL takes the fill value as nodata, and an array of Zarr v3 must have one
            expected_nodata = np.nan if known.pixels.dtype.kind == "f" else 0
        np.testing.assert_equal(found.nodata, expected_nodata)
    if "step" in found.tells and known.step is not None:
        assert found.step == pytest.approx(known.step)


def same_crs(found, known) -> bool:
    import pyproj

    if found is None or known is None:
        return found is known
    both = [pyproj.CRS.from_user_input(crs) for crs in (found, known)]
    return both[0].equals(both[1], ignore_axis_order=True)


CELLS = [
    pytest.param(form, source, reader, id=f"{form}-{source}-{reader}")
    for form, readers in FORMS.items()
    for source in SOURCES
    for reader in readers
]


@pytest.mark.processes
@pytest.mark.parametrize(("form", "source", "reader"), CELLS)
def test_cell(form, source, reader, folder, sources, server):
    path, known = sources[source]
    try:
        place = place_of(form, path, folder, server)
        with quiet():
            found = READERS[reader](place)
        check(found, known, reader, place)
        why = None
    except MissingToolError as e:
        pytest.skip(str(e))
    except Exception as e:
        why = e
    expected = reason(form, source, reader)
    if expected is None and why is not None:
        raise why
    assert (why is None) == (expected is None), f"works now: {expected}"


def test_the_documentation_has_this_table():
    page = Path(__file__).parents[2] / "docs" / "readers.md"
    assert table() in page.read_text(encoding="utf-8")


def test_the_readers_are_those_that_zarr_opens(folder, sources):
    """The matrix would prove nothing if every store were opened by our own store class."""
    path, _ = sources["NPY"]
    group = zarr.open_group(saved(JSON, path), mode="r")
    assert type(group) is zarr.Group
