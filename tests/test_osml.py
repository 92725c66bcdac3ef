"""Indexes exchanged with osml-imagery-io, which wants an older zarr and so an environment of its own.

`make test-peers` makes it and runs these; `ANYCHUNK_OSML_PYTHON` names the interpreter of another one.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
from tests import j2k_streams

ROOT = Path(__file__).parents[1]
PYTHON = Path(os.environ.get("ANYCHUNK_OSML_PYTHON") or ROOT / ".venv-osml" / "bin" / "python")
pytestmark = pytest.mark.skipif(
    not PYTHON.exists(),
    reason="osml-imagery-io is not here: make test-peers, or set ANYCHUNK_OSML_PYTHON",
)

IMAGE = np.random.default_rng(0).integers(0, 4000, (300, 500)).astype("uint16")
WRITE = """
import sys
from aws.osml.io.virtualizarr_parsers import OversightMLParser, write_tile_index
write_tile_index(OversightMLParser()(url="file://" + sys.argv[1]), sys.argv[2], zarr_format=int(sys.argv[3]))
"""
READ = """
import sys, numpy, zarr
from aws.osml.io.multi_reference_fs import MultiReferenceFileSystem
from zarr.storage._fsspec import FsspecStore
fs = MultiReferenceFileSystem(
    fo=sys.argv[1], asynchronous=True, remote_options={"asynchronous": True}, skip_instance_cache=True
)
store = FsspecStore(fs=fs, read_only=True, path="")
root = zarr.open_group(store, mode="r", zarr_format=int(sys.argv[3]))
numpy.save(sys.argv[2], root["0/data"][...])
"""


def run(code, *arguments):
    done = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def make(kind, folder):
    """Write the image by something that is neither ours nor theirs."""
    file = folder / f"a.{kind}"
    if kind == "tif":
        tifffile.imwrite(file, IMAGE, tile=(128, 128), compression="zlib", predictor=True)
    elif kind == "ntf":
        options = {"driver": "NITF", "BLOCKXSIZE": 128, "BLOCKYSIZE": 128}
        with rasterio.open(
            file, "w", width=500, height=300, count=1, dtype="uint16", **options
        ) as out:
            out.write(IMAGE, 1)
    else:
        file.write_bytes(j2k_streams.compress([IMAGE], "-t", "192,192", depth=16))
    return file


KINDS = [
    pytest.param("tif"),
    pytest.param("ntf", marks=pytest.mark.filterwarnings("ignore::UserWarning")),
    pytest.param(
        "j2k",
        marks=j2k_streams.needs_openjpeg,
    ),
]


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_theirs_opens_here(tmp_path, kind, zarr_format):
    """Also where they give other pixels: JPEG 2000 tiles of 192, which they move to the origin."""
    run(WRITE, make(kind, tmp_path), tmp_path / "index.json", zarr_format)
    group = anychunk.open(tmp_path / "index.json")
    np.testing.assert_array_equal(np.squeeze(group["0/data"][...]), IMAGE)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("kind", KINDS[:2])
def test_ours_opens_there(tmp_path, kind, zarr_format):
    node = anychunk.index(make(kind, tmp_path))
    node.save(tmp_path / "index.json", layout="osml", zarr_format=zarr_format)
    run(READ, tmp_path / "index.json", tmp_path / "found.npy", zarr_format)
    np.testing.assert_array_equal(np.squeeze(np.load(tmp_path / "found.npy")), IMAGE)


@pytest.mark.parametrize("rowsperstrip", [100, 64])
def test_keys_that_only_check_are_left_out(tmp_path, rowsperstrip):
    """Strips, the last of them short or not: no key that they do not know is in the index."""
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, rowsperstrip=rowsperstrip, compression="packbits")
    node = anychunk.index(tmp_path / "a.tif")
    assert "last_height" in str(node["0/0"].codecs)
    node.save(tmp_path / "index.json", layout="osml")
    assert "last_" not in (tmp_path / "index.json").read_text()
    np.testing.assert_array_equal(
        np.squeeze(anychunk.open(tmp_path / "index.json")["0/data"][...]), IMAGE
    )
    if rowsperstrip == 100:
        run(READ, tmp_path / "index.json", tmp_path / "found.npy", 3)
        np.testing.assert_array_equal(np.squeeze(np.load(tmp_path / "found.npy")), IMAGE)


def test_what_they_would_read_wrong_is_refused(tmp_path):
    """They pass over `byte_order`, and swap the bytes of every sample."""
    options = {"tile": (128, 128), "compression": "zlib", "byteorder": ">"}
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, **options)
    node = anychunk.index(tmp_path / "a.tif")
    with pytest.raises(anychunk.errors.UnsupportedError, match="does not know byte_order of tiff"):
        node.save(tmp_path / "index.json", layout="osml")
    assert not (tmp_path / "index.json").exists()
    node.save(tmp_path / "index.json")
    np.testing.assert_array_equal(
        np.squeeze(anychunk.open(tmp_path / "index.json")["0/0"][...]), IMAGE
    )
