"""Cloud Optimized GeoTIFF and OME-TIFF, read by rasterio, tifffile and ome-types."""

import json
import signal
import struct
from importlib.util import find_spec

import numpy as np
import pytest
import rasterio
import tifffile
from rasterio.transform import from_gcps, from_origin
from rasterio.windows import Window

import anychunk
from anychunk.cli import main
from anychunk.conversion import convert, tiff_files, tiff_plan
from anychunk.errors import FormatError, OptionError, UnsupportedError
from anychunk.formats.tiff.write_directory import Page, layout, longs
from anychunk.formats.tiff.write_tiles import parse_compression, predictor_for
from anychunk.metadata import drawing
from anychunk.metadata.meaning import Axis, Band, Channel, Crs, Place
from anychunk.model import images as im
from anychunk.zarr.array import open_path
from tests.support import processes
from tests.support.corpus import needs_corpus, samples
from tests.support.made_images import made

pytestmark = [
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
    pytest.mark.skipif(
        find_spec("rio_cogeo") is None, reason="rio-cogeo is not here: pip install rio-cogeo"
    ),
]
UTM = Place(crs=Crs(code="EPSG:32631"), transform=(10.0, 0.0, 5e5, 0.0, -10.0, 5e6))


def smooth(shape, dtype="uint16", top=20000):
    """Return samples that compress: sums of waves, with a little noise."""
    rng = np.random.default_rng(3)
    grid = np.meshgrid(*(np.linspace(0, 5, n) for n in shape), indexing="ij", sparse=True)
    waves = sum(np.sin(axis + number) for number, axis in enumerate(grid))
    values = (waves - waves.min()) / np.ptp(waves) + rng.random(shape) * 0.02
    return (values * top).astype(dtype)


def checked(path, **options):
    """Return whether rio-cogeo accepts a file without errors and warnings."""
    from rio_cogeo import cog_validate

    is_valid, errors, warnings = cog_validate(str(path), strict=True, **options)
    return (is_valid, errors, warnings)


VALID = (True, [], [])


def levels_of(path, image=0):
    """Return the levels of an image as we read them."""
    node = anychunk.index(path)
    found = list(im.images(node))[image]
    return [np.asarray(open_path(node, level)[:]) for level in found.levels]


def overviews(path, band=1):
    """Return the overviews of a file as GDAL reads them, all bands."""
    found = []
    with rasterio.open(path) as whole:
        count = len(whole.overviews(band))
    for level in range(count):
        with rasterio.open(path, overview_level=level) as one:
            found.append(one.read())
    return found


def test_gdal_reads_what_was_written(tmp_path):
    values = smooth((3, 700, 1300))
    bands = [
        Band(name="B4", unit="1", scale=0.1, offset=-1.0),
        Band(tags={"wavelength": "560"}),
        Band(),
    ]
    node = made(
        tmp_path, [values], place=UTM, nodata=7, bands=tuple(bands), display=drawing.rgb(),
        tags={"AUTHOR": "a <b> & c", "TIFFTAG_ARTIST": "somebody"}, time="2026-03-01T12:00:00",
    )  # fmt: skip
    report = convert(node, tmp_path / "a.tif", verify=True)
    assert (report.is_verified, report.losses, report.arrays) == (True, (), 3)
    with rasterio.open(tmp_path / "a.tif") as found:
        np.testing.assert_array_equal(found.read(), values)
        assert found.crs.to_epsg() == 32631
        assert found.transform == from_origin(5e5, 5e6, 10, 10)
        assert found.nodata == 7
        assert found.scales == (0.1, 1, 1)
        assert found.offsets == (-1, 0, 0)
        assert found.descriptions == ("B4", None, None)
        assert found.units == ("1", None, None)
        assert [c.name for c in found.colorinterp] == ["undefined"] * 3  # as the bands state
        assert found.tags()["AUTHOR"] == "a <b> & c"
        assert found.tags()["TIFFTAG_ARTIST"] == "somebody"
        assert found.tags()["TIFFTAG_DATETIME"] == "2026:03:01 12:00:00"
        assert found.tags(2) == {"wavelength": "560"}
        assert found.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert found.block_shapes == [(512, 512)] * 3
    assert checked(tmp_path / "a.tif") == VALID


def test_overviews_equal_the_levels_of_a_zarr_target(tmp_path):
    values = smooth((2, 1100, 1030))
    values[:, :300, :300] = 7
    node = made(tmp_path, [values], nodata=7)
    convert(node, tmp_path / "a.tif", chunk=(256, 256))
    convert(node, tmp_path / "a.zarr")
    expected = levels_of(tmp_path / "a.zarr")
    assert [level.shape for level in expected] == [(2, 1100, 1030), (2, 550, 515), (2, 275, 257)]
    found = overviews(tmp_path / "a.tif")
    assert len(found) == 2
    for one, level in zip(found, expected[1:], strict=True):
        np.testing.assert_array_equal(one, level)
    with tifffile.TiffFile(tmp_path / "a.tif") as tif:
        assert [level.shape for level in tif.series[0].levels] == [
            (1100, 1030, 2),
            (550, 515, 2),
            (275, 257, 2),
        ]
        np.testing.assert_array_equal(
            np.moveaxis(tif.series[0].levels[2].asarray(), -1, 0), expected[2]
        )


def test_the_layout_is_that_of_a_cog(tmp_path):
    """Ghost area, leaders and trailers, coarsest level first, as GDAL's documentation says."""
    path = tmp_path / "a.tif"
    convert(made(tmp_path, [smooth((600, 1200), "uint8", 200)]), path)
    data = path.read_bytes()
    size = int(data[8:].split(b"=", 1)[1][:6])
    ghost = data[8 + 43 : 8 + 43 + size].decode()
    assert ghost.splitlines()[:4] == [
        "LAYOUT=IFDS_BEFORE_DATA", "BLOCK_ORDER=ROW_MAJOR", "BLOCK_LEADER=SIZE_AS_UINT4",
        "BLOCK_TRAILER=LAST_4_BYTES_REPEATED",
    ]  # fmt: skip
    with tifffile.TiffFile(path) as tif:
        pages = list(tif.pages)
        firsts = [page.dataoffsets[0] for page in pages]
        assert firsts == sorted(firsts, reverse=True)
        assert max(page.offset for page in pages) < min(firsts)
        for page in pages:
            assert list(page.dataoffsets) == sorted(page.dataoffsets)
            for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
                assert struct.unpack("<I", data[offset - 4 : offset]) == (count,)
                assert (
                    data[offset + count - 4 : offset + count]
                    == data[offset + count : offset + count + 4]
                )


@pytest.mark.parametrize("dtype", [
    "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32",
    "float64", "complex64", "complex128",
])  # fmt: skip
@pytest.mark.parametrize(
    "compression", ["deflate", "zstd", "lzw", "lerc", "none", "packbits", "lzma"]
)
def test_types_and_compressions(tmp_path, dtype, compression):
    values = smooth((2, 100, 130), dtype, 100)
    node = made(tmp_path, [values])
    path = tmp_path / "a.tif"
    if compression == "lerc" and dtype not in (
        "uint8",
        "uint16",
        "uint32",
        "int8",
        "int16",
        "int32",
        "float32",
        "float64",
    ):
        with pytest.raises(UnsupportedError):
            convert(node, path, compression=compression)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a-0-0.raw"]
        return
    convert(node, path, chunk=(64, 64), compression=compression, verify=True)
    np.testing.assert_array_equal(np.moveaxis(tifffile.imread(path), -1, 0), values)
    if dtype != "float16" and not (dtype.startswith("complex") and compression == "lerc"):
        with rasterio.open(path) as found:
            np.testing.assert_array_equal(found.read(), values)


@pytest.mark.parametrize(
    ("compression", "level"), [("webp", None), ("webp", 80), ("jpeg", 90), ("lerc", 0.5)]
)
@pytest.mark.parametrize("model", ["rgb", "grey"])
def test_pictures(tmp_path, compression, level, model):
    values = smooth((3, 200, 260) if model == "rgb" else (200, 260), "uint8", 230)
    node = made(tmp_path, [values], display=drawing.rgb() if model == "rgb" else drawing.grey())
    path = tmp_path / "a.tif"
    if model == "grey" and compression.startswith("webp"):
        with pytest.raises(UnsupportedError):
            convert(node, path, compression=compression, compression_level=level)
        return
    report = convert(node, path, compression=compression, compression_level=level, verify=True)
    with rasterio.open(path) as found:
        apart = np.abs(found.read().reshape(values.shape).astype(int) - values)
        assert (
            found.tags(ns="IMAGE_STRUCTURE")["COMPRESSION"].lower().endswith(compression[-4:])
            or "YCbCr" in found.tags(ns="IMAGE_STRUCTURE")["COMPRESSION"]
        )
    assert apart.max() <= (60 if level in (80, 90) else 0)
    assert ("lossy" in " ".join(report.notes)) == (level is not None)
    assert checked(path) == VALID


def test_lerc_holds_nan(tmp_path):
    values = smooth((150, 150), "float32", 1)
    values[10:40, 5:90] = np.nan
    convert(
        made(tmp_path, [values], nodata=np.nan), tmp_path / "a.tif", compression="lerc", verify=True
    )
    with rasterio.open(tmp_path / "a.tif") as found:
        np.testing.assert_array_equal(found.read(1), values)


def test_a_palette_and_its_levels(tmp_path):
    values = (smooth((600, 700), "uint8", 3)).clip(0, 3)
    table = [[0, 0, 0, 255], [255, 0, 0, 255], [0, 255, 0, 255], [1, 2, 3, 255]]
    convert(made(tmp_path, [values], display=drawing.indexed(table)), tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as found:
        np.testing.assert_array_equal(found.read(1), values)
        assert [found.colormap(1)[n] for n in range(4)] == [tuple(c) for c in table]
    assert set(np.unique(overviews(tmp_path / "a.tif")[0])) <= set(range(4))


def test_alpha(tmp_path):
    values = smooth((4, 64, 80), "uint8", 255)
    shown = drawing.with_alpha(drawing.rgb(), 3, limits=(0, 255))
    names = ("Red", "Green", "Blue", "Alpha")
    bands = tuple(Band(interpretation=n) for n in names)
    convert(made(tmp_path, [values], display=shown, bands=bands), tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as found:
        assert [c.name for c in found.colorinterp] == [n.lower() for n in names]
        np.testing.assert_array_equal(found.read(), values)


@pytest.mark.parametrize("valid", [255, 0])
def test_a_mask_is_interleaved_with_the_image(tmp_path, valid):
    values = smooth((3, 700, 900), "uint8", 200)
    is_valid = np.zeros((700, 900), bool)
    is_valid[100:500, 30:800] = True
    mask = np.where(is_valid == bool(valid), 255, 0).astype(np.uint8)
    shown = drawing.with_mask(drawing.rgb(), valid=valid)
    path = tmp_path / "a.tif"
    convert(made(tmp_path, [values], masks=[mask], display=shown), path, verify=True)
    with rasterio.open(path) as found:
        np.testing.assert_array_equal(found.dataset_mask(), np.where(is_valid, 255, 0))
        assert found.mask_flag_enums[0] == [rasterio.enums.MaskFlags.per_dataset]
    with rasterio.open(path, overview_level=0) as found:
        small = is_valid.reshape(350, 2, 450, 2).any(axis=(1, 3))
        np.testing.assert_array_equal(found.dataset_mask(), np.where(small, 255, 0))
    assert b"MASK_INTERLEAVED_WITH_IMAGERY=YES" in path.read_bytes()[:400]
    assert checked(path) == VALID


@pytest.mark.parametrize("place", [
    UTM,
    Place(crs=Crs(code="EPSG:4326"), transform=(0.1, 0.0, -10.0, 0.0, -0.1, 50.0)),
    Place(crs=Crs(code="EPSG:3857"), transform=(10.0, 2.0, 5e5, 1.0, -10.0, 5e6)),
    Place(crs=Crs(code="EPSG:3857"), transform=(10.0, 0.0, 5e5, 0.0, 10.0, 5e6)),
    Place(crs=Crs(wkt=rasterio.CRS.from_proj4("+proj=laea +lat_0=12.5 +lon_0=33 +datum=WGS84").to_wkt()),
          transform=(10.0, 0.0, 0.0, 0.0, -10.0, 0.0)),
    Place(crs=Crs(wkt=rasterio.CRS.from_proj4("+proj=longlat +a=3396190 +rf=169.894447 +no_defs").to_wkt()),
          transform=(0.1, 0.0, -10.0, 0.0, -0.1, 50.0)),
], ids=["utm", "degrees", "rotated", "south up", "laea", "mars"])  # fmt: skip
def test_places(tmp_path, place):
    node = made(tmp_path, [smooth((40, 50))], place=place)
    report = convert(node, tmp_path / "a.tif")
    assert report.losses == ()
    with rasterio.open(tmp_path / "a.tif") as found:
        given = place.crs.code or place.crs.wkt
        assert found.crs.to_dict() == rasterio.CRS.from_user_input(given).to_dict()
        np.testing.assert_allclose(tuple(found.transform)[:6], place.transform)


def test_pixels_that_are_points(tmp_path):
    node = made(tmp_path, [smooth((40, 50))], place=UTM, tags={"AREA_OR_POINT": "Point"})
    convert(node, tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as found:
        assert found.tags()["AREA_OR_POINT"] == "Point"
        assert tuple(found.transform)[:6] == UTM.transform


def test_ground_control_points_and_rpc(tmp_path):
    points = ((0.0, 0.0, 2.0, 48.0, 5.0), (50.0, 0.0, 3.0, 48.1, 6.0), (0.0, 40.0, 2.1, 47.0, 7.0))
    rpc = dict.fromkeys(("line_off", "samp_off", "lat_off", "long_off", "height_off"), 1.5)
    rpc |= dict.fromkeys(
        ("line_scale", "samp_scale", "lat_scale", "long_scale", "height_scale"), 2.0
    )
    rpc |= {
        name: [0.25] * 20
        for name in ("line_num_coeff", "line_den_coeff", "samp_num_coeff", "samp_den_coeff")
    }
    place = Place(crs=Crs(code="EPSG:4326"), gcps=points, rpc=rpc)
    convert(made(tmp_path, [smooth((40, 50))], place=place), tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as found:
        listed, crs = found.gcps
        assert crs.to_epsg() == 4326
        assert [(p.col, p.row, p.x, p.y, p.z) for p in listed] == list(points)
        assert from_gcps(listed) is not None
        assert found.rpcs.line_num_coeff == [0.25] * 20
        assert found.rpcs.height_scale == 2.0


def test_axes_that_a_geotiff_does_not_have_become_bands(tmp_path):
    values = smooth((2, 3, 40, 50))
    node = made(
        tmp_path,
        [values],
        axes=[Axis(name=n) for n in "tcyx"],
        bands=(Band(name="red"), Band(), Band()),
    )
    report = convert(node, tmp_path / "a.tif", verify=True)
    assert len(report.losses) == 1
    with rasterio.open(tmp_path / "a.tif") as found:
        np.testing.assert_array_equal(found.read(), values.reshape(6, 40, 50))
        assert found.descriptions[:2] == ("t0 red", "t0 c1")


@pytest.mark.parametrize("interleave", ["pixel", "band"])
def test_bands_apart(tmp_path, interleave):
    values = smooth((5, 300, 400))
    path = tmp_path / "a.tif"
    convert(
        made(tmp_path, [values]),
        path,
        interleave=interleave,
        chunk=(128, 128),
        levels=2,
        verify=True,
    )
    with rasterio.open(path) as found:
        assert found.interleaving.value.lower() == interleave
        np.testing.assert_array_equal(
            found.read(window=Window(100, 90, 200, 150)), values[:, 90:240, 100:300]
        )
    assert checked(path) == VALID


def test_booleans_are_bits(tmp_path):
    values = smooth((100, 120), "float32", 1) > 0.5
    convert(made(tmp_path, [values]), tmp_path / "a.tif", verify=True)
    with rasterio.open(tmp_path / "a.tif") as found:
        np.testing.assert_array_equal(found.read(1), values)
        assert found.tags(1, ns="IMAGE_STRUCTURE")["NBITS"] == "1"


def test_bigtiff(tmp_path):
    values = smooth((300, 400))
    path = tmp_path / "a.tif"
    convert(made(tmp_path, [values]), path, bigtiff=True, chunk=(128, 128), verify=True)
    assert path.read_bytes()[:4] == b"II+\0"
    with rasterio.open(path) as found:
        np.testing.assert_array_equal(found.read(1), values)
    assert checked(path) == VALID


def test_files_above_4_gib_are_bigtiff():
    lengths = np.full(5000, 1 << 20, np.uint64)
    pages = [Page([longs(256, 1)], lengths)]
    placed = layout(pages, [pages], is_cog=True)
    assert placed.is_big
    assert placed.size == len(placed.head) + 5000 * ((1 << 20) + 8)
    assert not layout([Page([], lengths[:100])], [], is_cog=True).is_big


def test_levels_of_the_source_are_kept(tmp_path):
    levels = [smooth((80, 120)), smooth((40, 60)) + 5]
    convert(made(tmp_path, levels), tmp_path / "a.tif", chunk=(32, 32), verify=True)
    np.testing.assert_array_equal(overviews(tmp_path / "a.tif")[0][0], levels[1])


@pytest.mark.parametrize("size", [1, 15, 16, 17, 33])
def test_edges(tmp_path, size):
    values = smooth((size, 2 * size + 1), "int16")
    convert(made(tmp_path, [values]), tmp_path / "a.tif", chunk=(16, 16), levels=3, verify=True)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / "a.tif", key=0), values)


def test_regions_and_runs_do_not_show(tmp_path, monkeypatch):
    """Many small regions, several runs, and a level count that leaves odd ends."""
    values = smooth((3, 333, 471))
    node = made(tmp_path, [values], nodata=0)
    convert(node, tmp_path / "a.tif", chunk=(32, 32), levels=5)
    monkeypatch.setattr("anychunk.conversion.levels.REGION_BYTES", 32 * 32 * 6)
    convert(node, tmp_path / "b.tif", chunk=(32, 32), levels=5, verify=True)
    assert (tmp_path / "a.tif").read_bytes() == (tmp_path / "b.tif").read_bytes()


def test_ome_tiff(tmp_path):
    import ome_types

    values = smooth((2, 3, 4, 140, 130))
    axes = [
        Axis(name="t", unit="second", scale=0.5), Axis(name="c"),
        Axis(name="z", unit="micrometer", scale=2.0),
        *(Axis(name=n, unit="micrometer", scale=0.25) for n in "yx"),
    ]  # fmt: skip
    shown = drawing.channels(
        [Channel(band=n, color=c) for n, c in enumerate(("FF0000", "00FF00", "0000FF"))]
    )
    bands = tuple(Band(name=n) for n in ("DAPI", "GFP", "µ<&>"))
    path = tmp_path / "a.ome.tif"
    report = convert(
        made(tmp_path, [values], axes=axes, bands=bands, display=shown),
        path,
        chunk=(64, 64),
        levels=3,
        verify=True,
    )
    assert report.losses == ()
    with tifffile.TiffFile(path) as tif:
        series = tif.series[0]
        assert (tif.is_ome, series.axes, series.shape) == (True, "TCZYX", values.shape)
        np.testing.assert_array_equal(series.asarray(), values)
        assert [level.shape[-2:] for level in series.levels] == [(140, 130), (70, 65), (35, 32)]
        half = values.reshape(2, 3, 4, 70, 2, 65, 2).astype(np.uint32).sum(axis=(-3, -1))
        np.testing.assert_allclose(series.levels[1].asarray(), half / 4, atol=0.5)
        pixels = ome_types.from_xml(tif.ome_metadata).images[0].pixels
    assert [c.name for c in pixels.channels] == ["DAPI", "GFP", "µ<&>"]
    assert [c.color.as_rgb_tuple()[:3] for c in pixels.channels] == [
        (255, 0, 0),
        (0, 255, 0),
        (0, 0, 255),
    ]
    assert (pixels.physical_size_x, pixels.physical_size_z, pixels.time_increment) == (
        0.25,
        2.0,
        0.5,
    )
    assert pixels.physical_size_x_unit.value == "µm"


def test_ome_tiff_of_colours_and_of_several_images(tmp_path):
    import ome_types

    values = smooth((3, 90, 70), "uint8", 200)
    path = tmp_path / "a.ome.tif"
    convert(
        made(tmp_path, [values], images=2, display=drawing.rgb()),
        path,
        compression="jpeg",
        compression_level=95,
        chunk=(64, 64),
    )
    with tifffile.TiffFile(path) as tif:
        assert [s.shape for s in tif.series] == [(90, 70, 3)] * 2
        assert len(ome_types.from_xml(tif.ome_metadata).images) == 2
        assert np.abs(np.moveaxis(tif.series[1].asarray(), -1, 0).astype(int) - values).max() < 40


def test_ome_xml_of_the_source_is_kept(tmp_path):
    import ome_types

    values = smooth((2, 64, 64))
    source, path = tmp_path / "s.ome.tif", tmp_path / "a.ome.tif"
    tifffile.imwrite(source, values, metadata={
        "axes": "CYX", "Channel": {"Name": ["a", "b"], "ExcitationWavelength": [405, 488]}, "Description": "kept",
    })  # fmt: skip
    convert(source, path, verify=True)
    image = ome_types.from_tiff(path).images[0]
    assert image.description == "kept"
    assert [c.excitation_wavelength for c in image.pixels.channels] == [405, 488]
    np.testing.assert_array_equal(tifffile.imread(path), values)


@pytest.mark.processes
def test_an_interrupted_conversion_is_resumed(tmp_path, tmp_path_factory):
    values = smooth((1500, 1500))
    np.save(tmp_path / "a.npy", values)
    path = tmp_path / "a.tif"
    slow = (
        "import sys, threading\n"
        "from anychunk.conversion import convert, levels\n"
        "from anychunk.conversion.staging import Journal\n"
        "levels.REGION_BYTES = 1 << 19\n"
        "add = Journal.add\n"
        "Journal.add = lambda *a: (add(*a), print('task', flush=True), threading.Event().wait())\n"
        "convert(sys.argv[1], sys.argv[2], workers=1, axes='yx')\n"
    )
    printed = tmp_path_factory.mktemp("printed")
    arguments = [tmp_path / "a.npy", path]
    child = processes.Process(slow, arguments, printed, cwd=tmp_path)
    try:
        assert child.wait_for_lines(1) == ["task"], child.texts()
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert not path.exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anychunk.conversion.levels.REGION_BYTES", 1 << 19)
        report = convert(tmp_path / "a.npy", path, workers=1, axes="yx", verify=True)
    assert 0 < report.skipped_bytes < report.nbytes
    np.testing.assert_array_equal(tifffile.imread(path, key=0), values)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "a.tif"]


def test_damaged_tiles_of_an_unfinished_conversion_are_written_again(tmp_path, monkeypatch):
    node = made(tmp_path, [smooth((300, 300))])
    monkeypatch.setattr(tiff_files.TiffConversion, "assemble", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        convert(node, tmp_path / "a.tif")
    monkeypatch.undo()
    (file,) = (tmp_path / ".a.tif.part" / "tiles").iterdir()
    data = bytearray(file.read_bytes())
    data[5] ^= 1
    file.write_bytes(data)
    assert convert(node, tmp_path / "a.tif", verify=True).skipped_bytes == 0


def test_verify_finds_a_wrong_pixel(tmp_path, monkeypatch):
    encode = tiff_plan.TileFormat.encode
    monkeypatch.setattr(tiff_plan.TileFormat, "encode", lambda self, part: encode(self, part ^ 1))
    with pytest.raises(FormatError):
        convert(made(tmp_path, [smooth((64, 64))]), tmp_path / "a.tif", verify=True)
    assert not (tmp_path / "a.tif").exists()


def test_an_existing_file_is_kept_or_replaced(tmp_path):
    path = tmp_path / "a.tif"
    path.write_bytes(b"old")
    node = made(tmp_path, [smooth((64, 64))])
    with pytest.raises(FileExistsError):
        convert(node, path)
    assert path.read_bytes() == b"old"
    convert(node, path, overwrite=True)
    assert tifffile.imread(path).shape == (64, 64)


def test_a_remote_target(tmp_path):
    values = smooth((64, 64))
    convert(made(tmp_path, [values]), "memory://tiff-files/a.tif", verify=True)
    np.testing.assert_array_equal(anychunk.open_array("memory://tiff-files/a.tif")[:], values)
    with pytest.raises(FileExistsError):
        convert(made(tmp_path, [values]), "memory://tiff-files/a.tif")


@pytest.mark.parametrize("options", [
    {"compression": "zip"}, {"compression": "zstd", "compression_level": 99},
    {"compression": "lzw", "compression_level": 3}, {"chunk": (100, 100)}, {"chunk": (32, 64)},
    {"predictor": "float"}, {"unknown": 1}, {"like": "geo"}, {"interleave": "line"},
    {"shard": (64, 64)}, {"executor": "tcp://127.0.0.1:1"},
    {"compression": "jpeg"}, {"compression": [{"name": "zstd"}]},
])  # fmt: skip
def test_unsupported_options_write_nothing(tmp_path, options):
    node = made(tmp_path, [smooth((64, 64))])
    before = sorted(tmp_path.iterdir())
    with pytest.raises((UnsupportedError, OptionError)):
        convert(node, tmp_path / "a.tif", **options)
    assert sorted(tmp_path.iterdir()) == before


def test_several_images_need_a_choice(tmp_path):
    node = made(tmp_path, [smooth((64, 64))], images=2)
    with pytest.raises(FormatError):
        convert(node, tmp_path / "a.tif")
    convert(node, tmp_path / "a.tif", image=1)


def test_what_is_lost_is_listed(tmp_path):
    shown = drawing.channels([Channel(band=0, color="FF0000", window=[0, 5]), Channel(band=1)])
    axes = [Axis(name="c"), Axis(name="y", unit="parsec", scale=2.0), Axis(name="x")]
    node = made(tmp_path, [smooth((2, 64, 64))], axes=axes, display=shown, native={"nitf": {"a": 1}},
                place=Place(crs=Crs(wkt='LOCAL_CS["x"]')))  # fmt: skip
    losses = " ".join(convert(node, tmp_path / "a.tif").losses)
    for word in ("channels", "along y", "nitf", "CRS"):
        assert word in losses


@pytest.mark.filterwarnings("ignore:Dataset has no geotransform")
def test_domains_of_gdal_metadata_are_listed_as_lost(tmp_path):
    path = tmp_path / "a.tif"
    with rasterio.open(path, "w", "GTiff", count=2, width=48, height=32, dtype="uint8") as file:
        file.write(np.zeros((2, 32, 48), np.uint8))
        file.update_tags(plain="kept")
        file.update_tags(ns="IMAGERY", ACQUISITIONDATETIME="2020-01-02T03:04:05Z")
    assert convert(path, tmp_path / "b.tif").losses == ()
    with rasterio.open(path, "r+") as file:
        file.update_tags(ns="MINE", key="lost")
        file.update_tags(2, ns="THEIRS", key="lost")
    items = anychunk.open(path)["0"].attrs["tiff"]["gdal_metadata"]
    assert (items["MINE"], items["band 1"]["THEIRS"]) == ({"key": "lost"}, {"key": "lost"})
    (loss,) = convert(path, tmp_path / "c.tif").losses
    assert loss.endswith("MINE THEIRS")
    (loss,) = convert(path, tmp_path / "d.tif", window=((0, 16), (0, 16))).losses
    assert loss.endswith("MINE THEIRS")


def test_the_command(tmp_path, capsys):
    np.save(tmp_path / "a.npy", smooth((64, 64)))
    arguments = [
        "--compression",
        "zstd",
        "--compression-level",
        "5",
        "--option",
        "predictor=none",
        "--axes",
        "yx",
        "--json",
        "--verify",
    ]
    with pytest.raises(SystemExit) as ended:
        main(["convert", str(tmp_path / "a.npy"), str(tmp_path / "a.tif"), *arguments])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["is_verified"] is True
    with rasterio.open(tmp_path / "a.tif") as found:
        assert found.tags(ns="IMAGE_STRUCTURE")["COMPRESSION"] == "ZSTD"


def test_predictors():
    deflate, lerc = parse_compression("deflate", None), parse_compression("lerc", None)
    assert predictor_for(deflate, np.dtype("u2"), None) == 2
    assert predictor_for(deflate, np.dtype("f4"), "auto") == 3
    assert predictor_for(deflate, np.dtype("f4"), "horizontal") == 2
    assert predictor_for(deflate, np.dtype("c8"), None) == 1
    assert predictor_for(lerc, np.dtype("f4"), None) == 1


GOOD = [s for s in samples() if "/" in s.path and not s.path.startswith("malformed")]
ONE_OF_EACH = list({s.format: s for s in GOOD}.values())


@needs_corpus
@pytest.mark.parametrize("sample", ONE_OF_EACH, ids=lambda s: s.path)
def test_one_file_of_each_format(sample, tmp_path):
    """A COG of the first image of a real file has the pixels that we read, for rasterio too."""
    path = tmp_path / "a.tif"
    node = anychunk.index(sample.file)
    first = next(im.images(node))
    expected = np.asarray(open_path(node, first.levels[0])[:])
    if first.names[-2:] != ("y", "x"):
        with pytest.raises(UnsupportedError):
            convert(sample.file, path, image=0)
        return
    convert(sample.file, path, image=0, compression="zstd", compression_level=1, verify=True)
    with rasterio.open(path) as found:
        values = expected.reshape(-1, *expected.shape[-2:])
        np.testing.assert_array_equal(found.read(), values)
    assert checked(path) == VALID


def written(path, values, colors=None, **profile):
    """Write a file with rasterio, as its users do."""
    described = {"height": values.shape[0], "width": values.shape[1], "count": 1}
    with rasterio.open(path, "w", driver="GTiff", dtype=values.dtype, **described, **profile) as f:
        f.write(values, 1)
        if colors is not None:
            f.write_colormap(1, colors)


@pytest.mark.parametrize(
    ("dtype", "profile"),
    [
        ("uint8", {}),
        ("uint8", {"nbits": 1, "photometric": "palette"}),
        ("uint16", {}),  # 65,536 colours
    ],
)
def test_a_color_table_that_rasterio_writes(tmp_path, dtype, profile):
    """It states MinIsBlack, a ColorMap, and COLORINTERP=Palette."""
    colors = {0: (255, 0, 0, 255), 1: (0, 0, 255, 255)}
    classes = np.random.default_rng(0).integers(0, 2, (600, 700)).astype(dtype)
    written(tmp_path / "a.tif", classes, colors, **profile)
    report = convert(tmp_path / "a.tif", tmp_path / "b.tif", levels=2, verify=True)
    assert report.losses == ()
    with rasterio.open(tmp_path / "b.tif") as found:
        np.testing.assert_array_equal(found.read(1), classes)
        assert [found.colormap(1)[n] for n in (0, 1)] == list(colors.values())
        assert found.colorinterp[0].name == "palette"
    # most frequent classes, not their mean
    blocks = classes.reshape(300, 2, 350, 2).transpose(0, 2, 1, 3).reshape(300, 350, 4)
    ones = blocks.sum(-1)
    decided = ones != 2
    (level,) = overviews(tmp_path / "b.tif")
    np.testing.assert_array_equal(level[0][decided], (ones > 2)[decided])


def test_a_transform_without_a_crs(tmp_path):
    written(tmp_path / "a.tif", smooth((40, 50)), transform=from_origin(100, 200, 3, 3))
    convert(tmp_path / "a.tif", tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as found:
        assert found.crs is None
        assert found.transform == from_origin(100, 200, 3, 3)


def test_the_crs_of_heights(tmp_path):
    place = {"crs": "EPSG:32633+5773", "transform": from_origin(5e5, 5e6, 10, 10)}
    written(tmp_path / "a.tif", smooth((40, 50)), **place)
    for name, options in (("b.tif", {}), ("c.tif", {"window": ((0, 20), (0, 30))})):
        convert(tmp_path / "a.tif", tmp_path / name, **options)
        with rasterio.open(tmp_path / name) as found, rasterio.open(tmp_path / "a.tif") as given:
            assert found.crs == given.crs
            assert "EGM96" in found.crs.to_wkt()


@pytest.mark.parametrize("bits", [2, 3, 7])
def test_white_is_zero_in_few_bits(tmp_path, bits):
    """GDAL derives a palette from BitsPerSample, which is 8 in the file that we write."""
    levels = (np.arange(600) % (1 << bits)).astype("uint8").reshape(20, 30)
    written(tmp_path / "a.tif", levels, nbits=bits, photometric="MINISWHITE")
    report = convert(tmp_path / "a.tif", tmp_path / "b.tif", verify=True)
    assert report.losses == ()
    with rasterio.open(tmp_path / "a.tif") as given, rasterio.open(tmp_path / "b.tif") as found:
        np.testing.assert_array_equal(found.read(1), levels)
        ours, theirs = found.colormap(1), given.colormap(1)
        colors = np.array([[ours[n], theirs[n]] for n in range(1 << bits)])
    assert np.abs(colors[:, 0] - colors[:, 1]).max() <= 1
    assert colors[0, 0].tolist() == [255] * 4
    assert colors[-1, 0].tolist() == [0, 0, 0, 255]


def test_opacity_of_one_bit_is_not_that_of_eight(tmp_path):
    """Marked as opacity, 1 of 255 would make the picture invisible."""
    values = smooth((4, 40, 50), "uint8", 1)
    display = drawing.with_alpha(drawing.rgb(), 3, limits=(0, 1))
    node = made(tmp_path, [values], display=display)
    report = convert(node, tmp_path / "a.tif")
    assert [loss for loss in report.losses if "opacity from 0 to 1" in loss]
    with rasterio.open(tmp_path / "a.tif") as found:
        np.testing.assert_array_equal(found.read(), values)
        assert (found.dataset_mask() == 255).all()


@pytest.mark.parametrize(
    "stated", ["2020-02-03T04:05:06.25+02:00", "1960-01-01T00:00:00", "2020-02-03T23:59:59.999999"]
)
@pytest.mark.parametrize("names", [("b.tif",), ("b.zarr", "c.tif")])
def test_the_date_of_an_image_is_not_that_of_its_file(tmp_path, stated, names):
    path = tmp_path / "a.tif"
    written(path, smooth((8, 8)))
    with rasterio.open(path, "r+") as file:
        file.update_tags(TIFFTAG_DATETIME="2026:05:05 00:00:00")
        file.update_tags(ns="IMAGERY", ACQUISITIONDATETIME=stated)
    for name in names:
        convert(path, tmp_path / name)
        path = tmp_path / name
    with rasterio.open(path) as found:
        assert found.tags()["TIFFTAG_DATETIME"] == "2026:05:05 00:00:00"
        when = np.datetime64(found.tags(ns="IMAGERY")["ACQUISITIONDATETIME"])
    expected = {"2020-02-03T04:05:06.25+02:00": "2020-02-03T02:05:06.25"}.get(stated, stated)
    assert when == np.datetime64(expected)
    index = anychunk.index([path], combine="stack", dates="tags")
    assert anychunk.open(index)["0/0/t"][:].tolist() == [
        np.datetime64(expected, "us").astype(int).item()
    ]
