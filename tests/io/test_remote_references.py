"""References in remote files: none leaves the folder, however it is spelled."""

from urllib.parse import unquote

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import AnychunkError, FormatError, SourceError
from anychunk.io.inside import resolve
from anychunk.io.object_stores import memory_store
from anychunk.references.urls import UrlResolver
from tests.support.http_server import serve
from tests.support.jnrrd_tiles import external

SIZE = 8
SECRET = np.full((SIZE, SIZE), 201, "uint8")
UPWARDS = [
    "../",
    "%2e%2e/",
    "%2E%2e/",
    ".%2e/",
    "%252e%252e/",
    "%25252E%25252E%25252F",
    "..%2f",
    "..%5c",
    "..\\",
    "%2e%2e\\",
    "%2e%2e%5C",
    "sub/%2e%2e/%2e%2e/",
    "sub/../%2e%2e/",
]
OME = (
    '<?xml version="1.0" encoding="UTF-8"?>'
    '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:A">'
    '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="8" '
    'SizeY="8" SizeC="1" SizeZ="2" SizeT="1"><Channel ID="Channel:0:0" SamplesPerPixel="1"/>'
    '<TiffData FirstZ="0" IFD="0" PlaneCount="1"><UUID FileName="a.tif">urn:uuid:A</UUID>'
    '</TiffData><TiffData FirstZ="1" IFD="0" PlaneCount="1"><UUID FileName="{}">urn:uuid:B'
    "</UUID></TiffData></Pixels></Image></OME>"
)
NRRD = f"NRRD0004\ntype: uint8\ndimension: 2\nsizes: {SIZE} {SIZE}\nencoding: raw\ndata file: "


def ome(folder, up):
    xml = OME.format(f"{up}secret.tif")
    tifffile.imwrite(folder / "a.tif", SECRET // 3, description=xml.encode(), metadata=None)
    return "a.tif"


def nrrd(folder, text):
    (folder / "a.nhdr").write_text(f"{NRRD}{text}\n\n")
    return "a.nhdr"


def jnrrd(folder, **tiles):
    return external(folder / "a.jnrrd", [SIZE, SIZE], [SIZE, SIZE // 2], **tiles).name


KINDS = {
    "OME": ome,
    "data file": lambda folder, up: nrrd(folder, f"{up}secret.raw"),
    "LIST": lambda folder, up: nrrd(folder, f"LIST\n{up}0_0\n{up}0_1"),
    "numbers": lambda folder, up: nrrd(folder, f"{up.replace('%', '%%')}0_%d 0 1 1"),
    "pattern": lambda folder, up: jnrrd(folder, pattern=f"{up}{{x}}_{{y}}"),
    "base_dir": lambda folder, up: jnrrd(folder, pattern="{x}_{y}", base_dir=up),
    "files": lambda folder, up: jnrrd(
        folder, files=[{"indices": [0, y], "file": f"{up}0_{y}"} for y in (0, 1)]
    ),
}


@pytest.fixture
def secrets(tmp_path):
    """A folder of which only `in` is anybody's business."""
    (tmp_path / "in" / "sub").mkdir(parents=True)
    tifffile.imwrite(tmp_path / "secret.tif", SECRET, metadata=None)
    (tmp_path / "secret.raw").write_bytes(SECRET.tobytes())
    for y in (0, 1):
        (tmp_path / f"0_{y}").write_bytes(SECRET[: SIZE // 2].tobytes())
    return tmp_path


def decoded(path):
    while path != (path := unquote(path)):
        pass
    return path.replace("\\", "/")


@pytest.mark.processes
@pytest.mark.parametrize("up", UPWARDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("storage", [None, {"redirects": "same-origin"}])
def test_of_a_web_server(secrets, kind, up, storage):
    name = KINDS[kind](secrets / "in", up)
    with serve(secrets) as served:
        with pytest.raises(AnychunkError):
            anychunk.open_array(f"{served.url}/in/{name}", storage=storage)[...]
        asked = [decoded(request.split()[1]) for request, _ in served.requests]
    assert f"/in/{name}" in asked
    assert not [path for path in asked if ".." in path or not path.startswith("/in/")]


def test_of_an_object_store(secrets):
    store = memory_store("references")
    for path in secrets.rglob("*.*"):
        if path.is_file():
            store.put(path.relative_to(secrets).as_posix(), path.read_bytes())
    for up in UPWARDS:
        store.put("in/a.nhdr", f"{NRRD}{up}secret.raw\n\n".encode())
        with pytest.raises(FormatError, match="leads outside"):
            anychunk.index("memory://references/in/a.nhdr")


@pytest.mark.parametrize("name", ["a//b", "a%2f%2fb", "a/%2e/b", "a/%01b"])
def test_names_that_no_object_has(name):
    """To obstore they are errors of Python, whether a caller or a file gave them."""
    with pytest.raises(SourceError):
        anychunk.index(f"memory://references/{name}")
    memory_store("references").put("in/a.nhdr", f"{NRRD}{name}\n\n".encode())
    with pytest.raises(AnychunkError):
        anychunk.open_array("memory://references/in/a.nhdr")[...]


@pytest.mark.processes
@pytest.mark.parametrize("digit", ["2", "{x}"])
def test_coordinates_that_complete_an_escape(secrets, digit):
    """`%{x}e` is `.` for the third tile, and only for that one."""
    tiles = [{"pattern": "%{x}e%{x}e/{x}_{y}"}, {"pattern": f"%{digit}e%{digit}e/0_{{y}}{{x}}"}]
    for more in tiles:
        name = external(secrets / "in/a.jnrrd", [3 * SIZE, SIZE], [SIZE, SIZE], **more).name
        (secrets / "2_0").write_bytes(SECRET.tobytes())
        with serve(secrets) as served:
            with pytest.raises(AnychunkError):
                anychunk.open_array(f"{served.url}/in/{name}")[:, 2 * SIZE :]
            asked = [decoded(request.split()[1]) for request, _ in served.requests]
        assert not [path for path in asked if ".." in path]


@pytest.mark.parametrize("up", UPWARDS)
def test_what_is_allowed_is_not_left(up):
    with pytest.raises(FormatError):
        resolve("s3://b/in", f"s3://b/data/{up}secret", allow=["s3://b/data"])
    with pytest.raises(FormatError):
        resolve("/in", f"s3://b/data/{up}secret", allow=["s3://b/data"])
    resolver = UrlResolver(url="s3://b/in/i.json", allow=["s3://b/data"])
    for reference in (f"{up}secret", f"s3://b/in/{up}secret", f"s3://b/data/{up}secret"):
        with pytest.raises(FormatError):
            resolver.resolve(reference)


def test_a_local_folder_above(secrets, monkeypatch):
    """The caller may name any folder; only the reference may not climb."""
    (secrets / "in" / "a.raw").write_bytes(SECRET.tobytes())
    nrrd(secrets / "in", "a.raw")
    monkeypatch.chdir(secrets / "in" / "sub")
    np.testing.assert_array_equal(anychunk.open_array("../a.nhdr")[...], SECRET)


@pytest.mark.processes
def test_names_with_percent_signs_and_dots_are_found(secrets):
    (secrets / "in" / "50% a..b.raw").write_bytes(SECRET.tobytes())
    nrrd(secrets / "in", "50% a..b.raw")
    with serve(secrets) as served:
        array = anychunk.open_array(f"{served.url}/in/a.nhdr")
        np.testing.assert_array_equal(array[...], SECRET)
