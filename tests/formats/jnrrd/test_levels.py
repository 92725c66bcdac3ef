"""Levels of the tiling extension: one test for each ruling on what its text leaves open."""

import math

import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError
from anychunk.formats import jnrrd
from anychunk.formats.jnrrd import tiling_fields
from tests.support.jnrrd_tiles import header, read
from tests.support.naive_jnrrd import core


def test_levels(tmp_path):
    """max(1, dim // scale); scalar or per-axis scales; tile sizes a level."""
    found = tiling_fields.complete(
        {
            "enabled": True,
            "dimensions": [0, 2],
            "sizes": [4, 4],
            "storage": "external",
            "pattern": "{x}{y}",
            "levels": 3,
            "level_scales": [1, [2, 1], 16],
        }
    )
    volume = jnrrd.volume.read_volume(core([13, 9, 6]), "a")
    made, findings = tiling_fields.read_tiling(found, volume)
    assert findings == ()
    levels = tiling_fields.levels_of(made, volume)
    assert [x.sizes for x in levels] == [(13, 9, 6), (6, 9, 6), (1, 9, 1)]
    assert [x.tile for x in levels] == [(4, 9, 4)] * 3
    assert [x.scale for x in levels] == [(1, 1, 1), (2, 1, 1), (16, 1, 16)]
    cube = np.arange(13 * 9 * 6, dtype=np.uint16).reshape(6, 9, 13)
    path = tmp_path / "a.jnrrd"
    anychunk.write(
        cube,
        path,
        chunk=(2, 4, 5),
        level_scales=[1, (1, 2, 3), 4],
        level_chunks=[(2, 4, 5), (3, 3, 3), (1, 2, 2)],
        method="max",
    )
    assert header(path)["tile:level_scales"] == [1, [3, 2, 1], 4]
    assert header(path)["tile:level_tile_sizes"] == [[5, 4, 2], [3, 3, 3], [2, 2, 1]]
    assert anychunk.open_array(path, level=1).chunks == (3, 3, 3)
    np.testing.assert_array_equal(
        read(path, 1), cube[:, :8, :12].reshape(6, 1, 4, 2, 4, 3).max((1, 3, 5))
    )
    np.testing.assert_array_equal(
        read(path, 2), cube[:4, :8, :12].reshape(1, 4, 2, 4, 3, 4).max((1, 3, 5))
    )
    (image,) = anychunk.open(path)["0"].attrs["ome"]["multiscales"]
    assert image["datasets"][1]["coordinateTransformations"] == [
        {"type": "scale", "scale": [1.0, 2.0, 3.0]},
        {"type": "translation", "translation": [0.0, 0.5, 1.0]},
    ]


def test_virtual_levels(tmp_path):
    """In no table, 0 in level_offsets; computed from the nearest finer stored level."""
    values = np.random.default_rng(2).integers(0, 999, (20, 30), dtype=np.uint16)
    path = tmp_path / "a.jnrrd"
    anychunk.write(values, path, chunk=(4, 8), levels=5, levels_virtual=[1, 3, 4], method="average")
    found = header(path)
    assert found["tile:levels_stored"] == [0, 2]
    assert found["tile:levels_virtual"] == [1, 3, 4]
    assert [o > 0 for o in found["tile:level_offsets"]] == [True, False, True, False, False]
    assert len(found["tile:offset_table"]) == 5 * 4 + 2 * 1
    half = anychunk.resample.downsample
    np.testing.assert_array_equal(read(path, 1), half(values, (2, 2)))
    stored = read(path, 2)
    np.testing.assert_array_equal(stored, half(values, (4, 4)))
    np.testing.assert_array_equal(read(path, 3), half(stored, (2, 2)))
    np.testing.assert_array_equal(read(path, 4), half(stored, (4, 4)))
    assert read(path, 4).shape == (1, 1)
    np.testing.assert_array_equal(
        jnrrd.read_tile(path, (1, 1), level=1), half(values, (2, 2))[4:8, 8:15]
    )
    array = anychunk.open_array(path, level=1)
    assert array[3, 5] == half(values, (2, 2))[3, 5]
    with pytest.raises(AnychunkError, match="tile:levels_virtual: .*level 0"):
        anychunk.write(values, path, chunk=(4, 8), levels=2, levels_virtual=[0])


@pytest.mark.parametrize("method", ["average", "gaussian", "lanczos", "max", "min", "mode"])
def test_downsampling(tmp_path, method):
    """Levels equal the method on the whole volume, whether tiles hold whole windows or not."""
    values = np.random.default_rng(4).integers(0, 9, (11, 22, 17)).astype(np.int16)
    for tile, scales in (
        ((4, 8, 8), [1, 2, 4]),
        ((3, 5, 7), [1, 2, (2, 3, 2)]),
        ((4, 30, 30), [1, 32]),
    ):
        path = tmp_path / f"{method}.jnrrd"
        anychunk.write(values, path, chunk=tile, level_scales=scales, method=method, overwrite=True)
        assert header(path)["tile:downsample_method"] == method
        for level, scale in enumerate(scales[1:], 1):
            ratio = (scale,) * 3 if isinstance(scale, int) else scale
            np.testing.assert_array_equal(
                read(path, level), anychunk.resample.downsample(values, ratio, method)
            )


def test_quality(tmp_path):
    """PSNR and RMSE of a level brought back to full resolution."""
    values = np.random.default_rng(5).integers(0, 255, (9, 14), dtype=np.uint8)
    path = tmp_path / "a.jnrrd"
    anychunk.write(values, path, chunk=(4, 4), levels=3, levels_virtual=[2], quality=True)
    first, second, third = header(path)["tile:level_quality"]
    assert first == {"psnr": 100.0, "rmse": 0.0}
    back = read(path, 1).astype(float)[np.minimum(np.arange(9) // 2, 3)][
        :, np.minimum(np.arange(14) // 2, 6)
    ]
    error = math.sqrt(((values - back) ** 2).mean())
    assert second["rmse"] == pytest.approx(error, rel=1e-12)
    assert second["psnr"] == pytest.approx(20 * math.log10(255 / error), rel=1e-12)
    assert third == {}
    assert anychunk.open(path)["0"].attrs["jnrrd"]["tile:level_quality"][0] == first
    anychunk.write(
        values.astype("f4") / 7, path, chunk=(4, 4), levels=2, quality=True, overwrite=True
    )
    assert header(path)["tile:level_quality"][1]["rmse"] == pytest.approx(error / 7, rel=0.05)
    anychunk.write(values, path, chunk=(4, 4), levels=2, overwrite=True)
    assert "tile:level_quality" not in header(path)
