"""The hierarchy that a file is served as."""

import numpy as np
import pytest

from anychunk.model.grid import grid_shape
from anychunk.model.images import images
from anychunk.model.index import ArrayIndex, ByteRanges, GroupIndex, Objects, find, walk
from anychunk_serve.hierarchy import Plane, chunk_shape, halved, next_name, served_tree, side

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
ODD = {"name": "anychunk.stream", "configuration": {"compression": "lz4"}}


def array(shape, chunk, *, dtype="uint16", codecs=(BYTES,), names=None, **options):
    grid = grid_shape(shape, chunk)
    zeros = np.zeros(grid, np.uint64)
    names = names or ("c", "y", "x")[-len(shape) :] if len(shape) <= 3 else names
    return ArrayIndex(
        shape=shape,
        chunk_shape=chunk,
        data_type=dtype,
        codecs=codecs,
        chunks=ByteRanges(offsets=zeros, lengths=zeros + np.uint64(5), urls=("a",)),
        dimension_names=names,
        **options,
    )


def group(*levels, **attributes):
    return GroupIndex(members={str(i): a for i, a in enumerate(levels)}, attributes=attributes)


PLANE = Plane(1, 2, 0)


@pytest.mark.parametrize(
    ("shape", "chunk", "expected"),
    [
        ((1, 9000, 9000), (1, 512, 512), (1, 512, 512)),
        ((3, 9000, 9000), (3, 256, 256), (3, 256, 256)),
        ((1, 9000, 9000), (1, 1, 9000), (1, 512, 512)),
        ((1, 9000, 9000), (1, 9000, 9000), (1, 512, 512)),
        ((1, 9000, 9000), (1, 64, 64), (1, 512, 512)),
        ((1, 9000, 9000), (1, 100, 100), (1, 500, 500)),
        ((1, 9000, 9000), (1, 700, 900), (1, 700, 900)),
        ((12, 9000, 9000), (12, 256, 256), (1, 256, 256)),
        ((1, 300, 90), (1, 1, 90), (1, 300, 90)),
        ((3, 2000, 2000), (3, 2000, 2000), (1, 512, 512)),
        ((1, 100, 100), (1, 256, 256), (1, 100, 100)),
    ],
)
def test_grid(shape, chunk, expected):
    assert chunk_shape(array(shape, chunk), PLANE, 2) == expected


def test_volumes_are_cut_into_planes():
    volume = array((90, 800, 800), (64, 64, 64), names=("z", "y", "x"))
    assert chunk_shape(volume, Plane(1, 2, None), 1) == (1, 512, 512)


def test_large_chunks_without_a_plane_are_cut():
    line = array((10**7,), (10**7,), names=("t",), dtype="float64")
    made = served_tree(line)
    assert isinstance(made, ArrayIndex)
    assert made.chunk_shape[0] * 8 <= 4 << 20
    assert halved((8, 100), 200) == (8, 25)


@pytest.mark.parametrize(("own", "length", "expected"), [(1, 10, 10), (1, 9999, 512), (3, 0, 1)])
def test_side(own, length, expected):
    assert side(own, length) == expected


@pytest.mark.parametrize(
    ("chunk", "codecs", "how"),
    [
        ((1, 512, 512), (BYTES,), "passed through"),
        ((1, 512, 512), (BYTES, ZSTD), "passed through"),
        ((1, 512, 512), ({"name": "bytes", "configuration": {"endian": "big"}},), "passed through"),
        ((1, 512, 512), (BYTES, ODD), "decoded"),
        ((1, 4000, 4000), (BYTES,), "decoded"),
        ((1, 4, 4), (BYTES,), "decoded"),
    ],
)
def test_what_is_passed_through(chunk, codecs, how):
    made = find(served_tree(group(array((1, 4000, 4000), chunk, codecs=codecs))), "0/image")
    assert made.attributes["anychunk_served"]["chunks"] == how
    if how == "decoded":
        assert made.codecs == (BYTES, ZSTD)
    else:
        assert (made.codecs, made.chunk_shape) == (codecs, chunk)


def test_fronts_are_not_passed_through():
    own = array((1, 600, 600), (1, 300, 300))
    objects = Objects(base="/x", pattern="{0}/{1}/{2}", grid=own.grid, fronts=(b"head",))
    from dataclasses import replace

    made = find(served_tree(group(replace(own, chunks=objects))), "0/image")
    assert made.attributes["anychunk_served"]["chunks"] == "decoded"


def test_levels_down_to_a_screen():
    tree = served_tree(group(array((1, 5001, 3000), (1, 512, 512), codecs=(BYTES, ODD))))
    shapes = {path: a.shape for path, a in walk(tree) if isinstance(a, ArrayIndex)}
    assert shapes == {
        "0/image": (1, 5001, 3000),
        "1/image": (1, 2500, 1500),
        "2/image": (1, 1250, 750),
        "3/image": (1, 625, 375),
        "4/image": (1, 312, 187),
    }
    (image,) = images(tree)
    assert image.levels == ("0/image", "1/image", "2/image", "3/image", "4/image")
    last = tree.attributes["ome"]["multiscales"][0]["datasets"][-1]
    assert last["coordinateTransformations"] == [
        {"type": "scale", "scale": [1.0, 16.0, 16.0]},
        {"type": "translation", "translation": [0.0, 7.5, 7.5]},
    ]


def test_levels_follow_those_of_the_file():
    scale = [{"type": "scale", "scale": [1.0, 0.5, 0.5]}]
    coarse = [
        {"type": "scale", "scale": [1.0, 1.0, 1.0]},
        {"type": "translation", "translation": [0.0, 0.25, 0.25]},
    ]
    described = {
        "axes": [{"name": n} for n in ("c", "y", "x")],
        "name": "cells",
        "datasets": [
            {"path": "0", "coordinateTransformations": scale},
            {"path": "1", "coordinateTransformations": coarse},
        ],
    }
    node = group(
        array((1, 4000, 4000), (1, 512, 512)),
        array((1, 2000, 2000), (1, 512, 512)),
        ome={"version": "0.5", "multiscales": [described]},
        other={"kept": True},
    )
    tree = served_tree(node)
    ome = tree.attributes["ome"]
    assert tree.attributes["other"] == {"kept": True}
    datasets = ome["multiscales"][0]["datasets"]
    assert [d["path"] for d in datasets] == ["0/image", "1/image", "2/image", "3/image"]
    assert [d["coordinateTransformations"] for d in datasets[:2]] == [scale, coarse]
    # level 2 from level 1: half an element of that further in
    assert datasets[2]["coordinateTransformations"] == [
        {"type": "scale", "scale": [1.0, 2.0, 2.0]},
        {"type": "translation", "translation": [0.0, 0.75, 0.75]},
    ]
    assert ome["multiscales"][0]["name"] == "cells"


def test_palettes_and_truth_values_have_no_mean():
    for options, attributes in (
        ({"dtype": "bool"}, {}),
        ({"dtype": "uint8"}, {"anychunk.display": {"model": "palette", "palette": {"colors": []}}}),
    ):
        tree = served_tree(group(array((1, 900, 900), (1, 512, 512), **options), **attributes))
        assert find(tree, "1/image").chunks.configuration["method"] == "mode"


def test_a_lone_array_becomes_an_image():
    tree = served_tree(array((700, 700), (64, 64), names=("y", "x")))
    assert isinstance(tree, GroupIndex)
    assert set(tree.members) == {"0", "1"}
    assert find(tree, "0/image").chunks.source == ""
    assert find(tree, "1/image").chunks.source == "0/image"


def test_levels_in_folders_of_their_own_are_level_groups():
    deep = GroupIndex(members={"full": array((1, 600, 600), (1, 512, 512))})
    described = {
        "axes": [{"name": n} for n in ("c", "y", "x")],
        "datasets": [{"path": "deep/full", "coordinateTransformations": []}],
    }
    node = GroupIndex(
        members={"deep": deep}, attributes={"ome": {"version": "0.5", "multiscales": [described]}}
    )
    assert find(served_tree(node), "deep/image").chunks.source == "deep/full"


def test_types_that_few_clients_know_are_said():
    tree = served_tree(group(array((1, 600, 600), (1, 512, 512), dtype="float16")))
    assert "float16" in find(tree, "0/image").attributes["anychunk_served"]["data_type"]


@pytest.mark.parametrize(
    ("taken", "number", "name"), [(["0", "1"], 2, "2"), (["s0", "s1"], 2, "s2"), (["2"], 2, "3")]
)
def test_names_of_further_levels(taken, number, name):
    assert next_name(taken, number) == name


def test_levels_that_are_numbers_alone_are_described_by_their_shapes():
    tree = served_tree(
        group(array((1, 4000, 4000), (1, 512, 512)), array((1, 1000, 1000), (1, 512, 512)))
    )
    datasets = tree.attributes["ome"]["multiscales"][0]["datasets"]
    assert [d["path"] for d in datasets] == ["0/image", "1/image", "2/image"]
    scales = [d["coordinateTransformations"][0]["scale"] for d in datasets]
    assert scales == [[1.0, 1.0, 1.0], [1.0, 4.0, 4.0], [1.0, 8.0, 8.0]]
