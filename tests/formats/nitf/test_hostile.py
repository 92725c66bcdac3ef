"""Files that were damaged, or made to harm: an error of ours, soon and in little memory."""

import subprocess
import sys

import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError, FormatError
from anychunk.model.index import ArrayIndex, walk
from tests.formats.nitf.test_compressed import jpeg, smooth
from tests.support.effort import at_most
from tests.support.nitf_writer import (
    Image,
    fax,
    image_data,
    nitf,
    text_segment,
    tre,
    vq_header,
    vq_image,
)
from tests.support.patience import PATIENCE_S

STEPS = 1_000_000
"""Importing what a format needs is the most of it; a file takes some thousands."""


def made():
    """One small file of every kind."""
    grey = smooth((1, 32, 32))
    yield (
        "NC",
        nitf([Image(grey, block=(16, 16), imode="P", icords="G", igeolo="325902N0840005E" * 4)]),
    )
    yield "NM", nitf([Image(grey, ic="NM", block=(16, 16), absent={(0, 1)}, pad=b"\1")])
    yield "bits", nitf([Image(grey >> 3, nbpp=5, block=(16, 16))], version="NITF02.00")
    streams = {
        (i, j): jpeg(grey[0, 16 * i : 16 * i + 16, 16 * j : 16 * j + 16])
        for i in (0, 1)
        for j in (0, 1)
    }
    image = Image(grey, ic="M3", block=(16, 16))
    image.payload = image_data(image, streams)
    yield "M3", nitf([image])
    yield "C3", nitf([Image(grey, ic="C3", payload=jpeg(grey[0]))], texts=[text_segment(b"abc")])
    pixels = (grey > 100).astype("u1")
    yield (
        "C1",
        nitf(
            [Image(pixels, ic="C1", nbpp=1, pvtype="B", comrat="1D  ", payload=fax(pixels[0], 0))]
        ),
    )
    tables, values, data = vq_image(1)
    image = Image(values, ic="C4", comrat="0.75", tres=tre("BLOCKA", b"x" * 123))
    image.payload = vq_header(tables) + data[0]
    yield "C4", nitf([image])
    import imagecodecs

    stream = imagecodecs.jpeg2k_encode(grey[0], level=0, codecformat="J2K")
    yield "C8", nitf([Image(grey, ic="C8", comrat="N010", payload=stream)])


FILES = dict(made())


def attempt(file):
    """Open and read; give whether that worked. Anything but an error of ours is a failure."""
    try:
        index = anychunk.index(file)
        for path, node in walk(index):
            if isinstance(node, ArrayIndex) and np.prod(node.shape, dtype=float) < 1 << 22:
                anychunk.open(index)[path][...]
    except AnychunkError:
        return False
    return True


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("seed", range(3))
def test_random_damage(tmp_path, name, seed):
    rng = np.random.default_rng([seed, *name.encode()])
    whole = np.frombuffer(FILES[name], np.uint8)
    file = tmp_path / "a.ntf"
    for round_ in range(40):
        data = whole.copy()
        count = rng.integers(1, 6)
        places = rng.integers(300, min(len(data), 1400), count)
        kinds = [b"0123456789", b" ", bytes(range(256)), b"BCIMNPRS"]
        alphabet = np.frombuffer(kinds[round_ % 4], np.uint8)
        data[places] = rng.choice(alphabet, count)
        file.write_bytes(data.tobytes())
        with at_most(STEPS):
            attempt(file)


@pytest.mark.parametrize("name", FILES)
def test_every_cut(tmp_path, name):
    """A file that ends too early is never a smaller picture."""
    data = FILES[name]
    file = tmp_path / "a.ntf"
    file.write_bytes(data)
    whole = anychunk.open(file)["0/0/image"][...]
    for length in np.unique(np.linspace(0, len(data) - 1, 50).astype(int)).tolist():
        file.write_bytes(data[:length])
        try:
            found = anychunk.open(file)["0/0/image"][...]
        except AnychunkError:
            continue
        np.testing.assert_array_equal(found, whole)


def patched(name, **fields):
    """A file of one band whose subheader lies."""
    image = Image(np.zeros((1, 4, 4), "u1"), fields=fields)
    if name != "NC":
        image.ic, image.payload, image.comrat = name, b"\xff\xd8" + bytes(200), "1D  "
    return nitf([image])


HUGE = {"NROWS": "99999999", "NCOLS": "99999999", "NPPBH": "0000", "NPPBV": "0000"}
TILED = {
    "NROWS": "00009999",
    "NCOLS": "00009999",
    "NBPR": "9999",
    "NBPC": "9999",
    "NPPBH": "0001",
    "NPPBV": "0001",
}
LARGEST = {
    "NROWS": "81910000",
    "NCOLS": "81910000",
    "NBPR": "9999",
    "NBPC": "9999",
    "NPPBH": "8192",
    "NPPBV": "8192",
}


def long_segment(raw):
    """Say that the image data is as long as the format allows."""
    at = raw.index(b"001", 360) + 3 + 6
    return raw[:at] + b"9999999999" + raw[at + 10 :]


@pytest.mark.parametrize("fields", [HUGE, TILED, LARGEST], ids=["huge", "tiled", "largest"])
@pytest.mark.parametrize("ic", ["NC", "NM", "C1", "M1", "C3", "M3", "C4", "M4", "C5", "C8", "CD"])
def test_sizes_that_no_file_has(tmp_path, fields, ic):
    raw = long_segment(patched(ic, **fields, IC=ic))
    (tmp_path / "a.ntf").write_bytes(raw)
    with pytest.raises(AnychunkError):
        anychunk.open(tmp_path / "a.ntf")["0/0/image"][:10, :10]


def test_a_negative_length_is_refused(tmp_path):
    """It would put the segments behind it in front of it."""
    raw = nitf([Image(np.zeros((1, 4, 4), "u1"))])
    at = raw.index(b"001", 360) + 3 + 6
    (tmp_path / "a.ntf").write_bytes(raw[:at] + b"-111111111" + raw[at + 10 :])
    with pytest.raises(FormatError, match="LI is -111111111"):
        anychunk.open(tmp_path / "a.ntf")


@pytest.mark.processes
def test_memory_and_time_are_bounded(tmp_path):
    """Every file above, opened by a process that may have 512 MiB beyond what it begins with."""
    for number, fields in enumerate((HUGE, TILED, LARGEST)):
        for ic in ("NC", "NM", "C1", "C3", "C4", "C5", "C8"):
            raw = long_segment(patched(ic, **fields, IC=ic))
            (tmp_path / f"{number}{ic}.ntf").write_bytes(raw)
    code = """
import resource, sys, time
from pathlib import Path
import anychunk
from anychunk.errors import AnychunkError, FormatError
import imagecodecs, jbpy.core
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for file in sorted(Path(sys.argv[1]).glob("*.ntf")):
    begin = time.process_time()
    try:
        anychunk.open(file)["0/0/image"][:10, :10]
        sys.exit(f"{file}: no error")
    except AnychunkError as e:
        pass
    if time.process_time() - begin > 5:
        sys.exit(f"{file}: took too long")
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
sys.exit(f"took {grown} KiB" if grown > 512 << 10 else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-500:]
