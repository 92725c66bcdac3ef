"""The meaning of several images as one."""

from dataclasses import replace

import pytest

from anychunk.errors import FormatError
from anychunk.metadata.joining import concatenated, stack_axis, stack_position, stacked
from anychunk.metadata.meaning import Axis, Band, Crs, Meaning, Place

PLACE = Place(crs=Crs(code="EPSG:32631"), transform=(10.0, 0.0, 500.0, 0.0, -10.0, 900.0))
PLAIN = Meaning(axes=(Axis(name="y"), Axis(name="x")))


def along(*axes, **fields):
    return Meaning(axes=tuple(axes), **fields)


@pytest.mark.parametrize(
    ("names", "asked", "expected"),
    [
        (("y", "x"), None, "t"),
        (("y", "x"), "time", "t"),
        (("t", "y", "x"), None, "z"),
        (("t", "y", "x"), "z", "z"),
        (("y", "x"), "band", "c"),
        (("dim_0",), None, "t"),
    ],
)
def test_the_axis_of_a_stack(names, asked, expected):
    assert stack_axis(names, asked) == expected


@pytest.mark.parametrize("asked", ["t", "time"])
def test_an_axis_that_is_there_is_refused_by_name(asked):
    with pytest.raises(FormatError, match="'t' among t y x"):
        stack_axis(("t", "y", "x"), asked)
    with pytest.raises(FormatError, match="t z y x"):
        stack_axis(("t", "z", "y", "x"), None)


def test_axes_of_images_only():
    with pytest.raises(ValueError, match=r"'file'.* t z c"):
        stack_axis(("y", "x"), "file")


@pytest.mark.parametrize(
    ("names", "axis", "position"),
    [
        (("y", "x"), "t", 0),
        (("c", "y", "x"), "z", 1),
        (("t", "c", "y", "x"), "z", 2),
        (("t", "y", "x"), "c", 1),
        (("dim_0", "dim_1"), "z", 0),
    ],
)
def test_the_new_axis_is_in_the_order_of_images(names, axis, position):
    assert stack_position(names, axis) == position


def test_dates_of_all_files_or_none():
    days = [replace(PLAIN, time=f"2026-03-0{day}") for day in (1, 2)]
    (axis, *_) = stacked(days, "t", where="").axes
    assert axis.values == (1772323200000000, 1772409600000000)
    assert axis.attributes["units"] == "microseconds since 1970-01-01"
    for other in (PLAIN, replace(PLAIN, time="yesterday")):
        with pytest.warns(UserWarning, match="here: some files have no date"):
            assert stacked([days[0], other], "t", where="here").axes[0] == Axis(name="t")
    given = stacked([PLAIN, PLAIN], "t", where="", dates=(5, 3)).axes[0]
    assert given == replace(axis, values=(5, 3))
    assert stacked(days, "t", where="", dates=(None, None)).axes[0] == Axis(name="t")
    offset = replace(PLAIN, time="2026-03-01T02:00:00+02:00")
    assert stacked([offset], "t", where="").axes[0].values == (1772323200000000,)


def test_bands_from_files():
    files = [replace(PLAIN, bands=(Band(name=name, scale=i + 1),)) for i, name in enumerate("ab")]
    found = stacked(files, "c", where="")
    assert found.names == ("c", "y", "x")
    assert [(band.name, band.scale) for band in found.bands] == [("a", 1), ("b", 2)]


def test_what_differs_is_dropped():
    first = replace(
        PLAIN, place=PLACE, tags={"a": "1", "b": "2"}, name="n", bands=(Band(name="q"),)
    )
    other = replace(first, tags={"a": "1", "b": "3"}, name="m", bands=(Band(name="r"),))
    found = stacked([first, other], "t", where="")
    assert (found.tags, found.name, found.bands) == ({"a": "1"}, "", (Band(),))
    assert found.place == PLACE
    moved = replace(other, place=replace(PLACE, transform=(10.0, 0.0, 0.0, 0.0, -10.0, 900.0)))
    with pytest.warns(UserWarning, match="here: .*georeference"):
        assert stacked([first, moved], "t", where="here").place == Place(crs=PLACE.crs)
    sized = along(Axis(name="y", scale=1.0, unit="micrometer"), Axis(name="x"))
    with pytest.warns(UserWarning, match="here: .*sizes"):
        found = stacked([sized, PLAIN], "t", where="here")
    assert found.axes[1] == Axis(name="y")


@pytest.mark.parametrize(("off", "is_kept"), [(0.0, True), (0.005, True), (0.02, False)])
def test_files_side_by_side_keep_their_place(off, is_kept):
    """A thousandth of a pixel of 10 is 0.01."""
    first = replace(PLAIN, place=PLACE)
    beside = replace(PLACE, transform=(10.0, 0.0, 820.0 + off, 0.0, -10.0, 900.0))
    files, shapes = [first, replace(PLAIN, place=beside)], [(16, 32), (16, 8)]
    if is_kept:
        assert concatenated(files, 1, shapes, where="").place == PLACE
    else:
        with pytest.warns(UserWarning, match="georeference"):
            assert concatenated(files, 1, shapes, where="").place.transform is None
    below = replace(PLACE, transform=(10.0, 0.0, 500.0, 0.0, -10.0, 740.0))
    files = [first, replace(PLAIN, place=below)]
    assert concatenated(files, 0, [(16, 32), (8, 32)], where="").place == PLACE


def of_z(**fields):
    return along(Axis(name="z", unit="micrometer", **fields), Axis(name="y"), Axis(name="x"))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([of_z(scale=2.0), of_z(scale=2.0)], {"scale": 2.0}),
        ([of_z(scale=2.0), of_z(scale=2.0, origin=6.0)], {"scale": 2.0}),
        (
            [of_z(scale=2.0), of_z(scale=2.0, origin=10.0)],
            {"values": (0.0, 2.0, 4.0, 10.0, 12.0)},
        ),
        ([of_z(scale=2.0), of_z(scale=3.0)], {}),
        ([of_z(values=(1.0, 2.0, 5.0)), of_z(values=(7.0, 9.0))], {"values": (1.0, 2.0, 5.0, 7.0, 9.0)}),
    ],
)  # fmt: skip
def test_positions_continue(files, expected):
    found = concatenated(files, 0, [(3, 4, 5), (2, 4, 5)], where="")
    assert found.axes[0] == Axis(name="z", unit="micrometer", **expected)


def test_bands_side_by_side():
    axes = (Axis(name="c"), Axis(name="y"), Axis(name="x"))
    files = [along(*axes, bands=(Band(name="a"), Band(name="b"))), along(*axes)]
    found = concatenated(files, 0, [(2, 4, 5), (1, 4, 5)], where="")
    assert [band.name for band in found.bands] == ["a", "b", None]
