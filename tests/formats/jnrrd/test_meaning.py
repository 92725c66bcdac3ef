"""What a header says about its samples: against pynrrd, and by the rules of the NRRD specification."""

import nrrd
import numpy as np
import pytest

import anychunk
from anychunk.metadata.reading import levels_of, meaning_of, meaning_of_level
from anychunk.model import images as im
from tests.support.naive_jnrrd import core, write

# pynrrd asks for the time in a way that Python 3.12 warns of
pytestmark = pytest.mark.filterwarnings(
    "ignore:datetime.datetime.utcnow:DeprecationWarning",
    "ignore::anychunk.errors.FormatWarning",
)
NAN = [np.nan] * 3
ROTATED = np.array([[0.6, 0.8, 0.0], [-0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])
HEADERS = {
    "diagonal": ("LPS", np.diag([0.5, 0.75, 2.0])),
    "flipped": ("left-posterior-superior", np.diag([-0.5, 0.75, -2.0])),
    "rotated": ("right-anterior-superior", np.diag([0.5, 0.75, 2.0]) @ ROTATED),
    "permuted": ("left-anterior-superior", np.diag([0.5, 0.75, 2.0])[[2, 0, 1]]),
    "sheared": ("scanner-xyz", np.array([[1.0, 0.1, 0], [0.2, 2.0, 0], [0.3, 0.4, 3.0]])),
}
SHORT = {"LPS": "LPS", "left-posterior-superior": "LPS", "right-anterior-superior": "RAS"}
ORIGIN = np.array([-10.5, 20.25, 3.0])


def opened(path):
    index = anychunk.index(path)
    (image,) = im.images(index)
    return index, image


def meaning(path):
    return meaning_of(*opened(path))


def world_by_pynrrd(header, index):
    """World position of a sample, `index` in the order of the header, by pynrrd's header alone."""
    directions, origin = header["space directions"], header["space origin"]
    rows = [i for i, d in enumerate(directions) if d is not None and not np.isnan(d).any()]
    return origin + sum(index[i] * directions[i] for i in rows)


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("bands", ["none", "first", "last"])
def test_world_positions_equal_those_of_pynrrd(tmp_path, name, bands):
    frame, directions = HEADERS[name]
    values = np.arange(4 * 5 * 6, dtype="int16").reshape(4, 5, 6)  # x, y, z
    kinds, listed = ["domain"] * 3, [*directions]
    if bands == "first":
        values = np.stack([values, values + 500])
        kinds, listed = ["vector", *kinds], [NAN, *listed]
    elif bands == "last":
        values = np.stack([values, values + 500], axis=-1)
        kinds, listed = [*kinds, "list"], [*listed, NAN]
    path = tmp_path / "a.nrrd"
    fields = {"space": frame, "space directions": np.array(listed), "space origin": ORIGIN}
    nrrd.write(str(path), values, {**fields, "kinds": kinds, "space units": ["mm"] * 3})
    theirs, header = nrrd.read(str(path))

    index, image = opened(path)
    found, array = meaning_of(index, image), anychunk.open(index)[image.levels[0]][...]
    assert image.names == (("z", "y", "x") if bands == "none" else ("c", "z", "y", "x"))
    affine = np.array(found.space.affine)
    assert (found.space.frame, found.space.unit) == (
        SHORT.get(frame, found.space.frame),
        "millimeter",
    )
    for x, y, z in ((0, 0, 0), (3, 0, 0), (0, 4, 0), (0, 0, 5), (3, 4, 5), (1, 2, 3)):
        place = {"none": (x, y, z), "first": (1, x, y, z), "last": (x, y, z, 1)}[bands]
        ours = (z, y, x) if bands == "none" else (1, z, y, x)
        assert array[ours] == theirs[place]
        expected = world_by_pynrrd(header, place)
        np.testing.assert_allclose((affine @ [x, y, z, 1])[:3], expected, rtol=1e-14)
        if name == "diagonal":  # OME-Zarr and the coordinates of xarray say the same
            level = anychunk.open(index)["0/0"]
            positions = [level[axis][number] for axis, number in zip("xyz", (x, y, z), strict=True)]
            np.testing.assert_allclose(positions, expected, rtol=1e-14)
    norms = np.linalg.norm(directions, axis=1)
    np.testing.assert_allclose([a.scale for a in found.axes[-3:]], norms[::-1])
    if name != "diagonal":
        assert [a.origin for a in found.axes] == [0.0] * len(found.axes)


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("levels", [None, 2])
def test_a_conversion_keeps_the_geometry(tmp_path, name, levels):
    """`anychunk convert scan.nrrd scan.jnrrd`, and to N5, and by `anychunk.write`."""
    frame, directions = HEADERS[name]
    values = np.arange(4 * 5 * 6, dtype="int16").reshape(4, 5, 6)
    scan = tmp_path / "scan.nrrd"
    fields = {
        "space": frame,
        "space directions": directions,
        "space origin": ORIGIN,
        "space units": ["mm"] * 3,
        "measurement frame": np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1.0]]),
        "content": "a head",
        "sample units": "HU",
        "patient": "nobody",
    }
    nrrd.write(str(scan), values, fields)
    source = meaning(scan)
    options = {} if levels is None else {"levels": levels}
    for target in ("scan.jnrrd", "scan.n5"):
        done = anychunk.convert(scan, tmp_path / target, verify=True, **options)
        assert done.losses == ()
        found = meaning(tmp_path / target)
        assert found.space == source.space
        assert found.space.measurement_frame == ((0, -1, 0), (1, 0, 0), (0, 0, 1))
        assert found.axes == source.axes
        assert found.tags == {"patient": "nobody"}
        assert [band.unit for band in found.bands] == ["HU"]
    assert meaning(tmp_path / "scan.jnrrd").name == "a head"
    assert meaning(tmp_path / "scan.jnrrd").native["jnrrd"]["space_directions"] == (
        directions.tolist()
    )
    anychunk.write(anychunk.open_array(scan), tmp_path / "again.jnrrd")
    assert meaning(tmp_path / "again.jnrrd").space == source.space


def test_a_coarser_level_lies_between_the_samples_that_it_covers(tmp_path):
    _, directions = HEADERS["rotated"]
    header = {
        "space": "right_anterior_superior",
        "space_directions": directions.tolist(),
        "space_origin": ORIGIN.tolist(),
    }
    path = tmp_path / "a.jnrrd"
    anychunk.write(
        np.zeros((6, 8, 4), "u1"), path, chunk=(2, 2, 2), level_scales=[1, (3, 2, 4)], header=header
    )
    index, image = opened(path)
    assert [level.factor for level in levels_of(index, image)] == [(1, 1, 1), (3, 2, 4)]
    fine, coarse = (np.array(meaning_of_level(index, image, n).space.affine) for n in (0, 1))
    for place in ((0, 0, 0), (0, 3, 1)):
        middle = np.array(place) * (4, 2, 3) + (np.array((4, 2, 3)) - 1) / 2
        np.testing.assert_allclose(coarse @ [*place, 1], fine @ [*middle, 1])
    assert image.names == ("z", "y", "x")
    (entry,) = anychunk.open(path)["0"].attrs["ome"]["multiscales"]
    scale = entry["datasets"][1]["coordinateTransformations"][0]["scale"]
    norms = np.linalg.norm(directions, axis=1)
    np.testing.assert_allclose(scale, norms[::-1] * (3, 2, 4))
    anychunk.write(anychunk.open_array(path, level=1), tmp_path / "b.jnrrd")
    np.testing.assert_allclose(meaning(tmp_path / "b.jnrrd").space.affine, coarse)


@pytest.mark.parametrize(
    ("fields", "names", "order"),
    [
        ({}, "zyx", (0, 1, 2)),
        ({"kinds": ["RGB-color", "domain", "domain"]}, "cyx", (2, 0, 1)),
        ({"kinds": ["domain", "domain", "time"]}, "tyx", (0, 1, 2)),
        ({"kinds": ["time", "space", "space"]}, "tyx", (2, 0, 1)),
        ({"labels": ["c", "x", "y"]}, "cyx", (2, 0, 1)),
        ({"labels": ["Time", "x", "y"]}, "tyx", (2, 0, 1)),
        ({"labels": ["z", "y", "x"]}, "zyx", (2, 1, 0)),
        ({"labels": ["u", "v", "w"]}, "zyx", (0, 1, 2)),
        ({"kinds": ["vector", "vector", "domain"]}, None, (0, 1, 2)),
    ],
)
def test_axes(tmp_path, fields, names, order):
    stored = np.arange(4 * 3 * 2, dtype="u1").reshape(4, 3, 2)
    path = write(tmp_path / "a.jnrrd", core([2, 3, 4], **fields), stored.tobytes())
    array = anychunk.open_array(path)
    expected = tuple(names) if names else ("dim_0", "dim_1", "dim_2")
    assert array.metadata.dimension_names == expected
    np.testing.assert_array_equal(array[...], stored.transpose(order))
    assert ("ome" in anychunk.open(path)["0"].attrs) == (names is not None)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([7], ("dim_0",)),
        ([4, 3, 2, 2], ("t", "z", "y", "x")),
        ([4, 3, 2, 2, 1], ("dim_0", "dim_1", "dim_2", "dim_3", "dim_4")),
    ],
)
def test_axes_of_unknown_meaning(tmp_path, sizes, expected):
    data = bytes(int(np.prod(sizes)))
    array = anychunk.open_array(write(tmp_path / "a.jnrrd", core(sizes), data))
    assert array.metadata.dimension_names == expected


def test_a_single_channel_is_no_axis(tmp_path):
    values = np.arange(12, dtype="u1").reshape(3, 4)
    fields = {"kinds": ["scalar", "domain", "domain"], "spacings": [None, 2.0, 3.0]}
    array = anychunk.open_array(
        write(tmp_path / "a.jnrrd", core([1, 4, 3], **fields), values.tobytes())
    )
    assert array.metadata.dimension_names == ("y", "x")
    np.testing.assert_array_equal(array[...], values)
    assert [a.scale for a in meaning(tmp_path / "a.jnrrd").axes] == [3.0, 2.0]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"spacings": [0.5, None]}, [(None, 0.0), (0.5, 0.0)]),
        ({"spacings": [0.5, 2], "axis_mins": [10, None]}, [(2.0, 0.0), (0.5, 10.0)]),
        # NRRD specification, "centers": five samples from 0 to 1
        ({"axis_mins": [0, 0], "axis_maxs": [1, 1], "centers": ["node", "cell"]},
         [(0.2, 0.1), (0.25, 0.0)]),
        ({"axis_mins": [0, 0], "axis_maxs": [1, 1]}, [(None, 0.0), (None, 0.0)]),
        ({"spacings": [-1, float("inf")]}, [(None, 0.0), (None, 0.0)]),
    ],
)  # fmt: skip
def test_spacings_and_ranges(tmp_path, fields, expected):
    path = write(tmp_path / "a.jnrrd", core([5, 5], **fields), bytes(25))
    found = [(axis.scale, axis.origin) for axis in meaning(path).axes]
    assert found == [pytest.approx(pair) for pair in expected]


def test_units_of_every_axis(tmp_path):
    fields = {
        "units": ["um", "microns", "", "s"],
        "spacings": [0.1, 0.1, 1, 0.5],
        "labels": ["x", "y", "z", "t"],
    }
    found = meaning(write(tmp_path / "a.jnrrd", core([2, 2, 2, 2], **fields), bytes(16)))
    assert [(axis.name, axis.unit) for axis in found.axes] == [
        ("t", "second"), ("z", None), ("y", "micrometer"), ("x", "micrometer"),
    ]  # fmt: skip


def test_a_space_with_time(tmp_path):
    fields = {
        "space": "left_posterior_superior_time",
        "space_directions": [[2, 0, 0, 0], [0, 3, 0, 0], [0, 0, 4, 0], [0, 0, 0, 0.5]],
        "space_origin": [1, 2, 3, 100],
        "space_units": ["mm", "mm", "mm", "s"],
    }
    found = meaning(write(tmp_path / "a.jnrrd", core([2, 2, 2, 3], **fields), bytes(24)))
    assert [(a.name, a.scale, a.origin, a.unit) for a in found.axes] == [
        ("t", 0.5, 100.0, "second"),
        ("z", 4.0, 3.0, "millimeter"),
        ("y", 3.0, 2.0, "millimeter"),
        ("x", 2.0, 1.0, "millimeter"),
    ]
    assert found.space.frame == "LPS"
    assert found.space.affine == ((2, 0, 0, 1), (0, 3, 0, 2), (0, 0, 4, 3), (0, 0, 0, 1))


@pytest.mark.parametrize(
    ("dtype", "old", "value", "expected"),
    [
        # NRRD specification, "old min": 0 to 1 as 8 bits; 0 is the lowest of the values of 0
        ("u1", (0.0, 1.0), 0, 0.5 / 256),
        ("u1", (0.0, 1.0), 255, 1 - 0.5 / 256),
        ("i1", (0.0, 1.0), -128, 0.5 / 256),
        ("u2", (-5.0, 5.0), 32768, 5.0 / 65536),
    ],
)
def test_quantised_samples(tmp_path, dtype, old, value, expected):
    path = tmp_path / "a.nrrd"
    header = {"old min": old[0], "old max": old[1], "sample units": "T"}
    nrrd.write(str(path), np.full((3, 4), value, dtype), header)
    (band,) = meaning(path).bands
    assert value * band.scale + band.offset == pytest.approx(expected)
    assert band.unit == "T"
    attributes = anychunk.open_array(path).attrs
    assert (attributes["scale_factor"], attributes["add_offset"]) == (band.scale, band.offset)
    nrrd.write(str(path), np.zeros((3, 4), "f4"), {"old min": 0.0, "old max": 1.0})
    assert meaning(path).bands == ()


@pytest.mark.parametrize(("kind", "size", "alpha"), [("RGB-color", 3, None), ("RGBA-color", 4, 3)])
def test_colours(tmp_path, kind, size, alpha):
    values = np.arange(size * 4 * 5, dtype="u1").reshape(size, 4, 5)
    nrrd.write(str(tmp_path / "a.nrrd"), values, {"kinds": [kind, "domain", "domain"]})
    array = anychunk.open_array(tmp_path / "a.nrrd")
    np.testing.assert_array_equal(array[...], values.transpose(0, 2, 1))
    display = meaning(tmp_path / "a.nrrd").display
    assert (display["model"], display["bands"], display["range"]) == ("rgb", [0, 1, 2], [[0, 255]])
    assert display.get("alpha", {}).get("band") == alpha
    anychunk.convert(tmp_path / "a.nrrd", tmp_path / "b.jnrrd")
    assert meaning(tmp_path / "b.jnrrd").display == display
    kinds = meaning(tmp_path / "b.jnrrd").native["jnrrd"]["kinds"]
    assert kinds == [kind.lower().replace("-", "_"), "domain", "domain"]


def test_tiled_volumes_with_channels_first(tmp_path):
    """Stored and virtual levels, internal and external: the axis of channels is moved in all."""
    values = np.random.default_rng(0).integers(0, 9, (6, 8, 3)).astype("u2")  # y, x, c
    for number, options in enumerate(
        (
            {"chunk": (4, 4, 3)},
            {"chunk": (4, 3, 2), "compression": "gzip", "edges": "cropped"},
            {"chunk": (4, 4, 3), "external": True},
            {"chunk": (4, 4, 3), "level_scales": [1, (2, 2, 1)], "levels_virtual": [1]},
            {"chunk": (4, 4, 3), "level_scales": [1, (2, 2, 1)], "halo": (1, 1, 0)},
        )
    ):
        path = tmp_path / f"{number}.jnrrd"
        anychunk.write(values, path, header={"kinds": ["RGB-color", "domain", "domain"]}, **options)
        index, image = opened(path)
        assert image.names == ("c", "y", "x")
        levels = [anychunk.open(index)[p][...] for p in image.levels]
        np.testing.assert_array_equal(levels[0], values.transpose(2, 0, 1))
        if len(levels) > 1:
            half = anychunk.resample.downsample(values, (2, 2, 1))
            np.testing.assert_array_equal(levels[1], half.transpose(2, 0, 1))
            assert [level.factor for level in levels_of(index, image)] == [(1, 1, 1), (1, 2, 2)]


def test_fields_of_extensions_follow(tmp_path):
    header = {
        "extensions": {"meta": "https://jnrrd.org/extensions/metadata/v1.0.0"},
        "meta:name": "a dataset",
        "thicknesses": [1.0, 2.0],
        "labels": ["x", "why"],
    }
    anychunk.write(np.zeros((4, 6), "u1"), tmp_path / "a.jnrrd", chunk=(2, 2), header=header)
    anychunk.convert(tmp_path / "a.jnrrd", tmp_path / "b.jnrrd")
    found = meaning(tmp_path / "b.jnrrd").native["jnrrd"]
    assert found["meta:name"] == "a dataset"
    assert found["extensions"]["meta"] == header["extensions"]["meta"]
    assert (found["thicknesses"], found["labels"]) == ([1.0, 2.0], ["x", "why"])
    assert anychunk.formats.by_name("jnrrd").validate(tmp_path / "b.jnrrd") == []
