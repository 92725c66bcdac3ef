"""Another package's codec under a name of ours, which forgets what it does not know."""

from dataclasses import dataclass

import numpy as np
import pytest
import tifffile
import zarr
from zarr.abc.codec import BytesBytesCodec
from zarr.registry import _codec_registries

import anychunk
from anychunk.codecs import URIS, TiffTile

KNOWN = ("compression", "bits_per_sample", "predictor", "tile_width", "tile_height")


@dataclass(frozen=True)
class ForgetfulTile(BytesBytesCodec):
    """As osml-imagery-io's: keys that it does not know are dropped, among them the byte order."""

    is_fixed_size = False
    kept: tuple[tuple[str, object], ...]

    @classmethod
    def from_dict(cls, data):
        return cls(tuple((k, v) for k, v in data["configuration"].items() if k in KNOWN))

    def to_dict(self):
        return {"name": TiffTile.name, "configuration": dict(self.kept)}

    def compute_encoded_size(self, input_byte_length, chunk_spec):
        raise NotImplementedError

    async def _decode_single(self, chunk_bytes, chunk_spec):
        raise NotImplementedError

    async def _encode_single(self, chunk_bytes, chunk_spec):
        raise NotImplementedError


def register(monkeypatch, name):
    registry = type(_codec_registries[name])()
    registry.register(ForgetfulTile, "other.ForgetfulTile")
    monkeypatch.setitem(_codec_registries, name, registry)


@pytest.fixture
def forgetful(monkeypatch):
    register(monkeypatch, TiffTile.name)


@pytest.fixture
def big_endian(tmp_path):
    pixels = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    path = tmp_path / "big.tif"
    tifffile.imwrite(path, pixels, byteorder=">", compression="zlib", predictor=2, tile=(16, 16))
    return path, pixels


READERS = {
    "open_array": lambda path: anychunk.open_array(path)[...],
    "group": lambda path: anychunk.open(path)["0/0/image"][...],
    "zarr's own selection": lambda path: anychunk.open_array(path).oindex[...],
}


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("reader", READERS)
def test_pixels_do_not_depend_on_who_registered(big_endian, reader):
    path, pixels = big_endian
    assert np.array_equal(READERS[reader](path), pixels)


def test_zarr_reads_our_store_beside_osml_imagery_io(big_endian, monkeypatch):
    path, pixels = big_endian
    register(monkeypatch, URIS[TiffTile.name])
    found = zarr.open_array(anychunk.open(path).store, path="0/0/image")
    assert np.array_equal(found[...], pixels)


@pytest.mark.usefixtures("forgetful", "enabled")
def test_zarr_reads_our_store_with_our_codec(big_endian):
    path, pixels = big_endian
    found = zarr.open_array(anychunk.open(path).store, path="0/0/image")
    assert np.array_equal(found[...], pixels)
