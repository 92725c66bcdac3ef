"""Saved indexes as fsspec reads them, without us."""

import fsspec
import numpy as np
import pytest
import zarr
from zarr.storage import FsspecStore

from tests.support.indexes import plain


def reference_store(target, **options):
    fs = fsspec.filesystem("reference", fo=str(target), asynchronous=True, **options)
    return FsspecStore(fs, read_only=True, path="")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fsspec_reads_our_json(tmp_path, zarr_format):
    node, truth = plain(tmp_path)
    node.save(tmp_path / "i.json", zarr_format=zarr_format)
    group = zarr.open_group(
        reference_store(tmp_path / "i.json"),
        mode="r",
        zarr_format=zarr_format,
        use_consolidated=False,
    )
    np.testing.assert_array_equal(group["0/0"][...], truth)
    assert group.attrs["title"] == "é"


@pytest.mark.filterwarnings("ignore")
def test_fsspec_reads_our_parquet(tmp_path):
    node, truth = plain(tmp_path)
    node.save(tmp_path / "i.parquet")
    group = zarr.open_group(
        # without a protocol fsspec goes through all references, and trips over nested groups
        reference_store(tmp_path / "i.parquet", remote_protocol="file"),
        mode="r",
        zarr_format=2,
        use_consolidated=False,
    )
    np.testing.assert_array_equal(group["0/0"][...], truth)
