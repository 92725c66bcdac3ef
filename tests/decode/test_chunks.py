"""The stored bytes of chunks: where they are, what is absent, and how requests are joined."""

import asyncio
import math
import os

import numpy as np
import pytest

from anychunk import limits
from anychunk.decode.chunks import ChunkReader, Request, _Waiting, coalesce, join, joined
from anychunk.errors import SourceChangedError, TruncatedError, UnsupportedError
from anychunk.io.object_stores import memory_store
from anychunk.io.open_sources import Sources
from anychunk.io.opening import open_source
from anychunk.model.index import INLINE, WHOLE, ArrayIndex, ByteRanges, Computed, Objects, Parts

DATA = bytes(range(200))
GRID = (2, 3)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(DATA)
    return path


def table(*values):
    return np.array(values, np.uint64).reshape(GRID)


def reader(chunks, *, pins=None):
    index = ArrayIndex(
        shape=(4, 6),
        chunk_shape=(2, 2),
        data_type="uint8",
        codecs=({"name": "bytes"},),
        chunks=chunks,
        dimension_names=(None, None),
    )
    return ChunkReader(index, Sources(pins or {}), where="a.dat 0/0")


def ranges(file, **more):
    """Return a reader of six chunks: chunk 0 is absent, chunk n is n * 10 bytes at n * 20."""
    numbers = [0, 1, 2, 3, 4, 5]
    chunks = ByteRanges(
        offsets=table(*[n * 20 for n in numbers]),
        lengths=table(*[n * 10 for n in numbers]),
        urls=(str(file),),
        **more,
    )
    return reader(chunks)


def read(chunks, *numbers):
    found = chunks.begin().read_many(np.array(numbers, np.int64))
    return [None if data is None else data.tobytes() for data in found]


def expected(number):
    return DATA[number * 20 : number * 30]


def fetched(chunks, *numbers):
    """Fetch chunks as remote ones are; return them in order."""
    found = {}

    def deliver(positions, data):
        assert not set(positions) & set(found), "every chunk is delivered once"
        for position, one in zip(positions, data, strict=True):
            found[position] = None if one is None else one.tobytes()

    asyncio.run(chunks.fetch_many(np.array(numbers, np.int64), deliver))
    assert sorted(found) == list(range(len(numbers)))
    return [found[i] for i in range(len(numbers))]


@pytest.mark.parametrize("get", [read, fetched])
def test_ranges_and_absent_chunks(file, get):
    chunks = ranges(file)
    assert get(chunks, 5, 0, 2, 2) == [expected(5), None, expected(2), expected(2)]
    assert get(chunks) == []
    assert [chunks.is_absent(n) for n in (0, 1)] == [True, False]
    assert [chunks.size(n) for n in (0, 1, 5)] == [None, 10, 50]
    assert chunks.read(3).tobytes() == expected(3)
    assert [one.tobytes() for one in chunks.begin().stream(np.array([1, 4]))] == [
        expected(1),
        expected(4),
    ]


def test_numbers_follow_the_grid_in_c_order(file):
    chunks = ranges(file)
    assert [chunks.coords(n) for n in (0, 2, 3, 5)] == [(0, 0), (0, 2), (1, 0), (1, 2)]
    assert [chunks.number(c) for c in ((0, 0), (0, 2), (1, 0), (1, 2))] == [0, 2, 3, 5]
    described = chunks.describe(4)
    assert all(text in described for text in ("a.dat 0/0", "(1, 1)", "80", "120"))


@pytest.mark.parametrize("get", [read, fetched])
def test_fronts_come_first(file, get):
    front_ids = np.array([[0, 1, 0], [1, 0, 1]], np.uint8)
    chunks = ranges(file, fronts=(b"<a>", b"<bb>"), front_ids=front_ids)
    assert get(chunks, 1, 2, 0) == [b"<bb>" + expected(1), b"<a>" + expected(2), None]
    assert [chunks.size(n) for n in (0, 1, 2)] == [None, 14, 23]
    one = ranges(file, fronts=(b"<a>",))
    assert get(one, 1, 3) == [b"<a>" + expected(1), b"<a>" + expected(3)]


@pytest.mark.parametrize("get", [read, fetched])
def test_parts_follow_in_their_order(file, get):
    # chunk 2 goes on with two parts, the second of which lies before the first
    parts = Parts(
        starts=np.array([0, 0, 0, 2, 2, 2, 2], np.uint64),
        offsets=np.array([150, 7], np.uint64),
        lengths=np.array([5, 3], np.uint64),
    )
    chunks = ranges(file, parts=parts, fronts=(b"<>",))
    assert chunks.ranges(2) == [(str(file), 40, 20), (str(file), 150, 5), (str(file), 7, 3)]
    assert get(chunks, 2, 1) == [
        b"<>" + expected(2) + DATA[150:155] + DATA[7:10],
        b"<>" + expected(1),
    ]
    assert chunks.size(2) == 2 + 20 + 5 + 3


@pytest.mark.parametrize("get", [read, fetched])
def test_several_objects(file, tmp_path, get):
    other = tmp_path / "other"
    other.write_bytes(DATA[::-1])
    chunks = reader(
        ByteRanges(
            offsets=table(*[0] * 6),
            lengths=table(*[4] * 6),
            urls=(str(file), str(other)),
            url_ids=np.array([[0, 1, 0], [1, 0, 1]], np.uint8),
        )
    )
    assert get(chunks, 0, 1, 5) == [DATA[:4], DATA[::-1][:4], DATA[::-1][:4]]
    assert chunks.begin().token() is None


@pytest.mark.parametrize("get", [read, fetched])
def test_whole_objects(file, tmp_path, get):
    (tmp_path / "small").write_bytes(b"small")
    chunks = reader(
        ByteRanges(
            offsets=table(*[0] * 6),
            lengths=table(*[WHOLE] * 5, 0),
            urls=(str(file), str(tmp_path / "small"), str(tmp_path / "gone")),
            url_ids=np.array([[0, 1, 2], [1, 1, 1]], np.uint8),
        )
    )
    assert get(chunks, 0, 1, 5) == [DATA, b"small", None]
    assert [chunks.size(n) for n in (0, 1, 5)] == [200, 5, None]
    assert chunks.describe(1).endswith("small")
    assert chunks.ranges(1)[0][2] == -1
    # an index that names an object says that it is there: a missing one is not an absent chunk
    if get is read:
        with pytest.raises(TruncatedError, match=r"a\.dat 0/0 chunk \(0, 2\).*gone"):
            get(chunks, 2)
    else:
        with pytest.raises(ExceptionGroup) as caught:
            get(chunks, 2)
        assert caught.group_contains(FileNotFoundError, match="gone")


@pytest.mark.parametrize("get", [read, fetched])
def test_inline_bytes(get):
    chunks = reader(
        ByteRanges(
            offsets=table(*range(6)), lengths=table(*[3] * 6), urls=(INLINE,), inline=b"abcdefgh"
        )
    )
    assert get(chunks, 0, 5) == [b"abc", b"fgh"]


@pytest.mark.parametrize(
    ("offset", "length"),
    [(190, 11), (200, 1), (201, 1), (2**64 - 10, 20), (10, 2**63), (2**64 - 1, 2**64 - 2)],
)
@pytest.mark.parametrize("parts", [False, True])
def test_ranges_beyond_the_object(file, offset, length, parts):
    more = {}
    if parts:
        more["parts"] = Parts(
            starts=np.zeros(7, np.uint64), offsets=np.zeros(0, np.uint64), lengths=np.zeros(0, "u8")
        )
    chunks = reader(
        ByteRanges(
            offsets=table(0, offset, 0, 0, 0, 0),
            lengths=table(1, length, 1, 1, 1, 1),
            urls=(str(file),),
            **more,
        )
    )
    assert read(chunks, 0) == [DATA[:1]]
    with pytest.raises(TruncatedError, match=rf"a\.dat 0/0 chunk \(0, 1\), bytes {offset}\.\."):
        read(chunks, 0, 1)


def test_a_chunk_that_ends_with_the_object(file):
    chunks = reader(
        ByteRanges(offsets=table(*[190] * 6), lengths=table(*[10] * 6), urls=(str(file),))
    )
    assert read(chunks, 3) == [DATA[190:]]


def objects(base, **more):
    return reader(Objects(base=str(base), pattern="{0}/{1:02}.bin", grid=GRID, **more))


@pytest.mark.parametrize("get", [read, fetched])
@pytest.mark.parametrize("base", ["{tmp}", "memory://decode-chunks/b"])
def test_one_object_per_chunk(tmp_path, get, base):
    if base == "{tmp}":
        (tmp_path / "1").mkdir()
        (tmp_path / "1" / "02.bin").write_bytes(b"stored")
    else:
        memory_store("decode-chunks").put("b/1/02.bin", b"stored")
    base = base.format(tmp=tmp_path)
    sparse = objects(base, fronts=(b"<>",))
    assert get(sparse, 5, 4) == [b"<>stored", None]
    assert [sparse.size(n) for n in (5, 4)] == [8, None]
    assert "1/02.bin" in sparse.describe(5)
    dense = objects(base, is_sparse=False)
    assert get(dense, 5) == [b"stored"]
    if get is read:
        with pytest.raises(TruncatedError, match=r"a\.dat 0/0.*1/01\.bin"):
            get(dense, 4)
    else:
        with pytest.raises(ExceptionGroup) as caught:
            get(dense, 4)
        assert caught.group_contains(TruncatedError, match=r"1/01\.bin")
    with pytest.raises(TruncatedError, match=r"1/01\.bin"):
        dense.size(4)


def test_streamed_objects(tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "00.bin").write_bytes(b"first")
    (tmp_path / "0" / "02.bin").write_bytes(b"third")
    numbers = np.array([0, 1, 2])
    # each is valid until the next: they share memory
    found = [
        None if data is None else data.tobytes()
        for data in objects(tmp_path, fronts=(b"-",)).begin().stream(numbers)
    ]
    assert found == [b"-first", None, b"-third"]
    with pytest.raises(TruncatedError, match=r"0/01\.bin"):
        list(objects(tmp_path, is_sparse=False).begin().stream(numbers))


def test_computed_chunks_are_refused():
    computed = Computed(source="a", method="downsample", configuration={}, grid=GRID)
    with pytest.raises(UnsupportedError, match=r"a\.dat 0/0"):
        reader(computed)


@pytest.mark.parametrize("get", [read, fetched])
def test_a_changed_source_is_an_error(file, get):
    pins = {str(file): open_source(str(file)).pin()}
    chunks = reader(
        ByteRanges(offsets=table(*[0] * 6), lengths=table(*[4] * 6), urls=(str(file),)), pins=pins
    )
    assert get(chunks, 1) == [DATA[:4]]
    token = chunks.begin().token()
    assert token == chunks.begin().token()
    os.utime(file, ns=(1, 1))
    with pytest.raises((SourceChangedError, ExceptionGroup)) as caught:
        get(chunks, 1)
    errors = getattr(caught.value, "exceptions", [caught.value])
    assert all(isinstance(e, SourceChangedError) for e in errors)


def test_a_single_part_is_not_copied():
    data = np.arange(4, dtype=np.uint8)
    assert join(b"", [data]) is data
    assert join(b"", []).tobytes() == b""
    assert join(b"a", [data, data]).tobytes() == b"a\0\1\2\3\0\1\2\3"


def waiting(*chunks):
    return [_Waiting(i, i, list(parts)) for i, parts in enumerate(chunks)]


def spans(requests):
    return [(r.url, r.offset, r.length) for r in requests]


@pytest.mark.parametrize(
    ("gap", "cap", "expected"),
    [
        (0, 1000, [("a", 0, 20), ("a", 25, 10), ("a", 100, 10), ("b", 0, 10)]),
        (4, 1000, [("a", 0, 20), ("a", 25, 10), ("a", 100, 10), ("b", 0, 10)]),
        (5, 1000, [("a", 0, 35), ("a", 100, 10), ("b", 0, 10)]),
        (5, 34, [("a", 0, 20), ("a", 25, 10), ("a", 100, 10), ("b", 0, 10)]),
        (1000, 1000, [("a", 0, 110), ("b", 0, 10)]),
        (1000, 10, [("a", 0, 10), ("a", 10, 10), ("a", 25, 10), ("a", 100, 10), ("b", 0, 10)]),
    ],
)
def test_coalesced_requests(gap, cap, expected):
    chunks = [[("a", n, 10)] for n in (100, 10, 0, 25)] + [[("b", 0, 10)]]
    found = coalesce(waiting(*chunks), gap=gap, cap=cap)
    assert spans(found) == expected
    assert sum(len(request.wanted) for request in found) == 5


def test_overlapping_and_whole_ranges():
    found = coalesce(
        waiting([("a", 0, 50)], [("a", 10, 5)], [("a", 0, 50)], [("b", 0, -1)], [("b", 0, -1)]),
        gap=0,
        cap=1000,
    )
    # an object of unknown length is requested by itself
    assert spans(found) == [("a", 0, 50), ("b", 0, -1), ("b", 0, -1)]
    # a range inside another does not shorten it
    assert spans(coalesce(waiting([("a", 0, 50)], [("a", 10, 5)]), gap=0, cap=50)) == [("a", 0, 50)]


@pytest.mark.parametrize(
    ("lengths", "gap", "most", "expected"),
    [
        ([10, 10, 10], 10, 1000, [50]),
        ([10, 10, 10], 11, 1000, [10, 10, 10]),
        ([10, 4, 10], 4, 1000, [32]),
        ([10, 4, 10], 5, 1000, [10, 4, 10]),
        ([10, 10, 10], 10, 30, [30, 10]),
        ([10, 10, 10], 10, 29, [10, 10, 10]),
    ],
)
def test_requests_longer_than_the_gap_are_joined(lengths, gap, most, expected):
    requests, offset = [], 0
    for length in lengths:
        requests.append(Request("a", offset, length, []))
        offset += length + gap
    assert [request.length for request in joined(requests, most=most)] == expected


def test_requests_of_other_objects_are_not_joined():
    requests = [Request("a", 0, 10, []), Request("b", 10, 10, []), Request("b", 0, -1, [])]
    assert spans(joined(requests, most=1000)) == [("a", 0, 10), ("b", 10, 10), ("b", 0, -1)]


@pytest.mark.parametrize("gap", [0, 3, 1000])
@pytest.mark.parametrize("cap", [1, 17, 10**6])
def test_joined_requests_fill_every_chunk(gap, cap):
    rng = np.random.default_rng(0)
    chunks = [
        [("a", int(rng.integers(0, 180)), int(rng.integers(1, 20))) for _ in range(parts)]
        for parts in rng.integers(1, 4, 30)
    ]
    found = waiting(*chunks)
    data = np.frombuffer(DATA, np.uint8)
    requests = joined(coalesce(found, gap=gap, cap=cap), most=cap)
    for request in requests:
        filled = request.fill(data[request.offset : request.offset + request.length])
        assert len(filled) == len(set(map(id, filled)))
    assert all(chunk.is_complete for chunk in found)
    for chunk, parts in zip(found, chunks, strict=True):
        assert chunk.join(b"<").tobytes() == b"<" + b"".join(DATA[o : o + n] for _, o, n in parts)
    longest = max(length for parts in chunks for _, _, length in parts)
    assert all(request.length <= max(cap, longest) for request in requests)


def test_a_chunk_with_a_missing_part_is_absent():
    (chunk,) = waiting([("a", 0, -1), ("b", 0, -1)])
    assert not chunk.is_complete
    chunk.pieces = {0: np.zeros(1, np.uint8), 1: None}
    assert chunk.is_complete
    assert chunk.join(b"<") is None


def test_requests_in_flight_are_bounded():
    """As many requests as `concurrency` allows, until their chunks are delivered."""
    memory_store("decode-flight").put("data", DATA)
    chunks = reader(
        ByteRanges(
            offsets=table(*[n * 30 for n in range(6)]),
            lengths=table(*[1] * 6),
            urls=("memory://decode-flight/data",),
        )
    )
    active, most = [], 0
    real = ChunkReader._fetch

    async def fetch(self, *arguments):
        nonlocal most
        active.append(1)
        most = max(most, len(active))
        return await real(self, *arguments)

    def deliver(positions, data):
        active.pop()

    with pytest.MonkeyPatch.context() as patch, limits.override(coalesce_gap=0, concurrency=2):
        patch.setattr(ChunkReader, "_fetch", fetch)
        asyncio.run(chunks.fetch_many(np.arange(math.prod(GRID)), deliver))
    assert not active
    assert most <= 2
