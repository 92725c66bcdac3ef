"""Attributes of the target: kept from the source, and true of the levels that are written."""

from dataclasses import replace

import numpy as np
import pytest

import anychunk
from anychunk.conversion.levels import ZarrOptions
from anychunk.conversion.plan import make_plan
from anychunk.metadata.hierarchy import image_group
from anychunk.metadata.meaning import Axis, Level, Meaning
from anychunk.model.index import GroupIndex


@pytest.fixture
def array(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((40, 60), "uint8"))
    return replace(anychunk.index(tmp_path / "a.npy")["0/0/image"], dimension_names=("y", "x"))


def image(array, **more):
    axes = (
        Axis(name="y", unit="micrometer", scale=0.5, origin=10.0),
        Axis(name="x", unit="micrometer", scale=0.25, origin=20.0),
    )
    group = image_group(Meaning(axes=axes, name="cells"), [Level(name="0", image=array)])
    group = replace(group, attributes={**group.attributes, **more})
    return GroupIndex(members={"0": group})


def transformations(plan, path=""):
    datasets = plan.groups[path]["ome"]["multiscales"][0]["datasets"]
    return [
        {t["type"]: t[t["type"]] for t in dataset["coordinateTransformations"]}
        for dataset in datasets
    ]


def test_computed_levels_are_centred_on_their_windows(array):
    plan = make_plan(image(array), ZarrOptions(levels=3), 1)
    assert transformations(plan) == [
        {"scale": [0.5, 0.25], "translation": [10.0, 20.0]},
        {"scale": [1.0, 0.5], "translation": [10.25, 20.125]},
        {"scale": [2.0, 1.0], "translation": [10.75, 20.375]},
    ]
    described = plan.groups[""]["ome"]["multiscales"][0]
    assert (described["name"], described["type"]) == ("cells", "average")
    assert [axis["unit"] for axis in described["axes"]] == ["micrometer"] * 2


def test_copied_levels_keep_what_the_source_says(array):
    meaning = Meaning(axes=(Axis(name="y"), Axis(name="x")))
    levels = [
        Level(name="0", image=array),
        Level(name="small", image=array, factor=(3.0, 5.0)),
    ]
    group = image_group(meaning, levels)
    plan = make_plan(GroupIndex(members={"0": group}), ZarrOptions(), 1)
    assert [t["scale"] for t in transformations(plan)] == [[1.0, 1.0], [3.0, 5.0]]
    datasets = plan.groups[""]["ome"]["multiscales"][0]["datasets"]
    assert [dataset["path"] for dataset in datasets] == ["0/image", "1/image"]


def test_attributes_of_the_source_are_kept(array):
    source = image(array, tiff={"make": "A"}, anychunk={"internal": 1})
    source = replace(source, attributes={"title": "T", "anychunk": {"format": "tiff"}})
    attributes = make_plan(source, ZarrOptions(), 1).groups[""]
    assert (attributes["title"], attributes["tiff"]) == ("T", {"make": "A"})
    assert attributes["anychunk"] == {"converted_from": {"format": "tiff"}}


def test_named_axes_have_no_unit(array):
    plan = make_plan(image(array), ZarrOptions(axes="yx"), 1)
    assert all("unit" not in axis for axis in plan.groups[""]["ome"]["multiscales"][0]["axes"])


def test_axes_that_ome_cannot_describe(array):
    plan = make_plan(image(array), ZarrOptions(axes="qx"), 1)
    assert "ome" not in plan.groups[""]
    (loss,) = plan.losses
    assert "q x" in loss
