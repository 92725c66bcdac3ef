from dataclasses import replace

import pytest

from anychunk.errors import NoSuchImageError
from anychunk.model.images import chosen, images, level_paths, transformation
from anychunk.model.index import GroupIndex
from tests.support.indexes import plain


@pytest.fixture
def array(tmp_path):
    return plain(tmp_path)[0]["0/0"]


def multiscale(*paths, **more):
    datasets = [{"path": path} for path in paths]
    return {"ome": {"multiscales": [{"datasets": datasets, **more}]}}


def test_levels_are_those_of_ome(array):
    group = GroupIndex(
        members={"b": array, "a": array, "0": array}, attributes=multiscale("b", "a")
    )
    assert level_paths(group) == ["b", "a"]
    (image,) = images(group)
    assert (image.levels, image.beside) == (("b", "a"), ("0",))


def test_levels_are_numbers_in_numeric_order(array):
    members = {"10": array, "9": array, "mask": array, "²": array}
    (image,) = images(GroupIndex(members={"img": GroupIndex(members=members)}))
    assert image.path == "img"
    assert image.levels == ("img/9", "img/10")
    assert image.beside == ("img/mask", "img/²")


def test_arrays_outside_of_multiscales_are_images(array):
    found = list(images(GroupIndex(members={"a": array, "g": GroupIndex(members={"b": array})})))
    assert [image.levels for image in found] == [("a",), ("g/b",)]
    assert found[0].scale == (1.0,) * len(array.shape)


def test_axes_of_another_number_are_ignored(array):
    one = replace(array, dimension_names=(None,) * len(array.shape))
    attributes = multiscale("0", axes=[{"name": "x"}] * (len(array.shape) + 1))
    (image,) = images(GroupIndex(members={"0": one}, attributes=attributes))
    assert image.names == tuple(f"dim_{i}" for i in range(len(array.shape)))


def test_transformations_of_dataset_and_multiscale_are_composed():
    described = {
        "datasets": [
            {
                "path": "1",
                "coordinateTransformations": [
                    {"type": "scale", "scale": [2, 3]},
                    {"type": "translation", "translation": [1, 1]},
                ],
            }
        ],
        "coordinateTransformations": [{"type": "scale", "scale": [10, 100]}],
    }
    # x = 10 * (2 * i + 1), y = 100 * (3 * j + 1)
    assert transformation(described, "1", 2) == ((20, 300), (10, 100))
    assert transformation(described, "0", 2) == ((10, 100), (0, 0))
    assert transformation(described, "1", 3) == ((1, 1, 1), (0, 0, 0))


def test_chosen(array):
    found = list(images(GroupIndex(members={"a": array, "c": array, "b": array})))
    paths = [image.path for image in found]
    assert chosen(found, None).path == paths[0]
    assert chosen(found, 1).path == paths[1]
    assert chosen(found, "b").path == "b"
    with pytest.raises(NoSuchImageError, match=r"\b9\b.*\ba\b"):
        chosen(found, 9)


def test_levels_below_subgroups(array):
    group = GroupIndex(
        members={"0": GroupIndex(members={"image": array})}, attributes=multiscale("0/image", "1")
    )
    assert level_paths(group) == ["0/image"]
    assert next(image.levels for image in images(group)) == ("0/image",)
