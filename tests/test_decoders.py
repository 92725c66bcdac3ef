"""Choosing decoders, the contract for ours, and a package that is written from the docs."""

import json
import re
import sys
from importlib import invalidate_caches
from pathlib import Path

import imagecodecs
import jsonschema
import numpy as np
import pytest
import tifffile

import anychunk
from anychunk import decoders
from anychunk.cli.printing import print_codecs
from anychunk.codecs import jpeg
from anychunk.codecs.jpeg2000 import openjpeg, openjpeg_library, openjph, tiles
from anychunk.codecs.tiff_tile import TiffTile
from anychunk.errors import ChunkDecodeError, CodecConfigError, UnsupportedError
from anychunk.testing.decoders import DecoderContract, cases
from tests.support import decoder_cases, processes
from tests.support.j2k_streams import compress, field, needs_openjpeg

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/write-a-decoder.md"
NAMES = [case.name for case in cases("jpeg2000")]


def source(title: str) -> str:
    """Return a module that the docs show."""
    [found] = re.findall(rf'```python title="{title}"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    return found


@pytest.fixture(scope="module")
def acme(tmp_path_factory):
    """Install the package of the docs: a module, and the entry points of a distribution."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "acme_decoders.py").write_text(source("acme_decoders.py"))
    about = folder / "acme_decoders-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-decoders\nVersion: 1.0\n")
    [points] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    points = points.replace("project.entry-points.", "").replace('"', "")
    (about / "entry_points.txt").write_text(points)
    sys.path.insert(0, str(folder))
    invalidate_caches()
    decoders.table.cache_clear()
    yield folder
    sys.path.remove(str(folder))
    sys.modules.pop("acme_decoders", None)
    decoders.table.cache_clear()


def test_the_package_has_at_most_60_lines():
    assert len(source("acme_decoders.py").splitlines()) <= 60
    assert "anychunk" not in source("acme_decoders.py")


@needs_openjpeg
@pytest.mark.usefixtures("acme")
class TestAcmeJpeg2000(DecoderContract):
    kind = "jpeg2000"
    name = "acme"


@pytest.mark.usefixtures("acme")
class TestAcmeJpeg(DecoderContract):
    kind = "jpeg"
    name = "acme"
    refused = ("reversible 12 bits",)


class TestOpenjpeg(DecoderContract):
    kind = "jpeg2000"
    name = "openjpeg"


class TestOpenjph(DecoderContract):
    kind = "jpeg2000"
    name = "openjph"
    refused = tuple(name for name in NAMES if "htj2k" not in name)


class TestLibjpegTurbo(DecoderContract):
    kind = "jpeg"
    name = "libjpeg-turbo"


@needs_openjpeg
def test_expected_samples_are_those_of_other_software():
    """The cases are what their encoders make today, and what other decoders say they hold."""
    with np.load(decoder_cases.TARGET) as stored:
        expected = dict(stored)
    for key, array in expected.items():
        if key.startswith("jpeg2000/") and key.count("/") == 1:
            for level in decoder_cases.LEVELS:
                planes = decoder_cases.decompress(array.tobytes(), level=level)
                for number, plane in enumerate(planes):
                    np.testing.assert_array_equal(plane, expected[f"{key}/{level}/{number}"])


@pytest.fixture
def counted(monkeypatch):
    """Count the calls of every function that calls a library of ours directly."""
    calls = []

    def count(module, name):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, **k: calls.append(name) or real(*a, **k))

    for name in ("jpeg2k_decode", "htj2k_decode", "jpeg8_decode", "ljpeg_decode"):
        count(imagecodecs, name)
    for module, name in (
        (openjpeg, "components"),
        (openjpeg, "part"),
        (openjpeg, "is_exact"),
        (openjpeg, "decode_into"),
        (openjpeg_library, "decode"),
        (openjph, "decode_shallow"),
        (openjph, "decode_deep"),
        (jpeg, "_by_libjpeg"),
    ):
        count(module, name)
    return calls


@pytest.fixture
def files(tmp_path):
    """Write a file for each short cut: many small tiles, windows, tiles of TIFF, one picture."""
    rgb = np.ascontiguousarray(np.moveaxis(field((256, 256), bands=3), 0, -1))
    gray = np.ascontiguousarray(rgb[..., 0])
    made = {"small.j2k": compress([gray], "-t", "32,32", "-n", "3")}
    made["large.j2k"] = compress([np.tile(gray, (5, 5))], "-n", "4")
    made["htj2k.j2k"] = bytes(imagecodecs.htj2k_encode(gray, reversible=True))
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    for name, compression in (("jpeg.tif", "jpeg"), ("j2k.tif", "jpeg2000")):
        tifffile.imwrite(tmp_path / name, rgb, tile=(64, 64), compression=compression)
    return sorted(tmp_path.iterdir())


def image_of(path):
    group = anychunk.open(path)
    return group["0/0/image"]


@needs_openjpeg
@pytest.mark.usefixtures("acme")
def test_short_cuts_do_not_run_when_another_decoder_is_chosen(files, counted):
    for path in files:
        array = image_of(path)
        expected, part = array[...], array[..., 30:90, 40:200]
        with decoders.use("jpeg2000", "acme"), decoders.use("jpeg", "acme"):
            counted.clear()
            found, window = array[...], array[..., 30:90, 40:200]
            again = image_of(path)[...]
            assert counted == []
        for one, other in ((found, expected), (again, expected), (window, part)):
            assert np.abs(one.astype(int) - other.astype(int)).max() <= (path.name == "jpeg.tif")


@needs_openjpeg
@pytest.mark.parametrize("kind", ["jpeg2000", "jpeg"])
def test_every_chunk_is_decoded_by_the_chosen_decoder(kind, files, monkeypatch):
    """No picture comes from elsewhere: a decoder that fails fails every read."""

    def fail(*_):
        raise ValueError("out of order")

    monkeypatch.setitem(decoders._chosen, kind, ("acme", fail))
    for path in files:
        if (path.name == "jpeg.tif") == (kind == "jpeg"):
            for selection in (np.s_[...], np.s_[..., 3:5, 4:9]):
                with pytest.raises(ChunkDecodeError, match=f"{kind} decoder acme: out of order"):
                    image_of(path)[selection]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([], "components"),
        ([np.zeros((45, 70))], "float64"),
        ([np.zeros((45, 69), "u1")], "69"),
        ([np.full((45, 70), 256)], "256"),
        ([np.full((45, 70), -1, "i1")], "-1"),
        (None, "not iterable"),
    ],
)
@pytest.mark.parametrize("kind", ["jpeg2000", "jpeg"])
def test_answers_are_checked(kind, answer, message, monkeypatch):
    [case] = [case for case in cases(kind) if case.name == "irreversible gray"]
    data = np.frombuffer(case.stream, np.uint8)
    monkeypatch.setitem(decoders._chosen, kind, ("acme", lambda *_: answer))
    with pytest.raises(ChunkDecodeError, match=message):
        if kind == "jpeg":
            jpeg.decode(data, jpeg.whole_stream(data, 0))
        else:
            tiles.decode_whole(0, data, np.empty((1, 45, 70), "u1"), 0)


def test_choices():
    assert decoders.used("jpeg2000") == ("openjph", "openjpeg")
    with decoders.use("jpeg2000", "openjpeg"):
        assert decoders.used("jpeg2000") == ("openjpeg",)
        with decoders.use("jpeg2000"):
            assert decoders.used("jpeg2000") == ("openjph", "openjpeg")
        assert decoders.used("jpeg2000") == ("openjpeg",)
    assert decoders.used("jpeg2000") == ("openjph", "openjpeg")
    with pytest.raises(CodecConfigError, match="no decoder 'nvjpeg' of jpeg is installed"):
        decoders.use("jpeg", "nvjpeg")
    with pytest.raises(CodecConfigError, match="expected jpeg2000 or jpeg"):
        decoders.use("jpegxl", "libjxl")


def test_the_environment_chooses(tmp_path):
    code = "import anychunk.decoders as d; print(d.used('jpeg2000'), d.used('jpeg'))"
    good = {decoders.VARIABLE: "jpeg2000=openjpeg"}
    done = processes.run(code, cwd=tmp_path, environment=good)
    assert done.stdout == "('openjpeg',) ('libjpeg-turbo',)\n"
    done = processes.run(code, cwd=tmp_path, environment={decoders.VARIABLE: "jpeg2000=nvjpeg"})
    assert done.returncode
    assert "ANYCHUNK_DECODERS is 'jpeg2000=nvjpeg'" in done.stderr


@pytest.mark.usefixtures("acme")
def test_the_command_lists_decoders(capsys):
    with decoders.use("jpeg2000", "acme"):
        print_codecs(as_json=True, verbose=True)
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    listed = {d["name"]: (d["from"], d["used"]) for d in rows["anychunk.jpeg2000"]["decoders"]}
    assert listed["acme"] == ("acme-decoders", True)
    assert listed["openjpeg"] == ("anychunk", False)
    schema = json.loads((ROOT / "specs/commands/codecs.schema.json").read_text())
    jsonschema.validate(list(rows.values()), schema)
    print_codecs(as_json=False, verbose=True)
    text = capsys.readouterr().out
    assert "acme" in text
    assert "libjpeg-turbo" in text


def test_a_broken_package_is_named(acme, monkeypatch):
    (acme / "acme_decoders.py").rename(acme / "elsewhere.py")
    monkeypatch.delitem(sys.modules, "acme_decoders", raising=False)
    try:
        with pytest.raises(CodecConfigError, match="of acme-decoders fails to import"):
            decoders.use("jpeg", "acme")
    finally:
        (acme / "elsewhere.py").rename(acme / "acme_decoders.py")


@pytest.mark.usefixtures("acme")
def test_old_jpeg_and_jp2_in_tiff_name_the_decoder_that_reads_them():
    jp2 = bytes(imagecodecs.jpeg2k_encode(field((16, 16))[0], level=0, reversible=True))
    old = bytes(imagecodecs.jpeg8_encode(field((16, 16))[0]))
    for kind, name, compression, data in (
        ("jpeg2000", "openjpeg", 34712, jp2),
        ("jpeg", "libjpeg-turbo", 6, old),
    ):
        codec = TiffTile(compression=compression, tile_width=16, tile_height=16)
        with decoders.use(kind, "acme"), pytest.raises(UnsupportedError, match=name):
            codec.decode_bytes(np.frombuffer(data, np.uint8), None)
