import pytest

from anychunk.metadata.ome import Axis, Level, ome, ome_order, shrunk_levels


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("t", "c", "z", "y", "x"), (0, 1, 2, 3, 4)),
        (("c", "t", "z", "y", "x"), (1, 0, 2, 3, 4)),
        (("x", "y", "z", "c", "t"), (4, 3, 2, 1, 0)),
        (("z", "band", "y", "x"), (1, 0, 2, 3)),
        (("channel", "time", "y", "x"), (1, 0, 2, 3)),
        (("band", "other", "y", "x"), (0, 1, 2, 3)),  # unknown to OME-Zarr
    ],
)
def test_order_of_axes(names, order):
    assert ome_order(names) == order


@pytest.mark.parametrize(
    ("axis", "json"),
    [
        (Axis(name="t", unit="second"), {"name": "t", "type": "time", "unit": "second"}),
        (Axis(name="band"), {"name": "band", "type": "channel"}),
        (Axis(name="x"), {"name": "x", "type": "space"}),
        (Axis(name="other"), {"name": "other"}),
        (Axis(name="q", type="space"), {"name": "q", "type": "space"}),
    ],
)
def test_axis(axis, json):
    assert axis.json() == json


def test_levels_cover_the_same_extent():
    full, half, odd = shrunk_levels(
        ["0", "1", "2"], [(3, 12, 30), (3, 6, 15), (3, 4, 8)], (1, 2, 5)
    )
    assert (full.scale, full.translation) == ((1, 2, 5), (0, 0, 0))
    assert (half.scale, half.translation) == ((1, 4, 10), (0, 1, 2.5))
    # centre of the first element minus half of its size is the common edge
    for level in (full, half, odd):
        edges = [t - s / 2 for s, t in zip(level.scale, level.translation, strict=True)]
        assert edges == pytest.approx([-0.5, -1, -2.5])
    assert odd.scale == pytest.approx((1, 6, 30 / 8 * 5))


def test_attribute():
    levels = [Level(path="0", scale=(1.0,)), Level(path="1", scale=(2.0,), translation=(0.5,))]
    assert ome([Axis(name="x")], levels, name="a") == {
        "version": "0.5",
        "multiscales": [
            {
                "name": "a",
                "axes": [{"name": "x", "type": "space"}],
                "datasets": [
                    {
                        "path": "0",
                        "coordinateTransformations": [{"type": "scale", "scale": [1.0]}],
                    },
                    {
                        "path": "1",
                        "coordinateTransformations": [
                            {"type": "scale", "scale": [2.0]},
                            {"type": "translation", "translation": [0.5]},
                        ],
                    },
                ],
            }
        ],
    }
