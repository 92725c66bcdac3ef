"""Named pipes, which would block for ever, in every place where a file is opened."""

import json
import os

import numpy as np
import pytest
import tifffile

import anychunk
from anychunk.errors import AnychunkError, SourceError
from anychunk.indexing import is_recognised

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
DATA = np.arange(64, dtype="uint8").reshape(8, 8)


@pytest.mark.parametrize("name", ["a.tif", "a.ntf", "a.json", "a.jnrrd", "a.npy", "a"])
def test_a_pipe_by_its_name(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(SourceError, match="regular"):
        anychunk.index(tmp_path / name)
    assert not is_recognised(str(tmp_path / name))


def test_data_of_a_detached_header(tmp_path):
    os.mkfifo(tmp_path / "a.raw")
    header = "NRRD0004\ntype: uint8\ndimension: 2\nsizes: 8 8\nencoding: raw\ndata file: a.raw\n\n"
    (tmp_path / "a.nhdr").write_text(header)
    with pytest.raises(AnychunkError):
        anychunk.open_array(tmp_path / "a.nhdr")[...]


def test_a_companion_of_ome_tiff(tmp_path):
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image ID="Image:0">'
        '<Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8" SizeX="8" SizeY="8" SizeZ="2" '
        'SizeC="1" SizeT="1"><TiffData FirstZ="0" IFD="0" PlaneCount="1">'
        '<UUID FileName="a.ome.tif">urn:uuid:0</UUID></TiffData><TiffData FirstZ="1" IFD="0" '
        'PlaneCount="1"><UUID FileName="b.ome.tif">urn:uuid:1</UUID></TiffData></Pixels></Image>'
        "</OME>"
    )
    tifffile.imwrite(tmp_path / "a.ome.tif", DATA, description=xml, metadata=None)
    os.mkfifo(tmp_path / "b.ome.tif")
    with pytest.raises(SourceError, match=r"b\.ome\.tif.*regular"):
        anychunk.index(tmp_path / "a.ome.tif")


def test_a_source_of_a_saved_index(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", DATA)
    anychunk.index(tmp_path / "a.tif").save(tmp_path / "a.json")
    (tmp_path / "a.tif").unlink()
    os.mkfifo(tmp_path / "a.tif")
    with pytest.raises(SourceError, match="regular"):
        anychunk.open_array(tmp_path / "a.json")[...]


@pytest.mark.parametrize("name", [".zmetadata", "anychunk.json", "0/0/image/refs.0.parq"])
def test_a_file_of_parquet_references(tmp_path, name):
    tifffile.imwrite(tmp_path / "a.tif", DATA)
    place = tmp_path / "a.parq"
    anychunk.index(tmp_path / "a.tif").save(place)
    (place / name).unlink()
    os.mkfifo(place / name)
    with pytest.raises(AnychunkError):
        anychunk.index(place)


def test_a_file_of_a_repository(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", DATA)
    place = tmp_path / "a.icechunk"
    anychunk.index(tmp_path / "a.tif").save(place)
    snapshot = next((place / "snapshots").iterdir())
    snapshot.unlink()
    os.mkfifo(snapshot)
    with pytest.raises(SourceError, match="regular"):
        anychunk.index(place)


@pytest.mark.parametrize("name", ["attributes.json", "data/attributes.json", "data/0/0"])
def test_a_file_of_n5(tmp_path, name):
    anychunk.write(DATA, tmp_path / "a.n5/data", chunk=(8, 8))
    (tmp_path / "a.n5" / name).unlink()
    os.mkfifo(tmp_path / "a.n5" / name)
    with pytest.raises(AnychunkError):
        anychunk.open(tmp_path / "a.n5")["data/0/image"][...]


def test_a_template_that_names_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "x")
    document = {
        "version": 1,
        "templates": {"u": str(tmp_path / "x")},
        "refs": {
            "zarr.json": json.dumps(
                {
                    "zarr_format": 3,
                    "node_type": "array",
                    "shape": [1],
                    "data_type": "uint8",
                    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
                    "chunk_key_encoding": {"name": "default"},
                    "fill_value": 0,
                    "codecs": [{"name": "bytes"}],
                }
            ),
            "c/0": ["{{u}}", 0, 1],
        },
    }
    (tmp_path / "a.json").write_text(json.dumps(document))
    index = anychunk.index(tmp_path / "a.json")
    with pytest.raises(SourceError, match="regular"):
        anychunk.open_array(index)[...]
