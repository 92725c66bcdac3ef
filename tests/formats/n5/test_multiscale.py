"""Conventions of N5 viewers, as their documentation and real containers have them."""

import json

import numpy as np
import pytest

import anychunk
from anychunk.metadata.reading import meaning_of
from anychunk.model import images as im
from tests.support.corpus import ROOT, needs_corpus
from tests.support.n5_blocks import field, write_dataset


def levels(folder, *, extra=lambda n: {}, count=3, group=None):
    for number in range(count):
        shape = tuple(n >> number for n in (16, 8, 4))
        write_dataset(folder / f"s{number}", field(shape), (8, 8, 8), **extra(number))
    if group is not None:
        (folder / "attributes.json").write_text(json.dumps(group))
    return folder


def image(folder, path="", **options):
    opened = anychunk.open(folder, **options)
    (found,) = (opened[path] if path else opened).attrs["ome"]["multiscales"]
    axes = [(axis["name"], axis.get("unit")) for axis in found["axes"]]
    placed = []
    for dataset in found["datasets"]:
        scale, *rest = dataset["coordinateTransformations"]
        shift = rest[0]["translation"] if rest else [0.0] * len(axes)
        placed.append((dataset["path"], scale["scale"], shift))
    return axes, placed


ZYX = [("z", None), ("y", None), ("x", None)]


def test_n5_viewer(tmp_path):
    def extra(n):
        return {
            "downsamplingFactors": [2**n, 2**n, 2**n],
            "pixelResolution": {"dimensions": [0.5, 0.5, 2.0], "unit": "um"},
        }

    axes, placed = image(levels(tmp_path / "a.n5/v", extra=extra))
    assert axes == [(name, "micrometer") for name in "zyx"]
    assert placed == [
        ("s0/image", [2.0, 0.5, 0.5], [0.0, 0.0, 0.0]),
        ("s1/image", [4.0, 1.0, 1.0], [1.0, 0.25, 0.25]),
        ("s2/image", [8.0, 2.0, 2.0], [3.0, 0.75, 0.75]),
    ]


def test_n5_viewer_of_old(tmp_path):
    group = {"scales": [[1, 1, 1], [2, 2, 1], [4, 4, 2]], "pixelResolution": [4.0, 4.0, 40.0]}
    axes, placed = image(levels(tmp_path / "a.n5", group=group))
    assert axes == ZYX
    assert placed[2] == ("s2/image", [80.0, 16.0, 16.0], [20.0, 6.0, 6.0])


def test_order_of_the_dataset(tmp_path):
    """OME-Zarr has no such order, so there is no `ome`; sizes are said otherwise."""
    group = {"scales": [[1, 1, 1], [2, 2, 1], [4, 4, 2]], "pixelResolution": [1.0, 2.0, 40.0]}
    folder = levels(tmp_path / "a.n5", group=group)
    axes, placed = image(folder)
    assert [name for name, _ in axes] == ["z", "y", "x"]
    assert placed[1] == ("s1/image", [40.0, 4.0, 2.0], [0.0, 1.0, 0.5])
    opened = anychunk.open(folder, axes="xyz")
    assert "ome" not in opened.attrs
    assert opened["s1/image"].metadata.dimension_names == ("x", "y", "z")
    layout = opened.attrs["multiscales"]["layout"]
    assert [entry["asset"] for entry in layout] == ["s0", "s1", "s2"]
    assert layout[1]["transform"]["scale"] == [2.0, 2.0, 1.0]
    np.testing.assert_array_equal(opened["s1/y"][...], 1.0 + 4.0 * np.arange(4))
    index = anychunk.index(folder, axes="xyz")
    (found,) = im.images(index)
    assert found.levels == ("s0/image", "s1/image", "s2/image")
    assert [axis.scale for axis in meaning_of(index, found).axes] == [1.0, 2.0, 40.0]


def test_big_data_viewer(tmp_path):
    root = tmp_path / "a.n5"
    levels(root / "setup0/timepoint0", group={"multiScale": True, "resolution": [2.0, 2.0, 5.0]})
    factors = [[1, 1, 1], [2, 2, 2], [4, 4, 4]]
    (root / "setup0/attributes.json").write_text(
        json.dumps({"downsamplingFactors": factors, "dataType": "uint16"})
    )
    axes, placed = image(root, "setup0/timepoint0")
    assert axes == ZYX
    assert placed[1] == ("s1/image", [10.0, 4.0, 4.0], [2.5, 1.0, 1.0])


@pytest.mark.parametrize("ordering", [None, "C", "F"])
def test_cosem(tmp_path, ordering):
    def extra(n):
        transform = {
            "axes": ["z", "y", "x"],
            "scale": [30.0 * 2**n, 4.0 * 2**n, 8.0 * 2**n],
            "translate": [15.0 * n, 2.0 * n, 4.0 * n],
            "units": ["nm"] * 3,
        }
        if ordering == "F":
            transform = {key: value[::-1] for key, value in transform.items()}
        return {"transform": transform | ({"ordering": ordering} if ordering else {})}

    folder = levels(tmp_path / "a.n5/em", extra=extra)
    axes, placed = image(folder)
    assert axes == [(name, "nanometer") for name in "zyx"]
    assert placed[1] == ("s1/image", [60.0, 8.0, 16.0], [15.0, 2.0, 4.0])
    array = anychunk.open(folder)["s0/image"]
    assert array.metadata.dimension_names == ("z", "y", "x")


def test_cosem_group(tmp_path):
    def dataset(name, n):
        return {
            "path": name,
            "transform": {
                "axes": ["z", "y", "x"],
                "scale": [4.0 * 2**n] * 3,
                "translate": [0.0] * 3,
                "units": ["nm"] * 3,
            },
        }

    group = {"multiscales": [{"name": "em", "datasets": [dataset("s0", 0), dataset("s1", 1)]}]}
    _, placed = image(levels(tmp_path / "a.n5", group=group))
    assert [path for path, *_ in placed] == ["s0/image", "s1/image"]
    assert placed[1][1] == [8.0, 8.0, 8.0]


def test_paintera(tmp_path):
    group = {"multiScale": True, "resolution": [4.0, 4.0, 40.0], "offset": [100.0, 0.0, 0.0]}
    folder = levels(
        tmp_path / "a.n5/labels/data",
        group=group,
        extra=lambda n: {"downsamplingFactors": [2.0**n] * 3} if n else {},
    )
    (tmp_path / "a.n5/labels/attributes.json").write_text('{"painteraData": {"type": "label"}}')
    _, placed = image(folder)
    assert placed[0] == ("s0/image", [40.0, 4.0, 4.0], [0.0, 0.0, 100.0])
    assert placed[1] == ("s1/image", [80.0, 8.0, 8.0], [20.0, 2.0, 102.0])


def test_factors_that_are_not_said_come_from_the_shapes(tmp_path):
    _, placed = image(levels(tmp_path / "a.n5", group={"multiScale": True}))
    assert placed[2] == ("s2/image", [4.0, 4.0, 4.0], [1.5, 1.5, 1.5])


def test_levels_without_any_convention_are_no_image(tmp_path):
    group = anychunk.open(levels(tmp_path / "a.n5"))
    assert "ome" not in group.attrs
    # each of the datasets is one
    assert group["s1"].attrs["ome"]["multiscales"][0]["datasets"][0]["path"] == "0/image"


@pytest.mark.parametrize(
    "nonsense",
    [
        {"downsamplingFactors": "no", "pixelResolution": {"dimensions": "x"}},
        {"transform": {"scale": [0, 0, 0], "axes": 5}},
        {"transform": {"scale": ["a"], "axes": ["x", "x", "x"]}, "downsamplingFactors": [[1]]},
        {"downsamplingFactors": [True, 1, 1], "pixelResolution": [float("nan")] * 3},
    ],
)
def test_nonsense_is_not_taken_over(tmp_path, nonsense):
    _, placed = image(levels(tmp_path / "a.n5", extra=lambda n: nonsense))
    assert placed[1] == ("s1/image", [2.0, 2.0, 2.0], [0.5, 0.5, 0.5])


@needs_corpus
def test_a_real_container():
    folder = ROOT / "n5/mobie+mobie-viewer-fiji/segmentation.n5"
    axes, placed = image(folder, "setup0/timepoint0")
    assert axes == ZYX
    assert placed == [
        ("s0/image", [5.0, 5.0, 5.0], [0.0, 0.0, 0.0]),
        ("s1/image", [10.0, 10.0, 10.0], [2.5, 2.5, 2.5]),
    ]


def test_written_pyramids_are_read_back(tmp_path):
    array = np.arange(9 * 8 * 1, dtype="uint8").reshape(1, 8, 9)
    anychunk.write(
        array, tmp_path / "a.n5/v", levels=3, chunk=(1, 4, 4), resolution=(3, 1, 1), unit="nm"
    )
    axes, placed = image(tmp_path / "a.n5/v")
    assert axes == [(name, "nanometer") for name in "zyx"]
    assert placed[2] == ("s2/image", [3.0, 4.0, 4.0], [0.0, 1.5, 1.5])
