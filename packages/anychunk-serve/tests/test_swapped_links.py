"""Links that are swapped while requests run: no answer comes from outside the served folder."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
import tifffile

import anychunk
from tests.io.test_inside import needs_links, ome_set, way
from tests.support.nitf_writer import Image, nitf

__all__ = ["way"]

pytestmark = needs_links

INSIDE, OUTSIDE = 100, 201
"""The value of every pixel inside the folder, and outside of it."""
SIZE = 64
REQUESTS = 200
"""How often the file is asked for while it is swapped."""


def image_set(folder: Path, value: int) -> None:
    """Write one file of each kind that refers to others, with what it refers to."""
    pixels = np.full((SIZE, SIZE), value, "uint8")
    folder.mkdir(parents=True)
    np.save(folder / "a.npy", pixels)
    anychunk.write(pixels, folder / "a.n5", chunk=(SIZE, SIZE), compression="raw")
    tifffile.imwrite(folder / "a.tif", pixels, metadata=None)
    text = f"<PAMDataset><Metadata><MDI key='said'>value {value}</MDI></Metadata></PAMDataset>"
    (folder / "a.tif.aux.xml").write_text(text)
    tifffile.imwrite(folder / "a.tif.ovr", pixels[::2, ::2], subfiletype=1, metadata=None)
    tifffile.imwrite(folder / "a.tif.msk", pixels, metadata=None)
    (folder / "a.ntf").write_bytes(nitf([Image(pixels[None])]))
    (folder / "a.ntf.r1").write_bytes(nitf([Image(pixels[None, ::2, ::2])]))
    header = f"NRRD0004\ntype: uint8\ndimension: 2\nsizes: {SIZE} {SIZE}\nencoding: raw\n"
    (folder / "a.nhdr").write_text(f"{header}data file: a.raw\n\n")
    (folder / "a.raw").write_bytes(pixels.tobytes())
    ome_set(folder / "set", pixels=pixels[:8, :8])


@pytest.fixture
def places(tmp_path):
    """The folder that is served, and another with the same files."""
    image_set(tmp_path / "in" / "sub", INSIDE)
    image_set(tmp_path / "out" / "sub", OUTSIDE)
    return tmp_path / "in", tmp_path / "out"


def answers(client, name):
    """Yield what a client sees of a file: its metadata, the first and last chunk of every image."""
    url = name.replace("/", "%2F")
    yield client.get(f"/api/files/{url}").content
    document = client.get(f"/zarr-raw/{url}/zarr.json")
    yield document.content
    if document.status_code != 200:
        return
    nodes = document.json()["consolidated_metadata"]["metadata"]
    for path, node in nodes.items():
        if node["node_type"] == "array" and path.rpartition("/")[2] in ("image", "mask"):
            chunk = node["chunk_grid"]["configuration"]["chunk_shape"]
            last = [(n - 1) // c for n, c in zip(node["shape"], chunk, strict=True)]
            for place in ([0] * len(last), last):
                key = "/".join(map(str, place))
                yield client.get(f"/zarr-raw/{url}/{path}/c/{key}").content
                yield client.get(f"/raw/{url}/{path}/c/{key}").content


def is_of(value: int, content: bytes) -> bool:
    return bytes([value]) * 16 in content or f"value {value}".encode() in content


SWAPPED = [
    ("a.npy", "a.npy"),
    ("a.n5", "a.n5/attributes.json"),
    ("a.n5", "a.n5/0/0"),
    ("a.n5", "a.n5"),
    ("a.tif", "a.tif"),
    ("a.tif", "a.tif.aux.xml"),
    ("a.tif", "a.tif.ovr"),
    ("a.tif", "a.tif.msk"),
    ("a.ntf", "a.ntf.r1"),
    ("a.nhdr", "a.raw"),
    ("set/0.ome.tif", "set/1.ome.tif"),
]
FOLDERS = [(name, "") for name in dict.fromkeys(name for name, _ in SWAPPED)]
"""Instead of the file, the folder of all of them is swapped when the file is opened."""


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("name", "swapped"), SWAPPED + FOLDERS)
def test_between_the_check_and_the_opening(client_of, places, monkeypatch, name, swapped):
    inside, outside = places
    path, target = inside / "sub" / swapped, outside / "sub" / swapped
    before = [*answers(client_of(inside), f"sub/{name}")]
    assert any(is_of(INSIDE, answer) for answer in before)
    client = client_of(inside)
    trigger = Path(swapped or name).name
    trigger = {"a.n5": "attributes.json"}.get(trigger, trigger)
    os_open, is_done = os.open, []

    def opening(file, *args, **kwargs):
        if Path(file).name == trigger and not is_done:
            is_done.append(True)
            path.rename(f"{path}.old")
            path.symlink_to(target)
        return os_open(file, *args, **kwargs)

    monkeypatch.setattr(os, "open", opening)
    for answer in answers(client, f"sub/{name}"):
        assert not is_of(OUTSIDE, answer)
    assert is_done


def test_while_requests_run(client_of, places):
    inside, outside = places
    path, link, file = inside / "sub" / "a.npy", inside / ".link", inside / ".file"
    client = client_of(inside)
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            link.symlink_to(outside / "sub" / "a.npy")
            link.replace(path)
            with file.open("wb") as new:
                np.save(new, np.full((SIZE, SIZE), INSIDE, "uint8"))
            file.replace(path)

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        for _ in range(REQUESTS):
            assert not any(is_of(OUTSIDE, answer) for answer in answers(client, "sub/a.npy"))
    finally:
        is_over.set()
        attacker.join()
    assert any(is_of(INSIDE, answer) for answer in answers(client, "sub/a.npy"))


def test_links_that_stay_inside_are_served(client_of, places):
    inside, _ = places
    for name in ("a.npy", "a.tif.aux.xml", "a.raw", "a.n5/0/0"):
        path = inside / "sub" / name
        moved = path.with_name(f"moved.{path.name}")
        path.rename(moved)
        path.symlink_to(moved.name)
    client = client_of(inside)
    for name in ("a.npy", "a.tif", "a.nhdr", "a.n5"):
        found = [*answers(client, f"sub/{name}")]
        assert any(is_of(INSIDE, answer) for answer in found), name
