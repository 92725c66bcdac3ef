"""Levels: axes, ratios, shapes and georeference, planned without reading a sample."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychunk.conversion import levels as lv
from anychunk.conversion import presets
from anychunk.conversion.levels import Recipe, ZarrOptions
from anychunk.errors import FormatError, UnsupportedError
from anychunk.metadata import geo
from anychunk.metadata.ome import Axis, Level, ome
from anychunk.model import images as im
from anychunk.model.index import ArrayIndex, GroupIndex, Objects
from anychunk.resample import output_shape


def array(shape, names, *, dtype="uint16", chunk=None, **more):
    chunk = chunk or shape
    grid = tuple(-(-n // c) for n, c in zip(shape, chunk, strict=True))
    return ArrayIndex(
        shape=shape,
        chunk_shape=tuple(max(c, 1) for c in chunk),
        data_type=dtype,
        codecs=({"name": "bytes"},),
        chunks=Objects(base="a", pattern="chunk", grid=grid),
        dimension_names=tuple(names),
        **more,
    )


def image_of(first, names, *others, scale=None, attributes=None):
    """Return (source, image) of an image with the given levels."""
    named = [Axis(name=n) for n in names]
    size = tuple(scale or (1.0,) * len(names))
    described = [
        Level(path=str(i), scale=tuple(s * 2**i for s in size)) for i in range(1 + len(others))
    ]
    members = {str(i): level for i, level in enumerate((first, *others))}
    group = GroupIndex(
        members=members, attributes={"ome": ome(named, described), **(attributes or {})}
    )
    source = GroupIndex(members={"0": group})
    return source, next(im.images(source))


@pytest.mark.parametrize(
    ("names", "shape", "options", "expected"),
    [
        ("zyx", (3, 4, 5), {}, ("zyx", (0, 1, 2))),
        ("xyz", (3, 4, 5), {}, ("zyx", (2, 1, 0))),
        ("xyzct", (1, 2, 3, 4, 5), {}, ("tczyx", (4, 3, 2, 1, 0))),
        ("xyz", (3, 4, 5), {"axes": "tyx"}, ("tyx", (0, 1, 2))),
        # an unknown axis leaves the order alone
        ("qyx", (3, 4, 5), {}, ("qyx", (0, 1, 2))),
    ],
)
def test_axes_of_the_target(names, shape, options, expected):
    _, image = image_of(array(shape, names), names)
    found, order = lv.target_axes(image, shape, ZarrOptions(**options))
    assert ("".join(found), order) == expected


def test_a_band_axis_of_length_one_is_dropped_beside_channels():
    names = ("c", "band", "y", "x")
    for bands, expected in ((1, (0, 2, 3)), (3, (0, 1, 2, 3))):
        shape = (2, bands, 8, 8)
        _, image = image_of(array(shape, names), names)
        assert lv.target_axes(image, shape, ZarrOptions())[1] == expected


@pytest.mark.parametrize("axes", ["yx", "zyxt", "yyx"])
def test_axes_must_name_each_axis_once(axes):
    _, image = image_of(array((3, 4, 5), "zyx"), "zyx")
    with pytest.raises(UnsupportedError, match=rf"{' '.join(axes)}\b.*\b3\b"):
        lv.target_axes(image, (3, 4, 5), ZarrOptions(axes=axes))


@pytest.mark.parametrize(
    ("shape", "names", "scale", "count", "expected"),
    [
        ((512, 512), "yx", (1, 1), 0, []),
        ((513, 100), "yx", (1, 1), 0, [(2, 2)]),
        ((2049, 9000), "yx", (1, 1), 0, [(2, 2)] * 5),
        ((100, 100), "yx", (1, 1), 3, [(2, 2)] * 2),
        # bands and time are never reduced
        ((9, 9, 2000, 2000), "tcyx", (1, 1, 1, 1), 2, [(1, 1, 2, 2)]),
        # z waits until pixels are as long as slices are apart
        ((50, 64, 64), "zyx", (4, 1, 1), 4, [(1, 2, 2), (1, 2, 2), (2, 2, 2)]),
        # sqrt(2) is still near enough
        ((50, 64, 64), "zyx", (math.sqrt(2), 1, 1), 2, [(2, 2, 2)]),
        ((50, 64, 64), "zyx", (1.5, 1, 1), 2, [(1, 2, 2)]),
        # an axis of one element is left alone, and nothing is left to halve in the end
        ((1, 4, 2), "zyx", (1, 1, 1), 9, [(1, 2, 2), (1, 2, 1)]),
        ((0, 5), "yx", (1, 1), 3, [(1, 2), (1, 2)]),
        # a scale may be negative
        ((64, 64, 64), "zyx", (-1, -1, 1), 2, [(2, 2, 2)]),
    ],
)
def test_level_ratios(shape, names, scale, count, expected):
    assert lv.level_ratios(shape, names, scale, count) == expected


@given(
    shape=st.tuples(*[st.integers(1, 100_000)] * 3),
    scale=st.tuples(*[st.floats(0.01, 100)] * 3),
)
@settings(max_examples=100, deadline=None)
def test_levels_end_when_the_coarsest_is_small(shape, scale):
    for ratio in lv.level_ratios(shape, "zyx", scale, 0):
        assert max(shape) > presets.SMALL
        shape = output_shape(shape, ratio)
    assert max(shape) <= presets.SMALL


@pytest.mark.parametrize(
    ("data_type", "kind"),
    [
        ("uint8", "number"),
        ("float16", "number"),
        ("complex64", "number"),
        ("bool", "bool"),
        ("string", "other"),
        ({"name": "numpy.datetime64"}, "other"),
        ("r24", "other"),
    ],
)
def test_data_kind(data_type, kind):
    assert lv.data_kind(array((2, 2), "yx", dtype=data_type)) == kind


def test_itemsize():
    assert lv.itemsize_of(array((2, 2), "yx", dtype="float64")) == 8
    assert lv.itemsize_of(array((2, 2), "yx", dtype="string")) > 0


def test_levels_of_the_source_are_copied_unless_others_are_asked_for():
    first, half = array((1000, 1000), "yx"), array((500, 500), "yx")
    source, image = image_of(first, "yx", half)
    copied = lv.image_levels(source, image, "", ZarrOptions())
    assert [(a.path, a.source, a.shape) for a in copied] == [
        ("0", "0/0", (1000, 1000)),
        ("1", "0/1", (500, 500)),
    ]
    made = lv.image_levels(source, image, "p", ZarrOptions(levels=3))
    assert [(a.path, a.source, a.shape, a.ratio) for a in made] == [
        ("p/0", "0/0", (1000, 1000), (1, 1)),
        ("p/1", None, (500, 500), (2, 2)),
        ("p/2", None, (250, 250), (2, 2)),
    ]
    assert all(a.metadata["dimension_names"] == ["y", "x"] for a in made)


def test_what_cannot_be_averaged_gets_no_levels():
    options = ZarrOptions(levels=3)
    source, image = image_of(array((1000, 1000), "yx", dtype="string"), "yx")
    assert len(lv.image_levels(source, image, "", options)) == 1
    assert "string" in options.notes[0]


def test_arrays_beside_levels_keep_their_names():
    mask = array((8, 8), "yx", dtype="bool")
    source, image = image_of(array((8, 8), "yx"), "yx")
    group = source.members["0"]
    group = replace(group, members={**group.members, "mask": mask, "1": mask})
    source = GroupIndex(members={"0": group})
    levels = lv.image_levels(source, image, "", ZarrOptions(levels=2))
    for name, expected in (("0/mask", "mask"), ("0/1", "1_")):
        beside = lv.beside_level(source, name, "", ZarrOptions(levels=2), levels)
        assert (beside.path, beside.source) == (expected, name)
    with pytest.raises(FormatError, match="0/none"):
        lv.beside_level(source, "0/none", "", ZarrOptions(), levels)


@given(
    shape=st.tuples(*[st.integers(1, 5000)] * 3),
    # as many chunks as an index may have, at the most
    stored=st.tuples(st.integers(1, 600), st.integers(32, 600), st.integers(32, 600)),
    shard=st.sampled_from([None, False]),
    like=st.sampled_from(sorted(presets.PRESETS)),
)
@settings(max_examples=100, deadline=None)
def test_regions_are_whole_objects_and_objects_whole_chunks(shape, stored, shard, like):
    first = array(shape, "zyx", chunk=stored)
    recipe = Recipe(
        order=(0, 1, 2), names="zyx", path="", options=ZarrOptions(like=like, shard=shard)
    )
    full = recipe.level(first, "0", source="a")
    half = recipe.level(first, "1", ratio=(2, 2, 2), shape=output_shape(shape, (2, 2, 2)))
    for level in (full, half):
        assert level.metadata["chunk_grid"]["configuration"]["chunk_shape"] == list(level.outer)
        (codec, *_) = level.metadata["codecs"]
        inner = codec.get("configuration", {}).get("chunk_shape", level.outer)
        for r, o, c, n in zip(level.region, level.outer, inner, level.shape, strict=True):
            assert o % c == 0
            # an object that is shortened to the array is the only one along its axis
            assert r % o == 0 or (r >= n and o >= n)
            assert r % 2 == 0
    # both levels are split alike, so that a region is computed from whole finer ones
    assert full.region == half.region


@pytest.mark.parametrize(
    ("options", "chunk", "shard"),
    [
        ({"chunk": (8, 8)}, (1, 8, 8), None),
        ({"chunk": (8, 8), "shard": False}, (1, 8, 8), (1, 8, 8)),
        ({"chunk": (2, 8, 8), "shard": (16, 32)}, None, None),
        ({"chunk": (1, 8, 8), "shard": (16, 32)}, (1, 8, 8), (1, 16, 32)),
    ],
)
def test_given_chunks_and_shards(options, chunk, shard):
    recipe = Recipe(order=(0, 1, 2), names="zyx", path="", options=ZarrOptions(**options))
    if chunk is None:
        with pytest.raises(UnsupportedError, match=r"\(1, 16, 32\).*\(2, 8, 8\)"):
            recipe.chunk_and_shard((10, 100, 100), 2, (1, 100, 100))
        return
    found = recipe.chunk_and_shard((10, 100, 100), 2, (1, 100, 100))
    assert found[0] == chunk
    assert shard is None or found[1] == shard


@pytest.mark.parametrize(
    ("dtype", "attributes", "given", "expected"),
    [
        ("uint8", {}, None, "average"),
        ("bool", {}, None, "mode"),
        ("uint8", {"tiff": {"color_map": [[0], [0], [0]]}}, None, "mode"),
        ("uint8", {"tiff": {"color_map": [[0], [0], [0]]}}, "max", "max"),
        ("uint8", {}, "lanczos", UnsupportedError),
    ],
)
def test_method(dtype, attributes, given, expected):
    recipe = Recipe(
        order=(0, 1),
        names="yx",
        path="",
        options=ZarrOptions(method=given),
        attributes=attributes,
    )
    if expected is UnsupportedError:
        with pytest.raises(UnsupportedError, match="'lanczos'.*average max min mode"):
            recipe.method(array((4, 4), "yx", dtype=dtype))
    else:
        assert recipe.method(array((4, 4), "yx", dtype=dtype)) == expected


@pytest.mark.parametrize(
    ("full", "here", "ratio"), [(101, 25, 4), (100, 50, 2), (7, 7, 1), (5, 1, 4)]
)
def test_a_coarser_georeference_covers_whole_pixels(full, here, ratio):
    transform = [10.0, 0.0, 440720.0, 0.0, -10.0, 3751320.0]
    attributes = {"spatial:transform": transform, "proj:code": "EPSG:32611"}
    found = lv.coarser_georeference(attributes, "yx", (full, full), (here, here))
    assert found["spatial:transform"] == [
        10.0 * ratio, 0.0, 440720.0, 0.0, -10.0 * ratio, 3751320.0,
    ]  # fmt: skip
    assert tuple(found["spatial:shape"]) == (here, here)
    assert found["proj:code"] == "EPSG:32611"
    assert found == geo.attributes(
        shape=(here, here),
        transform=tuple(found["spatial:transform"]),
        code="EPSG:32611",
        projjson=None,
    )


@pytest.mark.parametrize(
    ("attributes", "names"),
    [({}, "yx"), ({"spatial:transform": [1, 2]}, "yx"), ({"spatial:transform": [1] * 6}, "zt")],
)
def test_without_a_georeference_there_is_none(attributes, names):
    assert lv.coarser_georeference(attributes, names, (8, 8), (4, 4)) == {}
