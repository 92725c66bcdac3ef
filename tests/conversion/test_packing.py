"""Floats stored as integers: the error that is stated is kept, and the one reported is the true one."""

import json
import subprocess
import sys

import numpy as np
import pytest
import rasterio
import tensorstore
import xarray as xr
import zarr
from rasterio.transform import from_origin

import anychunk
from anychunk.codecs import CastValue, ScaleOffset
from anychunk.conversion.packing import choose
from anychunk.errors import OptionError
from tests.support.patience import PATIENCE_S

VALUES = (273.15 + np.random.default_rng(0).normal(0, 15, (300, 260))).astype("float32")
VALUES[3, 5] = np.nan
HUGE = np.array([[0, np.finfo("float64").max]])
BLANK = (slice(50, 90), slice(100, 200))


def tiff(path, values=VALUES, nodata=-9999.0):
    values = values.copy()
    if nodata is not None:
        values[BLANK] = nodata
    shape = dict(zip(("height", "width"), values.shape, strict=True))
    with rasterio.open(
        path, "w", driver="GTiff", count=1, dtype=values.dtype, nodata=nodata, tiled=True,
        transform=from_origin(10, 50, 0.1, 0.1), crs="EPSG:4326", **shape,
    ) as file:  # fmt: skip
        file.write(values, 1)
    return path


def integers(path):
    """What another reader finds in the store, without the two codecs."""
    document = json.loads((path / "zarr.json").read_text())
    kept = [c for c in document["codecs"] if c["name"] not in ("scale_offset", "cast_value")]
    cast = next(c for c in document["codecs"] if c["name"] == "cast_value")["configuration"]
    metadata = {**document, "codecs": kept, "data_type": cast["data_type"], "fill_value": 0}
    metadata["attributes"] = {}
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}
    (path / "zarr.json").write_text(json.dumps(metadata))
    try:
        return tensorstore.open(spec).result().read().result(), document["codecs"]
    finally:
        (path / "zarr.json").write_text(json.dumps(document))


@pytest.mark.parametrize("nodata", [None, -9999.0, -3.4028234663852886e38])
@pytest.mark.parametrize(
    ("pack", "most"),
    [
        ("int16", 0.0012),
        ("uint16", 0.0012),
        ("int8", 0.3),
        ("int16:0.05", 0.05),
        ("uint8:0.5", 0.5),
    ],
)
def test_error_is_kept_and_measured(tmp_path, pack, most, nodata):
    source, target = tiff(tmp_path / "a.tif", nodata=nodata), tmp_path / "a.zarr"
    report = anychunk.convert(source, target, pack=pack, levels=2, chunk=(64, 64))
    valid = np.isfinite(VALUES)
    if nodata is not None:
        valid[BLANK] = False
    found = anychunk.open_array(target)[...]
    assert found.dtype == VALUES.dtype
    error = np.abs(found[valid].astype("float64") - VALUES[valid]).max()
    assert report.largest_error == error <= most
    assert np.isnan(found[~valid]).all()
    assert any(f"{error:.6g}" in note for note in report.notes)
    assert any("written as NaN" in note for note in report.notes) == (nodata is not None)
    # the stored integers, read by other software, unpacked by hand
    stored, codecs = integers(target / "0/image")
    assert stored.dtype == pack.partition(":")[0]
    scale, offset = (codecs[0]["configuration"][key] for key in ("scale", "offset"))
    unpacked = stored[valid] / scale + offset
    assert np.abs(unpacked - VALUES[valid]).max() <= most + 1e-4
    assert (stored[~valid] == np.iinfo(stored.dtype).min).all()
    assert (stored[valid] != np.iinfo(stored.dtype).min).all()
    # and xarray by zarr's classes
    if nodata is None:
        opened = xr.open_zarr(target, group="0", consolidated=False)["image"]
        np.testing.assert_array_equal(opened.values, found)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (1e6, 1e6 + 0.25), (-1e-30, 1e-30), (7, 7), (0, 0), (-5, 6e4)]
)
def test_chosen_codecs_hold_all_values(tmp_path, dtype, low, high):
    if dtype == "float16":
        low, high = np.clip((low, high), -60000, 60000)
    values = np.linspace(low, high, 1000).astype(dtype)
    pack = "int8" if dtype == "float16" else "int16"
    np.save(tmp_path / "a.npy", values[None])
    report = anychunk.convert(tmp_path / "a.npy", tmp_path / "a.zarr", pack=pack, levels=1)
    found = anychunk.open_array(tmp_path / "a.zarr")[0]
    assert report.largest_error == np.abs(found.astype("float64") - values).max()
    bound = choose(float(values.min()), float(values.max()), dtype, pack).error
    assert report.largest_error <= bound


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("pack", ["int8", "uint8", "uint8:1e-5"])
def test_a_constant_is_exact(tmp_path, dtype, pack):
    info = np.finfo(dtype)
    extremes = (info.max, info.tiny, info.smallest_subnormal)
    for value in (0, -0.0, 1, -1, 0.1, -1 / 3, 123.456, *extremes):
        values = np.full((2, 3), value, dtype)
        values[0, 0] = np.nan
        np.save(tmp_path / "a.npy", values)
        report = anychunk.convert(
            tmp_path / "a.npy", tmp_path / "a.zarr", pack=pack, levels=1, overwrite=True
        )
        np.testing.assert_array_equal(anychunk.open_array(tmp_path / "a.zarr")[...], values)
        assert report.largest_error == 0


def test_levels_shards_and_several_images(tmp_path):
    sources = [tiff(tmp_path / f"{n}.tif", VALUES * n) for n in (1, 100)]
    report = anychunk.convert(
        sources, tmp_path / "a.zarr", pack="int16", levels=3, chunk=(32, 32), shard=(64, 64)
    )
    scales = []
    for n in (0, 1):
        group = anychunk.open(tmp_path / f"a.zarr/{n}")
        document = json.loads((tmp_path / f"a.zarr/{n}/0/image/zarr.json").read_text())
        inner = document["codecs"][0]["configuration"]["codecs"]
        scales.append(inner[0]["configuration"]["scale"])
        plain = anychunk.open_array(sources[n])[...]
        half = np.where(plain == -9999, np.nan, plain)[:300, :260].reshape(150, 2, 130, 2)
        with np.errstate(invalid="ignore"):
            mean = np.nanmean(half[60:], axis=(1, 3))
        np.testing.assert_allclose(group["1/image"][60:], mean, atol=0.25)
    assert 90 < scales[0] / scales[1] < 110
    assert sum("largest error measured" in note for note in report.notes) == 2


def test_what_cannot_be_packed(tmp_path):
    source, target = tiff(tmp_path / "a.tif"), tmp_path / "a.zarr"
    np.save(tmp_path / "i.npy", np.zeros((4, 4), "int16"))
    infinite = VALUES.copy()
    infinite[0, 0] = np.inf
    for given, pack, match in (
        (source, "int8:0.01", "errors of up to 0.2.* in int8"),
        (source, "int16:1e-9", "errors of up to"),
        (source, "int32", "too few digits"),
        (source, "int12", "expected int8 uint8"),
        (source, "int16:x", "expected int8 uint8"),
        (tmp_path / "i.npy", "int8", "samples of int16"),
        (tiff(tmp_path / "inf.tif", infinite), "int16", "infinite"),
        # encodes, and decodes to infinity
        (tiff(tmp_path / "max.tif", HUGE, nodata=None), "int16", "do not fit"),
    ):
        with pytest.raises(OptionError, match=match):
            anychunk.convert(given, target, pack=pack)
        assert not target.exists()
    with pytest.raises(OptionError, match="pack"):
        anychunk.convert(source, tmp_path / "b.tif", pack="int16")


def test_a_new_process_opens_it(tmp_path):
    """By `enable`, or by zarr's own class, which needs cast-value-rs."""
    anychunk.convert(tiff(tmp_path / "a.tif"), tmp_path / "a.zarr", pack="int16", levels=1)
    expected = np.nansum(anychunk.open_array(tmp_path / "a.zarr")[...], dtype="float64")
    blocked = "import sys; sys.modules['cast_value_rs'] = None;"
    code = "import numpy; print(repr(numpy.nansum(zarr.open_array(sys.argv[1], mode='r')[...], dtype='f8').item()))"
    for first, works in (
        ("import sys, zarr;", True),
        (f"{blocked} import zarr, anychunk; anychunk.enable();", True),
        (f"{blocked} import zarr;", False),
    ):
        done = subprocess.run(
            [sys.executable, "-c", first + code, tmp_path / "a.zarr/0/image"],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) == works, done.stderr[-2000:]
        if works:
            assert float(done.stdout) == expected
        else:
            assert "cast-value-rs" in done.stderr


def test_written_arrays_are_packed_too(tmp_path):
    anychunk.write(VALUES, tmp_path / "a.zarr", pack="int16:0.01", chunk=(64, 64))
    found = anychunk.open_array(tmp_path / "a.zarr")[...]
    assert np.nanmax(np.abs(found - VALUES)) <= 0.01
    np.testing.assert_array_equal(np.isnan(found), np.isnan(VALUES))
    assert zarr.open_array(tmp_path / "a.zarr/0/image", mode="r").dtype == VALUES.dtype


GZIP = {"name": "gzip", "configuration": {"level": 1}}
LISTS = {
    "names": ["crc32c"],
    "zarr's objects": [zarr.codecs.ZstdCodec(level=1), zarr.codecs.Crc32cCodec()],
    "filters and a serializer": [
        zarr.codecs.TransposeCodec(order=(1, 0)),
        zarr.codecs.BytesCodec(endian="big"),
        zarr.codecs.BloscCodec(cname="lz4"),
    ],
    "filters alone": [{"name": "transpose", "configuration": {"order": [1, 0]}}, GZIP],
    "packing by hand": [
        ScaleOffset(offset=273, scale=100),
        CastValue(
            data_type="int16", scalar_map={"encode": [["NaN", -9999]], "decode": [[-9999, "NaN"]]}
        ),
        zarr.codecs.GzipCodec(level=1),
    ],
    "shards": [
        zarr.codecs.ShardingCodec(
            chunk_shape=(16, 16), codecs=[zarr.codecs.BytesCodec(), zarr.codecs.ZstdCodec()]
        )
    ],
    "shards of transposed chunks": [
        zarr.codecs.TransposeCodec(order=(1, 0)),
        zarr.codecs.ShardingCodec(chunk_shape=(16, 16)),
    ],
    "none": [],
}


@pytest.mark.filterwarnings("ignore:Combining a `sharding_indexed`")
@pytest.mark.parametrize("codecs", LISTS.values(), ids=LISTS)
def test_any_list_that_zarr_takes(tmp_path, codecs):
    """As `codecs` of a Zarr array, with `bytes` where no serializer is given."""
    anychunk.write(VALUES, tmp_path / "a.zarr", compression=codecs, chunk=(64, 64), levels=1)
    array = zarr.open_array(tmp_path / "a.zarr/0/image", mode="r")
    exact = not any(isinstance(codec, ScaleOffset) for codec in codecs)
    np.testing.assert_allclose(array[...], VALUES, rtol=0, atol=0 if exact else 0.00504)
    names = [codec["name"] for codec in array.metadata.to_dict()["codecs"]]
    wanted = [
        c if isinstance(c, str) else c["name"] if isinstance(c, dict) else None for c in codecs
    ]
    assert [n for n in wanted if n] == [n for n in names if n in wanted]
    if names[0] == "sharding_indexed":
        assert array.shards == (64, 64)
        assert array.chunks == (16, 16)


def test_lists_that_zarr_refuses(tmp_path):
    serializer = {"name": "bytes"}
    for codecs in (
        [GZIP, serializer],
        ["no-such-codec"],
        [{"nome": "gzip"}],
        [7],
        [serializer, serializer],
    ):
        with pytest.raises(OptionError):
            anychunk.write(VALUES, tmp_path / "a.zarr", compression=codecs)
        assert not (tmp_path / "a.zarr").exists()
