"""What files must share, and how exactly."""

import numpy as np
import pytest
import rasterio
import tifffile

import anychunk
from anychunk.combine import combine
from anychunk.combine.images import check_compatible, raise_problems
from anychunk.errors import FormatError
from anychunk.model.index import ByteRanges, GroupIndex
from tests.support.combined_files import write_geotiff
from tests.support.indexes import array, uint64

VALUES = np.random.default_rng(1).integers(0, 99, (40, 50), dtype="uint8")


def one_chunk(**changes):
    chunks = ByteRanges(offsets=uint64([0]), lengths=uint64([4]), urls=("u",))
    return array((4,), (4,), chunks, **changes)


def stacked(*attributes):
    """A stack of arrays that differ in their attributes."""
    return combine(
        {f"f{i}": GroupIndex(members={"a": one_chunk(attributes=a)}) for i, a in enumerate(attributes)},
        "stack",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["scale_factor", "add_offset", "_FillValue", "missing_value"])
def test_numbers_of_cf_are_compared_to_rounding(name):
    """A relative difference of 1e-6, of 2e-9, is another value; one of 5e-10 is rounding."""
    for factor in (1 + 1e-2, 1 + 1e-6, 1 - 1e-6, 1 + 2e-9):
        with pytest.raises(FormatError, match=f"f1 a: {name} "):
            stacked({name: 0.1}, {name: 0.1 * factor})
    for factor in (1.0, 1 + 5e-10, 1 - 1e-15):
        assert stacked({name: 0.1}, {name: 0.1 * factor})["a"].shape == (2, 4)
    with pytest.raises(FormatError, match=f"f1 a: {name} "):
        stacked({name: 0.1}, {})
    assert stacked({name: float("nan")}, {name: float("nan")})["a"].shape == (2, 4)


@pytest.mark.parametrize("name", ["units", "calendar", "_Unsigned"])
def test_texts_of_cf_are_compared_exactly(name):
    with pytest.raises(FormatError, match=f"f1 a: {name} b, expected a as in f0 .and 1 more"):
        stacked({name: "a"}, {name: "b"}, {name: "A"})


def test_scales_of_gdal_are_compared_to_rounding(tmp_path):
    paths = []
    for i, scale in enumerate((0.1, 0.1 * (1 + 1e-6), 0.1 * (1 + 1e-12))):
        path = write_geotiff(tmp_path / f"{i}.tif", np.ones((16, 16), "u1"), 0, 1000)
        with rasterio.open(path, "r+") as file:
            file.scales = [scale]
        paths.append(path)
    with pytest.raises(FormatError, match="1.tif 0: .*band 0"):
        anychunk.index(paths[:2], combine="stack")
    assert anychunk.index(paths[::2], combine="stack")["0/0/image"].shape == (2, 16, 16)


@pytest.mark.parametrize(("off", "is_kept"), [(1e-12, True), (1e-8, False), (1e-2, False)])
def test_a_georeference_is_common_to_rounding(tmp_path, off, is_kept):
    """Relative differences of the northing: 1e-12 is rounding, 1e-8 is another place."""
    paths = [
        write_geotiff(tmp_path / f"{i}.tif", np.ones((16, 16), "u1"), 0, 1e3 * (1 + off * i))
        for i in range(2)
    ]
    if is_kept:
        node = anychunk.index(paths, combine="stack")
        assert node["0"].attributes["spatial:transform"][5] == 1e3
    else:
        with pytest.warns(UserWarning, match="image 0: .*georeference"):
            node = anychunk.index(paths, combine="stack", georeference="drop")
        assert "spatial:transform" not in node["0"].attributes


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("data_type", "int8", "data type int8, expected uint8"),
        ("fill_value", 8, "fill value 8, expected 9"),
        ("dimension_names", ("t",), r"axes \('t',\), expected \('y',\)"),
        ("chunk_shape", (5,), r"chunk shape \(5,\), expected \(4,\)"),
        (
            "codecs",
            ({"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}),
            "compression gzip, expected none",
        ),
    ],
)
def test_the_first_difference_is_named(name, value, text):
    arrays = {"x": one_chunk(), "y": one_chunk(**{name: value}), "z": one_chunk(**{name: value})}
    with pytest.raises(FormatError, match=f"^combine: y a: {text} as in x.* .and 1 more"):
        check_compatible("a", arrays)


@pytest.mark.parametrize(
    ("first", "other", "text"),
    [
        ("zlib", "zstd", r"compression zstd, expected anychunk.tiff-tile \(deflate\)"),
        ("zlib", None, r"compression none, expected anychunk.tiff-tile \(deflate\)"),
        (None, "lzw", r"compression anychunk.tiff-tile \(LZW\), expected none"),
    ],
)
def test_files_that_differ_in_compression_only(tmp_path, first, other, text):
    for name, compression in (("a", first), ("b", other)):
        tifffile.imwrite(
            tmp_path / f"{name}.tif", VALUES, tile=(16, 16), compression=compression,
            metadata=None,
        )  # fmt: skip
    with pytest.raises(
        FormatError, match=rf"b.tif 0/0: {text} as in .*a.tif; .*combine='group'"
    ) as e:
        check_compatible("0/0", arrays(tmp_path))
    assert "\n" not in str(e.value)
    assert len(str(e.value)) < 200 + 2 * len(str(tmp_path))


def arrays(folder):
    return {str(path): anychunk.index(path)["0/0/image"] for path in sorted(folder.glob("?.tif"))}


def test_a_setting_of_a_codec_is_named(tmp_path):
    for name, predictor in (("a", 2), ("b", 1)):
        tifffile.imwrite(
            tmp_path / f"{name}.tif", VALUES, tile=(16, 16), compression="zlib", predictor=predictor
        )
    with pytest.raises(
        FormatError, match=r"b.tif 0/0: predictor of codec anychunk.tiff-tile none, expected 2"
    ):
        check_compatible("0/0", arrays(tmp_path))


def test_fill_values_that_are_nan_are_the_same():
    nan = {"data_type": "float32", "fill_value": float("nan")}
    codecs = check_compatible("a", {"x": one_chunk(**nan), "y": one_chunk(**nan)})
    assert codecs == ({"name": "bytes"},)


def test_lengths_may_differ_along_free_axes_only():
    def of_shape(*shape):
        grid = np.zeros([1] * len(shape), np.uint64)
        return array(shape, (8,) * len(shape), ByteRanges(offsets=grid, lengths=grid, urls=("u",)))

    arrays = {"x": of_shape(4, 5, 6), "y": of_shape(4, 7, 8)}
    assert check_compatible("a", arrays, free_axes=(1, 2))
    assert check_compatible("a", arrays, free_axes=(-2, -1))
    for free in ((), (1,), (0, -1)):
        with pytest.raises(FormatError, match=r"y a: shape \(4, 7, 8\).*\(4, 5, 6\)"):
            check_compatible("a", arrays, free_axes=free)


def test_the_first_problem_is_shown_and_the_others_are_counted():
    with pytest.raises(FormatError, match=r"^combine: p0 \(and 4 more differences\)$"):
        raise_problems([f"p{i}" for i in range(5)])
    with pytest.raises(FormatError, match=r"^combine: p0$"):
        raise_problems(["p0"])
    raise_problems([])
