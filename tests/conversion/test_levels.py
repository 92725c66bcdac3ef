"""Levels: axes, ratios, shapes and georeference, planned without reading a sample."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anychunk.conversion import levels as lv
from anychunk.conversion import presets
from anychunk.conversion.levels import Recipe, ZarrOptions
from anychunk.errors import FormatError, OptionError
from anychunk.metadata.hierarchy import image_group
from anychunk.metadata.meaning import Axis, Band, Crs, Level, Meaning, Place
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


def image_of(first, names, *others, mask=None, **fields):
    """Return (source, image) of an image with the given levels."""
    levels = [
        Level(name=str(i), image=level, mask=None if i else mask)
        for i, level in enumerate((first, *others))
    ]
    meaning = Meaning(axes=tuple(Axis(name=n) for n in names), **fields)
    source = GroupIndex(members={"0": image_group(meaning, levels)})
    return source, next(im.images(source))


def named_axes(names):
    return Meaning(axes=tuple(Axis(name=n) for n in names))


@pytest.mark.parametrize(
    ("names", "shape", "options", "expected"),
    [
        ("zyx", (3, 4, 5), {}, ("zyx", (0, 1, 2))),
        ("xyz", (3, 4, 5), {}, ("zyx", (2, 1, 0))),
        ("xyzct", (1, 2, 3, 4, 5), {}, ("tczyx", (4, 3, 2, 1, 0))),
        ("xyz", (3, 4, 5), {"axes": "tyx"}, ("tyx", (0, 1, 2))),
        ("xyz", (3, 4, 5), {"axes": ("time", "y", "band")}, ("tcy", (0, 2, 1))),
        # an unknown axis leaves the order alone
        ("qyx", (3, 4, 5), {}, ("qyx", (0, 1, 2))),
    ],
)
def test_axes_of_the_target(names, shape, options, expected):
    found, order = lv.target_meaning(named_axes(names), shape, ZarrOptions(**options))
    assert ("".join(found.names), order) == expected


def test_a_band_axis_of_length_one_is_dropped():
    bands = (Band(name="a"), Band(name="b"))
    for count, expected in ((1, (0, 2, 3)), (2, (0, 1, 2, 3))):
        meaning = replace(named_axes("tcyx"), bands=bands[:count])
        found, order = lv.target_meaning(meaning, (2, count, 8, 8), ZarrOptions())
        assert order == expected
        assert found.bands == bands[:count]
        assert found.names == tuple("tcyx"[i] for i in expected)


@pytest.mark.parametrize("axes", ["yx", "zyxt", "yyx"])
def test_axes_must_name_each_axis_once(axes):
    with pytest.raises(OptionError, match=rf"{' '.join(axes)}\b.*\b3\b"):
        lv.target_meaning(named_axes("zyx"), (3, 4, 5), ZarrOptions(axes=axes))


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
    copied = lv.image_levels(source, image, "", ZarrOptions()).levels
    assert [(a.path, a.source, a.shape) for a in copied] == [
        ("0/image", "0/0/image", (1000, 1000)),
        ("1/image", "0/1/image", (500, 500)),
    ]
    made = lv.image_levels(source, image, "p", ZarrOptions(levels=3)).levels
    assert [(a.path, a.source, a.shape, a.ratio) for a in made] == [
        ("p/0/image", "0/0/image", (1000, 1000), (1, 1)),
        ("p/1/image", None, (500, 500), (2, 2)),
        ("p/2/image", None, (250, 250), (2, 2)),
    ]
    assert all(a.metadata["dimension_names"] == ["y", "x"] for a in made)


def test_masks_go_along_with_copied_and_with_computed_levels():
    first, half = array((9, 12), "yx"), array((4, 6), "yx")
    source, image = image_of(first, "yx", half, mask=array((9, 12), "yx", dtype="uint8"))
    copied = lv.image_levels(source, image, "", ZarrOptions())
    assert [(a.path, a.source, a.shape) for a in copied.masks] == [("0/mask", "0/0/mask", (9, 12))]
    made = lv.image_levels(source, image, "", ZarrOptions(levels=2))
    assert [(a.path, a.source, a.shape, a.ratio, a.method) for a in made.masks] == [
        ("0/mask", "0/0/mask", (9, 12), (1, 1), "max"),
        ("1/mask", None, (4, 6), (2, 2), "max"),
    ]
    assert [level.mask is not None for level in made.described] == [True, True]


def test_what_cannot_be_averaged_gets_no_levels():
    options = ZarrOptions(levels=3)
    source, image = image_of(array((1000, 1000), "yx", dtype="string"), "yx")
    assert len(lv.image_levels(source, image, "", options).levels) == 1
    assert "string" in options.notes[0]


def test_arrays_beside_levels_keep_their_names():
    mask = array((8, 8), "yx", dtype="bool")
    source, _ = image_of(array((8, 8), "yx"), "yx")
    group = source.members["0"]
    group = replace(group, members={**group.members, "mask": mask, "1": mask})
    source = GroupIndex(members={"0": group})
    for name, expected in (("0/mask", "mask"), ("0/1", "1_")):
        beside = lv.beside_level(source, name, "", ZarrOptions(levels=2), ["0", "1"])
        assert (beside.path, beside.source) == (expected, name)
    with pytest.raises(FormatError, match="0/none"):
        lv.beside_level(source, "0/none", "", ZarrOptions(), ["0", "1"])


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
        with pytest.raises(OptionError, match=r"\(1, 16, 32\).*\(2, 8, 8\)"):
            recipe.chunk_and_shard((10, 100, 100), 2, (1, 100, 100))
        return
    found = recipe.chunk_and_shard((10, 100, 100), 2, (1, 100, 100))
    assert found[0] == chunk
    assert shard is None or found[1] == shard


PALETTE = {"display": {"model": "palette", "palette": {"first": 0, "colors": [[0, 0, 0, 255]]}}}


@pytest.mark.parametrize(
    ("dtype", "fields", "given", "expected"),
    [
        ("uint8", {}, None, "average"),
        ("bool", {}, None, "mode"),
        ("uint8", PALETTE, None, "mode"),
        ("uint8", {"bands": (Band(interpretation="Palette"),)}, None, "mode"),
        ("uint8", PALETTE, "max", "max"),
        ("uint8", {}, "lanczos", OptionError),
    ],
)
def test_method(dtype, fields, given, expected):
    recipe = Recipe(
        order=(0, 1),
        names="yx",
        path="",
        options=ZarrOptions(method=given),
        is_counted=lv.is_palette(replace(named_axes("yx"), **fields)),
    )
    if expected is OptionError:
        with pytest.raises(OptionError, match="'lanczos'.*average max min mode"):
            recipe.method(array((4, 4), "yx", dtype=dtype))
    else:
        assert recipe.method(array((4, 4), "yx", dtype=dtype)) == expected


@pytest.mark.parametrize(
    ("full", "levels", "ratio", "here"),
    [(101, 3, 4, 25), (100, 2, 2, 50), (7, 1, 1, 7), (5, 3, 4, 1)],
)
def test_a_coarser_georeference_covers_whole_pixels(full, levels, ratio, here):
    """The ratio of the sizes would be too large wherever an odd last element was dropped."""
    transform = (10.0, 0.0, 440720.0, 0.0, -10.0, 3751320.0)
    place = Place(crs=Crs(code="EPSG:32611"), transform=transform)
    source, image = image_of(array((full, full), "yx"), "yx", place=place)
    chain = lv.image_levels(source, image, "", ZarrOptions(levels=levels))
    group = image_group(chain.meaning, chain.described)
    found = group[str(levels - 1)].attributes
    assert found["spatial:transform"] == [
        10.0 * ratio, 0.0, 440720.0, 0.0, -10.0 * ratio, 3751320.0,
    ]  # fmt: skip
    assert tuple(found["spatial:shape"]) == (here, here)
    assert found["proj:code"] == "EPSG:32611"


@pytest.mark.parametrize(
    ("attributes", "names"),
    [({}, "yx"), ({"spatial:transform": [1, 2]}, "yx"), ({"spatial:transform": [1] * 6}, "zt")],
)
def test_without_a_georeference_there_is_none(attributes, names):
    group = GroupIndex(members={"0": array((8, 8), names)}, attributes=attributes)
    source = GroupIndex(members={"0": group})
    (image,) = im.images(source)
    chain = lv.image_levels(source, image, "", ZarrOptions(levels=2))
    made = image_group(chain.meaning, chain.described)
    assert not any(key == "spatial:transform" for key in made["1"].attributes)


@pytest.mark.parametrize(
    ("data_type", "nodata", "fill", "expected"),
    [
        ("uint8", 255, 0, 255),
        ("uint8", -9999, 0, 0),  # no sample can have it
        ("uint8", math.nan, 7, 7),
        ("int16", -9999, 0, -9999),
        ("float32", -9999.0, 0, -9999.0),
        ("float32", math.nan, 0, "NaN"),
        ("float64", -math.inf, 0, "-Infinity"),
        ("complex64", 0, [0.0, 0.0], [0.0, 0.0]),
        # absent chunks stay absent
        ("float32", None, 3.0, 3.0),
    ],
)
def test_fill_value(data_type, nodata, fill, expected):
    one = array((8, 8), "yx", dtype=data_type, fill_value=fill)
    usable = lv.usable_nodata(nodata, data_type)
    assert lv.target_fill(one, usable) == expected


def test_attributes_of_an_array_are_kept_but_for_those_written_anew():
    given = {"n5": {"a": 1}, "units": "m", "spatial:shape": [1, 2], "coordinates": "lat lon"}
    assert lv.kept_attributes(given) == {"n5": {"a": 1}}
