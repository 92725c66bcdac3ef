"""`anychunk demo`: files that independent readers read, too, and nothing is overwritten."""

import shlex
from pathlib import Path

import imagecodecs
import nibabel
import numpy as np
import pytest
import rasterio
import tensorstore
import tifffile

import anychunk
from anychunk import demo, formats
from anychunk.cli import main

MOST_SHIPPED = 500_000


def raster(path):
    with rasterio.open(path) as file:
        return file.read().squeeze()


def n5(path):
    spec = {"driver": "n5", "kvstore": {"driver": "file", "path": f"{path}/s0"}}
    return tensorstore.open(spec).result().read().result().T


READERS = {
    "scene.tif": raster,
    "cells.ome.tif": tifffile.imread,
    "image.ntf": raster,
    "photo.jp2": lambda p: imagecodecs.jpeg2k_decode(p.read_bytes()).transpose(2, 0, 1),
    "tissue.n5": n5,
    "brain.nii.gz": lambda p: np.asarray(nibabel.load(p).dataobj).T,
    "terrain.dt0": raster,
    "volume.npy": np.load,
}
"""Tiled JNRRD has no other reader: it is compared with the pixels that were written."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("demo")
    assert dict(demo.write(found)) == dict.fromkeys(demo.FILES, True)
    return found


def test_a_file_of_every_format(folder):
    found = {anychunk.describe(folder / name)["format"] for name in demo.FILES}
    assert found == set(formats.table()) - {"zarr"}
    assert {p.name for p in folder.iterdir()} == set(demo.FILES)


@pytest.mark.parametrize("name", demo.FILES)
def test_pixels_are_those_of_another_reader(folder, tmp_path, name):
    read = READERS.get(name) or (lambda path: demo.FILES[name].make(tmp_path / name))
    np.testing.assert_array_equal(anychunk.open_array(folder / name)[...], read(folder / name))


def test_meanings(folder):
    brain = nibabel.load(folder / "brain.nii.gz")
    assert brain.header.get_zooms() == pytest.approx((1.6, 1.6, 2.0))
    assert brain.header.get_xyzt_units()[0] == "mm"
    with rasterio.open(folder / "scene.tif") as scene:
        assert scene.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert scene.crs.to_epsg() == 32611
        assert scene.descriptions == ("red", "green", "blue")
        assert len(scene.overviews(1)) == 2


def test_what_is_shipped_is_small():
    assert sum(file.stat().st_size for file in demo.DATA.iterdir()) <= MOST_SHIPPED


def printed(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    assert not caught.value.code
    return capsys.readouterr().out


def test_existing_files_are_kept(tmp_path, capsys):
    (tmp_path / "scene.tif").write_bytes(b"mine")
    (tmp_path / "tissue.n5").mkdir()
    (tmp_path / "photo.jp2").symlink_to(tmp_path / "elsewhere")
    lines = printed(capsys, "demo", tmp_path).splitlines()
    kept = [line.split()[0] for line in lines if "is kept" in line]
    assert [Path(path).name for path in kept] == ["scene.tif", "photo.jp2", "tissue.n5"]
    assert (tmp_path / "scene.tif").read_bytes() == b"mine"
    assert not any((tmp_path / "tissue.n5").iterdir())
    assert not (tmp_path / "elsewhere").exists()
    again = printed(capsys, "demo", tmp_path)
    assert again.count("is kept") == len(demo.FILES)


def test_an_interrupted_call_leaves_no_half(tmp_path, monkeypatch):
    def interrupted(path):
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    file = demo.FILES["photo.jp2"]._replace(make=interrupted)
    monkeypatch.setitem(demo.FILES, "photo.jp2", file)
    with pytest.raises(KeyboardInterrupt):
        list(demo.write(tmp_path))
    assert {p.name for p in tmp_path.iterdir()} == {"scene.tif", "cells.ome.tif", "image.ntf"}


def test_commands_to_try_work(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("demo").symlink_to(folder, target_is_directory=True)
    lines = printed(capsys, "demo").splitlines()
    for line in lines[lines.index("Try:") + 1 :]:
        command, *words = shlex.split(line)
        assert command == "anychunk"
        if words[0] != "serve":  # runs until it is ended
            assert printed(capsys, *words)
