"""Icechunk repositories, as Icechunk itself sees them."""

import os
import time

import numpy as np
import pytest
import zarr

import anychunk
from anychunk.model.index import GroupIndex
from anychunk.references import icechunk as ice
from tests.indexes import plain


def test_icechunk_reads_our_repository(tmp_path):
    node, truth = plain(tmp_path)
    node.save(tmp_path / "i.icechunk")
    store = ice.open_repository(str(tmp_path / "i.icechunk")).readonly_session("main").store
    group = zarr.open_group(store, mode="r")
    np.testing.assert_array_equal(group["0/0"][...], truth)
    assert group.attrs["title"] == "é"


def test_icechunk_itself_notices_a_changed_file(tmp_path):
    import icechunk

    node, _ = plain(tmp_path)
    node.save(tmp_path / "i.icechunk")
    later = time.time_ns() + 5_000_000_000
    os.utime(tmp_path / "a b.bin", ns=(later, later))
    store = ice.open_repository(str(tmp_path / "i.icechunk")).readonly_session("main").store
    with pytest.raises(icechunk.IcechunkError):
        zarr.open_group(store, mode="r")["0/0"][...]


def test_a_long_index_goes_to_icechunk_in_pieces_and_appears_at_once(tmp_path, monkeypatch):
    import icechunk

    from anychunk.references.icechunk import transaction

    monkeypatch.setattr(transaction, "PIECE", 1)
    monkeypatch.setattr("anychunk.references.icechunk.repository.MANIFEST_CHUNKS", 1)
    node, truth = plain(tmp_path)
    target = tmp_path / "i.icechunk"
    node.save(target)
    np.testing.assert_array_equal(anychunk.open(target)["0/0"][...], truth)
    before = anychunk.index(target)
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(target)))
    assert repository.list_branches() == {"main"}
    monkeypatch.setattr(
        transaction.Transaction, "commit", lambda self, message: (_ for _ in ()).throw(OSError())
    )
    with pytest.raises(OSError):
        GroupIndex(members={"z": node["0/0"]}).save(target)
    assert anychunk.index(target) == before  # a crash leaves what was there
    monkeypatch.undo()
    monkeypatch.setattr(transaction, "PIECE", 1)
    GroupIndex(members={"z": node["0/0"]}).save(target)
    assert list(anychunk.index(target).members) == ["z"]
