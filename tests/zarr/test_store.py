"""IndexStore, held against zarr's own store tests.

Those tests fill a store by writing to it. `FilledStore` stands in for that: its `set` puts bytes into
a file and a row into the index, and everything that reads is IndexStore's own. Left out, by name:

- tests of writing itself (`test_set*`, `test_delete*`, `test_clear`, parity of `set`): the store is
  read-only, which `test_read_only_store_raises` checks;
- keys that no Zarr v3 hierarchy has (`foo/0/0`, `sync_get` …) are replaced by keys that one has;
- values of no bytes: a length of 0 declares a chunk absent.
"""

import pickle
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import cpu, default_buffer_prototype
from zarr.core.sync import _collect_aiterator
from zarr.testing.store import StoreTests

import anychunk
from anychunk.errors import TruncatedError
from anychunk.model.index import INLINE, ArrayIndex, ByteRanges, GroupIndex, find
from anychunk.zarr.store import IndexStore


def array_of(shape, file, *, offsets=None, lengths=None):
    grid = tuple(shape)
    zeros = np.zeros(grid, np.uint64)
    return ArrayIndex(
        shape=grid,
        chunk_shape=(1,) * len(grid),
        data_type="uint8",
        codecs=({"name": "bytes"},),
        chunks=ByteRanges(
            offsets=zeros if offsets is None else offsets,
            lengths=zeros if lengths is None else lengths,
            urls=(str(file),),
        ),
        dimension_names=(None,) * len(grid),
    )


class FilledStore(IndexStore):
    """An IndexStore that tests can fill."""

    def __init__(self, folder, *, read_only=False):
        super().__init__(GroupIndex(members={}))
        self.folder = Path(folder)
        self._read_only = read_only
        self.root = False
        self.bare = set()

    def with_read_only(self, read_only=False):
        raise NotImplementedError(
            f"with_read_only is not implemented for the {type(self)} store type."
        )

    def _check_writable(self):
        if self.read_only:
            super()._check_writable()

    async def set(self, key, value):
        self._check_writable()
        self.fill(key, value.to_bytes())

    def _node(self, path, make):
        """Find or make the node at `path`, with groups on the way."""
        *parents, name = path.split("/")
        group = self.index
        for parent in parents:
            group = group.members.setdefault(parent, GroupIndex(members={}))
        return group.members, name

    def fill(self, key, data):
        self._readers.clear()
        path, _, rest = ("/" + key).rpartition("/c/")
        if key.endswith("zarr.json"):
            path = key.removesuffix("zarr.json").strip("/")
            if path:
                members, name = self._node(path, None)
                members.setdefault(name, GroupIndex(members={}))
            return
        coords = tuple(int(part) for part in rest.split("/"))
        file = self.folder / "chunks"
        start = file.stat().st_size if file.exists() else 0
        with file.open("ab") as handle:
            handle.write(data)
        self.sources._open.clear()
        path = path.strip("/")
        old = find(self.index, path)
        grid = tuple(max(8, c + 1) for c in coords)
        offsets, lengths = np.zeros(grid, np.uint64), np.zeros(grid, np.uint64)
        if isinstance(old, ArrayIndex):
            inner = tuple(slice(n) for n in old.grid)
            offsets[inner], lengths[inner] = old.chunks.offsets, old.chunks.lengths
        offsets[coords], lengths[coords] = start, len(data)
        array = array_of(grid, file, offsets=offsets, lengths=lengths)
        if path:
            members, name = self._node(path, None)
            members[name] = array
        else:
            self.index = array

    set_sync = None


KEYS = pytest.mark.parametrize("key", ["c/0", "foo/c/0", "foo/bar/c/3/1"])


class TestIndexStore(StoreTests[FilledStore, cpu.Buffer]):
    store_cls = FilledStore
    buffer_cls = cpu.Buffer

    async def set(self, store, key, value):
        store.fill(key, value.to_bytes())

    async def get(self, store, key):
        raise NotImplementedError("only tests of writing use it")

    @pytest.fixture
    def store_kwargs(self, tmp_path):
        return {"folder": tmp_path}

    def test_store_repr(self, store):
        assert repr(store) == "IndexStore(index)"

    def test_store_supports_writes(self, store):
        assert not store.supports_writes
        assert not store.supports_deletes

    def test_store_supports_listing(self, store):
        assert store.supports_listing

    async def test_serializable_store(self, store):
        store.fill("foo/c/0", b"1234")
        again = pickle.loads(pickle.dumps(store))
        assert again == store
        assert (await again.get("foo/c/0", default_buffer_prototype())).to_bytes() == b"1234"

    @KEYS
    @pytest.mark.parametrize(
        ("data", "byte_range"),
        [
            (b"\x01\x02\x03\x04", None),
            (b"\x01\x02\x03\x04", RangeByteRequest(1, 4)),
            (b"\x01\x02\x03\x04", RangeByteRequest(1, 400)),
            (b"\x01\x02\x03\x04", OffsetByteRequest(1)),
            (b"\x01\x02\x03\x04", SuffixByteRequest(1)),
        ],
    )
    async def test_get(self, store, key, data, byte_range):
        await super().test_get(store, key, data, byte_range)

    @KEYS
    @pytest.mark.parametrize("data", [b"\x01\x02\x03\x04"])
    async def test_getsize(self, store, key, data):
        await super().test_getsize(store, key, data)

    async def test_get_many(self, store):
        keys = [f"c/{i}" for i in range(10)]
        for key in keys:
            store.fill(key, key.encode())
        prototype = default_buffer_prototype()
        found = await _collect_aiterator(store._get_many((key, prototype, None) for key in keys))
        assert {key: value.to_bytes() for key, value in found} == {
            key: key.encode() for key in keys
        }

    async def test_getsize_prefix(self, store):
        for key in ("c/c/0/0", "c/c/0/1", "c/c/1/0", "cc/c/0"):
            store.fill(key, b"\x01\x02\x03\x04")
        inside = len((await store.get("c/zarr.json", default_buffer_prototype())).to_bytes())
        assert await store.getsize_prefix("c") == 12 + inside

    async def test_exists(self, store):
        assert not await store.exists("foo")
        await super().test_exists(store)

    async def test_is_empty(self, store):
        store.fill("foo/c/1", b"1")
        assert not await store.is_empty("")
        assert await store.is_empty("fo")
        assert not await store.is_empty("foo/")
        assert not await store.is_empty("foo")
        assert await store.is_empty("spam/")

    async def test_list(self, store):
        for index in range(8):
            store.fill(f"foo/c/{index}", b"1")
        found = await _collect_aiterator(store.list())
        expected = ["foo/zarr.json", "zarr.json", *(f"foo/c/{i}" for i in range(8))]
        assert sorted(found) == sorted(expected)

    async def test_list_empty_path(self, store):
        for key in ("foo/bar/c/1", "foo/baz/c/0"):
            store.fill(key, b"1")
        keys = ["zarr.json", "foo/zarr.json", "foo/bar/zarr.json", "foo/bar/c/1"]
        keys += ["foo/baz/zarr.json", "foo/baz/c/0"]
        assert sorted(await _collect_aiterator(store.list())) == sorted(keys)
        assert sorted(await _collect_aiterator(store.list_prefix(""))) == sorted(keys)
        inside = sorted(await _collect_aiterator(store.list_prefix("foo/bar/")))
        assert inside == ["foo/bar/c/1", "foo/bar/zarr.json"]

    async def test_list_dir(self, store):
        store.fill("foo/bar/c/1/2", b"1")
        for prefix, expected in {
            "": ["foo", "zarr.json"],
            "foo": ["bar", "zarr.json"],
            "foo/": ["bar", "zarr.json"],
            "foo/bar": ["c", "zarr.json"],
            "foo/bar/c": ["1"],
            "foo/bar/c/1": ["2"],
            "nothing": [],
        }.items():
            assert sorted(await _collect_aiterator(store.list_dir(prefix))) == expected, prefix

    @pytest.mark.parametrize(
        "key_ranges",
        [
            [],
            [("zarr.json", RangeByteRequest(0, 2))],
            [("foo/c/0", RangeByteRequest(0, 2)), ("zarr.json", None)],
            [
                ("foo/c/0/0", RangeByteRequest(0, 2)),
                ("foo/c/0/1", SuffixByteRequest(2)),
                ("foo/c/0/2", OffsetByteRequest(2)),
            ],
        ],
    )
    async def test_get_partial_values(self, store, key_ranges):
        await super().test_get_partial_values(store, key_ranges)

    def test_get_sync(self, store):
        store.fill("foo/c/0", b"1234")
        assert store.get_sync("foo/c/0").to_bytes() == b"1234"

    @pytest.mark.parametrize(
        "byte_range",
        [
            None,
            RangeByteRequest(1, 4),
            OffsetByteRequest(1),
            SuffixByteRequest(1),
            RangeByteRequest(10, 20),
        ],
    )
    async def test_get_sync_byte_range_parity(self, store, byte_range):
        store.fill("foo/c/0", b"1234")
        direct = store.get_sync("foo/c/0", byte_range=byte_range)
        awaited = await store.get("foo/c/0", default_buffer_prototype(), byte_range)
        assert direct.to_bytes() == awaited.to_bytes()


WRITING = [
    "test_set",
    "test_set_not_open",
    "test_set_many",
    "test_set_if_not_exists",
    "test_set_sync",
    "test_clear",
    "test_delete",
    "test_delete_dir",
    "test_delete_nonexistent_key_does_not_raise",
    "test_delete_sync",
    "test_delete_sync_missing",
    "test_delete_sync_visible_to_async_get",
    "test_sync_async_set_get_parity",
]
for _name in WRITING:
    assert hasattr(StoreTests, _name), _name
    setattr(TestIndexStore, _name, None)


def test_read_only_by_nature():
    with pytest.raises(ValueError, match="read_only"):
        IndexStore(GroupIndex(members={}), read_only=False)
    assert IndexStore(GroupIndex(members={})).read_only


@pytest.mark.parametrize(
    "key",
    [
        "",
        "c",
        "x",
        "a/c",
        "a/c/9",
        "a/c/0/0",
        "a/c/-1",
        "a/c/00",
        "a/c/0x1",
        "a/c/",
        "a/c/\u0661",
        "a/zarr.jso",
        "b/zarr.json",
        "a/b/zarr.json",
        "a/c/" + "9" * 400,
        "../a/zarr.json",
    ],
)
def test_unknown_keys_are_absent(tmp_path, key):
    (tmp_path / "f").write_bytes(b"0123")
    lengths = np.full(4, 1, np.uint64)
    store = IndexStore(GroupIndex(members={"a": array_of((4,), tmp_path / "f", lengths=lengths)}))
    assert store.get_sync("a/c/3").to_bytes() == b"0"
    assert store.get_sync(key) is None


def test_unreadable_is_not_absent(tmp_path):
    (tmp_path / "f").write_bytes(b"0123")
    offsets = np.array([0, 3, 4, 2**63], np.uint64)
    array = array_of((4,), tmp_path / "f", offsets=offsets, lengths=np.full(4, 2, np.uint64))
    store = IndexStore(GroupIndex(members={"a": array}))
    assert store.get_sync("a/c/0").to_bytes() == b"01"
    for number in (1, 2, 3):
        with pytest.raises(TruncatedError, match=rf"index a chunk \({number},\), bytes"):
            store.get_sync(f"a/c/{number}")
    (tmp_path / "f").unlink()
    with pytest.raises(FileNotFoundError):
        store.get_sync("a/c/0")


def test_getsize_reads_nothing(tmp_path):
    array = array_of((4,), tmp_path / "no such file", lengths=np.array([5, 0, 7, 7], np.uint64))
    store = IndexStore(GroupIndex(members={"a": array}))
    assert store._size("a/c/0") == 5
    assert store._size("a/c/1") is None


def test_same_through_any_pipeline(tmp_path):
    values = np.arange(3000, dtype="uint16").reshape(50, 60)
    np.save(tmp_path / "a.npy", values)
    store = anychunk.open(tmp_path / "a.npy").store
    for path in ("BatchedCodecPipeline", "FusedCodecPipeline"):
        with zarr.config.set({"codec_pipeline.path": f"zarr.core.codec_pipeline.{path}"}):
            array = zarr.open_array(store, path="0/0/image", mode="r")
            assert type(array.async_array.codec_pipeline).__name__ == path
            np.testing.assert_array_equal(array[...], values)


def test_chunks_held_by_the_index_itself(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\1\2")
    chunks = ByteRanges(
        offsets=np.array([0, 1, 0], np.uint64),
        lengths=np.array([2, 2, 0], np.uint64),
        urls=(str(tmp_path / "a.bin"), INLINE),
        url_ids=np.array([0, 1, 1], np.uint8),
        inline=b"\0\7\x08",
    )
    array = ArrayIndex(
        shape=(6,),
        chunk_shape=(2,),
        data_type="uint8",
        codecs=({"name": "bytes"},),
        chunks=chunks,
        fill_value=9,
        dimension_names=("x",),
    )
    opened = anychunk.open(GroupIndex(members={"a": array}))
    np.testing.assert_array_equal(opened["a"][...], [1, 2, 7, 8, 9, 9])
