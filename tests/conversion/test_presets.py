"""Presets: chunk and shard shapes within their bounds, and compression as codecs."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychunk.conversion import presets
from anychunk.errors import OptionError

NAMES = st.permutations(["t", "c", "z", "y", "x"])


@given(names=NAMES, data=st.data())
@settings(max_examples=200, deadline=None)
def test_chunks_and_shards_stay_within_their_bounds(names, data):
    ndim = data.draw(st.integers(1, 5))
    names = names[:ndim]
    shape = tuple(data.draw(st.integers(0, 3000)) for _ in names)
    stored = tuple(data.draw(st.integers(1, 600)) for _ in names)
    most = data.draw(st.integers(64, 1 << 20))
    chunk = presets.chunk_shape(shape, names, most, stored)
    assert math.prod(chunk) <= most
    shard = presets.shard_shape(chunk, shape, names, 32 * most, stored)
    assert math.prod(shard) <= 32 * most
    assert all(s % c == 0 for s, c in zip(shard, chunk, strict=True))
    growing = presets.growing_axes(names)
    for i, name in enumerate(names):
        if i not in growing:
            few = 0 < shape[i] <= presets.FEW_BANDS and name not in ("t", "time")
            assert shard[i] == (shape[i] if few else 1)
        else:
            # doubled at most once beyond the array
            assert shard[i] < 2 * max(shape[i], 1) or shard[i] == chunk[i]


@pytest.mark.parametrize(
    ("shape", "names", "stored", "expected"),
    [
        ((1000, 1000), "yx", None, (512, 512)),
        ((3, 1000, 1000), "cyx", None, (3, 256, 256)),
        ((5, 1000, 1000), "cyx", None, (1, 512, 512)),
        ((1000, 1000, 1000), "zyx", None, (64, 64, 64)),
        # stored in planes: the chunk is one too
        ((1000, 1000, 1000), "zyx", (1, 1000, 1000), (1, 512, 512)),
        # without axes of space, the last two count
        ((9, 1000, 1000), ("a", "b", "d"), None, (1, 512, 512)),
        ((), "", None, ()),
    ],
)
def test_chunk_shapes(shape, names, stored, expected):
    assert presets.chunk_shape(shape, list(names), 1 << 18, stored) == expected


def test_growing_doubles_the_shortest_axis():
    assert presets.grow([1, 1], (100, 100), [0, 1], 8) == (2, 4)
    assert presets.grow([1, 8], (100, 100), [0, 1], 64) == (8, 8)
    assert presets.grow([1, 1], (1, 5), [0, 1], 1000) == (1, 8)
    assert presets.grow([4, 4], (100, 100), [0, 1], 1) == (4, 4)


def test_sizes_of_the_last_axes():
    assert presets.trailing((8, 9), 4, "chunk") == (1, 1, 8, 9)
    assert presets.trailing((), 2, "chunk") == (1, 1)
    assert presets.clipped((8, 9), (5, 0)) == (5, 1)
    for sizes in ((1, 2, 3), (0, 4), (-1,)):
        with pytest.raises(OptionError) as caught:
            presets.trailing(sizes, 2, "shard")
        assert all(text in str(caught.value) for text in ("shard", str(sizes), "2 axes"))


@pytest.mark.parametrize(
    ("text", "level", "names", "levels"),
    [
        ("zstd", None, ["zstd"], [3]),
        ("zstd", -5, ["zstd"], [-5]),
        ("gzip+crc32c", 9, ["gzip", "crc32c"], [9, None]),
        ("blosc", None, ["blosc"], [5]),
        ("none", None, [], []),
        ("", None, [], []),
        ("none+crc32c", None, ["crc32c"], [None]),
        ('{"name": "gzip", "configuration": {"level": 2}}', None, ["gzip"], [2]),
        ('[{"name": "crc32c"}]', None, ["crc32c"], [None]),
        ([{"name": "own"}], None, ["own"], [None]),
    ],
)
def test_compression(text, level, names, levels):
    found = presets.compressors(text, level, 2)
    assert [codec["name"] for codec in found] == names
    settings = [codec.get("configuration", {}) for codec in found]
    assert [s.get("level", s.get("clevel")) for s in settings] == levels


def test_blosc_shuffles_what_has_several_bytes():
    for itemsize, shuffle in ((1, "noshuffle"), (4, "shuffle")):
        (codec,) = presets.compressors("blosc", 7, itemsize)
        assert codec["configuration"]["shuffle"] == shuffle
        assert codec["configuration"]["typesize"] == itemsize


@pytest.mark.parametrize(
    ("text", "level"),
    [("zip", None), ("zstd:5", None), ("zstd+lzma", None), ("[{", None), ("zstd", "high"),
     ("zstd", 1.5), ("none", 3), ("crc32c", 3), ([{"name": "zstd", "configuration": {"level": 3, "checksum": False}}], 3)],
)  # fmt: skip
def test_unknown_compression(text, level):
    with pytest.raises(OptionError, match="compression"):
        presets.compressors(text, level, 1)


@pytest.mark.parametrize(
    ("data_type", "serializer"),
    [("uint16", "bytes"), ("string", "vlen-utf8"), ("variable_length_bytes", "vlen-bytes")],
)
def test_codec_chain(data_type, serializer):
    compressed = [{"name": "zstd", "configuration": {"level": 3, "checksum": False}}]
    plain = presets.codec_chain(data_type, (4, 4), (4, 4), compressed)
    assert [codec["name"] for codec in plain] == [serializer, "zstd"]
    (shard,) = presets.codec_chain(data_type, (4, 4), (8, 4), compressed)
    assert shard["name"] == "sharding_indexed"
    assert shard["configuration"]["chunk_shape"] == [4, 4]
    assert shard["configuration"]["codecs"] == list(plain)


def test_presets_are_described():
    assert set(presets.PRESETS) == {"ome-zarr", "cloud", "archive", "ome-zarr-0.4"}
    for name, preset in presets.PRESETS.items():
        assert presets.preset(name) is preset
        assert preset.about
        assert preset.shard_bytes % preset.chunk_bytes == 0
        assert presets.compressors(preset.compression, preset.compression_level, 2)
    with pytest.raises(OptionError, match="'fast'.*ome-zarr cloud archive"):
        presets.preset("fast")
