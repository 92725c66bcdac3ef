"""Stacks along t: which dates, in which order, and what xarray decodes of them."""

from collections import Counter
from datetime import datetime

import numpy as np
import pytest
import rasterio
import tifffile
import xarray

import anychunk
from anychunk import archive
from anychunk.cli import main
from anychunk.errors import FilesError, FormatError
from tests.support.combined_files import write_geotiff
from tests.support.nitf_writer import Image, nitf

VALUES = np.random.default_rng(7).integers(1, 250, (4, 32, 48), dtype="uint8")
DAYS = ["20240301", "20240101", "20240401", "20240201"]
SORTED = [1, 3, 0, 2]
"""The order of `DAYS`."""
TRUTH = np.array(["2024-01-01", "2024-02-01", "2024-03-01", "2024-04-01"], "datetime64[ns]")


def write(path, values, **options):
    tifffile.imwrite(path, values, tile=(16, 16), compression="zlib", **options)
    return str(path)


@pytest.fixture
def named(tmp_path):
    """Files with a date in the name, whose names sort in another order."""
    return [
        write(tmp_path / f"{i}_{day}.tif", values)
        for i, (day, values) in enumerate(zip(DAYS, VALUES, strict=True))
    ]


@pytest.fixture
def tagged(tmp_path):
    """Files with a date in DateTime."""
    return [
        write(tmp_path / f"{i}.tif", values, datetime=f"{day[:4]}:{day[4:6]}:{day[6:]} 10:00:00")
        for i, (day, values) in enumerate(zip(DAYS, VALUES, strict=True))
    ]


def check(dataset, truth=TRUTH, order=SORTED):
    """Compare dates and pixels with what was written."""
    np.testing.assert_array_equal(dataset["t"].values, truth)
    np.testing.assert_array_equal(dataset["image"].values, VALUES[order])


def opened(url, **options):
    return xarray.open_dataset(url, engine="anychunk", **options)


def test_dates_in_names_are_sorted(named, tmp_path):
    for along in (None, "t", "time"):
        node = anychunk.index(named, combine="stack", along=along, dates="%Y%m%d")
        check(opened(node))
    check(opened(named, combine="stack", dates="%Y%m%d"))
    assert opened(node)["image"].sel(t="2024-02-01").values.tolist() == VALUES[3].tolist()
    pattern = str(tmp_path / "*.tif")
    check(opened(pattern, combine="stack", dates="%Y%m%d", order="given"), TRUTH[[2, 0, 3, 1]], [0, 1, 2, 3])  # fmt: skip


@pytest.mark.parametrize("target", ["a.json", "a.parquet", "a.icechunk"])
@pytest.mark.parametrize("is_saved", [True, False])
def test_saved_dates_decode_equal(named, tmp_path, target, is_saved):
    """By our engine, and by xarray's own from our store."""
    dates = [
        "2024-03-01T10:11:12.345678",
        "2024-01-01",
        "2024-03-01T10:11:12.345679Z",
        "1969-07-20",
    ]
    path = tmp_path / target
    if is_saved:
        anychunk.index(named, combine="stack", dates=dates).save(path)
    else:
        given = {"batch": 2, "overwrite": True}
        assert anychunk.index_to(named, path, combine="stack", dates=dates, **given) == len(named)
    order = [3, 1, 0, 2]
    truth = np.array([text.rstrip("Z") for text in dates], "datetime64[ns]")[order]
    check(opened(path), truth, order)
    plain = xarray.open_zarr(anychunk.open(path).store, group="0/0", consolidated=False)
    check(plain, truth, order)


def test_zarr_2_keeps_dates(named, tmp_path):
    node = anychunk.index(named, combine="stack", dates="%Y%m%d")
    node.save(tmp_path / "v2.json", zarr_format=2)
    check(opened(tmp_path / "v2.json"))


def test_dates_by_url_and_by_a_function(named):
    known = dict(zip(named, TRUTH[[2, 0, 3, 1]], strict=True))
    for dates in (known, known.get, list(known.values())):
        check(opened(anychunk.index(named, combine="stack", dates=dates)))
    with pytest.raises(FormatError, match=r"3_20240201.tif: dates= has no date"):
        anychunk.index(named, combine="stack", dates=dict(list(known.items())[:3]))
    with pytest.raises(ValueError, match="3 dates, expected 4"):
        anychunk.index(named, combine="stack", dates=TRUTH[:3])
    for options in ({"combine": "group"}, {"combine": "stack", "along": "z"}):
        with pytest.raises(ValueError, match="dates= needs combine='stack' along t"):
            anychunk.index(named, **options, dates="%Y%m%d")


def test_names_without_a_date(named, tmp_path):
    other = write(tmp_path / "other.tif", VALUES[0])
    with pytest.raises(FormatError, match="other.tif: its name has no date like '%Y%m%d'"):
        anychunk.index([*named, other], combine="stack", dates="%Y%m%d")
    failures = {}
    check(opened(anychunk.index([*named, other], combine="stack", dates="%Y%m%d", failures=failures)))  # fmt: skip
    assert list(failures) == [other]
    with pytest.raises(FilesError, match="has no date"):
        anychunk.index([other], combine="stack", dates="%Y%m%d", failures={})


def test_dates_in_tags_are_sorted(tagged, tmp_path):
    truth = TRUTH + np.timedelta64(10, "h")
    check(opened(anychunk.index(tagged, combine="stack")), truth)
    check(opened(anychunk.index(tagged, combine="stack", dates="tags")), truth)
    check(opened(tagged, combine="stack", order="given"), truth[[2, 0, 3, 1]], [0, 1, 2, 3])
    node = anychunk.index(tagged, combine="stack", dates=False)
    assert "t" not in opened(node).coords
    np.testing.assert_array_equal(opened(node)["image"].values, VALUES)
    # in several batches too, which are written one after the other
    for target, how in (
        (tmp_path / "a.icechunk", anychunk.append),
        (tmp_path / "b.icechunk", index_to),
    ):
        how(tagged, target, combine="stack", batch=1)
        check(opened(target), truth)


def index_to(urls, target, **options):
    anychunk.index_to(urls, target=target, **options)


def test_files_without_a_tag(tagged, tmp_path):
    plain = write(tmp_path / "plain.tif", VALUES[0])
    with pytest.warns(UserWarning, match="image 0: some files have no date"):
        node = anychunk.index([*tagged, plain], combine="stack")
    assert "t" not in opened(node).coords
    with pytest.raises(FilesError, match="plain.tif: states no date; pass dates="):
        anychunk.index([*tagged, plain], combine="stack", dates="tags")
    failures = {}
    node = anychunk.index([plain, *tagged], combine="stack", dates="tags", failures=failures)
    check(opened(node), TRUTH + np.timedelta64(10, "h"))
    assert list(failures) == [plain]


def test_dates_of_nitf(tmp_path):
    paths = []
    for i, day in enumerate(DAYS):
        data = nitf([Image(VALUES[i][None], block=(16, 16))])
        data = data.replace(b"IMtest      20260101000000", f"IMtest      {day}101112".encode())
        paths.append(tmp_path / f"{i}.ntf")
        paths[-1].write_bytes(data)
    truth = TRUTH + np.timedelta64(10 * 3600 + 11 * 60 + 12, "s")
    check(opened(list(map(str, paths)), combine="stack"), truth)


def test_files_of_the_same_date(named, tmp_path):
    twin = write(tmp_path / "9_20240101.tif", VALUES[0] + 1)
    message = r"1_20240101.tif and .*9_20240101.tif have the same date 2024-01-01T00:00:00; .*keep"
    with pytest.raises(FormatError, match=message):
        anychunk.index([*named, twin], combine="stack", dates="%Y%m%d")
    found = opened([twin, *named], combine="stack", dates="%Y%m%d", duplicates="keep")
    assert found["t"].values.tolist()[:3] == TRUTH.tolist()[:1] * 2 + TRUTH.tolist()[1:2]
    np.testing.assert_array_equal(found["image"].values[0], VALUES[0] + 1)
    np.testing.assert_array_equal(found["image"].values[1], VALUES[1])
    tags = [
        write(tmp_path / f"t{i}.tif", VALUES[i], datetime="2024:01:01 00:00:00") for i in (0, 1)
    ]
    with pytest.raises(FormatError, match=r"t0.tif and .*t1.tif have the same date"):
        anychunk.index(tags, combine="stack")
    assert opened(tags, combine="stack", along="z")["image"].dims == ("z", "y", "x")


def test_appended_dates_follow(named, tmp_path):
    target = tmp_path / "a.icechunk"
    options = {"combine": "stack", "dates": "%Y%m%d"}
    assert anychunk.append([named[0], named[1]], target, **options) == 2
    check(opened(target), TRUTH[[0, 2]], [1, 0])
    with pytest.raises(
        FormatError, match=r"2024-02-01T00:00:00 is earlier than .*2024-03-01.*given"
    ):
        anychunk.append(named, target, **options)
    assert anychunk.append([*named[:2], named[2]], target, **options) == 1
    check(opened(target), TRUTH[[0, 2, 3]], [1, 0, 2])
    twin = write(tmp_path / "twin_20240301.tif", VALUES[3])
    with pytest.raises(FormatError, match="already has the date 2024-03-01T00:00:00"):
        anychunk.append(twin, target, **options, order="given")
    with pytest.raises(FormatError, match="t has dates, the appended files have none"):
        anychunk.append(twin, target, combine="stack")
    check(opened(target), TRUTH[[0, 2, 3]], [1, 0, 2])  # nothing of that was written
    assert anychunk.append(named, target, **options, order="given") == 1
    check(opened(target), TRUTH[[0, 2, 3, 1]], [1, 0, 2, 3])
    twins = {**options, "order": "given", "duplicates": "keep"}
    assert anychunk.append(twin, target, **twins) == 1
    assert opened(target).sizes["t"] == 5


def test_a_stack_without_dates_stays_without(named, tmp_path):
    target = tmp_path / "a.icechunk"
    anychunk.append(named[:2], target, combine="stack")
    with pytest.warns(UserWarning, match="some files have no date"):
        anychunk.append(named[2:3], target, combine="stack", dates="%Y%m%d")
    assert "t" not in opened(target).coords


def test_files_parsed_for_their_dates_only_where_needed(tagged, tmp_path, monkeypatch):
    """One batch is sorted when it is finished; only several need all dates before the first."""
    calls = []
    monkeypatch.setattr(archive, "dates_of_part", lambda *_: calls.append(1))
    anychunk.append(tagged, tmp_path / "a.icechunk", combine="stack")
    assert not calls


@pytest.mark.parametrize("kind", ["in order", "not in order", "damaged", "undated", "other size"])
def test_files_in_several_batches_are_parsed_once_if_they_are_in_order(tagged, tmp_path, kind):
    """Pixels and dates are the same however often; progress is counted once per file."""
    paths = [tagged[i] for i in SORTED]
    order, truth, parses = SORTED, TRUTH, {paths[0]: 2}
    if kind == "not in order":
        paths, parses = tagged, dict.fromkeys(tagged, 2)
        parses[tagged[0]] = 3
    if kind == "damaged":  # among the others, which stay in order
        bad = write(tmp_path / "bad.tif", VALUES[0])
        (tmp_path / "bad.tif").write_bytes(b"II*\0\xff\xff\xff\xff")
        paths.insert(2, bad)
    if kind == "undated":
        paths.insert(2, write(tmp_path / "undated.tif", VALUES[0]))
    if kind == "other size":
        other = write(tmp_path / "other.tif", VALUES[0, :16], datetime="2024:02:15 10:00:00")
        paths.insert(2, other)
    calls, shown, failures = Counter(), [], {}

    def parse(url):
        calls[url] += 1
        return anychunk.index(url)

    files = archive.Files(
        urls=paths,
        recipe=archive.Recipe(parse=parse, how="stack"),
        failures=failures,
        progress=lambda: shown.append(1),
    )
    target = str(tmp_path / "a.icechunk")
    if kind == "other size":
        with pytest.raises(FormatError, match="other.tif"):
            archive.append_files(files, target, batch=2)
        check(opened(target), truth[:2] + np.timedelta64(10, "h"), order[:2])
        return
    if kind == "undated":  # last of all, and refused
        with pytest.raises(FormatError, match="the appended files have none"):
            archive.append_files(files, target, batch=2)
        check(opened(target), truth + np.timedelta64(10, "h"), order)
        return
    assert archive.append_files(files, target, batch=2).files == 4
    check(opened(target), truth + np.timedelta64(10, "h"), order)
    assert calls == {url: parses.get(url, 1) for url in paths}
    assert len(shown) == len(paths)
    assert list(failures) == ([bad] if kind == "damaged" else [])


def test_command_line(named, tmp_path, capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main(["index", *named, "--combine", "stack", *arguments])
        return caught.value.code, capsys.readouterr().err

    target = str(tmp_path / "a.json")
    assert run("-o", target, "--dates", "%Y%m%d") == (0, "")
    check(opened(target))
    assert run("-o", target, "--dates", "%Y%m%d", "--order", "given", "--overwrite") == (0, "")
    check(opened(target), TRUTH[[2, 0, 3, 1]], [0, 1, 2, 3])
    assert run("-o", target, "--dates", "none", "--overwrite") == (0, "")
    assert "t" not in opened(target).coords
    assert run("-o", str(tmp_path / "a.icechunk"), "--dates", "%Y%m%d", "--append") == (0, "")
    check(opened(tmp_path / "a.icechunk"))
    for wrong in (("--dates", "day"), ("--order", "up"), ("--duplicates", "no")):
        code, err = run("-o", target, *wrong, "--overwrite")
        assert (code, err.count("\n")) == (2, 1)
        assert wrong[0] in err


def overviews(path, values, factors, **options):
    write_geotiff(path, values, 0, 1000, **options)
    with rasterio.Env(GDAL_TIFF_OVR_BLOCKSIZE=64), rasterio.open(path, "r+") as file:
        file.build_overviews(factors, rasterio.enums.Resampling.nearest)
    return str(path)


def test_levels_that_all_files_have(tmp_path):
    values = np.random.default_rng(8).integers(0, 255, (3, 512, 512), dtype="uint8")
    paths = [
        overviews(tmp_path / f"{i}.tif", values[i], factors)
        for i, factors in enumerate(([2, 4, 8], [2, 4], [2, 8]))
    ]
    with pytest.warns(UserWarning, match="image 0: levels that not all files have are dropped"):
        node = anychunk.index(paths[:2], combine="stack")
    assert sorted(node["0"].members) == ["0", "1", "2"]
    with pytest.warns(UserWarning, match="levels that not all files have"):
        node = anychunk.index([paths[0], paths[2]], combine="stack")
    assert [node[f"0/{n}/image"].shape[-1] for n in range(3)] == [512, 256, 64]
    group = anychunk.open(node)
    for number, url in enumerate((paths[0], paths[2])):
        with rasterio.open(url) as file:
            assert [group[f"0/{n}/image"][number].tolist() for n in range(3)] == [
                file.read(1, out_shape=(n, n)).tolist() for n in (512, 256, 64)
            ]
    target = tmp_path / "a.icechunk"
    anychunk.append(paths[0], target, combine="stack")
    with pytest.warns(UserWarning, match="levels that not all files have are dropped: 3"):
        anychunk.append(paths[1], target, combine="stack")
    assert sorted(anychunk.index(target)["0"].members) == ["0", "1", "2"]
    found = anychunk.open(target)["0/2/image"]
    assert found.shape == (2, 128, 128)
    longer = overviews(tmp_path / "longer.tif", values[2], [2, 4, 8, 16])
    anychunk.append(longer, target, combine="stack")
    assert anychunk.open(target)["0/2/image"].shape == (3, 128, 128)
    with rasterio.open(longer) as file:
        np.testing.assert_array_equal(
            anychunk.open(target)["0/2/image"][2], file.read(1, out_shape=(128, 128))
        )


def test_a_level_that_does_not_fit_is_dropped(tmp_path):
    values = np.random.default_rng(9).integers(0, 255, (2, 256, 256), dtype="uint8")
    paths = [overviews(tmp_path / "0.tif", values[0], [2])]
    write_geotiff(tmp_path / "1.tif", values[1], 0, 1000)
    with rasterio.Env(GDAL_TIFF_OVR_BLOCKSIZE=128), rasterio.open(tmp_path / "1.tif", "r+") as file:
        file.build_overviews([2], rasterio.enums.Resampling.nearest)
    paths.append(str(tmp_path / "1.tif"))
    message = r"1.tif 0/1: chunk shape \(1, 128, 128\), expected \(1, 64, 64\) .*level 1 is dropped"
    with pytest.warns(UserWarning, match=message):
        node = anychunk.index(paths, combine="stack")
    assert list(node["0"].members) == ["0"]
    np.testing.assert_array_equal(anychunk.open(node)["0/0/image"][...], values)


def exif_tiff(path, values, entries, **options):
    """Write a TIFF with a directory of EXIF tags: ASCII values by code."""
    # tifffile does not write the tag itself: it writes the next one, which is renamed
    tifffile.imwrite(path, values, tile=(16, 16), extratags=[(34666, 4, 1, 0, True)], **options)
    data = bytearray(path.read_bytes())
    with tifffile.TiffFile(path) as file:
        tag = file.pages[0].tags[34666]
    place = tag.valueoffset
    data[tag.offset : tag.offset + 2] = (34665).to_bytes(2, "little")
    start = len(data)
    texts = {code: text.encode() + b"\0" for code, text in sorted(entries.items())}
    position = start + 2 + 12 * len(texts) + 4
    directory, rest = len(texts).to_bytes(2, "little"), b""
    for code, text in texts.items():
        where = (
            text.ljust(4, b"\0") if len(text) <= 4 else (position + len(rest)).to_bytes(4, "little")
        )
        directory += code.to_bytes(2, "little") + (2).to_bytes(2, "little")
        directory += len(text).to_bytes(4, "little") + where
        rest += text if len(text) > 4 else b""
    data[place : place + 4] = start.to_bytes(4, "little")
    path.write_bytes(bytes(data) + directory + bytes(4) + rest)
    return str(path)


@pytest.mark.parametrize(
    ("entries", "truth"),
    [
        ({36867: "2024:01:03 10:11:12"}, "2024-01-03T10:11:12"),
        (
            {36867: "2024:01:03 10:11:12", 36881: "+02:00", 37521: "125"},
            "2024-01-03T08:11:12.125",
        ),
        ({36867: "2024:01:03 10:11:12", 36881: "here", 37521: "x"}, "2024-01-03T10:11:12"),
        ({36867: "0000:00:00 00:00:00"}, "2020-05-06T07:08:09"),  # DateTime
        ({36868: "2024:01:03 10:11:12"}, "2020-05-06T07:08:09"),  # when it was scanned
    ],
)
def test_dates_of_exif(tmp_path, entries, truth):
    path = exif_tiff(tmp_path / "a.tif", VALUES[0], entries, datetime="2020:05:06 07:08:09")
    found = opened([path], combine="stack")["t"].values
    assert found.tolist() == [int(np.datetime64(truth, "ns").astype("int64"))]


def test_dates_of_gdal(tmp_path):
    path = write_geotiff(tmp_path / "a.tif", VALUES[0], 0, 1000)
    with rasterio.open(path, "r+") as file:
        file.update_tags(TIFFTAG_DATETIME="2020:05:06 07:08:09")
    assert opened([path], combine="stack")["t"].values[0] == np.datetime64("2020-05-06T07:08:09")
    with rasterio.open(path, "r+") as file:
        file.update_tags(ns="IMAGERY", ACQUISITIONDATETIME="2019-01-02 03:04:05")
    assert opened([path], combine="stack")["t"].values[0] == np.datetime64("2019-01-02T03:04:05")
    assert datetime.fromisoformat(anychunk.index(path)["0"].attributes["anychunk.time"])
