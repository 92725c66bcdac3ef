"""VirtualiZarr, both ways."""

import numpy as np
import pytest
import zarr

import anychunk
from anychunk.errors import UnsupportedError
from tests.support.indexes import MADE, plain


def test_virtualizarr_both_ways(tmp_path):
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    node, truth = plain(tmp_path, "a.bin")  # its stores do not find names with spaces
    store = node.to_virtualizarr(registry=ObjectStoreRegistry({"file://": LocalStore()}))
    group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
    np.testing.assert_array_equal(group["0/0"][...], truth)
    back = anychunk.from_virtualizarr(store)
    np.testing.assert_array_equal(anychunk.open(back)["0/0"][...], truth)
    assert back.pins == node.pins
    fronted, values = MADE["fronted"](tmp_path)
    with pytest.raises(UnsupportedError, match="array f: 2 of 3 chunks .*VirtualiZarr"):
        fronted.to_virtualizarr()
    copied = anychunk.from_virtualizarr(fronted.to_virtualizarr(copy="needed"))
    np.testing.assert_array_equal(anychunk.open(copied)["f"][...], values)


def test_virtual_parser_is_a_parser_of_virtualizarr(tmp_path):
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_dataset, open_virtual_datatree
    from virtualizarr.parsers.typing import Parser

    values = np.arange(60, dtype="int16").reshape(3, 4, 5)
    np.save(tmp_path / "a.npy", values)
    registry = ObjectStoreRegistry({"file://": LocalStore()})
    parser = anychunk.VirtualParser()
    assert isinstance(parser, Parser)
    url = f"file://{tmp_path}/a.npy"
    dataset = open_virtual_dataset(url, registry=registry, parser=parser)
    assert dataset["image"].shape == (3, 4, 5)
    back = anychunk.from_virtualizarr(dataset)
    np.testing.assert_array_equal(anychunk.open(back)["image"][...], values)
    loaded = open_virtual_dataset(
        url, registry=registry, parser=parser, loadable_variables=["image"]
    )
    np.testing.assert_array_equal(loaded["image"].to_numpy(), values)
    tree = open_virtual_datatree(
        url, registry=registry, parser=anychunk.VirtualParser(tree=True), loadable_variables=[]
    )
    assert tree["0/0/image"].shape == (3, 4, 5)
    back = anychunk.from_virtualizarr(tree)
    np.testing.assert_array_equal(anychunk.open(back)["0/0/image"][...], values)
