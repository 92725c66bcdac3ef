"""`specs/index`: the reference reader, its vectors, and what it reads of all files."""

import ast
import hashlib
import json
import subprocess
import sys
from importlib import util
from pathlib import Path

import numpy as np
import pytest

import anychunk
from anychunk.errors import AnychunkError
from tests.support import corpus

FOLDER = Path(__file__).parents[2] / "specs/index"
VECTORS = FOLDER / "vectors"
EXPECTED = json.loads((VECTORS / "expected.json").read_text())
FORMATS = (".tif", ".tiff", ".ntf", ".nsf", ".jp2", ".j2k", ".jph", ".jnrrd", ".npy", ".n5")
MOST_FILE, MOST_ARRAY = 1 << 20, 1 << 24


def loaded():
    spec = util.spec_from_file_location("reader", FOLDER / "reader.py")
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reader = loaded()


def test_the_reader_is_short_and_needs_numpy_and_imagecodecs_alone():
    text = (FOLDER / "reader.py").read_text()
    assert len(text.splitlines()) <= 500
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module.partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"numpy", "imagecodecs"}


def test_nothing_of_ours_or_of_zarr_is_loaded():
    code = "import sys, reader; reader.read(sys.argv[1], reader.names(sys.argv[1])[0]); "
    code += "print(sorted({'zarr', 'anychunk', 'tifffile', 'numcodecs'} & set(sys.modules)))"
    command = [sys.executable, "-c", code, str(VECTORS / "deflate.json")]
    done = subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def described(array: np.ndarray) -> dict:
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    hashed = hashlib.sha256(plain.tobytes()).hexdigest()
    return {"shape": list(array.shape), "dtype": plain.dtype.str, "sha256": hashed}


@pytest.mark.parametrize("name", EXPECTED)
def test_vectors(name):
    """The reader and anychunk read what other software wrote."""
    path = VECTORS / name
    group = anychunk.open(path)
    assert set(EXPECTED[name]) <= set(reader.names(path))
    for array, expected in EXPECTED[name].items():
        assert described(reader.read(path, array)) == expected
        assert described(np.asarray(group[array][...])) == expected


@pytest.mark.parametrize("name", EXPECTED)
def test_saving_the_same_file_again_gives_the_same_references(name, tmp_path):
    """The vectors are what this release writes: chunks, codecs and pins."""
    refs = json.loads((VECTORS / name).read_text())["refs"]
    [source] = [p for p in VECTORS.iterdir() if p.stem == Path(name).stem and p.suffix != ".json"]
    anychunk.save(anychunk.index(source), tmp_path / "index.json", relative=False)
    again = json.loads((tmp_path / "index.json").read_text())["refs"]
    assert list(again) == list(refs)
    for key, value in refs.items():
        if key.endswith("zarr.json"):
            now, then = json.loads(again[key]), json.loads(value)
            assert now.get("codecs") == then.get("codecs")
            assert now.get("shape") == then.get("shape")
        elif not isinstance(value, str):
            assert again[key][1:] == value[1:]


@pytest.mark.parametrize("name", ["lzw-big-endian.json", "jpeg2000.json", "blocks-gzip.json"])
def test_boxes(name):
    rng = np.random.default_rng(0)
    for array in EXPECTED[name]:
        whole = reader.read(VECTORS / name, array)
        for _ in range(20):
            box = [sorted(rng.choice(n + 1, 2, replace=False).tolist()) for n in whole.shape]
            found = reader.read(VECTORS / name, array, box)
            np.testing.assert_array_equal(found, whole[tuple(slice(*part) for part in box)])


def test_a_changed_file_and_a_newer_index_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6))
    anychunk.save(anychunk.index(tmp_path / "a.npy"), tmp_path / "a.json")
    [name] = reader.names(tmp_path / "a.json")
    np.testing.assert_array_equal(reader.read(tmp_path / "a.json", name), np.arange(6))
    np.save(tmp_path / "a.npy", np.arange(7))
    with pytest.raises(ValueError, match="is not the file that was indexed"):
        reader.read(tmp_path / "a.json", name)
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "b.json").write_text(text.replace('\\"index\\": 1', '\\"index\\": 2'))
    with pytest.raises(NotImplementedError, match="index version 2"):
        reader.names(tmp_path / "b.json")


def files() -> list[Path]:
    """Return the files of the data set that are read: all but the large ones."""
    if not corpus.ROOT.is_dir():
        return []
    found = [p for p in sorted(corpus.ROOT.rglob("*")) if p.suffix.lower() in FORMATS]
    return [
        path
        for path in found
        if "malformed" not in path.parts
        and not any(part.endswith(".n5") for part in path.parts[:-1])
        and (path.is_dir() or path.stat().st_size <= MOST_FILE)
    ]


def compare(path: Path, index: Path) -> tuple[int, int]:
    """Return how many arrays of a file were compared, and how many the reader refuses."""
    compared = refused = 0
    try:
        anychunk.save(anychunk.index(path), index, relative=False)
        group = anychunk.open(index, allow=["*"])
    except AnychunkError:
        return 0, 0
    for name in reader.names(index):
        array = group[name] if name else group
        if array.nbytes > MOST_ARRAY:
            continue
        try:
            expected = np.asarray(array[...])
        except AnychunkError:
            continue
        try:
            found = reader.read(index, name)
        except NotImplementedError:
            refused += 1
            continue
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype or found.dtype.kind == "O"
        is_float = found.dtype.kind in "fc"
        assert np.array_equal(found, expected, equal_nan=is_float), (path, name)
        compared += 1
    return compared, refused


def total(paths: list[Path], index: Path) -> tuple[int, int]:
    counts = [compare(path, index) for path in paths]
    return sum(c for c, _ in counts), sum(r for _, r in counts)


@corpus.needs_corpus
@pytest.mark.filterwarnings("ignore")
def test_some_files_are_read_as_by_anychunk(tmp_path):
    compared, refused = total(files()[::12], tmp_path / "index.json")
    assert compared > 10 * refused


@pytest.mark.slow
@corpus.needs_corpus
@pytest.mark.filterwarnings("ignore")
def test_all_files_are_read_as_by_anychunk(tmp_path):
    compared, refused = total(files(), tmp_path / "index.json")
    assert compared > 10 * refused
