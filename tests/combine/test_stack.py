import numpy as np
import pytest
import rasterio
import xarray

import anychunk
from anychunk.cli import main
from anychunk.combine import combine
from anychunk.errors import FormatError
from anychunk.metadata.hierarchy import image_group, root_group
from anychunk.metadata.meaning import Axis, Band, Crs, Level, Meaning, Place
from anychunk.model.images import images
from anychunk.model.index import GroupIndex
from tests.support.combined_files import save_all, write_geotiff
from tests.support.made_images import made, raw_array

RANDOM = np.random.default_rng(5)
IMAGES = RANDOM.integers(0, 4000, (3, 40, 50), dtype="uint16")


@pytest.mark.parametrize("options", [{}, {"compression": "zlib", "predictor": True}])
def test_stack(tmp_path, options):
    paths = save_all(tmp_path, IMAGES, **options)
    node = anychunk.index(paths, combine="stack", along="t")
    level = node["0/0/image"]
    assert level.dimension_names[0] == "t"
    assert level.shape[0] == 3
    found = anychunk.open(node)["0/0/image"][...]
    np.testing.assert_array_equal(found.reshape(IMAGES.shape), IMAGES)
    assert set(node.pins) == set(paths)
    assert node.attributes["anychunk"]["files"] == 3
    axes = node["0"].attributes["ome"]["multiscales"][0]["axes"]
    assert axes[0] == {"name": "t", "type": "time"}
    assert len(axes) == len(level.shape)


def test_stack_of_cropped_chunks(tmp_path):
    """Headers in front of chunks get the new axis too."""
    values = np.arange(2 * 23 * 3, dtype="int32").reshape(2, 23, 3)
    for i in range(2):
        np.save(tmp_path / f"{i}.npy", values[i])
    import anychunk.formats.npy as npy

    header = npy.Header((23, 3), False, np.dtype("int32"), 128)
    whole, other = (
        npy.array_index(header, npy.raw_chunks(header, url=str(tmp_path / name), chunk_bytes=120))
        for name in ("0.npy", "1.npy")
    )
    assert whole.chunks.fronts
    files = {u: GroupIndex(members={"a": a}) for u, a in (("0", whole), ("1", other))}
    node = combine(files, "stack")
    assert node["a"].dimension_names == ("t", "y", "x")
    np.testing.assert_array_equal(anychunk.open(node)["a"][...], values)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_stack_of_jpeg2000_and_transposed(tmp_path):
    values = RANDOM.integers(0, 255, (2, 100, 130), dtype="uint8")
    for i, value in enumerate(values):
        with rasterio.open(
            tmp_path / f"{i}.jp2", "w", driver="JP2OpenJPEG", height=100, width=130, count=1,
            dtype="uint8", QUALITY=100, REVERSIBLE="YES", BLOCKXSIZE=64, BLOCKYSIZE=64,
        ) as file:  # fmt: skip
            file.write(value, 1)
        np.save(tmp_path / f"{i}.npy", np.asfortranarray(value))
    for ending in ("jp2", "npy"):
        node = anychunk.index(str(tmp_path / f"*.{ending}"), combine="stack")
        found = anychunk.open(node)["0/0/image"][...]
        np.testing.assert_array_equal(found.reshape(values.shape), values)


def times(folder, dates, **options):
    """Georeferenced images in two bands and two levels, one per date."""
    files = {}
    for i, date in enumerate(dates):
        full = RANDOM.integers(1, 4000, (2, 64, 64), dtype="int16")
        files[f"{i}"] = made(
            folder, [full, full[:, ::2, ::2].copy()], file=f"{i}-", chunk=(2, 16, 16), time=date,
            place=Place(crs=Crs(code="EPSG:32633"), transform=(10.0, 0.0, 500.0, 0.0, -10.0, 900.0)),
            **options,
        )  # fmt: skip
    return files


def test_dates_are_the_coordinate_of_t(tmp_path):
    files = times(tmp_path, ["2026-03-01", "2026-03-15T12:30:00", "2026-04-01"])
    for along in (None, "t", "time"):
        found = xarray.open_dataset(
            combine(files, "stack", along=along), engine="anychunk", level=1
        )
        assert found["image"].dims == ("t", "c", "y", "x")
        assert found["image"].sel(t="2026-03").sizes["t"] == 2
        assert found["t"].values[1] == np.datetime64("2026-03-15T12:30:00")
    assert found["x"].values[:2].tolist() == [510.0, 530.0]
    truth = [
        xarray.open_dataset(f, engine="anychunk", level=1)["image"].values for f in files.values()
    ]
    np.testing.assert_array_equal(found["image"].values, np.stack(truth))
    files = times(tmp_path, ["2026-03-01", None])
    with pytest.warns(UserWarning, match="image 0: some files have no date"):
        node = combine(files, "stack")
    assert "t" not in xarray.open_dataset(node, engine="anychunk").coords


def test_stack_along_z_and_c(tmp_path):
    files = times(tmp_path, [None, None])
    node = combine(files, "stack", along="z")
    array = node["0/0/image"]
    assert array.dimension_names == ("c", "z", "y", "x")
    assert [axis["name"] for axis in next(images(node)).axes] == ["c", "z", "y", "x"]
    truth = [anychunk.open(file)["0/0/image"][...] for file in files.values()]
    np.testing.assert_array_equal(anychunk.open(node)["0/0/image"][...], np.stack(truth, axis=1))
    again = combine({"a": combine(files, "stack"), "b": combine(files, "stack")}, "stack")
    assert again["0/0/image"].dimension_names == ("t", "c", "z", "y", "x")
    with pytest.raises(FormatError, match="'c' among c y x"):
        combine(files, "stack", along="c")
    with pytest.raises(ValueError, match="'file'"):
        combine(files, "stack", along="file")


def test_files_become_bands(tmp_path):
    files = {
        name: made(
            tmp_path, [RANDOM.integers(1, 9, (32, 32), dtype="uint8")], file=name, chunk=(16, 16),
            bands=(Band(name=name, scale=scale),),
        )
        for name, scale in (("red", 2.0), ("nir", 3.0))
    }  # fmt: skip
    found = xarray.open_dataset(combine(files, "stack", along="c"), engine="anychunk")["image"]
    assert found["c"].values.tolist() == ["red", "nir"]
    nir = anychunk.open(files["nir"])["0/0/image"][...]
    np.testing.assert_array_equal(found.sel(c="nir"), nir * 3.0)


def test_a_fill_value_that_no_file_uses_is_no_difference(tmp_path):
    """Floats without nodata have NaN, unless a chunk is absent and reads as 0."""
    whole, sparse = (RANDOM.random((32, 32)).astype("float32") for _ in range(2))
    files = {"a": made(tmp_path, [whole], file="a", chunk=(16, 16))}
    meaning = Meaning(axes=(Axis(name="y"), Axis(name="x")))
    array = raw_array(tmp_path / "b.raw", sparse, (16, 16), absent=[(0, 0)])
    files["b"] = root_group({"0": image_group(meaning, [Level(name="0", image=array)])})
    assert (files["a"]["0/0/image"].fill_value, files["b"]["0/0/image"].fill_value) == ("NaN", 0)
    sparse[:16, :16] = 0
    for order in ("ab", "ba"):
        node = combine({name: files[name] for name in order}, "stack")
        found = anychunk.open(node)["0/0/image"][...]
        np.testing.assert_array_equal(found[order.index("a")], whole)
        np.testing.assert_array_equal(found[order.index("b")], sparse)


def test_masks_of_stacks_are_dropped_with_a_warning(tmp_path):
    mask = np.full((64, 64), 255, "uint8")
    files = times(tmp_path, [None, None], masks=[mask, mask[::2, ::2].copy()])
    with pytest.warns(UserWarning, match="image 0: the masks"):
        node = combine(files, "stack")
    assert "mask" not in node["0/0"].members


PLACES = {
    "origin": {"west": 600.0},
    "pixel size": {"size": 20.0},
    "crs": {"crs": "EPSG:32634"},
    "none": {"crs": None, "transform": rasterio.Affine.identity()},
}


def at_places(folder, other):
    """Write files at one place, and the last one elsewhere; return their paths."""
    paths = []
    for i in range(5):
        options = {"west": 500.0, "north": 900.0, **(other if i == 4 else {})}
        paths.append(write_geotiff(folder / f"{i}.tif", IMAGES[i % 3, :32, :32].copy(), **options))
    return paths


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("other", PLACES.values(), ids=PLACES)
def test_files_at_several_places_are_refused_by_name(tmp_path, other):
    """In the same batch, in different ones, and if they are appended."""
    paths = at_places(tmp_path, other)
    with rasterio.open(paths[-1]) as file:
        expected = file.crs.to_string() if file.crs else "no CRS"
    files = {path: anychunk.index(path) for path in paths}
    target = tmp_path / "r.icechunk"
    anychunk.append(paths[:2], target, combine="stack")
    attempts = {
        "0.tif": lambda: combine(files, "stack", along="c"),
        "tif": lambda: anychunk.index(paths, combine="stack"),
        "r.icechunk": lambda: anychunk.append(paths[4:], target, combine="stack"),
    }
    for name, attempt in attempts.items():
        with pytest.raises(FormatError, match="georeference='drop'") as caught:
            attempt()
        text = str(caught.value)
        assert "\n" not in text
        for found in (name, "4.tif", "EPSG:32633", expected):
            assert found in text
    assert anychunk.open(target)["0/0/image"].shape[0] == 2


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("other", PLACES.values(), ids=PLACES)
def test_a_georeference_that_differs_is_dropped_if_asked_for(tmp_path, other):
    paths = at_places(tmp_path, other)
    expected = np.stack([rasterio.open(path).read(1) for path in paths])
    asked = {"combine": "stack", "georeference": "drop"}
    target = tmp_path / "r.icechunk"
    with pytest.warns(UserWarning, match="georeference is dropped"):
        node = anychunk.index(paths, **asked)
    with pytest.warns(UserWarning, match="georeference is dropped"):
        anychunk.append(paths, target, batch=3, **asked)
    for found in (node, anychunk.index(target)):
        assert "spatial:transform" not in found["0"].attributes
        np.testing.assert_array_equal(anychunk.open(found)["0/0/image"][...], expected)


@pytest.mark.filterwarnings("default:.*georeference is dropped")
def test_georeference_of_the_command_line(tmp_path, capsys):
    paths = at_places(tmp_path, {"west": 600.0})

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main(
                ["index", *paths, "-o", str(tmp_path / "a.json"), "--combine", "stack", *arguments]
            )
        return caught.value.code, capsys.readouterr().err

    code, err = run()
    assert (code, err.count("\n")) == (2, 1)
    assert "georeference='drop'" in err
    assert run("--georeference", "keep")[0] == 2
    code, err = run("--georeference", "drop")
    assert code == 0
    assert "georeference is dropped" in err
    assert anychunk.open(tmp_path / "a.json")["0/0/image"].shape[0] == 5


@pytest.mark.parametrize("along", [None, "z"])
@pytest.mark.parametrize("first", [0, 5, 11])
def test_files_with_and_without_bands_are_refused_by_name(tmp_path, along, first):
    """In whichever batch the file with bands is."""
    values = [IMAGES[0].astype("u1")] * 12
    values[first] = np.dstack([values[0]] * 3)
    paths = save_all(tmp_path, values)
    with pytest.raises(
        FormatError, match=r"combine: .*tif 0: axes .*, expected .* as in "
    ) as caught:
        anychunk.index(paths, combine="stack", along=along)
    assert "\n" not in str(caught.value)
    assert " c y x" in str(caught.value)
