"""STAC items of pystac over files of rasterio, read back by xarray."""

import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pystac
import pytest
import xarray

import anychunk
from anychunk import limits
from anychunk.cli import main
from anychunk.combine import stac
from anychunk.errors import AnychunkError, FilesError, FormatError, LimitError
from tests.io.test_addresses import serving
from tests.support.combined_files import write_geotiff
from tests.support.s3 import needs_s3, serve_s3

VALUES = np.random.default_rng(3).integers(1, 4000, (3, 2, 32, 48), dtype="uint16")
DAYS = [3, 1, 2]
ORDER = [1, 2, 0]
TRUTH = np.array([f"2024-01-0{day}T10:20:30.123456" for day in (1, 2, 3)], "datetime64[ns]")
BANDS = ("red", "nir")


def write_files(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for number, values in enumerate(VALUES):
        for band, plane in zip(BANDS, values, strict=True):
            write_geotiff(folder / f"{number}_{band}.tif", plane, 500, 1000)
        write_geotiff(folder / f"{number}_both.tif", values, 500, 1000)


def made_item(number, href="{}", **properties):
    """An item of pystac; `href` makes a reference of the name of a file."""
    date = datetime(2024, 1, DAYS[number], 10, 20, 30, 123_456, tzinfo=UTC)
    item = pystac.Item(
        id=f"scene/{number}",
        geometry={"type": "Point", "coordinates": [15, 0]},
        bbox=[15, 0, 15, 0],
        datetime=date,
        properties={"proj:epsg": 32633, **properties},
    )
    grid = {"proj:shape": [32, 48], "proj:transform": [10, 0, 500, 0, -10, 1000, 0, 0, 1]}
    for band, name in zip(BANDS, ("B04", "B08"), strict=True):
        described = {"eo:bands": [{"name": name, "common_name": band}], **grid}
        item.add_asset(
            band, pystac.Asset(href.format(f"{number}_{band}.tif"), extra_fields=described)
        )
    both = {"bands": [{"name": "B04"}, {"name": "B08"}], **grid}
    item.add_asset("both", pystac.Asset(href.format(f"{number}_both.tif"), extra_fields=both))
    item.add_asset("thumbnail", pystac.Asset("t.png", media_type="image/png", roles=["thumbnail"]))
    return item


@pytest.fixture
def items(tmp_path):
    write_files(tmp_path / "files")
    return [made_item(n, f"{tmp_path}/files/{{}}") for n in range(3)]


def opened(given, **options):
    return xarray.open_dataset(
        given, engine="anychunk", **{"combine": "stack", "assets": list(BANDS), **options}
    )


def check(dataset, names=("B04", "B08")):
    np.testing.assert_array_equal(dataset["t"].values, TRUTH)
    assert dataset["c"].values.tolist() == list(names)
    np.testing.assert_array_equal(dataset["image"].values, VALUES[ORDER])
    assert dataset["image"].dims == ("t", "c", "y", "x")
    assert dataset["x"].values[0] == 505


def as_json(items):
    return [item.to_dict(transform_hrefs=False) for item in items]


def test_objects_and_dictionaries(items):
    collection = pystac.ItemCollection(items)
    for given in (items, iter(items), collection, as_json(items), collection.to_dict(transform_hrefs=False)):  # fmt: skip
        check(opened(given))
    check(opened(items, assets="both"))
    check(opened(items, assets=["red", "B08"]), ("B04", "B08"))
    named = [made_item(n, items[0].assets["red"].href.replace("0_red.tif", "{}")) for n in range(3)]
    for item in named:  # asked for by the names of bands, not by keys
        for band in BANDS:
            item.assets[f"SR_{band}"] = item.assets.pop(band)
    check(opened(named), BANDS)
    one = opened(items, assets="nir")["image"]
    assert one.dims == ("t", "y", "x")
    assert one.attrs["long_name"] == "B08"
    assert opened(items, order="given")["t"].values.tolist() == TRUTH[[2, 0, 1]].tolist()


def test_one_item_without_a_stack(items):
    array = anychunk.open_array(items[0], assets="nir")
    np.testing.assert_array_equal(array[...], VALUES[0, 1])
    assert anychunk.open_array(as_json(items)[0], assets=BANDS).shape == (2, 32, 48)
    with pytest.raises(ValueError, match="several files require combine="):
        anychunk.index(items, assets="nir")
    group = anychunk.open_group(items, assets="nir", combine="group")
    assert sorted(group.group_keys()) == ["scene_0", "scene_1", "scene_2"]
    np.testing.assert_array_equal(group["scene_2/0/0/image"][...], VALUES[2, 1])


def geoparquet(path, items):
    """Write the layout of stac-geoparquet: properties are columns, absent values null."""
    pa = pytest.importorskip("pyarrow", reason="reads GeoParquet: pip install pyarrow")
    from pyarrow import parquet

    rows = []
    for item in as_json(items):
        properties = item.pop("properties")
        properties["datetime"] = datetime.fromisoformat(properties["datetime"])
        rows.append({**item, **properties, "geometry": b"\1"})
    parquet.write_table(pa.Table.from_pylist(rows), path)


@pytest.mark.parametrize("name", ["items.json", "items.parquet", "items.geojson", "one by one"])
def test_files_of_items(tmp_path, name):
    """Whose references are relative to them."""
    write_files(tmp_path)
    items = [made_item(n, "./{}") for n in range(3)]
    if name == "one by one":
        for number, item in enumerate(items):
            item.set_self_href(str(tmp_path / f"item-{number}.json"))
            item.save_object(include_self_link=number == 1)
        name = "item-*.json"
    elif name.endswith(".parquet"):
        del items[2].assets["both"]  # a column with a null
        geoparquet(tmp_path / name, items)
    else:
        collection = pystac.ItemCollection(items)
        (tmp_path / name).write_text(json.dumps(collection.to_dict(transform_hrefs=False)))
    check(opened(str(tmp_path / name)))
    anychunk.index_to(tmp_path / name, combine="stack", assets=BANDS, target=tmp_path / "a.json")
    check(xarray.open_dataset(tmp_path / "a.json", engine="anychunk"))


def test_files_of_stac_geoparquet(tmp_path, items):
    arrow = pytest.importorskip(
        "stac_geoparquet.arrow", reason="writes GeoParquet: pip install stac-geoparquet"
    )
    arrow.parse_stac_items_to_parquet(as_json(items), output_path=tmp_path / "items.parquet")
    check(opened(str(tmp_path / "items.parquet"), allow=[str(tmp_path / "files")]))


@pytest.mark.processes
def test_saved_appended_and_in_processes(tmp_path, items):
    target = tmp_path / "a.icechunk"
    options = {"combine": "stack", "assets": BANDS}
    with ProcessPoolExecutor(1) as pool:
        assert anychunk.append(items[1:], target, **options, executor=pool) == 2
    assert anychunk.append(items, target, **options) == 1  # the others are there
    assert anychunk.append(items, target, **options) == 0
    check(xarray.open_dataset(target, engine="anychunk"))
    anychunk.index_to(items, **options, target=tmp_path / "b.parquet")
    check(xarray.open_dataset(tmp_path / "b.parquet", engine="anychunk"))


def test_intervals_and_items_without_a_date(items):
    for item, day in zip(items, DAYS, strict=True):
        item.datetime, item.properties["datetime"] = None, None
        item.properties |= {
            "start_datetime": f"2024-01-0{day}T10:20:30.123456Z",
            "end_datetime": "2024-02-01T00:00:00Z",
        }
    check(opened(items))
    plain = as_json(items)
    del plain[1]["properties"]["start_datetime"], plain[1]["properties"]["end_datetime"]
    with pytest.raises(FormatError, match="STAC item scene/1: has neither datetime nor"):
        opened(plain)
    days = [f"2024-01-0{day}T10:20:30.123456" for day in DAYS]
    check(opened(plain, dates=days))
    twins = as_json([items[0], items[1]])
    twins[1]["properties"]["start_datetime"] = twins[0]["properties"]["start_datetime"]
    with pytest.raises(FormatError, match="have the same date"):
        opened(twins)
    assert opened(twins, duplicates="keep").sizes["t"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"proj:epsg": 32631}, r"proj:code is EPSG:32631, the file has EPSG:32633"),
        ({"proj:code": "EPSG:4326"}, r"proj:code is EPSG:4326, the file has EPSG:32633"),
        ({"proj:shape": [48, 32]}, r"proj:shape is \[48, 32\], the file has \[32, 48\]"),
        ({"proj:transform": [10, 0, 510, 0, -10, 1000]}, r"proj:transform is \[10.0, 0.0, 510.0"),
        ({"proj:transform": [20, 0, 500, 0, -20, 1000]}, r"proj:transform is \[20.0"),
    ],
)
def test_proj_is_checked(items, change, message):
    items[1].assets["nir"].extra_fields |= change
    message = rf"STAC item scene/1, asset nir: {message}.*check_proj=False"
    with pytest.raises(AnychunkError, match=message):
        opened(items)
    check(opened(items, check_proj=False))
    failures = {}
    anychunk.index(items, combine="stack", assets=BANDS, failures=failures)
    assert len(failures) == 1


def test_proj_that_is_the_same(items):
    """Rounding, a code of the item, and one that is not known."""
    items[0].assets["red"].extra_fields["proj:transform"] = [10, 0, 500.00001, 0, -10, 1000]
    items[1].assets["red"].extra_fields |= {"proj:code": "epsg:32633", "proj:epsg": None}
    items[2].properties |= {"proj:epsg": None, "proj:shape": [1, 1]}
    check(opened(items))


@pytest.mark.parametrize(
    ("assets", "message"),
    [
        (None, "has the assets red nir both thumbnail; choose some by assets="),
        ("green", "has no asset 'green'; its assets are red nir both thumbnail"),
        ("B04", None),
    ],
)
def test_choice_of_assets(items, assets, message):
    if message is None:
        assert opened(items, assets=assets).sizes["t"] == 3
        return
    with pytest.raises(FormatError, match=f"STAC item scene/0: {message}"):
        opened(items, assets=assets)
    with pytest.raises(FilesError, match="scene"):
        opened(items, assets=assets, failures={})


def test_the_only_asset_with_data_is_the_default(items):
    for item in items:
        del item.assets["red"], item.assets["nir"]
    check(opened(items, assets=None))


def test_items_that_lack_an_asset_can_be_left_out(items):
    del items[0].assets["nir"]
    failures = {}
    assert opened(items, failures=failures).sizes["t"] == 2
    assert "has no asset 'nir'" in failures["scene/0"]


def test_assets_that_do_not_fit(tmp_path, items):
    with pytest.raises(AnychunkError, match="scene/0: some of its assets have one band"):
        opened(items[:1], assets=["red", "both"])
    items[0].assets["nir"].href = items[0].assets["red"].href
    with pytest.raises(AnychunkError, match="scene/0: two of its assets have the same file"):
        opened(items[:1])
    items[1].assets["nir"].href = write_geotiff(tmp_path / "x.tif", VALUES[0, 0, :16], 500, 1000)
    with pytest.raises(AnychunkError, match=r"shape \(16, 48\), expected \(32, 48\)"):
        opened(items[1:2], check_proj=False)


@pytest.mark.processes
@needs_s3
def test_s3(tmp_path):
    write_files(tmp_path / "s3" / "bucket" / "data")
    catalog = tmp_path / "s3" / "bucket" / "catalog"
    catalog.mkdir()
    collection = pystac.ItemCollection([made_item(n, "../data/{}") for n in range(3)])
    text = json.dumps(collection.to_dict(transform_hrefs=False))
    (catalog / "items.json").write_text(text)
    local = made_item(0, str(tmp_path / "s3" / "bucket" / "data" / "{}"))
    (catalog / "bad.json").write_text(json.dumps(local.to_dict(transform_hrefs=False)))
    with serve_s3(tmp_path / "s3") as storage:
        check(opened("s3://bucket/catalog/items.json", storage=storage).load())
        absolute = [made_item(n, "s3://bucket/data/{}") for n in range(3)]
        check(opened(absolute, storage=storage).load())
        with pytest.raises(FormatError, match="leads outside its folder; pass allow="):
            opened("s3://bucket/catalog/bad.json", storage=storage)


def test_urls_are_signed(tmp_path):
    path = Path(write_geotiff(tmp_path / "a.tif", VALUES[0, 0], 500, 1000))
    with serving(path.read_bytes()) as web:
        web.query = {"sig": "SECRET"}
        item = made_item(0, f"{web.url}/{{}}")
        with pytest.raises(AnychunkError) as e:
            anychunk.index(item, assets="red")
        asked = []

        def sign(url):
            asked.append(url)
            return f"{url}?sig=SECRET"

        node = anychunk.index([item], assets="red", sign=sign, combine="stack")
        assert asked == [f"{web.url}/0_red.tif"]
        np.testing.assert_array_equal(anychunk.open(node)["0/0/image"][0], VALUES[0, 0])
        assert b"SECRET" not in pickle.dumps(node)
        web.query = {"sig": "OTHER"}
        with pytest.raises(AnychunkError) as e:
            anychunk.index([item], assets="nir", sign=sign, combine="stack")
        assert "SECRET" not in str(e.value)
        with pytest.raises(TypeError, match="sign= returned NoneType"):
            anychunk.index(item, assets="red", sign=lambda _: None)
    with pytest.raises(FormatError, match="assets= and sign= need STAC items"):
        anychunk.index(path, sign=sign)


@pytest.fixture
def secret(tmp_path):
    folder = tmp_path / "private"
    folder.mkdir()
    return write_geotiff(folder / "0_red.tif", VALUES[0, 0], 500, 1000)


def test_a_remote_item_does_not_open_local_files(tmp_path, secret):
    item = made_item(0, f"{Path(secret).parent}/{{}}")
    remote = "https://example.org/items/0"
    item.set_self_href(remote)
    by_root, by_link = made_item(0, f"{Path(secret).parent}/{{}}"), as_json([item])[0]
    root = pystac.Catalog("c", "", href="https://example.org/")
    by_root.set_root(root)
    by_link["links"] = [{"rel": "self", "href": remote}]
    other = {**by_link, "links": [{"rel": "collection", "href": "https://example.org/c"}]}
    uri = json.loads(json.dumps(by_link).replace(f'"{Path(secret).parent}', f'"file://{Path(secret).parent}'))  # fmt: skip
    assert uri["assets"]["red"]["href"].startswith("file:///")
    memory = {**by_link, "assets": {"red": {"href": "memory:///0_red.tif"}}}
    for given in (item, by_root, by_link, other, uri, memory):
        with pytest.raises(FormatError, match="asset red: the reference .*; pass allow="):
            anychunk.index(given, assets="red")
    for allow in ([str(tmp_path / "private")], ["*"]):
        array = anychunk.open_array(item, assets="red", allow=allow)
        np.testing.assert_array_equal(array[...], VALUES[0, 0])
    # an object of the caller's own, unless the caller says otherwise
    own = made_item(0, f"{Path(secret).parent}/{{}}")
    assert anychunk.open_array(own, assets="red").shape == (32, 48)
    with pytest.raises(FormatError, match="pass allow="):
        anychunk.index(own, assets="red", allow=[])


def test_a_local_item_stays_in_its_folder(tmp_path, secret):
    folder = tmp_path / "items"
    folder.mkdir()
    (folder / "link.tif").symlink_to(secret)
    for number, href in enumerate(("../private/0_red.tif", secret, f"file://{secret}", "link.tif")):
        item = made_item(0)
        item.assets["red"].href = href
        path = folder / f"{number}.json"
        path.write_text(json.dumps(item.to_dict(transform_hrefs=False)))
        with pytest.raises(FormatError, match="leads outside its folder; pass allow="):
            anychunk.index(path, assets="red")
        found = anychunk.open_array(path, assets="red", allow=[Path(secret).parent])
        np.testing.assert_array_equal(found[...], VALUES[0, 0])
    listed = {"type": "FeatureCollection", "features": [
        {**made_item(0, f"{Path(secret).parent}/{{}}").to_dict(transform_hrefs=False),
         "links": [{"rel": "self", "href": "https://example.org/items/0"}]}
    ]}  # fmt: skip
    (folder / "search.json").write_text(json.dumps(listed))
    with pytest.raises(FormatError, match="pass allow="):
        anychunk.index(folder / "search.json", assets="red", allow=[])


@pytest.mark.parametrize(
    ("href", "base", "url"),
    [
        ("./a.tif", "s3://b/x/item.json", "s3://b/x/a.tif"),
        ("../a.tif", "https://h/x/y/item.json?token=1", "https://h/x/a.tif"),
        ("../../../a.tif", "https://h/x/item.json", "https://h/a.tif"),
        ("https://h/a b.tif?v=1", None, "https://h/a b.tif?v=1"),
        ("gcs://b/a.tif", "/local/item.json", "gs://b/a.tif"),
    ],
)
def test_references(href, base, url):
    assert stac.resolved_href(href, stac.Origin(base), None, "x") == url


@pytest.mark.parametrize("allow", [None, ["*"]])
def test_local_references_may_be_percent_encoded(tmp_path, allow):
    """They are uris (RFC 3986), but many writers put plain paths there."""
    folder = tmp_path / "my items"
    write_files(folder)
    (folder / "0_red.tif").rename(folder / "ä 100%.tif")
    (folder / "1_red.tif").rename(folder / "a%20b.tif")
    (folder / "2_red.tif").rename(folder / "a b.tif")
    names = {"%C3%A4%20100%25.tif": 0, "ä 100%.tif": 0, "a%20b.tif": 1, "a%2520b.tif": 1}
    names |= {"a b.tif": 2, f"{folder}/a b.tif".replace(" ", "%20"): 2}
    for href, number in names.items():
        item = made_item(0)
        item.assets["red"].href = href
        path = folder / "item.json"
        path.write_text(json.dumps(item.to_dict(transform_hrefs=False)))
        found = anychunk.open_array(path, assets="red", allow=allow)
        np.testing.assert_array_equal(found[...], VALUES[number, 0])


def test_encoded_references_do_not_leave_the_folder(tmp_path):
    for href in ("%2e%2e/a.tif", "..%2Fa.tif", "%2Fetc%2Fpasswd", "a%00.tif", "http%3A//h/a.tif"):
        with pytest.raises(FormatError, match="leads outside its folder"):
            stac.resolved_href(href, stac.Origin(f"{tmp_path}/item.json"), None, "x")


def test_relative_references_need_an_origin():
    for origin in (stac.Origin(), stac.Origin("https://h/catalog.json", is_own=False)):
        with pytest.raises(FormatError, match="is relative, and the item has no self link"):
            stac.resolved_href("a.tif", origin, None, "x")


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"assets": []},
        {"assets": {"red": None}},
        {"assets": {"red": {"href": 5}}},
        {"assets": {"red": {"href": ""}}},
        {"assets": {"red": {"href": "/x\0y.tif"}}, "links": [{"rel": "self", "href": "/i.json"}]},
        {"assets": {"red": {"href": "a", "bands": 3, "proj:shape": "x"}}, "properties": [1]},
        {"id": 7, "links": {"rel": "self"}, "assets": {"red": {"href": "../../etc/passwd"}}},
    ],
)
def test_items_that_are_wrong(entry):
    with pytest.raises(FormatError):
        anychunk.index({"type": "Feature", **entry}, assets="red")


@pytest.mark.parametrize(
    "text",
    ['{"stac_version": "1.0.0", "type": "Catalog"}', '{"stac_version": "1.0.0"', '["stac_version"]',
     '{"stac_version": 1, "type": "FeatureCollection"}', '["stac_version", ' + "[" * 100_000],
)  # fmt: skip
def test_documents_that_are_wrong(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(FormatError):
        anychunk.index(tmp_path / "a.json", assets="red", combine="stack")


def test_damaged_and_long_documents(tmp_path, items):
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(100))
    with pytest.raises(FormatError):
        anychunk.index(tmp_path / "a.parquet", assets="red", combine="stack")
    geoparquet(tmp_path / "b.parquet", items)
    for path in (tmp_path / "b.parquet",):
        with limits.override(index_bytes=100), pytest.raises(LimitError, match="index_bytes"):
            anychunk.index(path, assets="red", combine="stack")
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "c.parquet")
    with pytest.raises(FormatError, match="no columns id and assets"):
        anychunk.index(tmp_path / "c.parquet", assets="red", combine="stack")


def test_catalogs_are_refused_with_advice(items):
    catalog = pystac.Catalog("c", "")
    catalog.add_items(items)
    with pytest.raises(TypeError, match="pass its items"):
        anychunk.index(catalog, combine="stack", assets="red")
    with pytest.raises(FileNotFoundError, match="missing.json"):
        anychunk.index("missing.json", combine="stack", assets="red")


def test_the_same_file_twice(items):
    with pytest.raises(FormatError, match="scene/0 and scene/0 have the same file"):
        opened([items[0], items[0]])


def test_command_line(tmp_path, capsys):
    write_files(tmp_path)
    collection = pystac.ItemCollection([made_item(n) for n in range(3)])
    path, target = str(tmp_path / "items.json"), str(tmp_path / "a.icechunk")
    Path(path).write_text(json.dumps(collection.to_dict(transform_hrefs=False)))

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main(["index", path, *arguments])
        return caught.value.code, capsys.readouterr()

    chosen = ("--assets", "red", "--assets", "nir")
    code, printed = run("-o", target, "--combine", "stack", *chosen, "--append")
    assert (code, printed.err) == (0, "")
    assert printed.out.startswith("3 files, ")
    check(xarray.open_dataset(target, engine="anychunk"))
    code, printed = run("-o", str(tmp_path / "b.json"), *chosen)
    assert code == 0
    assert list(anychunk.index(tmp_path / "b.json").members) == ["scene_0", "scene_1", "scene_2"]
    code, printed = run("-o", str(tmp_path / "c.json"), "--combine", "stack")
    assert (code, printed.err.count("\n")) == (2, 1)
    assert "choose some by assets=" in printed.err


@pytest.mark.parametrize("epsg", ["NaN", "Infinity", "1e999"])
def test_numbers_that_json_does_not_have(tmp_path, epsg):
    write_files(tmp_path)
    text = json.dumps(made_item(0).to_dict(transform_hrefs=False))
    path = tmp_path / "item.json"
    path.write_text(text.replace("32633", epsg).replace("[32, 48]", f"[{epsg}, 48]"))
    found = anychunk.index(path, combine="stack", assets="red")
    np.testing.assert_array_equal(anychunk.open_array(found)[0], VALUES[0, 0])


def test_files_among_items_are_named(items, tmp_path):
    (tmp_path / "a.tif").write_bytes(b"II*\0")
    with pytest.raises(FormatError, match=r"a\.tif: .*expected STAC items"):
        anychunk.index([items[0], tmp_path / "a.tif"], combine="stack", assets="red")


@pytest.mark.parametrize("combine", ["stack", "group", "mosaic", "concat"])
def test_no_files(combine):
    with pytest.raises(FormatError, match="empty"):
        anychunk.index([], combine=combine)
