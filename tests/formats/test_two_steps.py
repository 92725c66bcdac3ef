"""NITF and JPEG 2000 files in two steps: the quick parser finds what the general one finds, or nothing."""

import pickle
import shutil

import imagecodecs
import numpy as np
import pytest
import rasterio
from rasterio.shutil import copy

import anychunk
from anychunk.errors import AnychunkError, SourceChangedError
from anychunk.formats import jpeg2000, nitf
from anychunk.formats.jpeg2000 import plain_image
from anychunk.formats.nitf import plain_array
from anychunk.formats.nitf.uncompressed import Options
from anychunk.io.file import FileSource
from anychunk.model.index import find, known_arrays
from tests.support.corpus import needs_corpus, samples
from tests.support.nitf_writer import Image, tre
from tests.support.nitf_writer import nitf as nitf_file

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")

PATH = "0/0/image"
RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 255, (70, 90), "u1")
BANDS = RNG.integers(0, 4000, (3, 50, 60), "u2")


def nitf_fields(path):
    found = plain_array(FileSource(str(path)))
    return None if found is None else found.fields


def jpeg2000_fields(path):
    found = plain_image(FileSource(str(path)))
    return None if found is None else found[0].fields


def nitf_in_general(path):
    return nitf.parse_all(FileSource(str(path)), Options())


def jpeg2000_in_general(path):
    return jpeg2000.parse_file(FileSource(str(path)))


def assert_same(path, quick, general):
    """The array of the quick parser, and all that is made later, are those of the general one."""
    expected, found = general(path), anychunk.index(path)
    for name, value in quick(path).items():
        assert value == getattr(find(expected, PATH), name), name
    image = find(found, PATH)
    assert known_arrays(found) is not None  # nothing has asked for more
    assert image == find(expected, PATH)
    assert dict(found.members) == dict(expected.members)
    assert {k: v for k, v in found.attributes.items() if k != "anychunk"} == expected.attributes
    assert set(found.pins) >= set(expected.pins)


def assert_agrees(path, quick, general):
    """The quick parser finds the same, gives up, or raises the same error; return whether it did."""
    try:
        found = quick(path)
    except AnychunkError as e:
        error = e
    else:
        if found is not None:
            assert_same(path, quick, general)
        return found is not None
    with pytest.raises(type(error)) as raised:
        general(path)
    assert str(raised.value) == str(error)
    return False


def igeolo(*points):
    return "".join(f"{lat:+07.3f}{lon:+08.3f}" for lat, lon in points)


SQUARE = igeolo((50.0, 8.0), (50.0, 8.1), (49.9, 8.1), (49.9, 8.0))
PLAIN_NITF = {
    "one band": Image(GREY[None]),
    "blocks": Image(GREY[None], block=(32, 32)),
    "16 bits": Image(BANDS[:1]),
    "signed": Image(BANDS.astype("i2")),
    "floats": Image(BANDS.astype("f4"), block=(16, 16)),
    "complex": Image(BANDS[:1].astype("c8")),
    "12 bits": Image(BANDS, nbpp=12, imode="P"),
    "1 bit": Image((GREY[None] > 9).astype("u1"), nbpp=1, pvtype="B"),
    "11 of 16 bits": Image(BANDS // 2, nbpp=16, abpp=11),
    **{f"IMODE {mode}": Image(BANDS, imode=mode, block=(16, 32)) for mode in "BPRS"},
    **{f"one band, IMODE {mode}": Image(GREY[None], imode=mode) for mode in "PR"},
    "ten bands": Image(np.concatenate([BANDS] * 4)[:10], imode="S"),
    "a short last piece": Image(RNG.integers(0, 9, (1, 4211, 1000), "u2")),
    "a place": Image(GREY[None], icords="D", igeolo=SQUARE),
    "no place": Image(GREY[None], icords="G", igeolo="?" * 60),
}
OTHER_NITF = {
    "masked": ([Image(GREY[None], ic="NM", block=(32, 32), absent={(0, 1)})], "NITF02.10"),
    "extensions": ([Image(GREY[None], tres=tre("BLOCKA", b" " * 123))], "NITF02.10"),
    "palette": ([Image(GREY[None], lut=(bytes(range(256)),))], "NITF02.10"),
    "comments": ([Image(GREY[None], comments=("a",))], "NITF02.10"),
    "two images": ([Image(GREY[None])] * 2, "NITF02.10"),
    "version 2.0": ([Image(GREY[None])], "NITF02.00"),
    "justified": ([Image(BANDS // 2, nbpp=16, abpp=11, pjust="L")], "NITF02.10"),
    "encrypted": ([Image(GREY[None], fields={"ENCRYP": "1"})], "NITF02.10"),
    "pairs": (
        [Image(BANDS[:2].astype("f4"), icat="SAR", isubcat=("I", "Q"))],
        "NITF02.10",
    ),
    "too many bits": ([Image(GREY[None], fields={"ABPP": "11"})], "NITF02.10"),
}


@pytest.mark.parametrize("case", PLAIN_NITF)
def test_plain_nitf(case, tmp_path, monkeypatch):
    path, image = tmp_path / "a.ntf", PLAIN_NITF[case]
    path.write_bytes(nitf_file([image]))
    assert_same(path, nitf_fields, nitf_in_general)
    monkeypatch.setattr(nitf, "parse_all", lambda *_, **__: pytest.fail("asks the general parser"))
    np.testing.assert_array_equal(anychunk.open_array(path)[...], image.shown)


@pytest.mark.parametrize("case", OTHER_NITF)
def test_other_nitf_is_left_to_the_general_parser(case, tmp_path):
    images, version = OTHER_NITF[case]
    path = tmp_path / "a.ntf"
    path.write_bytes(nitf_file(images, version=version))
    assert nitf_fields(path) is None


def test_nitf_of_gdal(tmp_path):
    path = tmp_path / "a.ntf"
    profile = {"driver": "NITF", "width": 90, "height": 70, "count": 1, "dtype": "uint8"}
    with rasterio.open(path, "w", **profile) as file:
        file.write(GREY, 1)
    assert_same(path, nitf_fields, nitf_in_general)
    np.testing.assert_array_equal(anychunk.open_array(path)[...], GREY)


@pytest.mark.parametrize("case", [case for case in PLAIN_NITF if case != "a short last piece"])
def test_damaged_nitf(case, tmp_path):
    """Whatever bytes of the headers change, the quick parser agrees, or gives up."""
    path = tmp_path / "a.ntf"
    data = nitf_file([PLAIN_NITF[case]])
    end, rng, agreed = 404 + int(data[363:369]), np.random.default_rng(1), 0
    for _ in range(120):
        damaged = bytearray(data)
        # most of a subheader is names; fields about samples are behind them
        first = int(rng.choice([0, 342, 404, 690, 737]))
        damaged[int(rng.integers(first, end))] = int(rng.choice([*b"0129 SPRBGDNL", 0, 255]))
        path.write_bytes(damaged)
        agreed += assert_agrees(path, nitf_fields, nitf_in_general)
    assert agreed


def test_truncated_nitf(tmp_path):
    path = tmp_path / "a.ntf"
    data = nitf_file([PLAIN_NITF["blocks"]])
    for length in range(0, len(data), 397):
        path.write_bytes(data[:length])
        assert nitf_fields(path) is None


def stream(image=GREY, **options):
    options = {"level": 0, "reversible": True, "codecformat": "J2K", **options}
    return bytes(imagecodecs.jpeg2k_encode(image, **options))


def jp2(image=GREY, **options):
    return stream(image, codecformat="JP2", **options)


def tiled(tmp_path, image, **options):
    bands = image if image.ndim == 3 else image[None]
    profile = {"driver": "GTiff", "height": bands.shape[1], "width": bands.shape[2]}
    with rasterio.open(
        tmp_path / "a.tif", "w", count=len(bands), dtype=bands.dtype, **profile
    ) as file:
        file.write(bands)
    settings = {"quality": 100, "reversible": "YES", "blockxsize": 64, "blockysize": 64}
    copy(tmp_path / "a.tif", tmp_path / "a.jp2", driver="JP2OpenJPEG", **settings, **options)
    return (tmp_path / "a.jp2").read_bytes()


PLAIN_JPEG2000 = {
    "codestream": lambda _: stream(),
    "JP2": lambda _: jp2(),
    "16 bits": lambda _: jp2(BANDS[0]),
    "RGB": lambda _: jp2(np.dstack([GREY] * 3)),
    "no levels": lambda _: jp2(resolutions=1),
    "HTJ2K": lambda _: bytes(imagecodecs.htj2k_encode(GREY, reversible=True)),
    "large": lambda _: jp2(np.tile(GREY, (16, 13))),
    "large bands": lambda _: jp2(np.moveaxis(np.tile(BANDS, (1, 22, 21)), 0, -1)),
    "tiles": lambda folder: tiled(folder, np.tile(GREY, (3, 3))),
    "tiles of bands": lambda folder: tiled(folder, np.tile(BANDS, (1, 3, 3))),
}


def with_box(data, kind, body=b""):
    """Return a JP2 file with one more box before its codestream."""
    at = data.index(b"jp2c") - 4
    return data[:at] + (len(body) + 8).to_bytes(4, "big") + kind + body + data[at:]


OTHER_JPEG2000 = {
    "xml": lambda _: with_box(jp2(), b"xml ", b"<a/>"),
    "uuid": lambda _: with_box(jp2(), b"uuid", bytes(16)),
    "a box behind the codestream": lambda _: jp2() + b"\0\0\0\x0cfree" + bytes(4),
    "another size": lambda _: jp2().replace(b"ihdr\0\0\0\x46", b"ihdr\0\0\0\x47"),
}


@pytest.mark.parametrize("case", PLAIN_JPEG2000)
def test_plain_jpeg2000(case, tmp_path, monkeypatch):
    path = tmp_path / "a.jp2"
    path.write_bytes(PLAIN_JPEG2000[case](tmp_path))
    assert_same(path, jpeg2000_fields, jpeg2000_in_general)
    monkeypatch.setattr(jpeg2000, "parse_file", lambda *_, **__: pytest.fail("asks for more"))
    array = anychunk.open_array(path)[...]
    if case == "HTJ2K":
        np.testing.assert_array_equal(array, GREY)
        return
    shutil.copy(path, tmp_path / "b.jp2")
    with rasterio.open(tmp_path / "b.jp2") as peer:
        np.testing.assert_array_equal(array.reshape(peer.count, *peer.shape), peer.read())


@pytest.mark.parametrize("case", OTHER_JPEG2000)
def test_other_jpeg2000_is_left_to_the_general_parser(case, tmp_path):
    path = tmp_path / "a.jp2"
    path.write_bytes(OTHER_JPEG2000[case](tmp_path))
    assert jpeg2000_fields(path) is None


@pytest.mark.parametrize("case", PLAIN_JPEG2000)
def test_damaged_jpeg2000(case, tmp_path):
    """Whatever bytes of the headers change, the quick parser agrees, or gives up."""
    path = tmp_path / "a.jp2"
    data = PLAIN_JPEG2000[case](tmp_path)
    end, rng, agreed = data.index(b"\xff\x93"), np.random.default_rng(2), 0
    for _ in range(100):
        damaged = bytearray(data)
        damaged[int(rng.integers(0, end))] = int(rng.choice([0, 1, 2, 255, rng.integers(256)]))
        path.write_bytes(damaged)
        agreed += assert_agrees(path, jpeg2000_fields, jpeg2000_in_general)
    assert agreed


def test_boxes_that_end_early_are_left_to_the_general_parser(tmp_path):
    """A box of boxes may be of any length, so that another begins near its end."""
    data = jp2()
    at = data.index(b"jp2h") - 4
    whole = int.from_bytes(data[at : at + 4], "big")
    path = tmp_path / "a.jp2"
    for length in range(whole):
        path.write_bytes(data[:at] + length.to_bytes(4, "big") + data[at + 4 :])
        assert jpeg2000_fields(path) is None
        cut = data[at + 4 : at + max(length, 8)]
        path.write_bytes(data[:at] + length.to_bytes(4, "big") + cut + data[at + whole :])
        assert_agrees(path, jpeg2000_fields, jpeg2000_in_general)


def test_jpeg2000_without_samples_is_left_to_the_general_parser(tmp_path):
    """Subsampling by 127 from the sixth column on leaves none of 90 columns."""
    data = bytearray(stream())
    siz = data.index(b"\xff\x51")
    data[siz + 14 : siz + 18] = (5).to_bytes(4, "big")
    data[siz + 41] = 127
    (tmp_path / "a.j2k").write_bytes(data)
    assert jpeg2000_fields(tmp_path / "a.j2k") is None


def test_truncated_jpeg2000(tmp_path):
    path = tmp_path / "a.jp2"
    for data in (jp2(), stream()):
        for length in range(0, len(data), 97):
            path.write_bytes(data[:length])
            assert not assert_agrees(path, jpeg2000_fields, jpeg2000_in_general)


FILES = {
    "a.ntf": lambda image: nitf_file([Image(image[None])]),
    "a.jp2": jp2,
    "a.j2k": stream,
}


@pytest.mark.parametrize("name", FILES)
def test_attributes_are_those_of_the_file_that_was_opened(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(FILES[name](GREY))
    expected = anychunk.open_array(path).attrs.asdict(), dict(anychunk.open(path)["0"].attrs)
    opened = anychunk.open(path)
    path.write_bytes(FILES[name](GREY[:50]))
    array = opened.image(0)
    assert (array.attrs.asdict(), dict(opened["0"].attrs)) == expected
    with pytest.raises(SourceChangedError):
        array[...]


@pytest.mark.parametrize("name", FILES)
def test_side_files_are_found_when_asked_for(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(FILES[name](GREY))
    path.with_suffix(".wld").write_text("10\n0\n0\n-10\n500005\n4599995\n")
    index = anychunk.index(path)
    np.testing.assert_array_equal(anychunk.open_array(index)[...], GREY)
    assert known_arrays(index) is not None
    assert index["0"].attributes["spatial:transform"][:3] == [10, 0, 500000]
    assert {url.rpartition("/")[2] for url in index.pins} == {name, "a.wld"}
    bare = anychunk.index(path, sidecars=False)
    assert "spatial:transform" not in bare["0"].attributes


def test_reduced_resolutions_are_found_when_asked_for(tmp_path):
    path = tmp_path / "a.ntf"
    path.write_bytes(nitf_file([Image(GREY[None])]))
    (tmp_path / "a.ntf.r1").write_bytes(nitf_file([Image(GREY[None, ::2, ::2])]))
    index = anychunk.index(path)
    np.testing.assert_array_equal(anychunk.open_array(index)[...], GREY)
    assert known_arrays(index) is not None
    np.testing.assert_array_equal(anychunk.open_array(index, level=1)[...], GREY[::2, ::2])
    assert "1" not in anychunk.index(path, rsets=False)["0"].members


def test_levels_are_made_when_asked_for(tmp_path):
    path = tmp_path / "a.jp2"
    path.write_bytes(jp2())
    index = anychunk.index(path)
    assert known_arrays(index) is not None
    assert anychunk.open_array(index, level=1).shape == (35, 45)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["index", "open", "open_array"])
def test_pickle(kind, name, tmp_path):
    path = tmp_path / name
    path.write_bytes(FILES[name](GREY))
    found = pickle.loads(pickle.dumps(getattr(anychunk, kind)(path)))
    if kind == "index":
        assert found == anychunk.index(path)
    else:
        array = found if kind == "open_array" else found.image(0)
        np.testing.assert_array_equal(array[...], GREY)
        assert array.metadata == anychunk.open_array(path).metadata


@needs_corpus
@pytest.mark.parametrize(
    ("folder", "quick", "general"),
    [
        ("nitf", nitf_fields, nitf_in_general),
        ("jpeg2000", jpeg2000_fields, jpeg2000_in_general),
    ],
)
def test_real_files(folder, quick, general):
    agreed = [sample for sample in samples(folder) if assert_agrees(sample.file, quick, general)]
    assert len(agreed) > 3
